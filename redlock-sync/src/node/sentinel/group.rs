//! Asks all Sentinels of a group at the same time for the address of the master. Each has a connection that is kept.
//! Threads of the group do this, so a Sentinel that hangs blocks one of them for a node timeout, and no caller.
//!
//! An *inquiry* is one question to all Sentinels. Threads that need the master during an inquiry wait for its end. It
//! ends when a majority agrees. It also ends when all Sentinels have answered that answered the last time or were never
//! asked. Later answers still count. While Sentinels disagree, they are asked more often, since a failover may be under
//! way.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::answers::{Dissent, GroupState, SentinelAnswer, silent};
use super::choice::{self, Choice, CurrentMaster, SETTLED};
use super::master_reply::{self, MasterReply};
use crate::clock::{Clock, Tick};
use crate::handler::caught;
use crate::names::printable;
use crate::node::handshake;
use crate::node::identities::Identity;
use crate::node::link::{Broken, Dial, Disagreement, Halves, Link};
use crate::node::socket::RedisServer;
use crate::node::url::{GroupConfig, host_port};
use crate::node::{Background, Failure, FailureKind, Login, NodeUrl};

/// How often the Sentinels are asked while the client makes calls.
const PERIOD: Duration = Duration::from_millis(500);
/// The pause until the Sentinels are asked again if they disagree.
const BRIEF_PERIOD: Duration = Duration::from_millis(100);
/// After this many periods without a call, the group is no longer watched.
const IDLE_PERIODS: u32 = 120;

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
    /// `follow` raises it after it has stored the new master in `state`. Pairs with `Dial::address_changes`: a
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

