//! What everything about one server shares: how to connect, and how it is doing.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::condition::{Condition, During, News, Success};
use super::health::{Breaker, FIRST_PROBE, next_pause};
use super::identities::ServerIdentities;
use super::line::Posts;
use super::link::{Broken, Dial, Link};
use super::{Background, Failure, FailureKind, NodeSettings, Value, handshake, reply};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Purpose};

/// Told when a node that was left out answers again. Must not wait.
pub(super) type Returns = OnceLock<Box<dyn Fn() + Send + Sync>>;

/// One server as a member of a client.
pub(super) struct Host {
    /// Its place among the nodes of its client.
    pub(super) member: usize,
    pub(super) server: Arc<dyn Dial>,
    pub(super) settings: NodeSettings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) identities: Arc<ServerIdentities>,
    pub(super) background: Background,
    pub(super) breaker: Breaker,
    returns: Arc<Returns>,
    condition: Condition,
    /// Raised when a connection broke: all that were made before are suspect, since after a restart each of them is dead and would fail one call.
    generation: AtomicU64,
    /// Raised when a call was refused because the user may not do something: then all earlier checks of permissions are void.
    permissions: AtomicU64,
    links_made: AtomicU64,
    /// The last attempt to connect succeeded.
    proven: AtomicBool,
    orders: Mutex<Orders>,
    this: Weak<Host>,
}

/// The lines that wait for a connection to this server.
#[derive(Default)]
struct Orders {
    waiting: Vec<Weak<Posts>>,
    /// Attempts to connect that are under way.
    dialling: usize,
}

/// How long a probe waits for the answer of a server that accepts connections: one that hangs is found again at the moment at which it goes on.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);

impl Host {
    pub(super) fn new(
        member: usize,
        server: Arc<dyn Dial>,
        settings: NodeSettings,
        clock: Arc<dyn Clock>,
        identities: Arc<ServerIdentities>,
        background: Background,
        returns: Arc<Returns>,
    ) -> Arc<Host> {
        Arc::new_cyclic(|this| Host {
            member,
            server,
            settings,
            clock,
            identities,
            background,
            breaker: Breaker::default(),
            returns,
            condition: Condition::default(),
            generation: AtomicU64::new(0),
            permissions: AtomicU64::new(0),
            links_made: AtomicU64::new(0),
            proven: AtomicBool::new(false),
            orders: Mutex::default(),
            this: this.clone(),
        })
    }

    pub(super) fn time_left(&self, by: Tick) -> Duration {
        by.since(self.clock.now())
    }

    /// True if the link was made before the last time a connection to this server broke, or is of no use for another reason.
    pub(super) fn is_stale(&self, link: &Link) -> bool {
        link.is_broken() || link.generation() < self.generation.load(Ordering::Acquire)
    }

