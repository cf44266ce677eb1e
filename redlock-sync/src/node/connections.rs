//! The connections to one server, and which of them a call goes over.
//!
//! A call goes over the connection of its key: the hash of the first key, modulo the number of connections. A call of
//! several keys goes by its first one. So a server executes two calls of a client about one key in the order in which
//! they were sent, as long as that connection lives. Only as many connections are made as are needed at the same time.
//! If a key has no connection, or its connection does not answer, the key uses another one meanwhile. Then only this
//! holds: a release follows the unanswered acquire of its token. Other calls can overtake each other. If an attempt
//! overtakes the release of a dropped guard, the client sends that release again (`Leases::release_again`).
//!
//! A connection that breaks, or is closed after [`CLOSE_AFTER`] node timeouts, may leave an acquire that is executed
//! later. Its token then belongs to no lease, and lasts until its key expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Failure;
use super::host::Host;
use super::link::Link;
use super::supply::{MAX_OLD, NewConnection, Supply};
use super::transport::connection::{Connection, Setting, time_for_replicas};
use super::transport::halves::Broken;
use super::transport::round::Round;
use crate::clock::Tick;
use crate::fork::ForkGuard;
use crate::names;
use crate::protocol::script::{Call, Purpose};
use crate::sync::{Mutex, MutexGuard};

/// A connection is closed after this many node timeouts without an answer.
const CLOSE_AFTER: u32 = 8;

pub(crate) struct Connections {
    host: Arc<Host>,
    supply: Supply,
    /// When the latest call that the server has answered on any connection was sent, in nanoseconds.
    ///
    /// The callback that `connection` makes raises it, after the connection has updated its `oldest`. Pairs with
    /// `Connections::is_suspect` and `Connections::is_hung`, which read `oldest` afterwards. Otherwise a connection
    /// could look suspect because of its own reply. `Connections::has_answered_since` compares only the time.
    latest_reply: Arc<AtomicU64>,
    /// When the latest reply came on any connection, in nanoseconds. Only a hint: it lets the replies of other
    /// connections come too, after the server or this process was stopped.
    replied_at: Arc<AtomicU64>,
    open: Mutex<OpenConnections>,
    /// The node timeout. Unlimited for a server in memory.
    node_timeout: Duration,
    fork: ForkGuard,
}

struct OpenConnections {
    /// One place for each hash of a key.
    places: Vec<Option<Arc<Connection>>>,
    /// Connections that do not answer, or that must not get new calls. They are still read. They are written only for
    /// releases that must follow an acquire there.
    old: Vec<Arc<Connection>>,
    /// Until then, a call can be unanswered on a connection that is not that of its key.
    strays_until: Tick,
    /// Connections to close, and why, once the mutex is unlocked: their callbacks may pick a connection.
    closing: Vec<(Arc<Connection>, Broken)>,
}

impl OpenConnections {
    fn new(max: usize) -> OpenConnections {
        OpenConnections { places: vec![None; max], old: Vec::new(), strays_until: Tick::ZERO, closing: Vec::new() }
    }

    fn used(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.places.iter().flatten()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.used().chain(&self.old)
    }

    fn close(&mut self, one: Arc<Connection>, why: Broken) {
        // The pool needs the place for the next connection, which may be ordered before this one is closed.
        one.give_up_place();
        self.closing.push((one, why));
    }
}

/// Closes what is to be closed, with the mutex unlocked.
fn unlock(mut open: MutexGuard<'_, OpenConnections>) {
    let closing = std::mem::take(&mut open.closing);
    drop(open);
    for (one, why) in closing {
        one.close(why);
    }
}

impl Connections {
    pub(crate) fn new(host: &Arc<Host>, max: usize) -> Connections {
        let max = max.max(1);
        Connections {
            host: Arc::clone(host),
            supply: Supply::new(host, max),
            latest_reply: Arc::default(),
            replied_at: Arc::default(),
            open: Mutex::new(OpenConnections::new(max)),
            // Nodes in memory answer without waiting, so no call is late, however far a test advances the clock.
            node_timeout: if host.server.may_wait() { host.context.settings.node_timeout } else { Duration::MAX },
            fork: ForkGuard::new(),
        }
    }

