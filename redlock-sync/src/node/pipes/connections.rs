//! The connections to one server, and which of them a call goes over.
//!
//! *Order.* A server executes two calls of a client about one key in the order in which they were written. That holds
//! as long as the earlier one is unanswered on a connection in use. The reason: a call goes over the connection on
//! which a call about its key is unanswered ([`Table`]). There are two exceptions. A call may go elsewhere once a
//! release follows each acquire there ([`Pipe::is_released`]). But a release stays while the acquire of its token is
//! unanswered there. And a connection that breaks, or is closed after [`CLOSE_AFTER`] node timeouts, may leave an
//! acquire that is executed later. Its token then belongs to no lease, and lasts until its key expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::arrivals::ServerArrivals;
use super::halves::Broken;
use super::outbox::time_for_replicas;
use super::pipe::{MANY_CALLS, Pipe};
use super::supply::{MAX_OLD, NewConnection, Supply};
use super::table::{Table, UnansweredCall};
use crate::clock::Tick;
use crate::fork::ForkGuard;
use crate::node::host::Host;
use crate::node::link::Link;
use crate::protocol::script::{Call, Purpose};
use crate::sync::Mutex;

/// A connection is closed after this many node timeouts without an answer.
const CLOSE_AFTER: u32 = 8;

pub(crate) struct Connections {
    host: Arc<Host>,
    supply: Supply,
    pub(in crate::node) arrivals: ServerArrivals,
    table: Arc<Table>,
    /// When the latest call that the server has answered on any connection was written, in nanoseconds.
    ///
    /// The callback that `add` makes raises it, after `Pipe::dispatch` has updated `Pipe::oldest`. Pairs with
    /// `Connections::is_suspect` and `Connections::is_hung`, which read `Pipe::oldest` afterwards. Otherwise a
    /// connection could look suspect because of its own reply. `Connections::has_answered_since` compares only the
    /// time.
    latest_reply: Arc<AtomicU64>,
    /// The number of connections that calls share.
    max: usize,
    open: Mutex<OpenPipes>,
    /// The node timeout. Unlimited for a server in memory.
    node_timeout: Duration,
    fork: ForkGuard,
}

#[derive(Default)]
struct OpenPipes {
    used: Vec<PooledPipe>,
    /// Connections that do not answer, or that must not get new calls. They are still read. They are written only for
    /// calls that must follow an unanswered one there.
    old: Vec<PooledPipe>,
    last: u32,
}

#[derive(Clone)]
pub(crate) struct PooledPipe {
    number: u32,
    pub(crate) pipe: Arc<Pipe>,
    /// The value of [`Host::generation`] before the connection was made.
    pub(crate) generation: u64,
    /// When to replace the connection, and when it must not get new calls because its login expires.
    validity: Option<(Tick, Tick)>,
}

impl Connections {
    pub(crate) fn new(host: &Arc<Host>, max: usize) -> Connections {
        let arrivals = host.context.arrivals.register();
        Connections {
            host: Arc::clone(host),
            supply: Supply::new(host, &arrivals, max),
            arrivals,
            table: Table::new(),
            latest_reply: Arc::default(),
            max: max.max(1),
            open: Mutex::default(),
            // Nodes in memory answer without waiting, so no call is late, however far a test advances the clock.
            node_timeout: if host.server.may_wait() { host.context.settings.node_timeout } else { Duration::MAX },
            fork: ForkGuard::new(),
        }
    }

    /// Picks a connection for a call, and counts the call as unanswered. If there is none, orders a connection and
    /// returns `None`.
    ///
    /// `prompt`: the connection must answer promptly. But a release must follow the unanswered calls about its key,
    /// even on a slow connection. `preferred`: a connection to use if possible, so that several calls travel in one
    /// packet. `now`: the time that the caller has just read.
    pub(crate) fn choose(
        &self,
        call: &Call,
        prompt: bool,
        preferred: Option<&Arc<Pipe>>,
        now: Tick,
    ) -> Option<(UnansweredCall, PooledPipe)> {
        let mut open = self.open.lock();
        self.maintain(&mut open, now);
        let group = Table::group_of(call.first_key().unwrap_or_default());
        let is_release = call.script.purpose == Purpose::Release;
        let found = self.table.count(group, |busy| {
            match self.pipe_of_group(&open, busy, group, call, now) {
                Some(one) => Some(one).filter(|one| is_release || !prompt || !self.is_slow(&one.pipe, now)),
                None => self.choose_usable(&open, prompt, preferred, now),
            }
            .map(|one| (one.number, one.clone()))
        });
        if found.is_none() || open.used.len() < self.max && open.used.iter().all(|one| one.pipe.reader_waits(now)) {
            self.order(&mut open, now);
        }
        found
    }

