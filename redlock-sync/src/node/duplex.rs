//! The two halves of a connection behind TLS, used at the same time: one thread writes while another one reads.
//!
//! Both halves need the session. Its mutex is held only while bytes are encrypted or decrypted, never while the socket
//! waits. So a thread that waits for room to write does not block the reader. Only the writing half puts bytes on the
//! socket. Bytes that the session produces by itself, such as a key update, are sent with the next call.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::ClientConnection;

use super::link::{Broken, Halves};
use super::stream::{TimedSocket, broken};
use super::transport::halves::{Sink, Source};
use crate::clock::Tick;
use crate::sync::Mutex;

struct TlsHalf {
    session: Arc<Mutex<ClientConnection>>,
    socket: TimedSocket,
    /// Encrypted bytes to be written to the socket, or read from it.
    encrypted: Vec<u8>,
    /// How many encrypted bytes are written, or were taken by the session.
    consumed: usize,
    /// How many bytes of the caller the encrypted ones stand for, in the writing half.
    plain: usize,
}

/// Completes the handshake before the deadline, and splits the connection.
pub(super) fn behind_tls(mut session: ClientConnection, mut socket: TimedSocket, by: Tick) -> Result<Halves, Broken> {
    socket.begin(by);
    while session.is_handshaking() {
        session.complete_io(&mut socket).map_err(broken)?;
    }
    let (session, shut) = (Arc::new(Mutex::new(session)), socket.shut());
    let half = |socket| TlsHalf { session: Arc::clone(&session), socket, encrypted: Vec::new(), consumed: 0, plain: 0 };
    Ok(Halves { sink: Box::new(half(socket.clone())), source: Box::new(half(socket)), shut })
}

impl Sink for TlsHalf {
    /// Bytes count as written once the socket has all of their encrypted form.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut written = 0;
        loop {
            let rest = self.encrypted.get(self.consumed..).unwrap_or_default();
            self.consumed += Sink::write(&mut self.socket, rest)?;
            if self.consumed < self.encrypted.len() {
                return Ok(written);
            }
            written += std::mem::take(&mut self.plain);
            self.encrypted.clear();
            self.consumed = 0;
            let rest = bytes.get(written..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(written);
            }
            let mut session = self.session.lock();
            // The session takes as much as fits its buffer.
            self.plain = session.writer().write(rest).map_err(broken)?;
            while session.wants_write() {
                session.write_tls(&mut self.encrypted).map_err(broken)?;
            }
        }
    }
}

impl Source for TlsHalf {
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        self.socket.begin(until);
        loop {
            let read = self.decrypt(room)?;
            if read > 0 {
                return Ok(read);
            }
            self.encrypted.resize(READ_SIZE, 0);
            let came = self.socket.read_on(&mut self.encrypted)?;
            self.encrypted.truncate(came);
            self.consumed = 0;
            if came == 0 {
                return Ok(0);
            }
        }
    }
}

/// The number of bytes requested by one read of the socket.
const READ_SIZE: usize = 16 << 10;

impl TlsHalf {
    /// Decrypts what was read from the socket. Returns zero if more bytes are needed.
    fn decrypt(&mut self, room: &mut [u8]) -> Result<usize, Broken> {
        let mut session = self.session.lock();
        loop {
            match session.reader().read(room) {
                Ok(0) => return Err(Broken::Closed("connection closed by the server".into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map_err(broken),
            }
            let mut rest = self.encrypted.get(self.consumed..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(0);
            }
            self.consumed += session.read_tls(&mut rest).map_err(broken)?;
            session.process_new_packets().map_err(|error| broken(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        }
    }
}
