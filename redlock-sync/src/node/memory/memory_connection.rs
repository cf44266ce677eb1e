//! A connection to a server in memory. A command is executed while it is written, so its reply is ready at once.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use super::encoded;
use super::memory_server::{MemoryServer, ServerState};
use crate::clock::{Clock, Tick};
use crate::node::link::{Broken, Dial, Halves};
use crate::node::transport::halves::{Sink, Source};
use crate::node::{Failure, FailureKind, Login};
use crate::sync::Mutex;

/// Both halves of a connection.
struct MemoryConnection {
    server: Arc<MemoryServer>,
    /// Identifies the connection at its server.
    id: u64,
    /// The server's epoch when the connection was made.
    epoch: u64,
    /// The bytes that were not read.
    unread: Mutex<VecDeque<u8>>,
}

impl MemoryConnection {
    fn check(&self, state: &ServerState) -> Result<(), Broken> {
        if state.epoch == self.epoch { Ok(()) } else { Err(Broken::Closed("connection reset by peer".into())) }
    }
}

impl Sink for Arc<MemoryConnection> {
    fn write(&mut self, commands: &[u8]) -> Result<usize, Broken> {
        let mut rest = commands;
        while !rest.is_empty() {
            self.check(&self.server.state.lock())?;
            let (words, behind) = command(rest).ok_or_else(|| Broken::Closed("protocol error".into()))?;
            let reply = encoded(&self.server.execute(self.id, &words));
            self.unread.lock().extend(reply);
            rest = behind;
        }
        Ok(commands.len())
    }
}

impl Source for Arc<MemoryConnection> {
    /// Replies are there at once. Only messages are waited for.
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        let clock = &*self.server.clock;
        let mut state = self.server.state.lock();
        loop {
            let read = self.unread.lock().read(room).unwrap_or_default();
            if read > 0 {
                return Ok(read);
            }
            self.check(&state)?;
            let Some(inbox) = state.inboxes.get_mut(&self.id) else { return Ok(0) };
            if !inbox.messages.is_empty() {
                self.unread.lock().append(&mut inbox.messages);
            } else if clock.now() >= until {
                return Ok(0);
            } else {
                clock.wait_until(&self.server.changed, &mut state, until);
            }
        }
    }
}

impl Dial for MemoryServer {
    fn address(&self) -> &str {
        &self.address
    }

    fn login(&self) -> Result<Login, Failure> {
        Ok(redis::RedisConnectionInfo::default().into())
    }

    fn dial(&self, _: Tick, _: &dyn Clock) -> Result<Halves, Failure> {
        let refused = || Failure::unsent(FailureKind::Unreachable, "connection refused");
        let mut state = self.state.lock();
        let server = self.this.upgrade().filter(|_| !state.is_away).ok_or_else(refused)?;
        state.connections += 1;
        let (id, epoch) = (state.connections, state.epoch);
        let both = Arc::new(MemoryConnection { server, id, epoch, unread: Mutex::default() });
        Ok(Halves { sink: Box::new(Arc::clone(&both)), source: Box::new(both), shut: Box::new(|| {}) })
    }

    fn may_wait(&self) -> bool {
        false
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let mut state = self.server.state.lock();
        if state.inboxes.remove(&self.id).is_some() {
            state.count_listeners();
        }
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
