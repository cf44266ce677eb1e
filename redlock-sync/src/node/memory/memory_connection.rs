//! A connection to a server in memory. A command is executed while it is sent, so its reply is ready at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::memory_server::{MemoryServer, ServerState};
use super::{encoded, on_the_wire};
use crate::clock::{Clock, Tick};
use crate::node::link::{Broken, Connection, Dial, Halves};
use crate::node::pipes::halves::{Sink, Source};
use crate::node::{Failure, FailureKind, Login};
use crate::sync::Mutex;

pub(super) struct MemoryConnection {
    server: Arc<MemoryServer>,
    /// Identifies the connection at its server.
    id: u64,
    /// The server's epoch when the connection was made.
    epoch: u64,
    replies: VecDeque<redis::Value>,
    read_timeout: Duration,
}

impl MemoryConnection {
    fn check(&self, state: &ServerState) -> Result<(), Broken> {
        if state.epoch == self.epoch { Ok(()) } else { Err(Broken::Closed("connection reset by peer".into())) }
    }
}

impl Connection for MemoryConnection {
    fn send(&mut self, commands: &[u8]) -> Result<(), Broken> {
        let mut rest = commands;
        while !rest.is_empty() {
            self.check(&self.server.state.lock())?;
            let (words, behind) = command(rest).ok_or_else(|| Broken::Closed("protocol error".into()))?;
            self.replies.push_back(on_the_wire(self.server.execute(self.id, &words)));
            rest = behind;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<redis::Value, Broken> {
        if let Some(reply) = self.replies.pop_front() {
            return Ok(reply);
        }
        self.check(&self.server.state.lock())?;
        Err(Broken::TimedOut)
    }

    fn receive_message(&mut self) -> Result<Vec<u8>, Broken> {
        let clock = &*self.server.clock;
        let until = clock.now().after(self.read_timeout);
        let mut state = self.server.state.lock();
        loop {
            self.check(&state)?;
            if let Some(message) = state.inboxes.get_mut(&self.id).and_then(|inbox| inbox.messages.pop_front()) {
                return Ok(message);
            }
            if clock.now() >= until {
                return Err(Broken::TimedOut);
            }
            clock.wait_until(&self.server.changed, &mut state, until);
        }
    }

    fn set_read_timeout(&mut self, timeout: Duration) {
        self.read_timeout = timeout;
    }

    fn split(self: Box<Self>) -> Halves {
        let both = Arc::new(Mutex::new((*self, VecDeque::new())));
        let half = || Box::new(MemoryHalf(Arc::clone(&both)));
        Halves { sink: half(), source: half(), shut: Box::new(|| {}) }
    }
}

/// One half of a connection. Commands are executed while they are written, and their replies are read as bytes.
struct MemoryHalf(Arc<Mutex<(MemoryConnection, VecDeque<u8>)>>);

impl Sink for MemoryHalf {
    fn write(&mut self, bytes: &[u8], _: Tick) -> Result<(), Broken> {
        let mut ends = self.0.lock();
        let (connection, read) = &mut *ends;
        connection.send(bytes)?;
        for reply in connection.replies.drain(..) {
            read.extend(encoded(&reply));
        }
        Ok(())
    }
}

impl Source for MemoryHalf {
    fn read(&mut self, room: &mut [u8], _: Tick) -> Result<usize, Broken> {
        let mut ends = self.0.lock();
        let (connection, read) = &mut *ends;
        if read.is_empty() {
            connection.check(&connection.server.state.lock())?;
        }
        let bytes = room.len().min(read.len());
        for (byte, room) in read.drain(..bytes).zip(room) {
            *room = byte;
        }
        Ok(bytes)
    }
}

impl Dial for MemoryServer {
    fn address(&self) -> &str {
        &self.address
    }

    fn login(&self) -> Result<Login, Failure> {
        Ok(self.login.clone().into())
    }

    fn dial(&self, _: Tick, _: &dyn Clock) -> Result<Box<dyn Connection>, Failure> {
        let refused = || Failure::unsent(FailureKind::Unreachable, "connection refused");
        let mut state = self.state.lock();
        let server = self.this.upgrade().filter(|_| !state.is_away).ok_or_else(refused)?;
        state.connections += 1;
        let (id, epoch) = (state.connections, state.epoch);
        Ok(Box::new(MemoryConnection { server, id, epoch, replies: VecDeque::new(), read_timeout: Duration::ZERO }))
    }

    fn may_wait(&self) -> bool {
        false
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.server.hang_up(self.id);
    }
}

/// The words of the first command of a packet, and the rest of the packet.
pub(crate) fn command(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (words, mut rest) = length(bytes, b'*')?;
    let mut command = Vec::with_capacity(words.min(bytes.len()));
    for _ in 0..words {
        let (long, behind) = length(rest, b'$')?;
        let (word, behind) = behind.split_at_checked(long)?;
        command.push(word);
        rest = behind.strip_prefix(b"\r\n")?;
    }
    Some((command, rest))
}

/// Parses a line with this mark and a number. Returns the number and the rest.
fn length(bytes: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let line = bytes.iter().position(|&byte| byte == b'\r')?;
    let (head, rest) = bytes.split_at_checked(line)?;
    let digits = head.strip_prefix(&[mark])?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest.strip_prefix(b"\r\n")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_one_after_the_other() {
        let packet = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$0\r\n\r\n";
        let (words, rest) = command(packet).unwrap();
        assert_eq!(words, [&b"GET"[..], b"a\r\nb"]);
        assert_eq!(command(rest), Some((vec![&b""[..]], &b""[..])));
    }

    #[test]
    fn what_is_no_command_is_none() {
        for bytes in
            ["", "GET a\r\n", "*1\r\n$3\r\nGE", "*1\r\n$x\r\nGET\r\n", "*-1\r\n", "*2\r\n$1\r\na\r\n", "*1\r\n$1\r\nab"]
        {
            assert_eq!(command(bytes.as_bytes()), None, "{bytes:?}");
        }
    }
}
