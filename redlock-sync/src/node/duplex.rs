//! The two ends of a socket, used at the same time: one thread writes and another one reads.
//!
//! Behind TLS both ends need the session. Its mutex is held while bytes are made or taken apart, and never while the socket waits: a thread that waits
//! for room to write does not keep another one from reading. Only the end that writes puts bytes on the socket; what the session has to answer by itself,
//! such as an update of its keys, goes out with the next call.

use std::io::{Read, Write};

use super::link::Broken;
use super::pipes::ends::{Shut, Sink, Source};
use super::stream::{Timed, broken};
use crate::clock::Tick;

impl Sink for Timed {
    fn write(&mut self, bytes: &[u8], by: Tick) -> Result<(), Broken> {
        self.begin_writing(by);
        self.write_all(bytes).map_err(|error| broken(&error.into()))
    }
}

impl Source for Timed {
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        self.begin_reading(until);
        match Read::read(self, room).map_err(|error| broken(&error.into())) {
            Ok(0) => Err(Broken::Cut("connection closed by the server".into())),
            Err(Broken::TimedOut) => Ok(0),
            read => read,
        }
    }
}

impl Shut for Timed {
    fn shut(&self) {
        Timed::shut(self);
    }
}

#[cfg(feature = "tls")]
pub(super) use tls::behind_tls;

#[cfg(feature = "tls")]
mod tls {
    use std::io::{self, Read, Write};
    use std::sync::Arc;

    use rustls::{ClientConnection, StreamOwned};

    use super::{Broken, Sink, Source, Tick, Timed, broken};
    use crate::node::link::Halves;
    use crate::sync::Mutex;

    struct Front {
        session: Arc<Mutex<ClientConnection>>,
        socket: Timed,
        /// What goes over the socket.
        packed: Vec<u8>,
    }

    struct Back {
        session: Arc<Mutex<ClientConnection>>,
        socket: Timed,
        /// What came over the socket, of which the session has had so much.
        packed: Vec<u8>,
        had: usize,
    }

    pub(in crate::node) fn behind_tls(stream: StreamOwned<ClientConnection, Timed>) -> Halves {
        let (session, socket) = stream.into_parts();
        let session = Arc::new(Mutex::new(session));
        let (source, shut) = (socket.beside(), socket.beside());
        let front = Front { session: Arc::clone(&session), socket, packed: Vec::new() };
        let back = Back { session, socket: source, packed: Vec::new(), had: 0 };
        (Box::new(front), Box::new(back), Box::new(shut))
    }

    impl Sink for Front {
        fn write(&mut self, mut bytes: &[u8], by: Tick) -> Result<(), Broken> {
            while !bytes.is_empty() {
                self.packed.clear();
                let taken = {
                    let mut session = self.session.lock();
                    // Not more than its buffer takes; the rest follows.
                    let taken = session.writer().write(bytes).map_err(told)?;
                    while session.wants_write() {
                        session.write_tls(&mut self.packed).map_err(told)?;
                    }
                    taken
                };
                bytes = bytes.get(taken..).unwrap_or_default();
                Sink::write(&mut self.socket, &self.packed, by)?;
            }
            Ok(())
        }
    }

    impl Source for Back {
        fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
            loop {
                let read = self.open(room)?;
                if read > 0 {
                    return Ok(read);
                }
                self.packed.resize(PIECE, 0);
                let came = Source::read(&mut self.socket, &mut self.packed, until)?;
                self.packed.truncate(came);
                self.had = 0;
                if came == 0 {
                    return Ok(0);
                }
            }
        }
    }

    /// Read from the socket at once.
    const PIECE: usize = 16 << 10;

    impl Back {
        /// What can be read of what came over the socket. Zero if more has to come.
        fn open(&mut self, room: &mut [u8]) -> Result<usize, Broken> {
            let mut session = self.session.lock();
            loop {
                match session.reader().read(room) {
                    Ok(0) => return Err(Broken::Cut("connection closed by the server".into())),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read.map_err(told),
                }
                let mut rest = self.packed.get(self.had..).unwrap_or_default();
                if rest.is_empty() {
                    return Ok(0);
                }
                self.had += session.read_tls(&mut rest).map_err(told)?;
                session
                    .process_new_packets()
                    .map_err(|error| told(io::Error::new(io::ErrorKind::InvalidData, error)))?;
            }
        }
    }

    fn told(error: io::Error) -> Broken {
        broken(&error.into())
    }
}
