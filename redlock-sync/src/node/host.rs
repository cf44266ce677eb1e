//! What all connections to one server share: how to connect, and the state of the server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::breaker::Breaker;
use super::cluster::slots_reply::SlotsReply;
use super::identities::{Identity, ServerIdentities};
use super::link::{Dial, Link};
use super::status::{ServerStatus, StatusChange, Step};
use super::transport::drain::Drain;
use super::{Background, Failure, FailureKind, Login, Value, handshake, redis_reply};
use crate::clock::{Clock, Tick};
use crate::handler::caught;
use crate::names::printable;
use crate::observer::Event;
use crate::options::ClientOptions;
use crate::protocol::script::{Call, Purpose};

/// What all servers of a client share.
#[derive(Clone)]
pub(super) struct HostContext {
    pub(super) settings: ClientOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) identities: Arc<ServerIdentities>,
    /// The threads that connect.
    pub(super) background: Background,
    /// The threads for work that no caller waits for.
    pub(super) jobs: Background,
    /// Called when a node that was left out answers again. Must not wait.
    pub(super) on_return: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
    /// The thread that reads what nobody waits for.
    pub(super) drain: Arc<Drain>,
    /// The scripts that a server of this node has ever executed for this client. Each node has a set of its own.
    pub(super) served: Arc<AtomicU64>,
}

impl HostContext {
    /// Tells that a node that was left out answers again.
    pub(super) fn notify_return(&self) {
        if let Some(tell) = self.on_return.get() {
            tell();
        }
    }
}

/// The cluster of a server. It owns the slot map.
pub(super) trait SlotMapOwner: Send + Sync {
    /// Has the slot map fetched again, in the background.
    fn refresh_soon(&self);
    /// Updates the map from the reply of the server at `from`. Returns false if the reply describes another cluster.
    fn update(&self, slots: &SlotsReply, from: &str) -> bool;
}

/// One server: a node of its own, or a member of a cluster.
pub(super) struct Host {
    /// The index of its node among the nodes of the client.
    pub(super) member: usize,
    pub(super) server: Arc<dyn Dial>,
    pub(super) context: HostContext,
    pub(super) breaker: Breaker,
    status: ServerStatus,
    /// Incremented when a connection breaks. All connections made before count as stale, since a restart breaks all of
    /// them and each would fail one call.
    ///
    /// `retire_generation` raises it after `Server::connection_broke` has forgotten the server's scripts. Pairs with
    /// `Host::generation`: a call on a connection of the new generation finds them forgotten. Otherwise the call could
    /// come without a source that the restarted server lacks. A reply that is recorded late can name a script again;
    /// then the server answers NOSCRIPT.
    generation: AtomicU64,
    /// The generation of the newest connection, and when its login expires.
    logged_in: Mutex<Option<(u64, Tick)>>,
    /// A round has ended without its answer. Only a hint: later rounds give it less time, until it answers fast.
    is_slow: AtomicBool,
    cluster: Option<Weak<dyn SlotMapOwner>>,
    /// Makes a background thread open a connection. When that succeeds, the server is back.
    pub(super) reconnect: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Host {
    pub(super) fn new(
        member: usize,
        server: Arc<dyn Dial>,
        context: HostContext,
        cluster: Option<Weak<dyn SlotMapOwner>>,
    ) -> Arc<Host> {
        Arc::new(Host {
            member,
            server,
            context,
            breaker: Breaker::default(),
            status: ServerStatus::default(),
            generation: AtomicU64::new(0),
            logged_in: Mutex::default(),
            is_slow: AtomicBool::new(false),
            cluster,
            reconnect: OnceLock::new(),
        })
    }

    /// The generation of a connection that is made now. Connections of earlier generations are stale.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire) + self.server.address_changes().unwrap_or(0)
    }

    /// True if a failover can move the master to another server.
    pub(super) fn can_fail_over(&self) -> bool {
        self.server.address_changes().is_some()
    }

