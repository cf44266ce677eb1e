//! The interface between rounds and servers. A node dials a server ([`Dial`]) and gets a [`Connection`], which writes
//! commands and reads replies. Sockets (`socket.rs`), memory (`memory/`) and the simulation implement both. All code
//! above is the same for the three.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

pub(crate) use super::pipes::halves::{Broken, Halves};
use super::{Failure, FailureKind, Login};
use crate::clock::{Clock, Tick};

/// A server to which connections can be made.
pub(crate) trait Dial: Send + Sync + fmt::Display {
    /// Like [`Node::address`](super::Node::address).
    fn address(&self) -> &str;

    /// The address to show to users. For a Sentinel group it includes the last known address of the master.
    fn display_address(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.address())
    }

    /// How often the server has changed its address, or may have. `None` if it cannot change. Connections from before a
    /// change are stale. Asked before each use of a connection.
    fn address_changes(&self) -> Option<u64> {
        None
    }

    /// Tells that the server does not answer. If another server can replace it, connections from before become stale.
    fn suspect(&self) {}

    /// Checks that the server shown as `_shown` is still the master. A server that was slow to answer may have hung and
    /// been replaced without knowing it.
    fn check_is_current(&self, _shown: &str, _within: Duration) -> Result<(), Failure> {
        Ok(())
    }

    /// How long the server has been master at least. `None` if it is not in a Sentinel group.
    fn master_for(&self) -> Option<Duration> {
        None
    }

    /// The login, and the database to select.
    fn login(&self) -> Result<Login, Failure>;

    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Box<dyn Connection>, Failure>;

    /// True if connecting and replies can take time. Then threads of the pool connect.
    fn may_wait(&self) -> bool {
        true
    }
}

/// A connection that carries commands to a server and replies back, in the Redis protocol.
pub(crate) trait Connection: Send {
    /// Writes all bytes. After an error the server has at most a part, which it cannot execute.
    fn send(&mut self, commands: &[u8]) -> Result<(), Broken>;

    /// Reads one reply. Must be called once for each command sent. After a timeout, the late reply is skipped by the
    /// next call.
    fn receive(&mut self) -> Result<redis::Value, Broken>;

    /// Reads the next message of the channel to which this connection is subscribed.
    fn receive_message(&mut self) -> Result<Vec<u8>, Broken>;

    /// Sets how long `receive` and `receive_message` wait.
    fn set_read_timeout(&mut self, timeout: Duration);

    /// Sets how long `send` waits, if it can wait.
    fn set_write_timeout(&mut self, _timeout: Duration) {}

    /// Splits the connection into its two halves, which can be used at the same time. No reply may be due.
    fn split(self: Box<Self>) -> Halves;
}

/// The shortest read timeout. It suffices to see a reply that has already arrived.
pub(super) const MIN_READ_TIMEOUT: Duration = Duration::from_millis(1);

impl Broken {
    /// The failure of a step other than a call, such as subscribing. `what` names the step.
    pub(super) fn while_doing(self, what: &str) -> Failure {
        match self {
            Broken::TimedOut => Failure::unsent(FailureKind::TimedOut, format!("timed out while {what}")),
            Broken::Closed(why) => {
                Failure::unsent(FailureKind::Unreachable, format!("connection lost while {what}: {why}"))
            }
            Broken::Unusable(why) => Failure::unsent(FailureKind::Misuse, why),
        }
    }

    /// The failure of an attempt to connect.
    pub(super) fn while_connecting(self) -> Failure {
        match self {
            Broken::Closed(why) => Failure::unsent(FailureKind::Unreachable, why),
            other => other.while_doing("connecting"),
        }
    }
}

/// A connection used by one thread, which sends and then receives: during the handshake, and to subscribe.
pub(super) struct Link {
    pub(super) connection: Box<dyn Connection>,
    /// The value of [`Host::generation`](super::host::Host::generation) before the connection was made.
    pub(super) generation: u64,
    /// When to replace the connection, and when it must no longer be used because its login expires.
    pub(super) validity: Option<(Tick, Tick)>,
}

impl Link {
    /// Sets how long the login is valid. The replacement is requested when a quarter of that time is left.
    pub(super) fn limit(&mut self, began: Tick, valid_for: Duration) {
        self.validity = Some((began.after(valid_for / 4 * 3), began.after(valid_for)));
    }

    /// Reads one reply, and waits for about `left`. Must be called once for each command sent.
    pub(super) fn receive(&mut self, left: Duration) -> Result<redis::Value, Broken> {
        self.connection.set_read_timeout(left.max(MIN_READ_TIMEOUT));
        self.connection.receive()
    }
}

/// True if `part` is at least 7/8 of `full`.
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