    /// Picks the connection for a call. If there is none, orders a connection and returns `None`. `prompt`: the
    /// connection must answer promptly, unless the call is a release whose acquire is unanswered there. `waiting`: the
    /// round that waits for a connection if there is none.
    pub(crate) fn choose(
        &self,
        call: &Call,
        prompt: bool,
        now: Tick,
        waiting: Option<&Arc<Round>>,
    ) -> Option<Arc<Connection>> {
        let mut open = self.open.lock();
        self.maintain(&mut open, now);
        let hash = usize::try_from(names::hash(call.first_key().unwrap_or_default()) >> 32).unwrap_or(0);
        let own = open.places.get(hash % open.places.len()).and_then(Option::as_ref);
        let is_usable = |one: &&Arc<Connection>| self.is_usable(one, now);
        let is_quick = |one: &&Arc<Connection>| self.is_usable(one, now) && !self.is_slow(one, now);
        let quick = own.filter(is_quick).or_else(|| open.used().find(is_quick));
        let any = || own.filter(is_usable).or_else(|| open.used().find(is_usable));
        let released = call.token.as_ref().filter(|_| call.script.purpose == Purpose::Release);
        let mut chosen = if prompt { quick } else { quick.or_else(any) };
        let is_own = |one: &Arc<Connection>| own.is_some_and(|own| Arc::ptr_eq(own, one));
        if let Some(token) = released
            && (now < open.strays_until || !open.old.is_empty() || !chosen.is_some_and(is_own))
        {
            let acquiring = open.all().find(|one| one.may_set(token.as_str()));
            chosen = acquiring.or(chosen);
        }
        let chosen = chosen.cloned();
        let is_stray = !chosen.as_ref().is_some_and(is_own);
        let needs_another = chosen.as_ref().is_none_or(|one| own.is_none() && one.is_being_read());
        if is_stray {
            open.strays_until = now.after(self.node_timeout.saturating_mul(CLOSE_AFTER));
        }
        if let Some(round) = waiting.filter(|_| chosen.is_none()) {
            // Nothing is missed: since the look, no thread can have taken a connection into use, because the mutex was
            // locked. What has come or failed meanwhile is found by `next_look` and `last_failure`, which the thread
            // asks after this. Registered before the order, which may have a connection at once.
            self.supply.order.register(round);
        }
        if needs_another {
            self.order(&mut open, now);
        }
        unlock(open);
        chosen
    }

    /// True if a call there has been unanswered for a quarter of a node timeout.
    fn is_slow(&self, one: &Connection, now: Tick) -> bool {
        one.is_late(self.node_timeout / 4, now)
    }

    /// True if the connection may get new calls.
    fn is_usable(&self, one: &Connection, now: Tick) -> bool {
        let has_run_out = one.validity().is_some_and(|(_, end)| now >= end);
        !one.is_closed() && one.master_changes() >= self.host.master_changes() && !has_run_out
    }

