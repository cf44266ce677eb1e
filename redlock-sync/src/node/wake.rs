//! Waiting for a push: BLPOP on connections that are used for nothing else, since a blocked connection can do nothing else.
//!
//! A wait is never abandoned while the server may still serve it: what it pops for a closed socket is gone.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Popped;
use super::host::Host;
use super::link::{Broken, Link};
use crate::clock::Tick;

/// Most connections of one node on which threads wait.
const MOST: usize = 16;

/// The connections of one node on which threads wait.
pub(super) struct Wakes {
    host: Arc<Host>,
    idle: Mutex<(usize, Vec<(Link, i64)>)>,
    /// The server's ids of the connections that are blocked now.
    blocked: Mutex<HashSet<i64>>,
}

impl Wakes {
    pub(super) fn new(host: Arc<Host>) -> Wakes {
        Wakes { host, idle: Mutex::default(), blocked: Mutex::default() }
    }

    pub(super) fn pop(&self, list: &str, wait: Duration, patience: Duration) -> Popped {
        let now = self.host.clock.now();
        let (wait, patience) = (now.after(wait), now.after(patience));
        let Some((mut link, id)) = self.take() else { return Popped::Unavailable };
        self.blocked.lock().insert(id);
        let reply = self.blpop(&mut link, list, wait, patience);
        self.blocked.lock().remove(&id);
        let mut idle = self.idle.lock();
        idle.0 -= 1;
        match reply {
            Ok(reply) => {
                idle.1.push((link, id));
                envelope(reply)
            }
            Err(_) => Popped::Unavailable,
        }
    }

    fn blpop(&self, link: &mut Link, list: &str, wait: Tick, patience: Tick) -> Result<redis::Value, Broken> {
        // Zero would block for ever.
        let seconds = format!("{:.3}", self.host.time_left(wait).as_secs_f64().max(0.001));
        link.send(&redis::cmd("BLPOP").arg(list).arg(seconds).get_packed_command())?;
        link.set_longest(Duration::from_secs(3600));
        link.receive(self.host.time_left(patience))
    }

    fn take(&self) -> Option<(Link, i64)> {
        {
            let mut idle = self.idle.lock();
            if idle.0 >= MOST {
                return None;
            }
            idle.0 += 1;
            while let Some((link, id)) = idle.1.pop() {
                if !self.host.is_stale(&link) {
                    return Some((link, id));
                }
            }
        }
        let made = self.connect();
        if made.is_none() {
            self.idle.lock().0 -= 1;
        }
        made
    }

    fn connect(&self) -> Option<(Link, i64)> {
        if self.host.breaker.outage().is_some() {
            return None;
        }
        let mut link = self.host.connect(self.host.settings.node_timeout).ok()?;
        link.send(&redis::cmd("CLIENT").arg("ID").get_packed_command()).ok()?;
        let reply = link.receive(self.host.settings.node_timeout).ok()?;
        let id = if let redis::Value::Int(id) = reply { id } else { 0 };
        Some((link, id))
    }

    /// Has the server end the waits that are blocked now.
    pub(super) fn end(&self) {
        let blocked: Vec<i64> = self.blocked.lock().iter().copied().collect();
        if blocked.is_empty() {
            return;
        }
        let Ok(mut link) = self.host.connect(self.host.settings.node_timeout) else { return };
        for id in blocked {
            let unblock = redis::cmd("CLIENT").arg("UNBLOCK").arg(id).get_packed_command();
            if link.send(&unblock).and_then(|()| link.receive(self.host.settings.node_timeout)).is_err() {
                return;
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
