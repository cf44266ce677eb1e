//! The interface between rounds and servers. A node dials a server ([`Dial`]) and gets the [`Halves`] of a connection,
//! which write commands and read replies. Sockets (`socket.rs`), memory (`memory/`) and the simulation implement both.
//! All code above is the same for the three. A [`Link`] is a connection before threads share it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use redis::Msg;

use super::identities::Identity;
use super::transport::framer::{Framer, Garbled};
pub(crate) use super::transport::halves::{Broken, Halves};
use super::{Failure, FailureKind, Login, redis_reply};
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

    /// Tells that the server shown as `_shown` has accepted a login, and is a master with this identity.
    fn logged_in(&self, _shown: &str, _identity: &Identity) {}

    /// What Sentinels say that name another master than the one in use. Can take a node timeout.
    fn disagreement(&self) -> Option<Disagreement> {
        None
    }

    /// True if commands go over TCP without TLS.
    fn is_plain_tcp(&self) -> bool {
        false
    }

    /// How long the server has been master at least. `None` if it is not in a Sentinel group.
    fn master_for(&self) -> Option<Duration> {
        None
    }

    /// The login, and the database to select.
    fn login(&self) -> Result<Login, Failure>;

    /// Connects before the deadline.
    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Halves, Failure>;

    /// True if connecting and replies can take time. Then threads of the pool connect.
    fn may_wait(&self) -> bool {
        true
    }
}

/// The Sentinels of a group disagree about the master.
pub(crate) struct Disagreement {
    /// Who names which master.
    pub(crate) text: String,
    /// More than half of the Sentinels that answer name the master that is in use.
    pub(crate) has_majority: bool,
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
            Broken::Unusable(why) => Failure::unsent(FailureKind::Denied, why),
            Broken::Tls(why) => Failure::unsent(FailureKind::Tls, why),
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

/// A connection used by one thread, which sends and then receives: during the handshake, to subscribe, and to ask a
/// Sentinel.
pub(super) struct Link {
    pub(super) halves: Halves,
    framer: Framer,
    /// True once a valid reply was read.
    pub(super) is_redis: bool,
    /// The value of [`Host::master_changes`](super::host::Host::master_changes) before the connection was made.
    pub(super) master_changes: u64,
    /// When to replace the connection, and when it must no longer be used because its login expires. `None` if the
    /// login does not expire.
    pub(super) validity: Option<(Tick, Tick)>,
}

impl Link {
    pub(super) fn new(halves: Halves, master_changes: u64) -> Link {
        Link { halves, framer: Framer::new(), is_redis: false, master_changes, validity: None }
    }

    pub(super) fn send(&mut self, commands: &[u8], by: Tick, clock: &dyn Clock) -> Result<(), Broken> {
        let mut written = 0;
        loop {
            written += self.halves.sink.write(commands.get(written..).unwrap_or_default())?;
            if written >= commands.len() {
                return Ok(());
            }
            if clock.now() >= by {
                return Err(Broken::TimedOut);
            }
            clock.sleep(MIN_READ_TIMEOUT);
        }
    }

    /// Reads one reply. Must be called once for each command sent. After an error other than a timeout,
    /// the connection cannot be used any more.
    pub(super) fn receive(&mut self, by: Tick, clock: &dyn Clock) -> Result<redis::Value, Broken> {
        self.read(by, clock, Some)
    }

    /// Reads the next message of the channel to which this connection is subscribed. Can be called again after a
    /// timeout.
    pub(super) fn receive_message(&mut self, by: Tick, clock: &dyn Clock) -> Result<Vec<u8>, Broken> {
        self.read(by, clock, |reply| Msg::from_owned_value(reply).map(|message| message.get_payload_bytes().to_vec()))
    }

    /// Reads until `take` accepts a reply.
    fn read<T>(&mut self, by: Tick, clock: &dyn Clock, take: fn(redis::Value) -> Option<T>) -> Result<T, Broken> {
        let mut is_over = false;
        loop {
            while let Some(reply) = self.framer.take_reply().map_err(|Garbled| self.garbled())? {
                let reply = redis_reply::parsed(&reply).ok_or_else(|| self.garbled())?;
                self.is_redis = true;
                if let Some(found) = take(reply) {
                    return Ok(found);
                }
            }
            if is_over {
                return Err(Broken::TimedOut);
            }
            // The read after the deadline takes what has already arrived.
            is_over = clock.now() >= by;
            let read = self.halves.source.read(self.framer.room(), by)?;
            is_over |= read == 0;
            self.framer.filled(read);
        }
    }

