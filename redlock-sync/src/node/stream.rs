//! A socket with deadlines, and its two halves. A deadline bounds each step as a whole, such as the handshake of TLS.
//! The timeouts of a socket itself only bound each single read and write.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use super::link::{Broken, Halves, MIN_READ_TIMEOUT};
use super::transport::halves::{Sink, Source};
use crate::clock::{Clock, SystemClock, Tick};

/// Shorter waits are made by `poll`. The kernel rounds the timeout of a socket up to its ticks, by 4 to 20 ms.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// A socket that keeps the deadline of the current step. A signal that interrupts a wait does not end the step.
#[derive(Clone)]
pub(super) struct TimedSocket {
    /// Shared with the clone for the other direction.
    socket: Arc<TcpStream>,
    /// The deadline of the step.
    by: Tick,
    /// True until the first wait of the step.
    is_first_wait: bool,
    /// The current timeouts of the socket. Zero before they are set.
    read_timeout: Duration,
    write_timeout: Duration,
}

impl TimedSocket {
    /// Also takes a Unix socket, which is used in the same way.
    pub(super) fn new(socket: TcpStream) -> TimedSocket {
        let (read_timeout, write_timeout) = (Duration::ZERO, Duration::ZERO);
        TimedSocket { socket: Arc::new(socket), by: Tick::ZERO, is_first_wait: true, read_timeout, write_timeout }
    }

    /// Begins a step with this deadline.
    pub(super) fn begin(&mut self, by: Tick) {
        (self.by, self.is_first_wait) = (by, true);
    }

    /// Returns a function that closes both directions. Waiting reads and writes return then.
    pub(super) fn shut(&self) -> Box<dyn Fn() + Send + Sync> {
        let socket = Arc::clone(&self.socket);
        // An error means that the socket is closed already.
        Box::new(move || _ = socket.shutdown(Shutdown::Both))
    }

    pub(super) fn split(self) -> Halves {
        Halves { source: Box::new(self.clone()), shut: self.shut(), sink: Box::new(self) }
    }

    /// Reads in the current step. Returns zero if its time is up.
    pub(super) fn read_on(&mut self, room: &mut [u8]) -> Result<usize, Broken> {
        match Read::read(self, room).map_err(broken) {
            Ok(0) => Err(Broken::Closed("connection closed by the server".into())),
            Err(Broken::TimedOut) => Ok(0),
            read => read,
        }
    }

    /// The time that is left for the step. The first look may come after the deadline, for bytes that have already
    /// arrived.
    fn left(&mut self) -> io::Result<Duration> {
        let left = self.by.since(SystemClock.now());
        if !mem::replace(&mut self.is_first_wait, false) && left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Sink for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match write_now(&self.socket, rest) {
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_early(&error) => break,
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(written)
    }
}

/// Writes what fits, without waiting.
#[cfg(unix)]
fn write_now(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use rustix::net::{SendFlags, send};
    Ok(send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

#[cfg(not(unix))]
fn write_now(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    socket.set_write_timeout(Some(MIN_READ_TIMEOUT))?;
    Write::write(&mut &*socket, bytes)
}

impl Source for TimedSocket {
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        self.begin(until);
        self.read_on(room)
    }
}

/// The timeout to set before a wait until the deadline. `None` if the current one serves. A timeout may end the wait a
/// little early, so that it rarely needs to be changed. Then the rest is waited for.
fn changed(set: Duration, left: Duration) -> Option<Duration> {
    (set.is_zero() || set > left || set < left / 8 * 7).then(|| (left / 16 * 15).max(MIN_READ_TIMEOUT))
}

/// True if the timeout of the socket or a signal ended the wait.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Read for TimedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.left()?;
            #[cfg(unix)]
            if left.is_zero() {
                return read_now(&self.socket, buffer);
            }
            // The socket always has a timeout, in case that `poll` is wrong.
            let ready = if left < SHORT_WAIT && !self.read_timeout.is_zero() {
                wait_readable(&self.socket, left)
            } else if let Some(timeout) = changed(self.read_timeout, left) {
                self.read_timeout = timeout;
                self.socket.set_read_timeout(Some(timeout))
            } else {
                Ok(())
            };
            match ready.and_then(|()| (&*self.socket).read(buffer)) {
                Err(error) if is_early(&error) => {}
                result => return result,
            }
        }
    }
}

/// Reads what has arrived, without waiting.
#[cfg(unix)]
fn read_now(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    use rustix::net::{RecvFlags, recv};
    match recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok((read, _)) => Ok(read),
        Err(error) if is_early(&error.into()) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until there are bytes to read.
#[cfg(unix)]
fn wait_readable(socket: &TcpStream, within: Duration) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let within = within.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&within)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        // The read returns an error of the socket.
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(unix))]
fn wait_readable(socket: &TcpStream, within: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(within))
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let left = self.left()?;
            if let Some(timeout) = changed(self.write_timeout, left) {
                self.socket.set_write_timeout(Some(timeout))?;
                self.write_timeout = timeout;
            }
            match (&*self.socket).write(bytes) {
                Err(error) if is_early(&error) => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Converts an error of the stream.
pub(super) fn broken(error: io::Error) -> Broken {
    // Each look whether something has arrived mostly ends so.
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return Broken::TimedOut;
    }
    let error = RedisError::from(error);
    match tls_refusal(&error) {
        _ if error.is_timeout() => Broken::TimedOut,
        Some(why) => Broken::Tls(why),
        None => Broken::Closed(io_text(&error.to_string())),
    }
}

#[cfg(feature = "tls")]
use super::tls::refusal as tls_refusal;

#[cfg(not(feature = "tls"))]
fn tls_refusal(_: &RedisError) -> Option<String> {
    None
}

/// The text of an I/O error in the style of the library's messages, such as "connection refused".
fn io_text(text: &str) -> String {
    let text = text.split(" (os error").next().unwrap_or(text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::node::link::Link;

    #[test]
    fn a_timeout_serves_while_it_ends_shortly_before_the_deadline() {
        let ms = Duration::from_millis;
        assert_eq!(changed(Duration::ZERO, ms(160)), Some(ms(150)));
        assert!(changed(ms(140), ms(160)).is_none() && changed(ms(160), ms(160)).is_none());
        assert!(changed(ms(139), ms(160)).is_some() && changed(ms(161), ms(160)).is_some());
    }

    #[test]
    fn a_connection_that_the_server_closed_is_told_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let mut link = Link::new(TimedSocket::new(socket).split(), 0);
        let lost = link.receive(Tick::NEVER, &SystemClock).unwrap_err().while_doing("connecting");
        assert_eq!(lost.message, "connection lost while connecting: connection closed by the server");
    }

    #[test]
    fn texts_are_in_our_style() {
        assert_eq!(io_text("Connection refused (os error 111)"), "connection refused");
        assert_eq!(io_text(""), "");
    }
}
