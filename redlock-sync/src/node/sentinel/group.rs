//! Asks all Sentinels of a group at the same time for the address of the master. Each has a connection that is kept.
//! Threads of the group do this, so a Sentinel that hangs blocks one of them for a node timeout, and no caller.
//!
//! An *inquiry* is one question to all Sentinels. Threads that need the master during an inquiry wait for its end. It
//! ends when a majority agrees. It also ends when all Sentinels have answered that answered the last time or were never
//! asked. Later answers still count.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::master_reply::{self, MasterReply};
use crate::clock::{Clock, Tick};
use crate::names::printable;
use crate::node::link::{Broken, Dial, Halves, Link};
use crate::node::socket::RedisServer;
use crate::node::url::{GroupConfig, host_port};
use crate::node::{Background, Failure, FailureKind, Login, NodeUrl};

/// How often the Sentinels are asked while the client makes calls.
const PERIOD: Duration = Duration::from_secs(1);
/// After this many periods without a call, the group is no longer watched.
const IDLE_PERIODS: u32 = 60;

/// The Sentinels of a group, and what is known of its master.
pub(in crate::node) struct Group {
    /// The URL of the group, with the login at the master.
    url: NodeUrl,
    name: String,
    sentinels: Vec<Sentinel>,
    /// The timeout for one Sentinel.
    timeout: Duration,
    clock: Arc<dyn Clock>,
    background: Background,
    state: Mutex<GroupState>,
    answered: Condvar,
    /// The last master that was dialled. It is kept because its name is already resolved.
    dialled: Mutex<Option<Arc<RedisServer>>>,
    /// How often the master has changed, or may have changed while it was silent or the group was not watched.
    ///
    /// `update_master` raises it after it has stored the new master in `state`. Pairs with `Dial::address_changes`: a
    /// thread that reads the new number dials the new master. Otherwise a connection to the former master could have
    /// the new number, and stay in use.
    address_changes: AtomicU64,
    /// The number of periods since the last call. `IDLE_PERIODS` while the group is not watched.
    ///
    /// `Group::watch` adds 1. `Dial::address_changes` swaps in 0, and stores `IDLE_PERIODS` if it can start no thread.
    /// Each is one step, and they pair with each other: `watch` goes on, or the next swap starts it again. Otherwise
    /// the group could be watched twice, or never again.
    idle: AtomicU32,
    this: Weak<Group>,
}

struct Sentinel {
    server: RedisServer,
    /// Locked while the Sentinel is asked.
    link: Mutex<Option<Link>>,
}

struct GroupState {
    /// The number of the latest inquiry.
    inquiry: u64,
    is_under_way: bool,
    /// One answer for each Sentinel.
    answers: Vec<SentinelAnswer>,
    master: Option<MasterReply>,
}

struct SentinelAnswer {
    /// The inquiry to which the answer belongs. 0 before the first.
    inquiry: u64,
    said: Result<MasterReply, Failure>,
}

