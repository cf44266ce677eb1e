//! The push connection: it is subscribed to one channel, and whoever has it waits for messages.

use std::error::Error;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use redis::Connection;

use super::host::{Admission, Host};
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

/// As a call connects: one attempt at a time to a server that does not answer, and what comes of it is noted.
fn connect(host: &Host) -> Result<Link, Failure> {
    let slot = match host.admit() {
        Admission::Go(slot) => slot,
        Admission::Later => return Err(Failure::unsent(Trouble::LeftOut, "another attempt to connect is under way")),
        Admission::LeftOut(outage) => return Err(outage),
    };
    let link = host.connect();
    drop(slot);
    match link.failure() {
        Some(failure) => Err(failure.clone()),
        None => Ok(link),
    }
}

fn lost(broken: &Broken) -> Failure {
    match broken {
        Broken::TimedOut => Failure::unsent(Trouble::TimedOut, "timed out while subscribing"),
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
            Err(error) if error.is_timeout() || is_interrupted(&error) => Heard::Nothing,
            Err(error) => gone(&error),
        }
    }
}

/// A read with a time-out ends with every signal that this thread handles.
fn is_interrupted(error: &redis::RedisError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

fn gone(error: &redis::RedisError) -> Heard {
    Heard::Broken(match link::broken(error) {
        Broken::TimedOut => "timed out".into(),
        Broken::Cut(why) | Broken::Distrusted(why) => why,
    })
}

impl fmt::Debug for RedisPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisPush")
    }
}