impl Group {
    pub(in crate::node) fn new(
        url: &NodeUrl,
        config: &GroupConfig,
        timeout: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Group> {
        // A thread for each, one that verifies a master, and one for what is due.
        let background = Background::new(config.sentinels.len() + 2);
        Group::with_threads(url, config, timeout, clock, background)
    }

    fn with_threads(
        url: &NodeUrl,
        config: &GroupConfig,
        timeout: Duration,
        clock: &Arc<dyn Clock>,
        background: Background,
    ) -> Arc<Group> {
        let sentinel = |url: &NodeUrl| Sentinel { server: RedisServer::new(url.clone()), link: Mutex::new(None) };
        let sentinels: Vec<_> = config.sentinels.iter().map(sentinel).collect();
        Arc::new_cyclic(|this| Group {
            url: url.clone(),
            name: config.name.clone(),
            background,
            state: Mutex::new(GroupState::new(sentinels.len())),
            sentinels,
            timeout,
            clock: Arc::clone(clock),
            answered: Condvar::new(),
            dialled: Mutex::new(None),
            address_changes: AtomicU64::new(0),
            idle: AtomicU32::new(IDLE_PERIODS),
            this: this.clone(),
        })
    }

    /// How a server of the group is shown to users.
    fn shown(&self, address: Option<&str>) -> String {
        address.map_or_else(|| self.name.clone(), |address| format!("{} at {address}", self.name))
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
        let found = state.current.as_ref().filter(|_| is_answered).map(|current| current.reply.clone());
        found.ok_or_else(|| self.no_master(&state, number))
    }

    /// The failure if no Sentinel answered, or if no majority of those that answered names one master. It is a refusal
    /// if a majority refused, because that lasts until something is changed.
    fn no_master(&self, state: &GroupState, number: u64) -> Failure {
        let silent = silent();
        let said = |answer: &SentinelAnswer| match &answer.said {
            Ok(reply) if answer.inquiry >= number => format!("names {}", reply.address()),
            Err(failure) if answer.inquiry >= number => failure.message.clone(),
            _ => silent.message.clone(),
        };
        let new = state.answers.iter().filter(|answer| answer.inquiry >= number);
        let kinds = new.filter_map(|answer| answer.said.as_ref().err()).map(|why| why.kind);
        let refusals: Vec<_> = kinds.filter(|kind| matches!(kind, FailureKind::Denied | FailureKind::Tls)).collect();
        let kind = match refusals.first() {
            Some(kind) if refusals.len() > self.sentinels.len() / 2 => *kind,
            _ => FailureKind::Unreachable,
        };
        let each = self.sentinels.iter().zip(&state.answers);
        let each: Vec<_> = each.map(|(one, answer)| format!("{}: {}", one.server.address(), said(answer))).collect();
        let new = state.answers.iter().filter(|answer| answer.inquiry >= number);
        let named: BTreeSet<_> = new.filter_map(|answer| Some(answer.said.as_ref().ok()?.address())).collect();
        let what = match named.len() {
            0 => "no Sentinel named",
            1 => "too few Sentinels have named",
            _ => "the Sentinels disagree about",
        };
        Failure::unsent(kind, format!("{what} the master of `{}`: {}", self.name, each.join("; ")))
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
        link.send(&question, by, &*self.clock).map_err(Broken::while_connecting)?;
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
        self.update_master(&mut state);
        // Unlocked before the notification, as in `record_answer`.
        drop(state);
        self.answered.notify_all();
    }

    /// Draws the conclusions from the answers, and ends the inquiry if they suffice.
    fn update_master(&self, state: &mut GroupState) {
        let now = self.clock.now();
        let is_over = state.is_complete() || !state.is_under_way;
        match choice::choose(&state.known(), self.sentinels.len(), state.current.as_ref(), is_over, now) {
            Choice::Keep => {}
            Choice::Follow(found) => {
                let found = found.clone();
                self.follow(state, found);
            }
            Choice::Verify(others) => {
                let others = others.into_iter().cloned().collect();
                self.verify(state, others);
            }
        }
        state.is_under_way &= !state.is_decided();
        self.note_dissent(state, now);
    }

    /// Uses this master from now on.
    fn follow(&self, state: &mut GroupState, found: MasterReply) {
        let Some(current) = &mut state.current else {
            state.current = Some(CurrentMaster::new(found));
            return;
        };
        let (before, now) = (current.reply.address(), found.address());
        if before == now {
            current.reply = found;
            return;
        }
        *current = CurrentMaster::new(found);
        self.address_changes.fetch_add(1, Ordering::AcqRel);
        let line = format!("the master of `{}` changed from {before} to {now}", self.name);
        log::warn!("{}", printable(&line));
    }

    /// Has a thread ask these servers whether they come from the current master, and follow the one that does. If
    /// several do, only a majority of the Sentinels can tell which one counts.
    fn verify(&self, state: &mut GroupState, others: Vec<MasterReply>) {
        let Some(replid) = state.current.as_ref().and_then(|current| current.replid.clone()) else { return };
        if std::mem::replace(&mut state.is_verifying, true) {
            return;
        }
        self.after(Duration::ZERO, move |group| {
            let comes_from_it = |one: &MasterReply| {
                let asked = caught(|| group.comes_from(one, &replid));
                asked.is_ok_and(|said| said.unwrap_or(false))
            };
            let mut proven = others.into_iter().filter(comes_from_it);
            let proven = (proven.next(), proven.next());
            let mut state = group.state.lock();
            state.is_verifying = false;
            if let (Some(found), None) = proven {
                group.follow_verified(&mut state, &replid, &found);
            }
            // Unlocked before the notification, as in `record_answer`.
            drop(state);
            group.answered.notify_all();
        });
    }

    /// Follows a master that comes from the one with this id, if the Sentinels say the same as when it was asked.
    fn follow_verified(&self, state: &mut GroupState, replid: &str, found: &MasterReply) {
        let now = self.clock.now();
        let is_same = state.current.as_ref().is_some_and(|current| current.replid.as_deref() == Some(replid));
        let is_open = match choice::choose(&state.known(), self.sentinels.len(), state.current.as_ref(), true, now) {
            Choice::Verify(others) => others.iter().any(|one| one.address() == found.address()),
            Choice::Keep | Choice::Follow(_) => false,
        };
        if !is_same || !is_open {
            return;
        }
        self.follow(state, found.clone());
        if let Some(current) = &mut state.current {
            current.verified_at = Some(now);
        }
        state.is_under_way &= !state.is_decided();
    }

    /// True if the server is a master that was a replica of the master whose data had this id, or is that master itself
    /// at another address.
    fn comes_from(&self, found: &MasterReply, replid: &str) -> Result<bool, Failure> {
        let by = self.clock.now().after(self.timeout);
        let server = RedisServer::new(self.url.with_host(&found.host, found.port));
        let mut link = Link::new(server.dial(by, &*self.clock)?, 0);
        let (identity, _) = handshake::greet(&mut link, &self.url.login()?.info, false, by, &*self.clock)?;
        Ok(identity.master.is_none() && [identity.replid, identity.former_replid].iter().any(|id| id == replid))
    }

    /// Has the Sentinels asked again soon if they disagree. Logs once if they disagree for longer than after a
    /// failover.
    fn note_dissent(&self, state: &mut GroupState, now: Tick) {
        let Some(told) = self.dissent(state) else {
            state.dissent = None;
            return;
        };
        let dissent = state.dissent.get_or_insert(Dissent { since: now, is_logged: false });
        if now.since(dissent.since) >= SETTLED {
            if !std::mem::replace(&mut dissent.is_logged, true) {
                log::warn!("{}", printable(&told.text));
            }
        } else if !std::mem::replace(&mut state.is_asked_again, true) {
            self.after(BRIEF_PERIOD, |group| {
                let mut state = group.state.lock();
                state.is_asked_again = false;
                group.inquire(&mut state);
            });
        }
    }

    /// What Sentinels say that name another master than the current one.
    fn dissent(&self, state: &GroupState) -> Option<Disagreement> {
        let current = &state.current.as_ref()?.reply;
        let answers = state.known();
        let agreeing = choice::named(&answers, current);
        let named = |(one, answer): (&Sentinel, &SentinelAnswer)| {
            let reply = answer.said.as_ref().ok().filter(|reply| reply.address() != current.address())?;
            Some(format!("{} names {}", one.server.address(), reply.address()))
        };
        let others: Vec<_> = self.sentinels.iter().zip(&state.answers).filter_map(named).collect();
        (!others.is_empty()).then(|| Disagreement {
            text: format!(
                "the Sentinels of `{}` disagree about its master: {}; the client uses {}, which {agreeing} of {} name: \
                 correct what each Sentinel watches, or remove the wrong ones from the URL",
                self.name,
                others.join(", "),
                current.address(),
                self.sentinels.len()
            ),
            has_majority: agreeing > answers.len() / 2,
        })
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
        let master = self.state.lock().current.as_ref().map(|current| current.reply.address());
        Cow::Owned(self.shown(master.as_deref()))
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
        if let Some(current) = &mut self.state.lock().current {
            current.down_since.get_or_insert(self.clock.now());
        }
        self.address_changes.fetch_add(1, Ordering::AcqRel);
    }

    fn logged_in(&self, shown: &str, identity: &Identity) {
        if let Some(current) = &mut self.state.lock().current
            && self.shown(Some(&current.reply.address())) == shown
        {
            current.down_since = None;
            current.replid = Some(identity.replid.clone()).filter(|id| !id.is_empty());
        }
    }

    /// Waits until each Sentinel has answered the latest question, or its time is up.
    fn disagreement(&self) -> Option<Disagreement> {
        let mut state = self.state.lock();
        let number = state.inquiry;
        let is_open = |state: &mut GroupState| state.answers.iter().any(|answer| answer.inquiry < number);
        self.answered.wait_while_for(&mut state, is_open, self.timeout);
        self.dissent(&state)
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
        Some(self.state.lock().current.as_ref().map_or(Duration::ZERO, |current| current.reply.age(now)))
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