    /// Puts the link and all older ones out of use. Links made since the last such event stay.
    pub(super) fn put_out_of_use(&self, link: &mut Link) {
        link.poison();
        let seen = link.generation();
        _ = self.generation.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// How often a refusal has made earlier checks void.
    pub(super) fn permissions(&self) -> u64 {
        self.permissions.load(Ordering::Acquire)
    }

    /// What the server's refusal of a call says of its link, and of all links.
    pub(super) fn was_refused(&self, link: &mut Link, failure: &Failure) {
        link.forget_permissions();
        if reply::lacks_permission(failure) {
            self.permissions.fetch_add(1, Ordering::AcqRel);
        }
        if reply::wants_new_connection(failure) {
            self.put_out_of_use(link);
        }
    }

    /// Notes a failure of a call or a connect; one that tells of a dead server opens the breaker.
    pub(super) fn note(&self, failure: &Failure, during: During) {
        if !matches!(failure.kind, FailureKind::Unreachable | FailureKind::TimedOut) {
            return;
        }
        self.proven.store(false, Ordering::Release);
        if self.breaker.trip(failure) {
            self.probe_after(FIRST_PROBE);
        }
        self.log(self.condition.down(during), &failure.message);
    }

    /// Notes that the server replied to a call, even if with an error.
    pub(super) fn replied(&self, call: &Call, result: &Result<Value, Failure>) {
        self.answers();
        match result {
            Err(failure) if reply::lacks_commands(failure) => {
                self.log(self.condition.unusable(During::Call, &failure.message), &failure.message);
            }
            Ok(_) if call.purpose == Purpose::Acquire => self.succeeded(Success::Acquired),
            _ => self.succeeded(Success::Answered),
        }
    }

    fn succeeded(&self, success: Success) {
        self.log(self.condition.succeeded(success), "");
    }

    /// One line for a change. Failures have no part of a password in their messages.
    fn log(&self, news: Option<News>, cause: &str) {
        let Some(news) = news else { return };
        let (number, address) = (self.member + 1, self.server.address());
        match news {
            News::Down => log::warn!("node {number} ({address}) does not answer: {cause}"),
            News::Back => log::info!("node {number} ({address}) answers again"),
            News::Unusable => log::warn!("node {number} ({address}) cannot be used: {cause}"),
            News::Usable => log::info!("node {number} ({address}) can be used again"),
        }
    }

    /// Orders a connection for a line, unless one is ordered. It comes to the line's post, or the reason why there is none.
    pub(super) fn order(&self, posts: &Arc<Posts>) {
        if !posts.order(self.member) {
            return;
        }
        if !self.server.may_wait() {
            return posts.deliver(self.member, self.connect(self.settings.node_timeout));
        }
        self.orders.lock().waiting.push(Arc::downgrade(posts));
        match self.background.threads() {
            Ok(_) => self.dial_for_orders(),
            Err(failure) => self.deliver(Err(failure)),
        }
    }

    /// Starts as many attempts as lines wait. A server that has not answered yet, or no more, gets one at a time: the threads must stay free for
    /// the others.
    fn dial_for_orders(&self) {
        while self.may_dial() {
            let this = self.this.clone();
            self.background.after(Duration::ZERO, move || {
                if let Some(host) = this.upgrade() {
                    let result = host.connect(host.settings.node_timeout);
                    host.dialled(result);
                }
            });
        }
    }

    /// True if the caller has to make one attempt now.
    fn may_dial(&self) -> bool {
        let mut orders = self.orders.lock();
        orders.waiting.retain(|posts| posts.strong_count() > 0);
        let most = if self.proven.load(Ordering::Acquire) { orders.waiting.len() } else { orders.waiting.len().min(1) };
        let may = orders.dialling < most;
        orders.dialling += usize::from(may);
        may
    }

    /// An attempt has ended.
    fn dialled(&self, result: Result<Link, Failure>) {
        self.deliver(result);
        self.orders.lock().dialling -= 1;
        self.dial_for_orders();
    }

    /// A connection goes to one line; a failure to all that wait.
    fn deliver(&self, result: Result<Link, Failure>) {
        match result {
            Ok(link) => {
                let next = self.orders.lock().waiting.pop().and_then(|posts| posts.upgrade());
                if let Some(posts) = next {
                    posts.deliver(self.member, Ok(link));
                }
            }
            Err(failure) => {
                let all = std::mem::take(&mut self.orders.lock().waiting);
                for posts in all.iter().filter_map(Weak::upgrade) {
                    posts.deliver(self.member, Err(failure.clone()));
                }
            }
        }
    }

    /// Connects: a node timeout to reach the server, and `answer_timeout` for its answers.
    pub(super) fn connect(&self, answer_timeout: Duration) -> Result<Link, Failure> {
        let opened = self.open_or_fail(answer_timeout);
        match &opened {
            Ok(_) => {
                self.proven.store(true, Ordering::Release);
                self.answers();
                self.succeeded(Success::Connected);
            }
            Err(failure) => self.refused(failure),
        }
        opened
    }

    /// A server that answers, even with a refusal, is not left out: the next call shall report the refusal.
    fn refused(&self, failure: &Failure) {
        self.note(failure, During::Connect);
        if failure.kind == FailureKind::Misuse {
            self.log(self.condition.unusable(During::Connect, &failure.message), &failure.message);
        }
        if !matches!(failure.kind, FailureKind::Unreachable | FailureKind::TimedOut) {
            self.answers();
        }
    }

    /// The node is not left out any more.
    fn answers(&self) {
        if self.breaker.recover()
            && let Some(tell) = self.returns.get()
        {
            tell();
        }
    }

    /// A panic must not pass: the attempt would count as under way for ever. rustls panics if it has no crypto provider.
    fn open_or_fail(&self, answer_timeout: Duration) -> Result<Link, Failure> {
        catch_unwind(AssertUnwindSafe(|| self.open(answer_timeout))).unwrap_or_else(|_| {
            Err(Failure::unsent(FailureKind::Misuse, "connecting panicked; see the panic's own message"))
        })
    }

    fn open(&self, answer_timeout: Duration) -> Result<Link, Failure> {
        let timeout = self.settings.node_timeout;
        let now = self.clock.now();
        let by = now.after(answer_timeout);
        // Read before the dial: a break that is noticed meanwhile makes this link stale too, which costs a reconnect at worst.
        let generation = self.generation.load(Ordering::Acquire);
        let mut wire = self.server.dial(now.after(timeout), &*self.clock)?;
        let set = wire.set_write_timeout(timeout).and_then(|()| wire.set_read_timeout(timeout.max(answer_timeout)));
        set.map_err(Broken::while_connecting)?;
        let id = self.links_made.fetch_add(1, Ordering::Relaxed);
        let mut link = Link::live(wire, id, generation, timeout.max(answer_timeout));
        let identity = handshake::greet(&mut link, &self.server.login()?, by, &*self.clock)?;
        link.set_longest(timeout);
        let master = identity.master.clone();
        self.identities.report(self.member, identity);
        master.map_or(Ok(link), |m| Err(Failure::unsent(FailureKind::Misuse, format!("is a replica of {m}"))))
    }

    fn probe_after(&self, pause: Duration) {
        let this = self.this.clone();
        self.background.after(pause, move || {
            if let Some(host) = this.upgrade() {
                host.probe(pause);
            }
        });
    }

    /// True if no attempt to connect is under way; then the caller has to make one now.
    fn may_probe(&self) -> bool {
        let mut orders = self.orders.lock();
        let is_idle = orders.dialling == 0;
        orders.dialling += usize::from(is_idle);
        is_idle
    }

    /// Finds out now whether a server in memory is back. An attempt under way is waited for: it may have been refused already, and would leave the node
    /// out again.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn probe_now(&self) {
        while !self.may_probe() {
            self.clock.sleep(Duration::from_millis(1));
        }
        let result = self.connect(self.settings.node_timeout);
        self.dialled(result);
    }

    /// A fresh connection tells whether the server is back.
    fn probe(&self, pause: Duration) {
        if self.breaker.probe_is_done() {
            return;
        }
        // While a line's own attempt to connect is under way it does the probing.
        let is_idle = self.may_probe();
        let began = self.clock.now();
        if is_idle {
            let result = self.connect(self.settings.node_timeout.max(PROBE_PATIENCE));
            self.dialled(result);
        }
        if !self.breaker.probe_is_done() {
            // One that waited all its time for an answer is followed at once by the next.
            let pause = if is_idle { next_pause(pause) } else { pause };
            self.probe_after(pause.saturating_sub(self.clock.now().since(began)).max(FIRST_PROBE / 4));
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