    /// True if a call that may set this token is unanswered.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        self.open.lock().all().any(|one| one.may_set(token))
    }

    /// True if a call there has been unanswered for this many node timeouts.
    fn is_late(&self, one: &Connection, timeouts: u32, now: Tick) -> bool {
        one.is_late(self.node_timeout.saturating_mul(timeouts), now)
    }

    /// True if only this connection does not answer: another one has answered a call that was sent later.
    fn is_suspect(&self, one: &Connection, now: Tick) -> bool {
        // Read before `oldest`: a reply that comes meanwhile on this connection must not count as one of another.
        let latest = self.latest_reply.load(Ordering::Acquire);
        let oldest = one.oldest();
        self.is_late(one, 1, now) && latest > oldest
    }

    /// True if the server hangs: a call has been unanswered for a node timeout, and no connection has answered a call
    /// that was sent later.
    pub(crate) fn is_hung(&self) -> bool {
        // If the latest answered call was sent within a node timeout, each late call was sent before it.
        let latest = self.latest_reply.load(Ordering::Acquire);
        let now = self.host.context.clock.now();
        let replied_at = Tick::from_nanos(self.replied_at.load(Ordering::Relaxed));
        if now.since(Tick::from_nanos(latest)) < self.node_timeout || now.since(replied_at) < self.node_timeout / 8 {
            return false;
        }
        self.open.lock().used().any(|one| self.is_late(one, 1, now) && !self.is_suspect(one, now))
    }

    /// True if the server has answered a call that was sent since then.
    pub(crate) fn has_answered_since(&self, then: Tick) -> bool {
        self.latest_reply.load(Ordering::Acquire) >= then.as_nanos()
    }

    /// True if the connection must be replaced.
    fn needs_replacement(&self, one: &Connection, now: Tick) -> bool {
        let runs_out = one.validity().is_some_and(|(soon, _)| now >= soon);
        runs_out || !self.is_usable(one, now) || self.is_suspect(one, now) || self.is_late(one, 2, now)
    }

    /// Takes new connections into use, and replaces those that do not answer.
    fn maintain(&self, open: &mut OpenConnections, now: Tick) {
        let is_fine = |one: &Arc<Connection>| !self.needs_replacement(one, now);
        if open.old.is_empty() && open.used().all(is_fine) && !self.supply.order.is_here() {
            return;
        }
        let OpenConnections { places, old, .. } = &mut *open;
        let is_dead = |one: &Arc<Connection>| self.is_late(one, CLOSE_AFTER, now);
        for place in places {
            old.extend(place.take_if(|one| !self.is_usable(one, now) || is_dead(one)));
        }
        // If the network to the server is lost, a connection does not end by itself. Calls about its keys would go over
        // it for ever.
        let is_over = |one: &mut Arc<Connection>| one.is_closed() || !one.is_busy() || is_dead(one);
        let over: Vec<_> = old.extract_if(.., is_over).collect();
        for one in over {
            let why = if is_dead(&one) { self.silent_for(CLOSE_AFTER) } else { replaced() };
            open.close(one, why);
        }
        self.close_surplus(open);
        if open.used().any(|one| self.needs_replacement(one, now)) {
            self.order(open, now);
        }
        if self.supply.order.is_here()
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
            unlock(open);
        }
    }

    /// True if a connection stands and can be used. False in memory, where `order` connects with the mutex locked.
    pub(crate) fn has_usable(&self) -> bool {
        if !self.host.server.may_wait() {
            return false;
        }
        let used: Vec<_> = self.open.lock().used().cloned().collect();
        let now = self.host.context.clock.now();
        // With the mutex unlocked, since a connection that turns out to be closed calls callbacks.
        used.iter().any(|one| {
            one.look_if_idle();
            self.is_usable(one, now)
        })
    }

    fn order(&self, open: &mut OpenConnections, now: Tick) {
        let has_room = open.all().count() < open.places.len() + MAX_OLD;
        if has_room && let Some(made) = self.supply.take_or_order() {
            self.add(open, made, now);
        }
    }

    /// Takes a connection into use: in an empty place, or in place of one that does not answer. If all are fine, it is
    /// closed.
    fn add(&self, open: &mut OpenConnections, new: NewConnection, now: Tick) {
        self.supply.order.taken();
        let made = self.connection(new);
        let needs = |place: &Option<Arc<Connection>>| place.as_ref().is_none_or(|one| self.needs_replacement(one, now));
        let bad = |place: &Option<Arc<Connection>>| place.is_some() && needs(place);
        let place = open.places.iter().position(bad).or_else(|| open.places.iter().position(needs));
        match place.and_then(|place| open.places.get_mut(place)) {
            Some(place) => open.old.extend(place.replace(made)),
            None => open.close(made, replaced()),
        }
        open.strays_until = now.after(self.node_timeout.saturating_mul(CLOSE_AFTER));
        self.close_surplus(open);
    }

    fn connection(&self, (link, pool_slot): NewConnection) -> Arc<Connection> {
        let Link { halves, master_changes, validity, .. } = link;
        let latest_reply = Arc::clone(&self.latest_reply);
        let replied_at = Arc::clone(&self.replied_at);
        let host = Arc::clone(&self.host);
        let on_reply = move |sent: Tick, now: Tick| {
            replied_at.store(now.as_nanos(), Ordering::Relaxed);
            latest_reply.fetch_max(sent.as_nanos(), Ordering::AcqRel);
            host.record_round_trip(sent);
        };
        let context = &self.host.context;
        let setting = Setting {
            clock: Arc::clone(&context.clock),
            node_timeout: self.node_timeout,
            wait: wait_command(context.settings.min_replicas_ack, self.node_timeout),
            drain: Arc::clone(&context.drain),
            on_reply: Box::new(on_reply),
            master_changes,
            validity,
        };
        Connection::new(halves, pool_slot, setting)
    }

    /// Closes the oldest connections above the limit.
    fn close_surplus(&self, open: &mut OpenConnections) {
        while open.old.len() > MAX_OLD {
            let oldest = open.old.remove(0);
            open.close(oldest, self.silent_for(2));
        }
    }

    /// Why a connection is closed that has not answered for this many node timeouts.
    fn silent_for(&self, timeouts: u32) -> Broken {
        Broken::Closed(format!("did not answer for {:?}", self.node_timeout.saturating_mul(timeouts)))
    }

    /// When a thread that waits for a connection looks again, unless its round is woken before.
    pub(crate) fn next_look(&self, now: Tick) -> Tick {
        self.supply.order.next_look(now)
    }

    /// Why the last attempt to connect failed, if no connection has come since.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        self.supply.order.last_failure()
    }

    /// All open connections.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        self.open.lock().all().cloned().collect()
    }
}

fn replaced() -> Broken {
    Broken::Closed("the connection has been replaced".into())
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
        if self.fork.is_forked_child() {
            // A thread of the parent may have had the mutex.
            let open = std::mem::replace(self.open.get_mut(), OpenConnections::new(0));
            return std::mem::forget(open);
        }
        for one in self.all() {
            one.close(Broken::Closed("the client was closed".into()));
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
