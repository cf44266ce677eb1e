//! What everything about one server shares: how to connect, and how it is doing.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

use super::condition::{Condition, During, News, Success};
use super::health::{Breaker, FIRST_PROBE, next_pause};
use super::link::{self, Broken, Link, SHORTEST};
use super::resolve::Resolver;
use super::roster::Roster;
use super::{Background, Failure, NodeSettings, NodeUrl, Trouble, Value, handshake, reply};
use crate::clock::{Clock, Tick};
use crate::script::{Call, Note, Purpose};

/// One server as a member of a client.
pub(super) struct Host {
    /// Its place in the roster.
    pub(super) member: usize,
    pub(super) url: NodeUrl,
    pub(super) settings: NodeSettings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) roster: Arc<Roster>,
    pub(super) background: Background,
    pub(super) breaker: Breaker,
    condition: Condition,
    resolver: Option<Resolver>,
    /// Raised when a connection broke: all that were made before are suspect, since after a restart each of them is dead.
    generation: AtomicU64,
    /// Raised when a call was refused because the user may not do something: then all earlier checks of permissions are void.
    permissions: AtomicU64,
    connecting: AtomicUsize,
    /// The last attempt to connect succeeded.
    proven: AtomicBool,
    this: Weak<Host>,
}

/// Whether an attempt to connect may start now.
pub(super) enum Admission<'a> {
    Go(Slot<'a>),
    /// Ask again in a few milliseconds.
    Later,
    LeftOut(Failure),
}

