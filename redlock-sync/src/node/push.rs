//! The push connection: it is subscribed to one channel, and a thread that has it waits for messages.

use std::fmt;
use std::mem::ManuallyDrop;
use std::time::Duration;

use redis::Connection;

use super::host::Host;
use super::link::{self, Broken, Link, SHORTEST};
use super::{Executed, Failure, Heard, Push, Trouble, reply};
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
    Ok(Box::new(RedisPush(wire)))
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
        Broken::TimedOut => Failure::unsent(Trouble::TimedOut, "timed out while subscribing"),
        Broken::Interrupted => Failure::unsent(Trouble::Unreachable, "interrupted by a signal while subscribing"),
        Broken::Cut(why) | Broken::Distrusted(why) => {
            Failure::unsent(Trouble::Unreachable, format!("lost while subscribing: {why}"))
        }
    }
}

/// A server that does not let us subscribe has refused, whatever its words, unless that passes.
fn refused(failure: Failure) -> Failure {
    match failure.trouble {
        Trouble::Transient => failure,
        _ => Failure { trouble: Trouble::Refused, executed: Executed::No, ..failure },
    }
}

/// A connection with a subscription. Dropping it closes the socket, without a word to the server.
struct RedisPush(Box<Connection>);

impl Push for RedisPush {
    /// By `PubSub::get_message`, as a time-out there leaves no reply to skip. The `PubSub` itself keeps nothing from one call to the next; its
    /// destructor would unsubscribe and wait for the server.
    fn receive(&mut self, patience: Duration) -> Heard {
        if let Err(error) = self.0.set_read_timeout(Some(patience.max(SHORTEST))) {
            return gone(&error);
        }
        match ManuallyDrop::new(self.0.as_pubsub()).get_message() {
            Ok(message) => Heard::Message(message.get_payload_bytes().to_vec()),
            Err(error) if error.is_timeout() || link::is_interrupted(&error) => Heard::Nothing,
            Err(error) => gone(&error),
        }
    }
}

fn gone(error: &redis::RedisError) -> Heard {
    Heard::Broken(match link::broken(error) {
        Broken::TimedOut | Broken::Interrupted => "timed out".into(),
        Broken::Cut(why) | Broken::Distrusted(why) => why,
    })
}

impl fmt::Debug for RedisPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisPush")
    }
}