impl Group {
    pub(in crate::node) fn new(
        url: &NodeUrl,
        config: &GroupConfig,
        timeout: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Group> {
        let sentinel = |url: &NodeUrl| Sentinel { server: RedisServer::new(url.clone()), link: Mutex::new(None) };
        let sentinels: Vec<_> = config.sentinels.iter().map(sentinel).collect();
        let unasked = || SentinelAnswer { inquiry: 0, said: Err(silent()) };
        let answers = sentinels.iter().map(|_| unasked()).collect();
        Arc::new_cyclic(|this| Group {
            url: url.clone(),
            name: config.name.clone(),
            background: Background::new(sentinels.len() + 1),
            sentinels,
            timeout,
            clock: Arc::clone(clock),
            state: Mutex::new(GroupState { inquiry: 0, is_under_way: false, answers, master: None }),
            answered: Condvar::new(),
            dialled: Mutex::new(None),
            address_changes: AtomicU64::new(0),
            idle: AtomicU32::new(IDLE_PERIODS),
            this: this.clone(),
        })
    }

    /// The last known address of the master.
    fn master(&self) -> Option<String> {
        self.state.lock().master.as_ref().map(MasterReply::address)
    }

    /// The server at this address.
    fn server(&self, host: &str, port: u16) -> Arc<RedisServer> {
        let mut dialled = self.dialled.lock();
        let address = host_port(host, port);
        match &*dialled {
            Some(known) if known.address() == address => Arc::clone(known),
            _ => Arc::clone(dialled.insert(Arc::new(RedisServer::new(self.url.with_host(host, port))))),
        }
    }

    /// Finds the master, and waits for at most `within`.
    fn ask_all(&self, mut state: MutexGuard<'_, GroupState>, within: Duration) -> Result<MasterReply, Failure> {
        // Without threads an inquiry would never end.
        self.background.threads()?;
        self.inquire(&mut state);
        let number = state.inquiry;
        self.answered.wait_while_for(&mut state, |s| s.inquiry == number && s.is_under_way, within);
        let is_answered = state.answers.iter().any(|answer| answer.inquiry >= number && answer.said.is_ok());
        let found = state.master.clone().filter(|_| is_answered);
        found.ok_or_else(|| self.no_answer(&state, number))
    }

    /// The failure if no Sentinel answered. It is a refusal if a majority refused, because that lasts until something
    /// is changed.
    fn no_answer(&self, state: &GroupState, number: u64) -> Failure {
        let said = |answer: &SentinelAnswer| match &answer.said {
            Err(failure) if answer.inquiry >= number => failure.clone(),
            _ => silent(),
        };
        let why: Vec<_> = state.answers.iter().map(said).collect();
        let refusals = why.iter().filter(|failure| failure.kind == FailureKind::Denied).count();
        let kind = if refusals > why.len() / 2 { FailureKind::Denied } else { FailureKind::Unreachable };
        let each = self.sentinels.iter().zip(&why);
        let each: Vec<_> = each.map(|(one, why)| format!("{}: {}", one.server.address(), why.message)).collect();
        Failure::unsent(kind, format!("no Sentinel named the master of `{}`: {}", self.name, each.join("; ")))
    }

    /// Begins an inquiry, unless one is running.
    fn inquire(&self, state: &mut GroupState) {
        if state.is_under_way {
            return;
        }
        state.is_under_way = true;
        state.inquiry += 1;
        let number = state.inquiry;
        for i in 0..self.sentinels.len() {
            self.after(Duration::ZERO, move |group| group.ask(i, number));
        }
        self.after(self.timeout, move |group| group.end_inquiry(number));
    }

    fn after(&self, pause: Duration, run: impl FnOnce(&Group) + Send + 'static) {
        let this = self.this.clone();
        self.background.after(pause, move || {
            if let Some(group) = this.upgrade() {
                run(&group);
            }
        });
    }

    /// Asks one Sentinel, unless it has not yet answered an earlier question.
    fn ask(&self, i: usize, number: u64) {
        let Some(sentinel) = self.sentinels.get(i) else { return };
        let Some(mut link) = sentinel.link.try_lock() else { return };
        let said = self.exchange(&sentinel.server, &mut link);
        drop(link);
        self.record_answer(i, SentinelAnswer { inquiry: number, said });
    }

    /// Asks over the kept connection. If that broke, asks over a new one.
    fn exchange(&self, server: &RedisServer, link: &mut Option<Link>) -> Result<MasterReply, Failure> {
        let by = self.clock.now().after(self.timeout);
        if let Some(mut kept) = link.take() {
            match self.query(&mut kept, None, by) {
                Err(failure) if failure.kind == FailureKind::Unreachable => {}
                said => {
                    *link = said.is_ok().then_some(kept);
                    return said;
                }
            }
        }
        let mut fresh = Link::new(server.open(by, &*self.clock)?.map_err(Broken::while_connecting)?, 0);
        let reply = self.query(&mut fresh, Some(server), by)?;
        *link = Some(fresh);
        Ok(reply)
    }

    fn query(&self, link: &mut Link, login: Option<&RedisServer>, by: Tick) -> Result<MasterReply, Failure> {
        let login = login.map(Dial::login).transpose()?;
        let (question, logins) = master_reply::request(login.as_ref().map(|login| &login.info), &self.name);
        link.send(&question, by).map_err(Broken::while_connecting)?;
        let mut receive = || link.receive(by, &*self.clock).map_err(Broken::while_connecting);
        for _ in 0..logins {
            master_reply::accepted(receive()?)?;
        }
        let (address, facts) = (receive()?, receive()?);
        master_reply::parse(address, facts, &self.name, self.clock.now())
    }

    /// Records an answer, or the failure to get one.
    fn record_answer(&self, i: usize, answer: SentinelAnswer) {
        let mut state = self.state.lock();
        if let Some(slot) = state.answers.get_mut(i) {
            *slot = answer;
        }
        self.update_master(&mut state);
        if state.is_decided() {
            state.is_under_way = false;
        }
        // Unlocked before the notification, so that the woken threads find the state free. Pairs with `Group::ask_all`
        // and `check_is_current`, which read the state under its lock before they sleep. So no notification is lost.
        drop(state);
        self.answered.notify_all();
    }

    /// Ends an inquiry whose time is up. The answers of silent Sentinels are dropped.
    fn end_inquiry(&self, number: u64) {
        let mut state = self.state.lock();
        for answer in state.answers.iter_mut().filter(|answer| answer.inquiry < number) {
            *answer = SentinelAnswer { inquiry: number, said: Err(silent()) };
        }
        if state.inquiry == number {
            state.is_under_way = false;
        }
        // Unlocked before the notification, as in `record_answer`.
        drop(state);
        self.answered.notify_all();
    }

    fn update_master(&self, state: &mut GroupState) {
        let Some(found) = master_reply::choose(&state.known(), self.clock.now()).cloned() else { return };
        // Sentinels that know of a later failover may be silent at the moment.
        if state.master.as_ref().is_some_and(|known| known.is_after(&found)) && !state.is_agreed(&found) {
            return;
        }
        let before = state.master.replace(found.clone()).map(|reply| reply.address());
        if let Some(before) = before.filter(|before| *before != found.address()) {
            self.address_changes.fetch_add(1, Ordering::AcqRel);
            let line = format!("the master of `{}` changed from {before} to {}", self.name, found.address());
            log::warn!("{}", printable(&line));
        }
    }

    fn watch(&self) {
        self.inquire(&mut self.state.lock());
        if self.idle.fetch_add(1, Ordering::AcqRel) + 1 < IDLE_PERIODS {
            self.after(PERIOD, Group::watch);
        }
    }
}

impl Dial for Group {
    fn address(&self) -> &str {
        self.url.address()
    }