    /// The connection with unanswered calls of this group, which has the number `busy`. The group must stay on it while
    /// an acquire there has no release behind it. Otherwise the group leaves the connection once it is slow or old. A
    /// release never leaves the unanswered acquire of its token. Over another connection, it could find no token yet,
    /// and the release behind the acquire can still be lost.
    fn pipe_of_group<'a>(
        &self,
        open: &'a OpenPipes,
        busy: Option<u32>,
        group: usize,
        call: &Call,
        now: Tick,
    ) -> Option<&'a PooledPipe> {
        let is_it = |one: &&PooledPipe| Some(one.number) == busy && !one.pipe.is_closed();
        let released = call.token.as_ref().filter(|_| call.script.purpose == Purpose::Release);
        let is_bound = |one: &&PooledPipe| {
            !one.pipe.is_released(Some(group)) || released.is_some_and(|token| one.pipe.may_set(token.as_str()))
        };
        let used = open.used.iter().find(is_it).filter(|one| !self.is_slow(&one.pipe, now) || is_bound(one));
        used.or_else(|| open.old.iter().find(is_it).filter(is_bound))
    }

    /// True if a call there has been unanswered for a quarter of a node timeout.
    fn is_slow(&self, pipe: &Pipe, now: Tick) -> bool {
        pipe.is_late(self.node_timeout / 4, now)
    }

    /// Chooses a connection: the preferred one, if usable. Else an idle one, so that each of few calls has its own. If
    /// there are many calls, the first one that answers promptly, because large packets cost the server and the threads
    /// less. Else the one with the fewest calls.
    fn choose_usable<'a>(
        &self,
        open: &'a OpenPipes,
        prompt: bool,
        preferred: Option<&Arc<Pipe>>,
        now: Tick,
    ) -> Option<&'a PooledPipe> {
        let is_slow = |one: &PooledPipe| self.is_slow(&one.pipe, now);
        let fits = |one: &&PooledPipe| self.is_usable(one, now) && !(prompt && is_slow(one));
        let usable = || open.used.iter().filter(fits);
        let wanted = || usable().find(|one| preferred.is_some_and(|pipe| Arc::ptr_eq(pipe, &one.pipe)));
        let many = open.used.iter().map(|one| one.pipe.len()).sum::<usize>() >= MANY_CALLS;
        let takes = |one: &&PooledPipe| one.pipe.len() == 0 || many && !one.pipe.reader_waits(now) && !is_slow(one);
        wanted().or_else(|| usable().find(takes)).or_else(|| usable().min_by_key(|one| (is_slow(one), one.pipe.len())))
    }

    /// True if the connection may get new calls.
    fn is_usable(&self, one: &PooledPipe, now: Tick) -> bool {
        let has_run_out = one.validity.is_some_and(|(_, end)| now >= end);
        one.generation >= self.host.generation() && !has_run_out
    }

    /// True if a call that may set this token is unanswered.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        self.all().iter().any(|pipe| pipe.may_set(token))
    }

    /// True if a call there has been unanswered for this many node timeouts.
    fn is_late(&self, pipe: &Pipe, timeouts: u32, now: Tick) -> bool {
        pipe.is_late(self.node_timeout.saturating_mul(timeouts), now)
    }

    /// True if only this connection does not answer: another one has answered a call that was written later.
    fn is_suspect(&self, pipe: &Pipe, now: Tick) -> bool {
        // Read before `oldest`: a reply that comes meanwhile on this connection must not count as one of another.
        let latest = self.latest_reply.load(Ordering::Acquire);
        let oldest = pipe.oldest();
        self.is_late(pipe, 1, now) && latest > oldest
    }

    /// True if the server hangs: a call has been unanswered for a node timeout, and no connection has answered a call
    /// that was written later.
    pub(crate) fn is_hung(&self) -> bool {
        // If the latest answered call was written within a node timeout, each late call was written before it.
        let latest = self.latest_reply.load(Ordering::Acquire);
        let now = self.host.context.clock.now();
        if now.since(Tick::from_nanos(latest)) < self.node_timeout {
            return false;
        }
        let open = self.open.lock();
        open.used.iter().any(|one| self.is_late(&one.pipe, 1, now) && !self.is_suspect(&one.pipe, now))
    }

    /// True if the server has answered a call that was written since then.
    pub(crate) fn has_answered_since(&self, then: Tick) -> bool {
        self.latest_reply.load(Ordering::Acquire) >= then.as_nanos()
    }

    /// True if the connection must be replaced.
    fn needs_replacement(&self, one: &PooledPipe, now: Tick) -> bool {
        let runs_out = one.validity.is_some_and(|(soon, _)| now >= soon);
        runs_out || !self.is_usable(one, now) || self.is_suspect(&one.pipe, now) || self.is_late(&one.pipe, 2, now)
    }

    /// True if there is nothing for `maintain` to do.
    fn is_up_to_date(&self, open: &OpenPipes, now: Tick) -> bool {
        let is_fine = |one: &PooledPipe| !one.pipe.is_closed() && !self.needs_replacement(one, now);
        open.old.is_empty() && open.used.iter().all(is_fine) && !self.arrivals.is_here()
    }

    /// Takes new connections into use, and replaces those that do not answer.
    fn maintain(&self, open: &mut OpenPipes, now: Tick) {
        if self.is_up_to_date(open, now) {
            return;
        }
        let OpenPipes { used, old, .. } = &mut *open;
        used.retain(|one| !one.pipe.is_closed());
        old.extend(used.extract_if(.., |one| !self.is_usable(one, now)));
        // An old connection is kept until all its calls are answered.
        for one in old.extract_if(.., |one| one.pipe.is_closed() || one.pipe.len() == 0) {
            one.pipe.close(Broken::Closed("the connection has been replaced".into()));
        }
        // If the network to the server is lost, a connection does not end by itself. Calls about its keys would go over
        // it for ever.
        let is_dead = |one: &mut PooledPipe| self.is_late(&one.pipe, CLOSE_AFTER, now);
        for one in used.extract_if(.., is_dead).chain(old.extract_if(.., is_dead)) {
            one.pipe.close(self.silent_for(CLOSE_AFTER));
        }
        self.close_surplus(open);
        if open.used.iter().any(|one| self.needs_replacement(one, now)) {
            self.order(open, now);
        }
        if self.arrivals.is_here()
            && let Some(made) = self.supply.take()
        {
            self.add(open, made, now);
        }
    }

    /// Orders another connection, which finds out whether the server answers. Does nothing if another thread is picking
    /// a connection, because that thread does the same.
    pub(crate) fn connect_another(&self) {
        if let Some(mut open) = self.open.try_lock() {
            let now = self.host.context.clock.now();
            self.maintain(&mut open, now);
            self.order(&mut open, now);
        }
    }

    fn order(&self, open: &mut OpenPipes, now: Tick) {
        let has_room = open.used.len() + open.old.len() < self.max + MAX_OLD;
        if has_room
            && self.arrivals.order()
            && let Some(made) = self.supply.order()
        {
            self.add(open, made, now);
        }
    }

    /// Takes a connection into use. It replaces one that does not answer, if there is one.
    fn add(&self, open: &mut OpenPipes, new: NewConnection, now: Tick) {
        let (Link { halves, generation, validity, .. }, pool_slot) = new;
        self.arrivals.taken();
        if let Some(bad) = open.used.iter().position(|one| self.needs_replacement(one, now)) {
            let bad = open.used.swap_remove(bad);
            open.old.push(bad);
        }
        self.close_surplus(open);
        let (latest_reply, host) = (Arc::clone(&self.latest_reply), Arc::clone(&self.host));
        let on_reply = move |written: Tick| {
            latest_reply.fetch_max(written.as_nanos(), Ordering::AcqRel);
            host.record_answer();
        };
        let wait = wait_command(self.host.context.settings.min_replicas_ack, self.node_timeout);
        let clock = Arc::clone(&self.host.context.clock);
        let pipe = Pipe::new(halves, pool_slot, Box::new(on_reply), clock, self.node_timeout, wait);
        open.last = open.last.wrapping_add(1);
        open.used.push(PooledPipe { number: open.last, pipe, generation, validity });
    }

    /// Closes old connections above the limit: first the oldest on which a release follows each acquire, else the
    /// oldest.
    fn close_surplus(&self, open: &mut OpenPipes) {
        while open.old.len() > MAX_OLD {
            let oldest = open.old.iter().position(|one| one.pipe.is_released(None)).unwrap_or(0);
            open.old.remove(oldest).pipe.close(self.silent_for(2));
        }
    }

    /// Why a connection is closed that has not answered for this many node timeouts.
    fn silent_for(&self, timeouts: u32) -> Broken {
        Broken::Closed(format!("did not answer for {:?}", self.node_timeout.saturating_mul(timeouts)))
    }

    /// Sends and receives what no thread waits for, at most until the deadline.
    pub(crate) fn finish(&self, until: Tick) {
        self.all().iter().for_each(|pipe| pipe.finish(until));
    }

    /// All open connections.
    pub(crate) fn all(&self) -> Vec<Arc<Pipe>> {
        let open = self.open.lock();
        open.used.iter().chain(&open.old).map(|one| Arc::clone(&one.pipe)).collect()
    }
}

/// The `WAIT` command.
fn wait_command(least: u32, node_timeout: Duration) -> Vec<u8> {
    if least == 0 {
        return Vec::new();
    }
    // A timeout of 0 would mean no limit.
    let ms = time_for_replicas(node_timeout).as_millis().max(1);
    redis::cmd("WAIT").arg(least).arg(ms.to_string()).get_packed_command()
}

impl Drop for Connections {
    /// A forked child has copies of its parent's sockets. It must not shut them down, since the parent still uses them.
    fn drop(&mut self) {
        let all = self.all();
        if self.fork.is_forked_child() {
            return std::mem::forget(all);
        }
        for pipe in all {
            pipe.close(Broken::Closed("the client was closed".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_given_a_quarter_of_a_node_timeout_to_ask_replicas() {
        let asked = |ms| String::from_utf8(wait_command(2, Duration::from_millis(ms))).unwrap();
        assert_eq!(asked(500), "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n125\r\n");
        assert!(asked(1).ends_with("$1\r\n1\r\n"));
        assert_eq!(wait_command(0, Duration::from_secs(1)), Vec::<u8>::new());
    }
}
