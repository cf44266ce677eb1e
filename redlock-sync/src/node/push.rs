//! The push connection: it is subscribed to one channel, and a thread that has it waits for messages.

use std::fmt;
use std::time::Duration;

use super::host::Host;
use super::link::{Broken, Connection, Link, SHORTEST};
use super::{Executed, Failure, FailureKind, Heard, Push, reply};
use crate::clock::Tick;

/// Connects, logs in as any connection does, and subscribes.
pub(super) fn subscribe(host: &Host, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
    let mut link = connect(host)?;
    let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
    link.send(&command).map_err(|broken| lost(&broken))?;
    let answer = link.receive(host.time_left(by)).map_err(|broken| lost(&broken))?;
    if let redis::Value::ServerError(error) = &answer {
        return Err(refused(reply::failure(error)));
    }
    let wire = link.take().ok_or_else(|| lost(&Broken::Cut("connection is gone".into())))?;
    Ok(Box::new(Subscribed(wire)))
}

/// Not to a server that is left out: a probe will find it back.
fn connect(host: &Host) -> Result<Link, Failure> {
    match host.breaker.outage() {
        Some(outage) => Err(outage),
        None => host.connect(host.settings.node_timeout),
    }
}

fn lost(broken: &Broken) -> Failure {
    match broken {
        Broken::TimedOut => Failure::unsent(FailureKind::TimedOut, "timed out while subscribing"),
        Broken::Interrupted => Failure::unsent(FailureKind::Unreachable, "interrupted by a signal while subscribing"),
        Broken::Cut(why) | Broken::Distrusted(why) => {
            Failure::unsent(FailureKind::Unreachable, format!("lost while subscribing: {why}"))
        }
    }
}

/// A server that does not let us subscribe has refused, whatever its words, unless that passes.
fn refused(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Transient => failure,
        _ => Failure { kind: FailureKind::Refused, executed: Executed::No, ..failure },
    }
}

/// A connection with a subscription. Dropping it closes it, without a word to the server.
struct Subscribed(Box<dyn Connection>);

impl Push for Subscribed {
    fn receive(&mut self, timeout: Duration) -> Heard {
        match self.0.set_read_timeout(timeout.max(SHORTEST)).and_then(|()| self.0.hear()) {
            Ok(message) => Heard::Message(message),
            Err(Broken::TimedOut | Broken::Interrupted) => Heard::Nothing,
            Err(Broken::Cut(why) | Broken::Distrusted(why)) => Heard::Broken(why),
        }
    }
}

impl fmt::Debug for Subscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscribed")
    }
}