    /// Marks connections up to this generation as stale, after one of them broke. If the generation was raised since,
    /// nothing changes, so newer connections stay in use.
    pub(super) fn retire_generation(&self, generation: u64) {
        let Some(seen) = generation.checked_sub(self.server.address_changes().unwrap_or(0)) else { return };
        _ = self.generation.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The cluster to which the server belongs.
    fn cluster(&self) -> Option<Arc<dyn SlotMapOwner>> {
        self.cluster.as_ref().and_then(Weak::upgrade)
    }

    /// Records a failure of a call or of a connect. A failure that shows a dead server opens the breaker.
    pub(super) fn record_failure(&self, failure: &Failure, step: Step) {
        if !matches!(failure.kind, FailureKind::Unreachable | FailureKind::TimedOut) {
            return;
        }
        if !self.breaker.is_open() {
            self.server.suspect();
        }
        self.breaker.trip(failure);
        if let Some(reconnect) = self.reconnect.get() {
            reconnect();
        }
        // Another server may have taken over the slots.
        if let Some(cluster) = self.cluster() {
            cluster.refresh_soon();
        }
        self.status.down(step, &failure.message, self.context.clock.now());
        self.tell_status();
    }

    /// Records that the server replied to a call, possibly with an error. A change of status is not logged yet.
    pub(super) fn note_reply(&self, call: &Call, result: &Result<Value, Failure>) {
        self.record_answer();
        let now = || self.context.clock.now();
        _ = match result {
            Err(failure) if redis_reply::lacks_commands(failure) => {
                self.status.unusable(Step::Acquire, &failure.message, now())
            }
            Ok(_) if call.script.purpose == Purpose::Acquire => self.status.succeeded(Step::Acquire, now),
            _ => self.status.succeeded(Step::Call, now),
        };
    }

    /// True if a change of status is not logged yet.
    pub(super) fn has_news(&self) -> bool {
        self.status.has_news()
    }

    /// Adds the server's address to a failure, if the node is a cluster.
    pub(super) fn with_server(&self, mut failure: Failure) -> Failure {
        if self.is_in_cluster() {
            failure = redis_reply::in_cluster(failure);
            failure.message.push_str(" (at ");
            failure.message.push_str(self.server.address());
            failure.message.push(')');
        }
        failure
    }

    /// Like [`tell_status`](Host::tell_status), on a background thread.
    pub(super) fn tell_status_soon(self: &Arc<Self>) {
        if self.has_news() {
            let host = Arc::clone(self);
            self.context.jobs.after(Duration::ZERO, move || host.tell_status());
        }
    }

    /// Logs each change of status in one line, and notifies the observers. Messages of failures contain no part of a
    /// password.
    pub(super) fn tell_status(&self) {
        if !self.has_news() {
            return;
        }
        let (number, address) = (self.member + 1, printable(&self.server.display_address()));
        self.status.report(|change| {
            match &change {
                StatusChange::Down(cause) => log::warn!("node {number} ({address}) does not answer: {cause}"),
                StatusChange::Up(_) => log::info!("node {number} ({address}) answers again"),
                StatusChange::Unusable(cause) => log::warn!("node {number} ({address}) cannot be used: {cause}"),
                StatusChange::Usable(_) => log::info!("node {number} ({address}) can be used again"),
            }
            // The address of the node, which does not change with a failover.
            let node = self.server.address();
            self.context.settings.observers.notify(&match &change {
                StatusChange::Down(why) | StatusChange::Unusable(why) => Event::NodeDown { node, why },
                StatusChange::Up(after) | StatusChange::Usable(after) => Event::NodeUp { node, after: *after },
            });
        });
    }

    /// Connects within a node timeout. A panic becomes a failure. Otherwise the attempt would count as under way for
    /// ever. rustls panics if it has no crypto provider.
    pub(super) fn connect(self: &Arc<Self>) -> Result<Link, Failure> {
        let panicked = "connecting panicked; see the panic's own message";
        let opened = caught(|| self.open()).unwrap_or_else(|_| Err(Failure::unsent(FailureKind::Misuse, panicked)));
        match &opened {
            Ok(_) => {
                self.status.succeeded(Step::Connect, || self.context.clock.now());
                // The connection cannot be used yet, and an observer may use this client.
                self.tell_status_soon();
                // At last, since calls count on the connection from now on.
                self.record_answer();
                return opened;
            }
            Err(failure) => {
                self.record_failure(failure, Step::Connect);
                if failure.kind.is_misuse() {
                    self.status.unusable(Step::Connect, &failure.message, self.context.clock.now());
                }
                // A server that answered with a refusal is not left out, so the next call reports the refusal.
                if failure.is_answer() {
                    self.record_answer();
                }
            }
        }
        self.tell_status();
        opened
    }

    /// Marks the server as slow, after a round ended without its answer.
    pub(super) fn mark_slow(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Records that a call was answered that was sent at this time.
    pub(super) fn record_round_trip(&self, sent: Tick) {
        if self.is_slow() && self.context.clock.now().since(sent) < self.context.settings.node_timeout / 64 {
            self.is_slow.store(false, Ordering::Relaxed);
        }
        self.record_answer();
    }

    /// Records that the server answered: it is not left out any more.
    pub(super) fn record_answer(&self) {
        if self.breaker.recover() {
            self.context.notify_return();
        }
    }

    fn open(&self) -> Result<Link, Failure> {
        let timeout = self.context.settings.node_timeout;
        let now = self.context.clock.now();
        let by = now.after(timeout);
        // The generation is read before the dial. If a connection breaks meanwhile, this link counts as stale too,
        // which costs at most one reconnect.
        let generation = self.generation();
        let halves = self.server.dial(by, &*self.context.clock)?;
        let dialled = self.server.display_address().into_owned();
        let mut link = Link::new(halves, generation);
        let (identity, slots) = self.log_in(&mut link, now, by).map_err(|mut failure| {
            // A server with TLS answers plain text by an alert, or closes the connection.
            let is_closed = failure.message.starts_with("connection lost while connecting");
            if is_closed && !link.is_redis && self.server.is_plain_tcp() {
                failure
                    .message
                    .push_str(" (if the server at this port speaks TLS, use `rediss` in place of `redis` in the URL)");
            }
            failure
        })?;
        if self.breaker.outage().is_some() {
            self.server.check_is_current(&dialled, timeout / 2)?;
        }
        if identity.master.is_none() {
            self.server.logged_in(&dialled, &identity);
        }
        self.accept_greeting(identity, slots.as_ref())?;
        Ok(link)
    }

    /// Checks and records what the server said in the handshake. In a cluster, a replica is accepted too: it redirects
    /// calls to the master.
    fn accept_greeting(&self, identity: Identity, slots: Option<&SlotsReply>) -> Result<(), Failure> {
        if let Some(cluster) = self.cluster() {
            if slots.is_some_and(|slots| !cluster.update(slots, self.server.address())) {
                return Err(Failure::unsent(FailureKind::Unreachable, "now belongs to another Redis Cluster"));
            }
            let run_id = slots.and_then(SlotsReply::id).cloned().unwrap_or_default();
            self.context
                .identities
                .report_part(self.member, Identity { run_id, replid: String::new(), master: None, ..identity });
            return Ok(());
        }
        self.record_identity(identity)
    }

    /// Records which server answered. A replica is refused. In a Sentinel group that failure may pass: a failover may
    /// be under way.
    fn record_identity(&self, identity: Identity) -> Result<(), Failure> {
        let mut identity = self.context.identities.with_known_uptime(self.member, identity, self.context.clock.now());
        let master = identity.master.clone();
        let kind = if self.can_fail_over() { FailureKind::Unreachable } else { FailureKind::Replica };
        if let Some(age) = self.server.master_for().filter(|_| self.context.settings.failover_guard == Some(true)) {
            identity.was_made_master(age, self.context.clock.now());
        }
        if master.is_none() || !self.can_fail_over() {
            self.context.identities.report(self.member, identity);
        }
        master.map_or(Ok(()), |master| Err(Failure::unsent(kind, format!("is a replica of {master}"))))
    }

    /// Logs in. If the password is refused, the application is asked once more, because the password may have changed
    /// meanwhile.
    fn log_in(&self, link: &mut Link, began: Tick, by: Tick) -> Result<(Identity, Option<SlotsReply>), Failure> {
        let mut greet =
            |login: &Login| handshake::greet(link, &login.info, self.is_in_cluster(), by, &*self.context.clock);
        let mut login = self.login()?;
        let mut greeted = greet(&login);
        if login.is_from_source && greeted.as_ref().is_err_and(redis_reply::is_wrong_password) {
            login = self.login()?;
            greeted = greet(&login);
        }
        // The replacement is requested when a quarter of the time is left.
        link.validity = login.valid_for.map(|time| (began.after(time / 4 * 3), began.after(time)));
        if greeted.is_ok() {
            *self.logged_in.lock() = Some((link.generation, link.validity.map_or(Tick::NEVER, |(_, end)| end)));
        }
        greeted
    }

    /// Asks for the login. A failure to get credentials says nothing about the server, so the server is not left out
    /// while other connections are good.
    fn login(&self) -> Result<Login, Failure> {
        let is_good =
            |(generation, end): (u64, Tick)| generation == self.generation() && self.context.clock.now() < end;
        self.server.login().map_err(|failure| {
            let has_others = self.logged_in.lock().is_some_and(is_good);
            if has_others { Failure { kind: FailureKind::Overloaded, ..failure } } else { failure }
        })
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
