//! A connection to Redis over a socket. A deadline bounds each step as a whole, such as reading one reply. The timeouts
//! of a socket itself only bound each single read and write.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use redis::{Msg, Parser, RedisError};

use super::link::{Broken, Connection, Halves, MIN_READ_TIMEOUT, nearly};
use crate::clock::{Clock, SystemClock, Tick};

/// Shorter waits are made by `poll`. The kernel rounds the timeout of a socket up to its ticks, by 4 to 20 ms.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// The byte stream of a connection, possibly behind TLS.
pub(super) trait Transport: Read + Write + Send {
    fn socket(&mut self) -> &mut TimedSocket;

    fn split(self) -> Halves;
}

/// A connection to Redis over a byte stream.
pub(super) struct Stream<C> {
    transport: C,
    /// Keeps the part of a reply that arrived before a step timed out.
    parser: Parser,
    /// The number of replies that are due: the awaited one, and before it those whose step timed out.
    due: usize,
    /// True once a valid Redis reply was read.
    is_redis: bool,
    read_timeout: Duration,
    write_timeout: Duration,
}

impl<C: Transport> Stream<C> {
    pub(super) fn new(transport: C) -> Stream<C> {
        // The timeouts are set after the connection is made.
        let (read_timeout, write_timeout) = (MIN_READ_TIMEOUT, MIN_READ_TIMEOUT);
        Stream { transport, parser: Parser::new(), due: 0, is_redis: false, read_timeout, write_timeout }
    }

    fn read(&mut self) -> Result<redis::Value, Broken> {
        match self.parser.parse_value(&mut self.transport) {
            Ok(value) => {
                self.is_redis = true;
                Ok(value)
            }
            Err(error) if error.is_io_error() => Err(broken(&error)),
            Err(_) if self.is_redis => Err(Broken::Closed("sent data that is not a Redis reply".into())),
            Err(_) => Err(Broken::Unusable(
                "the server at this address does not speak the Redis protocol: give the port of the Redis server, \
                 and use `rediss://` if it speaks TLS"
                    .into(),
            )),
        }
    }
}

impl<C: Transport + 'static> Connection for Stream<C> {
    fn send(&mut self, commands: &[u8]) -> Result<(), Broken> {
        self.transport.socket().begin(self.write_timeout);
        self.transport.write_all(commands).map_err(|error| broken(&error.into()))
    }

    fn receive(&mut self) -> Result<redis::Value, Broken> {
        self.due += 1;
        self.transport.socket().begin(self.read_timeout);
        loop {
            let reply = self.read()?;
            self.due -= 1;
            if self.due == 0 {
                return Ok(reply);
            }
        }
    }

    fn receive_message(&mut self) -> Result<Vec<u8>, Broken> {
        self.transport.socket().begin(self.read_timeout);
        loop {
            if let Some(message) = Msg::from_owned_value(self.read()?) {
                return Ok(message.get_payload_bytes().to_vec());
            }
        }
    }

    fn set_read_timeout(&mut self, timeout: Duration) {
        self.read_timeout = timeout;
    }

    fn set_write_timeout(&mut self, timeout: Duration) {
        self.write_timeout = timeout;
    }

    fn split(self: Box<Self>) -> Halves {
        self.transport.split()
    }
}

/// A socket that keeps the deadline of the current step. A signal that interrupts a wait does not end the step.
pub(super) struct TimedSocket {
    /// Shared with the half for the other direction: see [`TimedSocket::other_direction`].
    socket: Arc<TcpStream>,
    /// The time limit of the step.
    limit: Duration,
    /// True until the first wait of the step.
    is_first_wait: bool,
    by: Tick,
    /// The deadline has passed. One more read is allowed, for bytes that have already arrived.
    has_expired: bool,
    /// The current timeouts of the socket. Zero before they are set.
    pub(super) read_timeout: Duration,
    pub(super) write_timeout: Duration,
}