    /// Servers send replies of RESP3 only on request.
    fn garbled(&self) -> Broken {
        if self.is_redis || self.framer.is_at_resp3() {
            return Broken::Closed("sent data that is not a Redis reply".into());
        }
        if self.framer.is_at_tls() {
            return Broken::Tls(
                "the server at this address speaks TLS: use `rediss` in place of `redis` in the URL".into(),
            );
        }
        Broken::Unusable(
            "the server at this address does not speak the Redis protocol: give the port of the Redis server, \
             and use `rediss://` if it speaks TLS"
                .into(),
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::clock::SystemClock;
    use crate::node::transport::halves::{Sink, Source};

    /// Each read brings the next of these texts. After the last one, the connection is closed.
    struct Script(VecDeque<&'static str>);

    impl Sink for Script {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
            Ok(bytes.len())
        }
    }

    impl Source for Script {
        fn read(&mut self, room: &mut [u8], _: Tick) -> Result<usize, Broken> {
            let text = self.0.pop_front().ok_or_else(|| Broken::Closed("closed".into()))?;
            room[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        }
    }

    fn link(reads: &[&'static str]) -> Link {
        let (sink, source) = (Script(VecDeque::new()), Script(reads.iter().copied().collect()));
        Link::new(Halves { sink: Box::new(sink), source: Box::new(source), shut: Box::new(|| {}) }, 0)
    }

    const LATER: Tick = Tick::NEVER;

    #[test]
    fn one_read_after_the_deadline_takes_what_has_arrived() {
        let mut link = link(&["+a", "b\r", "\n:1\r\n:2\r\n"]);
        for _ in 0..2 {
            assert!(matches!(link.receive(Tick::ZERO, &SystemClock), Err(Broken::TimedOut)));
        }
        assert_eq!(link.receive(Tick::ZERO, &SystemClock).unwrap(), redis::Value::SimpleString("ab".into()));
        assert_eq!(link.receive(Tick::ZERO, &SystemClock).unwrap(), redis::Value::Int(1));
        assert_eq!(link.receive(Tick::ZERO, &SystemClock).unwrap(), redis::Value::Int(2));
    }

    #[test]
    fn a_stream_of_other_replies_does_not_outlast_the_deadline() {
        let mut link = link(&[":1\r\n", ":2\r\n", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"]);
        assert!(matches!(link.receive_message(Tick::ZERO, &SystemClock), Err(Broken::TimedOut)));
        assert_eq!(link.receive_message(LATER, &SystemClock).unwrap(), b"m");
    }

    #[test]
    fn only_the_first_reply_shows_that_the_server_is_not_redis() {
        for reads in [&["HTTP/1.1 400 Bad Request\r\n"][..], &["* OK IMAP\r\n"]] {
            let refused = link(reads).receive(LATER, &SystemClock).unwrap_err();
            assert!(matches!(&refused, Broken::Unusable(why) if why.contains("does not speak the Redis protocol")));
        }
        for reads in [&["\u{15}\u{3}\u{1}\0\u{2}\u{2}F"][..], &["\u{15}\u{3}"], &["\u{15}", "\u{3}\u{3}"]] {
            let refused = link(reads).receive(LATER, &SystemClock).unwrap_err();
            assert!(matches!(&refused, Broken::Tls(why) if why.contains("use `rediss`")), "{reads:?} {refused:?}");
        }
        for reads in [&["+OK\r\nHTTP/1.1\r\n"][..], &["%1\r\n+a\r\n:1\r\n"], &["*1\r\n_\r\n"], &["+OK\r\n$1\r\nabc"]] {
            let mut link = link(reads);
            let lost = link.receive(LATER, &SystemClock).and_then(|_| link.receive(LATER, &SystemClock)).unwrap_err();
            assert!(matches!(&lost, Broken::Closed(why) if why == "sent data that is not a Redis reply"), "{reads:?}");
        }
    }
}
