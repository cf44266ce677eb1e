//! The one seam between rounds and servers: a node dials a server ([`Dial`]); what it gets writes commands and reads replies ([`Connection`]). A socket
//! to Redis (`socket.rs`), memory (`memory/`) and the simulation are implementations; everything above is the same code.

use std::fmt;
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::{Failure, FailureKind};
use crate::clock::{Clock, Tick};
use crate::protocol::script::Needs;

/// A server that can be connected to.
pub(crate) trait Dial: Send + Sync + fmt::Display {
    /// As [`Node::address`](super::Node::address).
    fn address(&self) -> &str;

    /// The login, and the database to choose.
    fn login(&self) -> Result<RedisConnectionInfo, Failure>;

    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Box<dyn Connection>, Failure>;

    /// Whether to connect, and to be answered, can take time: then it is left to threads of its own.
    fn may_wait(&self) -> bool {
        true
    }
}

/// What carries commands to a server, in the form of the protocol, and replies back.
pub(crate) trait Connection: Send {
    /// Writes all of it. After an error the server has at most a part, which it can never execute.
    fn send(&mut self, commands: &[u8]) -> Result<(), Broken>;

    /// Reads one reply. To be called exactly once for each command sent: after a time-out its reply is skipped when it comes.
    fn receive(&mut self) -> Result<redis::Value, Broken>;

    /// Reads what is published next on the channel to which this connection is subscribed.
    fn hear(&mut self) -> Result<Vec<u8>, Broken>;

    /// How long `receive` and `hear` wait from now on.
    fn set_read_timeout(&mut self, timeout: Duration) -> Result<(), Broken>;

    /// How long `send` waits from now on.
    fn set_write_timeout(&mut self, timeout: Duration) -> Result<(), Broken>;
}

/// A read waits at least this long, so that a reply which has come already is seen.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// How an exchange on a connection ended early. The connection is of no more use for anything else.
#[derive(Debug)]
pub(crate) enum Broken {
    TimedOut,
    /// A signal came while a read waited. The reply will be skipped when it comes, so this connection brings it no more.
    Interrupted,
    /// Reset, closed, or no longer understood; with a message.
    Cut(String),
    /// TLS does not come about as the server and the certificates are set up; with a message.
    Distrusted(String),
}

impl Broken {
    /// The failure of an attempt to connect that ended in this way.
    pub(super) fn while_connecting(self) -> Failure {
        match self {
            Broken::TimedOut => Failure::unsent(FailureKind::TimedOut, "timed out while connecting"),
            Broken::Interrupted => {
                Failure::unsent(FailureKind::Unreachable, "interrupted by a signal while connecting")
            }
            Broken::Cut(why) => Failure::unsent(FailureKind::Unreachable, why),
            Broken::Distrusted(why) => Failure::unsent(FailureKind::Misuse, why),
        }
    }
}

/// A connection as a line keeps it.
pub(super) struct Link {
    /// None once it was taken out.
    wire: Option<Box<dyn Connection>>,
    /// Tells the links of a node apart.
    id: u64,
    /// Links of an earlier generation than their host's are stale.
    generation: u64,
    /// The longest a read may wait: what the socket is set to most of the time.
    longest: Duration,
    /// What the socket is set to now, so that it is told only of changes.
    read_timeout: Duration,
    poisoned: bool,
    /// For which kinds the user's permissions were found to be enough, and when, as the host counts (`Host::permissions`).
    permitted: Vec<(Needs, u64)>,
    /// Replies to so many commands come first, and are skipped.
    pub(super) owed: usize,
}

impl Link {
    /// The socket must have `longest` as its read timeout.
    pub(super) fn live(wire: Box<dyn Connection>, id: u64, generation: u64, longest: Duration) -> Link {
        let (wire, read_timeout) = (Some(wire), longest);
        Link { wire, id, generation, longest, read_timeout, poisoned: false, permitted: Vec::new(), owed: 0 }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn is_permitted(&self, needs: Needs, permissions: u64) -> bool {
        self.permitted.contains(&(needs, permissions))
    }

    pub(super) fn permit(&mut self, needs: Option<Needs>, permissions: u64) {
        self.permitted.retain(|(other, _)| Some(*other) != needs);
        self.permitted.extend(needs.map(|needs| (needs, permissions)));
    }

    pub(super) fn forget_permissions(&mut self) {
        self.permitted.clear();
    }

    /// From now on no read waits for longer.
    pub(super) fn set_longest(&mut self, longest: Duration) {
        self.longest = longest;
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_broken(&self) -> bool {
        self.poisoned
    }

    /// Keeps the link from being used again.
    pub(super) fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Takes the connection out; the link is of no more use.
    pub(super) fn take(&mut self) -> Option<Box<dyn Connection>> {
        self.poisoned = true;
        self.wire.take()
    }

    /// Writes all of `bytes`. After an error the server has at most a part, which it can never execute.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let sent = self.wire()?.send(bytes);
        self.checked(sent)
    }

    /// Reads one reply, waiting for about `left`. To be called exactly once for each command sent.
    pub(super) fn receive(&mut self, left: Duration) -> Result<redis::Value, Broken> {
        let set = self.set_read_timeout(left);
        self.checked(set)?;
        let received = self.wire()?.receive();
        self.checked(received)
    }

    /// Tells the socket only of a change that matters: most calls have nearly the whole time left.
    fn set_read_timeout(&mut self, left: Duration) -> Result<(), Broken> {
        let wanted = left.max(SHORTEST).min(self.longest);
        let wanted = if nearly(wanted, self.longest) { self.longest } else { wanted };
        if wanted == self.read_timeout || wanted < self.read_timeout && nearly(wanted, self.read_timeout) {
            return Ok(());
        }
        if let Some(wire) = &mut self.wire {
            wire.set_read_timeout(wanted)?;
            self.read_timeout = wanted;
        }
        Ok(())
    }

    fn wire(&mut self) -> Result<&mut dyn Connection, Broken> {
        match &mut self.wire {
            Some(wire) => Ok(&mut **wire),
            None => Err(Broken::Cut("connection is gone".into())),
        }
    }

    fn checked<T>(&mut self, result: Result<T, Broken>) -> Result<T, Broken> {
        self.poisoned |= result.is_err();
        result
    }
}

/// At least 7/8 of `full`.
fn nearly(part: Duration, full: Duration) -> bool {
    part >= full.saturating_sub(full / 8)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_eighths_count_as_all() {
        let ms = Duration::from_millis;
        assert!(nearly(ms(175), ms(200)) && nearly(ms(200), ms(200)) && !nearly(ms(174), ms(200)));
    }
}
