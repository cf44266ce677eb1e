//! Waiting for a push: BLPOP on connections that are used for nothing else, since a blocked connection can do nothing else.
//!
//! A wait is never abandoned while the server may still serve it: what it pops for a closed socket is gone.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::host::Host;
use super::link::{Broken, Link};
use super::manager::{self, LinkPool, PooledLink};
use super::pool::{Pools, Taken};
use super::{Lane, Patience, Popped};
use crate::clock::Tick;

/// The connections of one node on which threads wait.
pub(super) struct Wakes {
    host: Arc<Host>,
    pool: OnceLock<LinkPool>,
    /// The server's ids of the connections that are blocked now.
    blocked: Mutex<HashSet<i64>>,
}

/// When a wait ends.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// By the server's doing.
    wait: Tick,
    /// By ours, if the server does not answer.
    patience: Tick,
}

impl Wakes {
    pub(super) fn new(host: Arc<Host>) -> Wakes {
        Wakes { host, pool: OnceLock::new(), blocked: Mutex::default() }
    }

    /// Waits until something is pushed on the list. Making a connection is a part of the wait.
    pub(super) fn pop(&self, list: &str, wait: Duration, patience: Duration) -> Popped {
        let now = self.host.clock.now();
        let times = Times { wait: now.after(wait), patience: now.after(patience) };
        let Some(mut link) = self.take(times.patience) else { return Popped::Unavailable };
        let popped = self.pop_on(&mut link, list, times);
        popped.unwrap_or_else(|_| {
            self.host.put_out_of_use(&mut link);
            Popped::Unavailable
        })
    }

    fn pop_on(&self, link: &mut Link, list: &str, times: Times) -> Result<Popped, Broken> {
        let id = self.client_id(link, times.patience)?;
        self.blocked.lock().insert(id);
        let reply = self.blpop(link, list, times);
        self.blocked.lock().remove(&id);
        Ok(envelope(reply?))
    }

    fn blpop(&self, link: &mut Link, list: &str, times: Times) -> Result<redis::Value, Broken> {
        // Zero would block for ever.
        let seconds = format!("{:.3}", self.host.time_left(times.wait).as_secs_f64().max(0.001));
        link.send(&redis::cmd("BLPOP").arg(list).arg(seconds).get_packed_command())?;
        link.receive_blocking(self.host.time_left(times.patience))
    }

    /// What is left until then, and never more than a node timeout.
    fn round_left(&self, until: Tick) -> Duration {
        self.host.time_left(until).min(self.host.settings.node_timeout)
    }

    /// Asked once per connection.
    fn client_id(&self, link: &mut Link, until: Tick) -> Result<i64, Broken> {
        if let Some(id) = link.client_id {
            return Ok(id);
        }
        link.send(&redis::cmd("CLIENT").arg("ID").get_packed_command())?;
        let reply = link.receive(self.round_left(until))?;
        let id = if let redis::Value::Int(id) = reply { id } else { 0 };
        link.client_id = Some(id);
        Ok(id)
    }

    /// An idle connection, or a new one if there may be one more; no waiting for those of others.
    fn take(&self, until: Tick) -> Option<PooledLink> {
        let pool = self.own()?;
        while let Some(link) = pool.try_get() {
            if !self.host.is_stale(&link) {
                return Some(link);
            }
        }
        if pool.state().connections >= pool.max_size() || self.host.breaker.outage().is_some() {
            return None;
        }
        let link = pool.get_timeout(self.round_left(until)).ok()?;
        (!self.host.is_stale(&link)).then_some(link)
    }

    /// Their pool; none where the system starts no thread for it.
    fn own(&self) -> Option<&LinkPool> {
        if let Some(pool) = self.pool.get() {
            return Some(pool);
        }
        let pool = manager::pool(&self.host, self.host.settings.pool_size).ok()?;
        Some(self.pool.get_or_init(|| pool))
    }

    /// Has the server end the waits that are blocked now.
    pub(super) fn end(&self, pools: &Pools) {
        let blocked: Vec<i64> = self.blocked.lock().iter().copied().collect();
        let by = self.host.clock.now().after(self.host.settings.node_timeout);
        for id in blocked {
            if let Taken::Link(mut link) = pools.take(Lane::Reserved, by, Patience::Wait) {
                let unblock = redis::cmd("CLIENT").arg("UNBLOCK").arg(id).get_packed_command();
                let ended = link.send(&unblock).and_then(|()| link.receive(self.host.time_left(by)));
                if ended.is_err() {
                    self.host.put_out_of_use(&mut link);
                }
            }
        }
    }
}

fn envelope(reply: redis::Value) -> Popped {
    match reply {
        redis::Value::Nil => Popped::Nothing,
        redis::Value::Array(mut items) => match items.pop() {
            Some(redis::Value::BulkString(bytes)) => Popped::Pushed(bytes),
            _ => Popped::Unavailable,
        },
        _ => Popped::Unavailable,
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.blocked.lock().len())
    }
}
