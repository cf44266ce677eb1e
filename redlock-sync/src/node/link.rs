//! The one seam between rounds and servers: a node dials a server ([`Dial`]); what it gets writes commands and reads
//! replies ([`Connection`]). A socket to Redis (`socket.rs`), memory (`memory/`) and the simulation are
//! implementations; everything above is the same code.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

pub(crate) use super::pipes::ends::Broken;
use super::pipes::ends::{Shut, Sink, Source};
use super::{Failure, FailureKind, Login};
use crate::clock::{Clock, Tick};

/// A server that can be connected to.
pub(crate) trait Dial: Send + Sync + fmt::Display {
    /// As [`Node::address`](super::Node::address).
    fn address(&self) -> &str;

    /// The address for people. A group is shown with the address of its master as it was known last.
    fn shown(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.address())
    }

    /// How often the server was found at another address than before, or may be; nothing for one that always has the
    /// same. Connections from before are stale. Asked before each use of a connection.
    fn moves(&self) -> Option<u64> {
        None
    }

    /// It does not answer. If another one can take its place, it is not to be believed on connections from before when
    /// it goes on.
    fn suspect(&self) {}

    /// Whether the server that was shown so is still the one to use: one that took long to answer may have hung, be
    /// deposed, and not know it.
    fn is_still(&self, _shown: &str, _within: Duration) -> Result<(), Failure> {
        Ok(())
    }

    /// For how long at least the server has been the master, if it is one of a group.
    fn master_for(&self) -> Option<Duration> {
        None
    }

    /// The login, and the database to choose.
    fn login(&self) -> Result<Login, Failure>;

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

    /// Reads one reply. To be called exactly once for each command sent: after a time-out its reply is skipped when it
    /// comes.
    fn receive(&mut self) -> Result<redis::Value, Broken>;

    /// Reads what is published next on the channel to which this connection is subscribed.
    fn hear(&mut self) -> Result<Vec<u8>, Broken>;

    /// How long `receive` and `hear` wait from now on.
    fn set_read_timeout(&mut self, timeout: Duration) -> Result<(), Broken>;

    /// How long `send` waits from now on.
    fn set_write_timeout(&mut self, timeout: Duration) -> Result<(), Broken>;

    /// Its two ends, to be used at the same time; no reply is due.
    fn split(self: Box<Self>) -> Halves;
}

/// The two ends of a connection, and what closes it.
pub(crate) type Halves = (Box<dyn Sink>, Box<dyn Source>, Box<dyn Shut>);

/// How long so many bytes take at the lowest rate at which a server counts as well, 1 Mbit in a second.
pub(super) fn at_the_floor(bytes: usize) -> Duration {
    Duration::from_micros(8).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// A read waits at least this long, so that a reply which has come already is seen.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

impl Broken {
    /// The failure of what was begun on the connection and sent no call.
    pub(super) fn while_doing(self, what: &str) -> Failure {
        match self {
            Broken::TimedOut | Broken::Slow => {
                Failure::unsent(FailureKind::TimedOut, format!("timed out while {what}"))
            }
            Broken::Closed(why) => Failure::unsent(FailureKind::Unreachable, format!("lost while {what}: {why}")),
            Broken::Unusable(why) => Failure::unsent(FailureKind::Misuse, why),
        }
    }

    /// The failure of an attempt to connect that ended in this way.
    pub(super) fn while_connecting(self) -> Failure {
        match self {
            Broken::Closed(why) => Failure::unsent(FailureKind::Unreachable, why),
            other => other.while_doing("connecting"),
        }
    }
}

/// A connection on which one thread asks and is answered: while it is made, and to listen.
pub(super) struct Link {
    /// None once it was taken out.
    connection: Option<Box<dyn Connection>>,
    /// As [`Host::generation`](super::host::Host::generation) was before it was made.
    pub(super) generation: u64,
    /// From when on it shall be replaced, and from when on it must not be used: what it logged in with has run out
    /// then.
    pub(super) validity: Option<(Tick, Tick)>,
}

impl Link {
    pub(super) fn new(connection: Box<dyn Connection>, generation: u64) -> Link {
        Link { connection: Some(connection), generation, validity: None }
    }

    /// What it logged in with lasts for so long from then on. The next connection is ordered when a quarter of that is
    /// left.
    pub(super) fn limit(&mut self, began: Tick, valid_for: Duration) {
        self.validity = Some((began.after(valid_for / 4 * 3), began.after(valid_for)));
    }

    /// Takes the connection out; the link is of no more use.
    pub(super) fn take(&mut self) -> Option<Box<dyn Connection>> {
        self.connection.take()
    }

    /// Writes all of `bytes`. After an error the server has at most a part, which it can never execute.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.connection()?.send(bytes)
    }

    /// Reads one reply, waiting for about `left`. To be called exactly once for each command sent.
    pub(super) fn receive(&mut self, left: Duration) -> Result<redis::Value, Broken> {
        let connection = self.connection()?;
        connection.set_read_timeout(left.max(SHORTEST))?;
        connection.receive()
    }

    fn connection(&mut self) -> Result<&mut dyn Connection, Broken> {
        match &mut self.connection {
            Some(connection) => Ok(&mut **connection),
            None => Err(Broken::Closed("connection is gone".into())),
        }
    }
}

/// At least 7/8 of `full`.
pub(super) fn nearly(part: Duration, full: Duration) -> bool {
    part >= full.saturating_sub(full / 8)
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
