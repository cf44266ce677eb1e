//! A node that is one Redis server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::{InFlight, Stage};
use super::condition::During;
use super::host::Host;
use super::late::{Late, Shelf};
use super::link::{Broken, Link};
use super::manager::PooledLink;
use super::pool::{Pools, Taken};
use super::{Begun, Executed, Failure, Lane, Node, Patience, Push, Trouble, push};
use crate::clock::Tick;
use crate::script::{Call, Purpose};
use crate::token::LockId;

/// One Redis server with its connections.
pub(crate) struct RedisNode {
    pub(super) host: Arc<Host>,
    pub(super) pools: Pools,
    pub(super) late: Arc<Shelf>,
}

impl RedisNode {
    pub(super) fn new(host: Arc<Host>) -> RedisNode {
        let late = Shelf::new(Arc::clone(&host.clock), host.background.clone());
        RedisNode { pools: Pools::new(Arc::clone(&host)), late, host }
    }

    /// Writes the call. A connection that breaks here is replaced when the reply is due, so that the other nodes are not kept waiting.
    fn send<'a>(&'a self, call: &'a Call, lane: Lane, mut link: PooledLink) -> Begun<'a> {
        let sent_at = self.host.clock.now();
        let note = self.host.note_for(call, &mut link);
        let stage = match link.send_call(call, note) {
            Ok(()) => Stage::Written(link),
            Err(Broken::Cut(why) | Broken::Distrusted(why)) => {
                self.host.put_out_of_use(&mut link);
                Stage::Cut(why)
            }
            // Only a part was written, which can never be executed.
            Err(Broken::TimedOut) => return Begun::Failed(self.timed_out(sent_at, Executed::No)),
        };
        Begun::Sent(Box::new(InFlight::new(self, call, note, lane, sent_at, stage)))
    }

    /// Keeps the socket of a call whose reply did not come, if what it does late has to be undone or has to get through. `owed` is 1
    /// if no read was made for that reply, else 0.
    pub(super) fn shelve(&self, link: &mut Link, call: &Call, owed: usize) {
        let Some(wire) = link.take() else { return };
        if call.purpose != Purpose::Other {
            let is_release = call.purpose == Purpose::Release;
            self.late.keep(
                wire,
                &Late {
                    token: call.token.as_ref().map_or("", LockId::as_str),
                    lifetime: call.lifetime,
                    is_release,
                    owed,
                },
            );
        }
    }

    /// A time-out that began at `since`. A short one, of a caller in a hurry, says nothing about the node.
    pub(super) fn timed_out(&self, since: Tick, executed: Executed) -> Failure {
        let waited = self.host.clock.now().since(since);
        let failure = Failure::new(Trouble::TimedOut, executed, format!("timed out after {} ms", waited.as_millis()));
        if waited >= self.host.settings.node_timeout * 3 / 4 {
            self.host.note(&failure, During::Call);
        }
        failure
    }
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        self.host.url.address()
    }

    fn outage(&self) -> Option<Failure> {
        self.host.breaker.outage()
    }

    fn uptime(&self) -> Option<Duration> {
        self.host.roster.uptime(self.host.member, self.host.clock.now())
    }

    fn run_id(&self) -> Option<String> {
        self.host.roster.run_id(self.host.member)
    }

    fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
        push::subscribe(&self.host, channel, by)
    }

    fn begin<'a>(&'a self, call: &'a Call, lane: Lane, by: Tick, patience: Patience) -> Begun<'a> {
        // Before anything else: behind the late call there is order, on another connection there is none.
        let behind = call.purpose == Purpose::Release && self.late.send_behind(call);
        if behind && let Some(outage) = self.outage() {
            let message = format!("{}; the release was written behind the late call", outage.message);
            return Begun::Failed(Failure::new(outage.trouble, Executed::Maybe, message));
        }
        match self.pools.take(lane, by, patience) {
            Taken::Link(link) => self.send(call, lane, link),
            Taken::Nothing => Begun::Cold,
            Taken::Failed(failure) => Begun::Failed(failure),
        }
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("url", &self.host.url).field("late", &self.late).finish_non_exhaustive()
    }
}
