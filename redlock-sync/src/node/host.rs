//! What all connections to one server share: how to connect, and the state of the server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::cluster::slots_reply::SlotsReply;
use super::health::{Change, Health, Step};
use super::identities::{Identity, ServerIdentities};
use super::known_scripts::KnownScripts;
use super::link::{Dial, Link};
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

/// The connections to a server, for what it learns by itself.
pub(super) trait Reconnect: Send + Sync {
    /// Has a background thread open a connection. When that succeeds, the server is back.
    fn connect_another(&self);
    /// True if a connection stands and can be used.
    fn has_usable(&self) -> bool;
    /// True if the server has answered a call that was sent since then.
    fn has_answered_since(&self, then: Tick) -> bool;
}

/// One server: a node of its own, or a member of a cluster.
pub(super) struct Host {
    /// The index of its node among the nodes of the client.
    pub(super) member: usize,
    pub(super) server: Arc<dyn Dial>,
    pub(super) context: HostContext,
    pub(super) health: Health,
    /// A round has ended without its answer. Only a hint: later rounds give it less time, until it answers fast.
    is_slow: AtomicBool,
    cluster: Option<Weak<dyn SlotMapOwner>>,
    pub(super) scripts: KnownScripts,
    connections: OnceLock<Weak<dyn Reconnect>>,
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
            health: Health::default(),
            is_slow: AtomicBool::new(false),
            cluster,
            scripts: KnownScripts::default(),
            connections: OnceLock::new(),
        })
    }

    /// Sets the connections for calls.
    pub(super) fn set_connections(&self, connections: Weak<dyn Reconnect>) {
        drop(self.connections.set(connections));
    }

    fn connections(&self) -> Option<Arc<dyn Reconnect>> {
        self.connections.get().and_then(Weak::upgrade)
    }

    /// How often the master has changed. Connections from before a change are stale.
    pub(super) fn master_changes(&self) -> u64 {
        self.server.address_changes().unwrap_or(0)
    }

    /// True if a failover can move the master to another server.
    pub(super) fn can_fail_over(&self) -> bool {
        self.server.address_changes().is_some()
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The cluster to which the server belongs.
    fn cluster(&self) -> Option<Arc<dyn SlotMapOwner>> {
        self.cluster.as_ref().and_then(Weak::upgrade)
    }

    /// Records that the server did not answer. It is left out until it answers again.
    pub(super) fn record_failure(&self, step: Step, failure: &Failure) {
        if !matches!(failure.kind, FailureKind::Unreachable | FailureKind::TimedOut) {
            return;
        }
        let now = self.context.clock.now();
        let is_late = failure.kind == FailureKind::TimedOut;
        let silent_since = if is_late { now.before(self.context.settings.node_timeout) } else { now };
        if self.health.went_down(step, failure, silent_since, now) {
            self.server.suspect();
        }
        if let Some(connections) = self.connections() {
            connections.connect_another();
        }
        // Another server may have taken over the slots.
        if let Some(cluster) = self.cluster() {
            cluster.refresh_soon();
        }
    }

    /// Records that the server replied to a call, possibly with an error. A change of health is not logged yet.
    pub(super) fn note_reply(&self, call: &Call, result: &Result<Value, Failure>) {
        match result {
            Err(failure) if redis_reply::lacks_commands(failure) => self.note_refusal(Step::Acquire, failure),
            Ok(_) if call.script.purpose == Purpose::Acquire => self.note_acceptance(Step::Acquire),
            _ => self.note_acceptance(Step::Call),
        }
    }

    fn note_refusal(&self, step: Step, failure: &Failure) {
        if self.health.refused(step, &failure.message, self.context.clock.now()) {
            self.context.notify_return();
        }
    }

    fn note_acceptance(&self, step: Step) {
        if self.health.accepted(step, || self.context.clock.now()) {
            self.context.notify_return();
        }
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

    /// Like [`tell_health`](Host::tell_health), on a background thread.
    pub(super) fn tell_health_soon(self: &Arc<Self>) {
        if self.health.has_news() {
            let host = Arc::clone(self);
            self.context.jobs.after(Duration::ZERO, move || host.tell_health());
        }
    }

    /// Logs each change of health in one line, and notifies the observers. Messages of failures contain no part of a
    /// password.
    pub(super) fn tell_health(&self) {
        if !self.health.has_news() {
            return;
        }
        let (number, address) = (self.member + 1, printable(&self.server.display_address()));
        self.health.report(|change| {
            match &change {
                Change::Down(cause) => log::warn!("node {number} ({address}) does not answer: {cause}"),
                Change::Up(_) => log::info!("node {number} ({address}) answers again"),
                Change::Refuses(cause) => log::warn!("node {number} ({address}) cannot be used: {cause}"),
                Change::Accepts(_) => log::info!("node {number} ({address}) can be used again"),
            }
            // The address of the node, which does not change with a failover.
            let node = self.server.address();
            self.context.settings.observers.notify(&match &change {
                Change::Down(why) | Change::Refuses(why) => Event::NodeDown { node, why },
                Change::Up(after) | Change::Accepts(after) => Event::NodeUp { node, after: *after },
            });
        });
    }

    /// Connects within a node timeout. After a success, the caller tells a change of health, on another thread: the
    /// connection cannot be used before this returns, and an observer may use this client. A panic becomes a failure.
    /// Otherwise the attempt would count as under way for ever. rustls panics if it has no crypto provider.
    pub(super) fn connect(self: &Arc<Self>) -> Result<Link, Failure> {
        let panicked = "connecting panicked; see the panic's own message";
        let open = || caught(|| self.open()).unwrap_or_else(|_| Err(Failure::unsent(FailureKind::Misuse, panicked)));
        let opened = match open() {
            // One login that breaks says little about a server that was well.
            Err(failure) if is_lost(&failure) && !self.health.is_down() => open(),
            opened => opened,
        };
        match &opened {
            Ok(_) => self.note_acceptance(Step::LogIn),
            Err(failure) if failure.kind.is_misuse() => self.note_refusal(Step::LogIn, failure),
            // A server that answered with a refusal is not left out, so the next call reports the refusal.
            Err(failure) if failure.is_answer() => self.note_acceptance(Step::LogIn),
            Err(_) if self.is_alive() => {}
            Err(failure) => self.record_failure(Step::LogIn, failure),
        }
        if opened.is_err() {
            self.tell_health();
        }
        opened
    }

    /// As long as another connection is answered, the server is not down. It may have reached its limit of clients.
    fn is_alive(&self) -> bool {
        let lately = self.context.clock.now().before(self.context.settings.node_timeout);
        self.connections().is_some_and(|others| others.has_answered_since(lately) && others.has_usable())
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
        if self.health.is_down() {
            self.note_acceptance(Step::Call);
        }
    }

    fn open(&self) -> Result<Link, Failure> {
        let timeout = self.context.settings.node_timeout;
        let now = self.context.clock.now();
        let by = now.after(timeout);
        // Read before the dial. If the master changes meanwhile, this link is stale, which costs at most one reconnect.
        let master_changes = self.master_changes();
        let halves = self.server.dial(by, &*self.context.clock)?;
        let dialled = self.server.display_address().into_owned();
        let mut link = Link::new(halves, master_changes);
        let (identity, slots) = self.log_in(&mut link, now, by).map_err(|mut failure| {
            // A server with TLS answers plain text by an alert, or closes the connection.
            if is_lost(&failure) && !link.is_redis && self.server.is_plain_tcp() {
                failure
                    .message
                    .push_str(" (if the server at this port speaks TLS, use `rediss` in place of `redis` in the URL)");
            }
            failure
        })?;
        if self.health.is_down() {
            self.server.check_is_current(&dialled, timeout / 2)?;
        }
        if identity.master.is_none() {
            self.server.logged_in(&dialled, &identity);
        }
        self.scripts.logged_in(&identity.run_id);
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
        greeted
    }

    /// Asks for the login. A failure to get credentials says nothing about the server, so the server is not left out
    /// while another connection is good.
    fn login(&self) -> Result<Login, Failure> {
        self.server.login().map_err(|failure| {
            let has_others = self.connections().is_some_and(|others| others.has_usable());
            if has_others { Failure { kind: FailureKind::Overloaded, ..failure } } else { failure }
        })
    }
}

/// True if the server closed the connection before it answered.
fn is_lost(failure: &Failure) -> bool {
    failure.message.starts_with("connection lost while connecting")
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
