//! A connection that is subscribed to one channel of a server. The thread that owns it waits for messages.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::host::Host;
use super::link::{Broken, Dial, Link, MIN_READ_TIMEOUT};
use super::{Executed, Failure, FailureKind, Heard, Subscriber, redis_reply};
use crate::clock::{Clock, Tick};

/// Connects, logs in, and subscribes. A server that is left out is not dialled, because a probe finds out when it is
/// back.
pub(super) fn subscribe(host: &Arc<Host>, channel: &str, by: Tick) -> Result<ServerSubscription, Failure> {
    let lost = |broken: Broken| broken.while_doing("subscribing");
    let address_changes = host.server.address_changes();
    let mut link = host.health.outage().map_or_else(|| host.connect(), Err)?;
    host.tell_health_soon();
    let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
    let clock = Arc::clone(&host.context.clock);
    link.send(&command, by, &*clock).map_err(lost)?;
    let answer = link.receive(by, &*clock).map_err(lost)?;
    if let redis::Value::ServerError(error) = &answer {
        return Err(refused(redis_reply::failure(error)));
    }
    Ok(ServerSubscription { link, clock, server: Arc::clone(&host.server), address_changes, _others: None })
}

/// A refusal to subscribe counts as `Refused` whatever the error, unless the error may pass.
fn refused(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Transient => failure,
        _ => Failure { kind: FailureKind::Refused, executed: Executed::No, ..failure },
    }
}

/// A subscribed connection. Dropping it closes the connection without a command to the server.
pub(super) struct ServerSubscription {
    link: Link,
    clock: Arc<dyn Clock>,
    server: Arc<dyn Dial>,
    /// The value of [`Dial::address_changes`] before the connection was made.
    address_changes: Option<u64>,
    /// In a cluster, the subscriptions at the other masters. They end with this one.
    _others: Option<Arc<dyn Any + Send + Sync>>,
}

impl ServerSubscription {
    pub(super) fn with_others(self, others: Arc<dyn Any + Send + Sync>) -> ServerSubscription {
        ServerSubscription { _others: Some(others), ..self }
    }
}

impl Subscriber for ServerSubscription {
    fn receive(&mut self, timeout: Duration) -> Heard {
        let now = self.clock.now();
        if self.link.validity.is_some_and(|(_, end)| now >= end) {
            return Heard::Broken("its credentials have expired".into());
        }
        let heard = self.link.receive_message(now.after(timeout.max(MIN_READ_TIMEOUT)), &*self.clock);
        // Checked after the read: a former master that hung goes on granting locks when it wakes up.
        if self.server.address_changes() != self.address_changes {
            return Heard::Broken("another server may be the master now".into());
        }
        match heard {
            Ok(message) => Heard::Message(message),
            Err(Broken::TimedOut) => Heard::Nothing,
            Err(Broken::Closed(why) | Broken::Unusable(why) | Broken::Tls(why)) => Heard::Broken(why),
        }
    }
}

impl fmt::Debug for ServerSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscribed")
    }
}