    fn display_address(&self) -> Cow<'_, str> {
        self.master().map_or(Cow::Borrowed(&self.name), |master| Cow::Owned(format!("{} at {master}", self.name)))
    }

    /// How often the master may have changed. Since a client that makes calls asks this, the group is watched from now
    /// on.
    fn address_changes(&self) -> Option<u64> {
        if self.idle.load(Ordering::Relaxed) != 0 && self.idle.swap(0, Ordering::AcqRel) >= IDLE_PERIODS {
            self.address_changes.fetch_add(1, Ordering::AcqRel);
            match self.background.threads() {
                Ok(_) => self.after(PERIOD, Group::watch),
                // The next call tries again.
                Err(_) => self.idle.store(IDLE_PERIODS, Ordering::Release),
            }
        }
        Some(self.address_changes.load(Ordering::Acquire))
    }

    /// The master may have been replaced when it answers again.
    fn suspect(&self) {
        self.address_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Uses only answers to questions asked from now on.
    fn check_is_current(&self, shown: &str, within: Duration) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let number = state.inquiry;
        self.answered.wait_while_for(&mut state, |s| s.inquiry == number && s.is_under_way, within / 2);
        self.ask_all(state, within / 2)?;
        let now = self.display_address();
        let was_deposed = || Failure::unsent(FailureKind::Unreachable, format!("{now} is the master now"));
        if *now == *shown { Ok(()) } else { Err(was_deposed()) }
    }

    fn master_for(&self) -> Option<Duration> {
        let now = self.clock.now();
        Some(self.state.lock().master.as_ref().map_or(Duration::ZERO, |reply| reply.age(now)))
    }

    fn login(&self) -> Result<Login, Failure> {
        self.url.login()
    }

    /// The Sentinels may use half of the time.
    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Halves, Failure> {
        let master = self.ask_all(self.state.lock(), by.since(clock.now()) / 2)?;
        self.server(&master.host, master.port).dial(by, clock)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl GroupState {
    fn known(&self) -> Vec<&MasterReply> {
        self.answers.iter().filter_map(|answer| answer.said.as_ref().ok()).collect()
    }

    /// True if waiting for more answers is not worthwhile.
    fn is_decided(&self) -> bool {
        let is_new = |answer: &&SentinelAnswer| answer.inquiry >= self.inquiry;
        if self.answers.iter().all(|answer| is_new(&answer)) {
            return true;
        }
        let Some(master) = &self.master else { return false };
        let agrees =
            |answer: &&SentinelAnswer| matches!(&answer.said, Ok(reply) if reply.address() == master.address());
        let agreeing = self.answers.iter().filter(is_new).filter(agrees).count();
        let is_missing = |answer: &SentinelAnswer| !is_new(&answer) && (answer.said.is_ok() || answer.inquiry == 0);
        agreeing > self.answers.len() / 2 || agreeing > 0 && !self.answers.iter().any(is_missing)
    }

    /// True if a majority of the known answers names this master.
    fn is_agreed(&self, found: &MasterReply) -> bool {
        let named = self.known().into_iter().filter(|reply| reply.address() == found.address()).count();
        named > self.answers.len() / 2
    }
}

fn silent() -> Failure {
    Failure::unsent(FailureKind::TimedOut, "no answer in time")
}