/// One attempt to connect that is under way.
pub(super) struct Slot<'a>(&'a AtomicUsize);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Host {
    pub(super) fn new(
        member: usize,
        url: NodeUrl,
        settings: NodeSettings,
        clock: Arc<dyn Clock>,
        roster: Arc<Roster>,
        background: Background,
    ) -> Arc<Host> {
        let resolver = match url.info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Resolver::new(host, *port))
            }
            _ => None,
        };
        Arc::new_cyclic(|this| Host {
            member,
            url,
            settings,
            clock,
            roster,
            background,
            breaker: Breaker::default(),
            condition: Condition::default(),
            resolver,
            generation: AtomicU64::new(0),
            permissions: AtomicU64::new(0),
            connecting: AtomicUsize::new(0),
            proven: AtomicBool::new(false),
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

    /// What the next transmission of a call on this link tells the script. The first acquire on a link has the user's permissions checked: the
    /// link counts as checked from then on, and [`was_refused`](Host::was_refused) takes that back.
    pub(super) fn note_for(&self, call: &Call, link: &mut Link) -> Note {
        if call.purpose == Purpose::Acquire {
            let now = Some(self.permissions.load(Ordering::Acquire));
            return if std::mem::replace(&mut link.permitted, now) == now { Note::Nothing } else { Note::Check };
        }
        Note::Nothing
    }

    /// What the server's refusal of a call says of its link, and of all links.
    pub(super) fn was_refused(&self, link: &mut Link, failure: &Failure) {
        link.permitted = None;
        if reply::lacks_permission(failure) {
            self.permissions.fetch_add(1, Ordering::AcqRel);
        }
        if reply::wants_new_connection(failure) {
            self.put_out_of_use(link);
        }
    }

    /// Notes a failure of a call or a connect; one that tells of a dead server opens the breaker.
    pub(super) fn note(&self, failure: &Failure, during: During) {
        if !matches!(failure.trouble, Trouble::Unreachable | Trouble::TimedOut) {
            return;
        }
        self.proven.store(false, Ordering::Release);
        if self.breaker.trip(failure) {
            self.probe_after(FIRST_PROBE);
        }
        self.log(self.condition.down(during), &failure.message);
    }

    /// Notes that the server replied to a call, and be it with an error.
    pub(super) fn replied(&self, call: &Call, result: &Result<Value, Failure>) {
        self.breaker.recover();
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
        let (number, address) = (self.member + 1, self.url.address());
        match news {
            News::Down => log::warn!("node {number} ({address}) does not answer: {cause}"),
            News::Back => log::info!("node {number} ({address}) answers again"),
            News::Unusable => log::warn!("node {number} ({address}) cannot be used: {cause}"),
            News::Usable => log::info!("node {number} ({address}) can be used again"),
        }
    }

    /// A server that has not answered yet, or no more, gets one attempt at a time: the shared threads must stay free for the others.
    pub(super) fn admit(&self) -> Admission<'_> {
        if self.proven.load(Ordering::Acquire) {
            self.connecting.fetch_add(1, Ordering::AcqRel);
            return Admission::Go(Slot(&self.connecting));
        }
        match (self.only_slot(), self.breaker.outage()) {
            (Some(slot), _) => Admission::Go(slot),
            (None, Some(outage)) => Admission::LeftOut(outage),
            (None, None) => Admission::Later,
        }
    }

    /// An attempt to connect is under way.
    pub(super) fn is_connecting(&self) -> bool {
        self.connecting.load(Ordering::Acquire) > 0
    }

    fn only_slot(&self) -> Option<Slot<'_>> {
        let taken = self.connecting.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok().then(|| Slot(&self.connecting)) // Lazily: dropping a slot gives it back.
    }

    /// Connects within the node timeout. A failure comes back as a link that is dead on arrival.
    pub(super) fn connect(&self) -> Link {
        let by = self.clock.now().after(self.settings.node_timeout);
        match self.open_or_fail(by) {
            Ok(link) => {
                self.proven.store(true, Ordering::Release);
                self.breaker.recover();
                self.succeeded(Success::Connected);
                link
            }
            Err(failure) => {
                self.refused(&failure);
                Link::dead(failure, self.clock.now())
            }
        }
    }

    /// A server that answers, and be it with a refusal, is not left out: the next call shall hear the refusal.
    fn refused(&self, failure: &Failure) {
        self.note(failure, During::Connect);
        if failure.trouble == Trouble::Misuse {
            self.log(self.condition.unusable(During::Connect, &failure.message), &failure.message);
        }
        if !matches!(failure.trouble, Trouble::Unreachable | Trouble::TimedOut) {
            self.breaker.recover();
        }
    }

    /// A panic must not pass: r2d2 would count the attempt as under way for ever. rustls panics if it has no crypto provider.
    fn open_or_fail(&self, by: Tick) -> Result<Link, Failure> {
        catch_unwind(AssertUnwindSafe(|| self.open(by))).unwrap_or_else(|_| {
            Err(Failure::unsent(Trouble::Misuse, "connecting panicked; see the panic's own message"))
        })
    }

    fn open(&self, by: Tick) -> Result<Link, Failure> {
        // Read before the dial: a break that is noticed meanwhile makes this link stale too, which costs a reconnect at worst.
        let generation = self.generation.load(Ordering::Acquire);
        let wire = self.dial(by)?;
        let timeout = self.settings.node_timeout;
        let set = wire.set_write_timeout(Some(timeout)).and_then(|()| wire.set_read_timeout(Some(timeout)));
        set.map_err(|e| failed(&e))?;
        let mut link = Link::live(wire, self.clock.now(), generation, timeout);
        let login = self.url.info().redis_settings();
        let identity = handshake::greet(&mut link, login, by, &*self.clock)?;
        let master = identity.master.clone();
        self.roster.report(self.member, identity);
        master.map_or(Ok(link), |m| Err(Failure::unsent(Trouble::Misuse, format!("is a replica of {m}"))))
    }

    /// Tries one address after another; all of them share the time.
    fn dial(&self, by: Tick) -> Result<redis::Connection, Failure> {
        let (addresses, parts) = self.addresses(by)?;
        let mut last = None;
        let mut ahead = parts;
        for address in addresses {
            let share = (self.time_left(by) / ahead.max(1)).max(SHORTEST);
            match self.dial_one(address, share) {
                Ok(wire) => return Ok(wire),
                Err(failure) => last = Some(failure),
            }
            ahead = ahead.saturating_sub(1);
        }
        Err(last.unwrap_or_else(|| Failure::unsent(Trouble::Unreachable, "has no address")))
    }

    fn dial_one(&self, address: ConnectionAddr, within: Duration) -> Result<redis::Connection, Failure> {
        // No login here: our own handshake does it, in one round trip and with the server's own words if it refuses.
        let quiet = RedisConnectionInfo::default().set_skip_set_lib_name();
        let info: ConnectionInfo = self.url.info().clone().set_addr(address).set_redis_settings(quiet);
        let client = redis::Client::open(info).map_err(|e| failed(&e))?;
        client.get_connection_with_timeout(within).map_err(|e| failed(&e))
    }

    /// The addresses to dial, and into how many parts each dial's time has to be divided.
    fn addresses(&self, by: Tick) -> Result<(Vec<ConnectionAddr>, u32), Failure> {
        let own = self.url.info().addr();
        let Some(resolver) = &self.resolver else { return Ok((vec![own.clone()], 1)) };
        let found = resolver.resolve(self.time_left(by));
        let found = found.map_err(|why| Failure::unsent(Trouble::Unreachable, why))?;
        let parts = u32::try_from(found.len()).unwrap_or(u32::MAX);
        if matches!(own, ConnectionAddr::TcpTls { .. }) {
            // A certificate is for the name, so the crate has to dial the name; it tries all addresses with the same timeout.
            return Ok((vec![own.clone()], parts));
        }
        Ok((found.iter().map(|a| ConnectionAddr::Tcp(a.ip().to_string(), a.port())).collect(), parts))
    }

    fn probe_after(&self, pause: Duration) {
        let this = self.this.clone();
        self.background.after(pause, move || {
            if let Some(host) = this.upgrade() {
                host.probe(pause);
            }
        });
    }

    /// A fresh connection tells whether the server is back.
    fn probe(&self, pause: Duration) {
        if self.breaker.probe_is_done() {
            return;
        }
        // While a call's own attempt to connect is under way it does the probing.
        let pause = match self.only_slot() {
            Some(slot) => {
                drop(self.connect());
                drop(slot);
                next_pause(pause)
            }
            None => pause,
        };
        if !self.breaker.probe_is_done() {
            self.probe_after(pause);
        }
    }
}

fn failed(error: &redis::RedisError) -> Failure {
    match link::broken(error) {
        Broken::TimedOut => Failure::unsent(Trouble::TimedOut, "timed out while connecting"),
        Broken::Cut(why) => Failure::unsent(Trouble::Unreachable, why),
        Broken::Distrusted(why) => Failure::unsent(Trouble::Misuse, why),
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)
    }
}
