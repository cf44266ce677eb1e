//! A socket on which one step, such as to read a reply, has a bound in all. A socket's own time-outs bound each single
//! read and write of it.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use redis::{Msg, Parser, RedisError};

use super::link::{Broken, Connection, Halves, SHORTEST, at_the_floor, nearly};
use crate::clock::{Clock, SystemClock, Tick};

/// The bytes of a connection, perhaps behind TLS.
pub(super) trait Transport: Read + Write + Send {
    fn socket(&mut self) -> &mut TimedSocket;

    fn split(self) -> Halves;
}

/// A connection to Redis over such a transport.
pub(super) struct Stream<C> {
    transport: C,
    /// Keeps the part of a reply that has come when a step ends early.
    parser: Parser,
    /// Replies that are still due: the one that is waited for, and before it those for which a step was too short.
    due: usize,
    /// A reply has come that Redis can have written.
    is_redis: bool,
    read_timeout: Duration,
    write_timeout: Duration,
}

impl<C: Transport> Stream<C> {
    pub(super) fn new(transport: C) -> Stream<C> {
        // What opens a connection sets the time-outs.
        let (read_timeout, write_timeout) = (SHORTEST, SHORTEST);
        Stream { transport, parser: Parser::new(), due: 0, is_redis: false, read_timeout, write_timeout }
    }

    fn read(&mut self) -> Result<redis::Value, Broken> {
        match self.parser.parse_value(&mut self.transport) {
            Ok(value) => {
                self.is_redis = true;
                Ok(value)
            }
            Err(error) if error.is_io_error() => Err(self.step_failure(&error)),
            Err(_) if self.is_redis => Err(Broken::Closed("sent what is no reply of Redis".into())),
            Err(_) => Err(Broken::Unusable(
                "what listens there does not speak the protocol of Redis: give the port of the Redis server, and `rediss://` if that speaks TLS".into(),
            )),
        }
    }
}

impl<C: Transport> Stream<C> {
    /// How the step ended.
    fn step_failure(&mut self, error: &RedisError) -> Broken {
        match broken(error) {
            Broken::TimedOut if self.transport.socket().was_moving() => Broken::Slow,
            other => other,
        }
    }
}

impl<C: Transport + 'static> Connection for Stream<C> {
    fn send(&mut self, commands: &[u8]) -> Result<(), Broken> {
        self.transport.socket().begin(self.write_timeout);
        let written = self.transport.write_all(commands);
        written.map_err(|error| self.step_failure(&error.into()))
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

    fn hear(&mut self) -> Result<Vec<u8>, Broken> {
        self.transport.socket().begin(self.read_timeout);
        loop {
            if let Some(message) = Msg::from_owned_value(self.read()?) {
                return Ok(message.get_payload_bytes().to_vec());
            }
        }
    }

    fn set_read_timeout(&mut self, timeout: Duration) -> Result<(), Broken> {
        self.read_timeout = timeout;
        Ok(())
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> Result<(), Broken> {
        self.write_timeout = timeout;
        Ok(())
    }

    fn split(self: Box<Self>) -> Halves {
        self.transport.split()
    }
}

/// A socket that knows until when the step under way may wait. A signal that interrupts a wait does not end the step.
pub(super) struct TimedSocket {
    /// The other direction may be another one's: see [`TimedSocket::other_direction`].
    socket: Arc<TcpStream>,
    /// How long the step may take.
    limit: Duration,
    /// It has not waited yet.
    is_first_wait: bool,
    by: Tick,
    /// What the step has moved.
    moved: usize,
    /// The time is up. What has come already can still be read, once.
    has_expired: bool,
    /// The socket's own time-outs; zero before they are set.
    read_timeout: Duration,
    write_timeout: Duration,
}

impl TimedSocket {
    /// A Unix socket can be given as well: what is done here is the same for both.
    pub(super) fn new(socket: TcpStream) -> TimedSocket {
        let (read_timeout, write_timeout) = (Duration::ZERO, Duration::ZERO);
        let (limit, by) = (Duration::ZERO, Tick::ZERO);
        let socket = Arc::new(socket);
        TimedSocket {
            socket,
            limit,
            is_first_wait: true,
            by,
            moved: 0,
            has_expired: false,
            read_timeout,
            write_timeout,
        }
    }

    /// A step begins that may take so long.
    fn begin(&mut self, within: Duration) {
        self.by = SystemClock.now().after(within);
        (self.limit, self.is_first_wait, self.has_expired, self.moved) = (within, true, false, 0);
    }

    /// The same socket, for the other direction.
    pub(super) fn other_direction(&self) -> TimedSocket {
        let (limit, by) = (Duration::ZERO, Tick::ZERO);
        let socket = Arc::clone(&self.socket);
        TimedSocket { socket, limit, by, is_first_wait: true, moved: 0, has_expired: false, ..*self }
    }

    /// A step begins that only reads, and that may wait until then; the first wait by a seventh longer, which saves the socket most changes.
    pub(super) fn begin_reading(&mut self, until: Tick) {
        self.begin_until(until, self.read_timeout);
    }

    /// As that, of a step that only writes.
    pub(super) fn begin_writing(&mut self, until: Tick) {
        self.begin_until(until, self.write_timeout);
    }

    fn begin_until(&mut self, until: Tick, set: Duration) {
        let left = until.since(SystemClock.now());
        self.begin(if left <= set && nearly(left, set) { set } else { left });
        self.by = until;
    }

    /// Ends the connection for both directions: what waits comes back.
    pub(super) fn shut(&self) {
        // One that is closed already is what is wanted.
        _ = self.socket.shutdown(Shutdown::Both);
    }

    fn add_moved(&mut self, bytes: usize) {
        self.moved += bytes;
    }

    /// The step has moved at least an eighth of what it would have at the floor.
    fn was_moving(&self) -> bool {
        at_the_floor(self.moved) >= self.limit / 8
    }

    /// How long the next wait may take. The first one may take the limit time, which the socket is set to in most
    /// cases.
    fn left(&mut self) -> io::Result<Duration> {
        if mem::replace(&mut self.is_first_wait, false) {
            return Ok(self.limit.max(SHORTEST));
        }
        let left = self.by.since(SystemClock.now());
        if left.is_zero() && mem::replace(&mut self.has_expired, true) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left.max(SHORTEST))
    }
}

impl Transport for TimedSocket {
    fn socket(&mut self) -> &mut TimedSocket {
        self
    }

    fn split(self) -> Halves {
        let (source, shut) = (self.other_direction(), self.other_direction());
        (Box::new(self), Box::new(source), Box::new(shut))
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
            if left != self.read_timeout {
                self.socket.set_read_timeout(Some(left))?;
                self.read_timeout = left;
            }
            match (&*self.socket).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.inspect(|bytes| self.add_moved(*bytes)),
            }
        }
    }
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
                result => return result.inspect(|bytes| self.add_moved(*bytes)),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What an error of the transport means.
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

/// An I/O error's text in the style of our messages: "connection refused".
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