impl TimedSocket {
    /// Also takes a Unix socket, which is used in the same way.
    pub(super) fn new(socket: TcpStream) -> TimedSocket {
        let (read_timeout, write_timeout) = (Duration::ZERO, Duration::ZERO);
        let (limit, by) = (Duration::ZERO, Tick::ZERO);
        let socket = Arc::new(socket);
        TimedSocket { socket, limit, is_first_wait: true, by, has_expired: false, read_timeout, write_timeout }
    }

    /// Begins a step with this time limit.
    fn begin(&mut self, within: Duration) {
        self.by = SystemClock.now().after(within);
        (self.limit, self.is_first_wait, self.has_expired) = (within, true, false);
    }

    /// A second handle to the socket, for the other direction.
    pub(super) fn other_direction(&self) -> TimedSocket {
        let (limit, by) = (Duration::ZERO, Tick::ZERO);
        let socket = Arc::clone(&self.socket);
        TimedSocket { socket, limit, by, is_first_wait: true, has_expired: false, ..*self }
    }

    /// Begins a step that only reads or only writes, until the deadline. `set` is the socket's timeout for it. The
    /// first wait may exceed the deadline by a seventh, so that this timeout rarely needs to be changed.
    pub(super) fn begin_until(&mut self, until: Tick, set: Duration) {
        let left = until.since(SystemClock.now());
        self.begin(if left <= set && nearly(left, set) { set } else { left });
        self.by = until;
    }

    /// Returns a function that closes both directions. Waiting reads and writes return then.
    pub(super) fn shut(&self) -> Box<dyn Fn() + Send + Sync> {
        let socket = Arc::clone(&self.socket);
        // An error means that the socket is closed already.
        Box::new(move || _ = socket.shutdown(Shutdown::Both))
    }

    /// The timeout of the next wait. The first wait may take the whole limit, to which the socket is set in most cases.
    fn left(&mut self) -> io::Result<Duration> {
        if mem::replace(&mut self.is_first_wait, false) {
            return Ok(self.limit.max(MIN_READ_TIMEOUT));
        }
        let left = self.by.since(SystemClock.now());
        if left.is_zero() && mem::replace(&mut self.has_expired, true) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left.max(MIN_READ_TIMEOUT))
    }
}

impl Transport for TimedSocket {
    fn socket(&mut self) -> &mut TimedSocket {
        self
    }

    fn split(self) -> Halves {
        let (source, shut) = (self.other_direction(), self.shut());
        Halves { sink: Box::new(self), source: Box::new(source), shut }
    }
}

#[cfg(feature = "tls")]
impl Transport for rustls::StreamOwned<rustls::ClientConnection, TimedSocket> {
    fn socket(&mut self) -> &mut TimedSocket {
        &mut self.sock
    }

    fn split(self) -> Halves {
        super::duplex::behind_tls(self)
    }
}

impl Read for TimedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.left()?;
            // The socket always has a timeout, in case that `poll` is wrong.
            let ready = if left < SHORT_WAIT && !self.read_timeout.is_zero() {
                wait_readable(&self.socket, left)
            } else if left != self.read_timeout {
                self.read_timeout = left;
                self.socket.set_read_timeout(Some(left))
            } else {
                Ok(())
            };
            match ready.and_then(|()| (&*self.socket).read(buffer)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
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
            if left != self.write_timeout {
                self.socket.set_write_timeout(Some(left))?;
                self.write_timeout = left;
            }
            match (&*self.socket).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Converts an error of the stream.
pub(super) fn broken(error: &RedisError) -> Broken {
    match tls_refusal(error) {
        _ if error.is_timeout() => Broken::TimedOut,
        Some(why) => Broken::Unusable(why),
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
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_our_style() {
        assert_eq!(io_text("Connection refused (os error 111)"), "connection refused");
        assert_eq!(io_text(""), "");
    }
}
