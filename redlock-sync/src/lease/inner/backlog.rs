//! Releases that are not confirmed yet. A release is confirmed by a majority of the nodes, and by each node that may
//! have the token. It is repeated in the background until then, or until the lease has ended by itself.
//!
//! A majority is enough for the holder that released the lock. But a node that was left out at that moment would keep
//! the token until it expires, and could not vote for the next holders.
//!
//! Only releases are sent from here. They compare a token that is never used again, so a late or repeated call does no
//! harm. All that are due are sent at the same time. A call that was sent and not answered can be sent once more when
//! the client ends, or when it gives up all its locks.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::LeaseInner;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::rules::{LONGEST_GRANT, QUEUE_LIFETIME};
use crate::lease::release_votes::{is_confirmed, is_gone_from};
use crate::protocol::reply::{Released, Vote};
use crate::protocol::{LeaseCalls, Next, ReleaseArgs, TypedCall};
use crate::quorum::{Ballot, Quorum};
use crate::sync::Mutex;
use crate::token::LockId;

/// Most releases that are remembered. A further one replaces the release whose lease ends first.
const MOST: usize = 4096;
/// Most calls at the same time.
const MOST_TOGETHER: usize = 512;
/// The pause before the first repetition. Each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// How long a background thread takes at most to handle what is left of releases, unless it gets no processor time.
const LONGEST_HANDLING: Duration = Duration::from_secs(1);

/// What has to be released. A token can be released by the lock's key alone. All others need all keys of the lock,
/// since they concern the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ReleaseTarget {
    Token(LockId),
    /// A wait that is over.
    Wait(Arc<str>),
}

/// A release that has to be sent, or sent again.
#[derive(Debug, Clone)]
pub(crate) struct PendingRelease {
    pub(crate) protocol: Arc<dyn LeaseCalls>,
    pub(crate) what: ReleaseTarget,
    /// The holder's own wait, if it may still be in a queue.
    pub(crate) wait: Option<Arc<str>>,
    /// The end of a minimum hold: the key has to stay until then.
    pub(crate) keep_until: Tick,
    /// No node keeps the token for longer than this.
    pub(crate) ends: Tick,
    /// The lease, if there was one. A round of it that is still under way has to end first.
    pub(crate) lease: Option<Arc<LeaseInner>>,
    /// The nodes that may have the token.
    pub(crate) at: Vec<bool>,
}

impl ReleaseTarget {
    fn is_token(&self) -> bool {
        matches!(self, ReleaseTarget::Token(_))
    }
}

impl PendingRelease {
    /// The release of a token without a lease, a wait or a minimum hold.
    pub(crate) fn of_token(protocol: Arc<dyn LeaseCalls>, id: LockId, ends: Tick, at: Vec<bool>) -> PendingRelease {
        PendingRelease {
            protocol,
            what: ReleaseTarget::Token(id),
            wait: None,
            keep_until: Tick::ZERO,
            ends,
            lease: None,
            at,
        }
    }

    /// Removes a wait that is over. It names no token: that of a possible grant is unknown.
    pub(crate) fn of_wait(protocol: Arc<dyn LeaseCalls>, wait: &Arc<str>, quorum: &Quorum) -> PendingRelease {
        let is_in_slots = quorum.nodes.are_in_slots();
        // No grant lasts longer than the longest one. A queue lasts while its slot moves.
        let longest = if is_in_slots { QUEUE_LIFETIME } else { LONGEST_GRANT };
        PendingRelease {
            protocol,
            what: ReleaseTarget::Wait(Arc::clone(wait)),
            wait: Some(Arc::clone(wait)),
            keep_until: Tick::ZERO,
            ends: quorum.now().after(longest),
            lease: None,
            at: if is_in_slots { vec![true; quorum.len()] } else { Vec::new() },
        }
    }

    fn call(&self, now: Tick) -> TypedCall<Released> {
        let id = if let ReleaseTarget::Token(id) = &self.what { Some(id) } else { None };
        let wait = self.wait.as_deref();
        self.protocol.release(&ReleaseArgs { id, keep: self.keep_until.since(now), wait, next: Next::Anybody })
    }

    fn is_done(&self, ballot: &Ballot<Released>) -> bool {
        is_confirmed(ballot) && is_gone_from(&self.at, ballot)
    }

    /// True if it can be sent now: no round of the lease is under way. No other one begins.
    fn is_due(&self) -> bool {
        self.lease.as_ref().is_none_or(|inner| inner.io.try_lock().is_some())
    }
}

type Unconfirmed = (PendingRelease, Option<Ballot<Released>>);

/// True for a token if no majority said that it is gone.
fn is_unconfirmed((one, ballot): &Unconfirmed) -> bool {
    one.what.is_token() && !ballot.as_ref().is_some_and(is_confirmed)
}

/// Sends all of these together. Returns those that are not done, each with what the nodes answered, if they were asked.
fn send_releases(quorum: &Quorum, all: Vec<PendingRelease>, by: Tick) -> Vec<Unconfirmed> {
    // A round of a lease that is under way could set its token again after the release.
    let (due, others): (Vec<_>, Vec<_>) = all.into_iter().partition(PendingRelease::is_due);
    let mut left: Vec<Unconfirmed> = others.into_iter().map(|one| (one, None)).collect();
    for batch in due.chunks(MOST_TOGETHER) {
        let now = quorum.now();
        let calls: Vec<_> = batch.iter().map(|one| one.call(now)).collect();
        // Sent at the same time. So a server that begins to hang now has all of them when it goes on.
        for (one, ballot) in batch.iter().zip(quorum.rounds(&calls, by)) {
            left.extend((!one.is_done(&ballot)).then(|| (one.clone(), Some(ballot))));
        }
    }
    left
}

/// Locks that were released although their guards live.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    pub(crate) keys: Vec<String>,
    /// One error for each release that no majority confirmed.
    pub(crate) unconfirmed: Vec<Error>,
}

/// The releases of one client that are still to be confirmed.
#[derive(Debug)]
pub(crate) struct Backlog {
    pub(crate) quorum: Arc<Quorum>,
    state: Mutex<BacklogState>,
    /// The releases that were sent, for which no thread waits, and whose outcome is unknown.
    awaited: AtomicUsize,
    /// The answered releases whose observers have not been called yet.
    answered: AtomicUsize,
}

/// If more answered releases of dropped guards wait for the observers, drops wait as well.
const MAX_ANSWERED: usize = 64;

/// A release whose outcome is unknown. When this is dropped, the outcome is known or the release is in the list.
#[derive(Debug)]
pub(in crate::lease) struct AwaitedRelease {
    pub(in crate::lease) backlog: Arc<Backlog>,
    is_answered: bool,
}

impl AwaitedRelease {
    pub(in crate::lease) fn answered(&mut self) {
        self.is_answered = true;
        self.backlog.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for AwaitedRelease {
    fn drop(&mut self) {
        if self.is_answered {
            self.backlog.answered.fetch_sub(1, Ordering::Relaxed);
        }
        // After the release was confirmed or added to the list. Pairs with `await_outcomes`.
        self.backlog.awaited.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct BacklogState {
    list: Vec<PendingRelease>,
    /// A repetition is planned or under way.
    is_planned: bool,
    /// The last release that was added has replaced another one.
    is_overflowing: bool,
    is_closed: bool,
}

impl Backlog {
    pub(crate) fn new(quorum: &Arc<Quorum>) -> Arc<Backlog> {
        let (awaited, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Backlog { quorum: Arc::clone(quorum), state: Mutex::default(), awaited, answered })
    }

    /// Counts a release for which no thread waits.
    pub(in crate::lease) fn announce(self: &Arc<Self>) -> AwaitedRelease {
        // Before the release is sent. Pairs with `await_outcomes`.
        self.awaited.fetch_add(1, Ordering::SeqCst);
        AwaitedRelease { backlog: Arc::clone(self), is_answered: false }
    }

    /// Waits while observers are too slow for the rate at which guards are dropped, until `by` at the latest. A server
    /// that hangs answers no release, so it leads to no such wait.
    pub(in crate::lease) fn wait_for_observers(&self, by: Tick) {
        while self.answered.load(Ordering::Relaxed) > MAX_ANSWERED && self.quorum.now() < by {
            self.quorum.clock.sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the outcome of all counted releases is known, for a node timeout at most.
    pub(crate) fn await_outcomes(&self) {
        // Pairs with `announce` and the drop of `AwaitedRelease`: after zero is read, each counted release is confirmed
        // or in the list. Otherwise `ClientInner::end` could miss one.
        let are_known = || self.awaited.load(Ordering::SeqCst) == 0;
        if are_known() {
            return;
        }
        self.quorum.nodes.finish(self.quorum.round_deadline());
        // The others are about to be added to the list.
        let by = self.quorum.now().after(LONGEST_HANDLING);
        while !are_known() && self.quorum.now() < by {
            self.quorum.clock.sleep(Duration::from_millis(1));
        }
    }

    /// Sends all of these together, for two node timeouts at most. Returns an error for each that no majority
    /// confirmed, and all that are not done by then.
    pub(in crate::lease) fn release_now(&self, all: Vec<PendingRelease>) -> (Vec<Error>, Vec<PendingRelease>) {
        let quorum = &self.quorum;
        let (by, pause) = (quorum.now().after(quorum.settings.two_rounds()), quorum.settings.resend_pause());
        let mut left = send_releases(quorum, all, quorum.round_deadline());
        let mut confirmed = Vec::new();
        loop {
            // A majority confirmed these releases: no error is reported.
            confirmed.extend(left.extract_if(.., |one| !is_unconfirmed(one)));
            if left.is_empty() || quorum.now().after(pause) >= by {
                break;
            }
            quorum.clock.sleep(pause);
            let again = left.into_iter().map(|(one, _)| one).collect();
            left = send_releases(quorum, again, quorum.round_deadline().min(by));
        }
        // A round can leave out a server that is known to hang. This writes to it while it still has a connection. When
        // the server continues, it executes the first 16 KB of them at least, even if this process has ended by then.
        let has_unsent = |ballot: &Ballot<Released>| ballot.votes.iter().any(Vote::is_unsent);
        for (one, _) in left.iter().filter(|(_, ballot)| ballot.as_ref().is_some_and(has_unsent)) {
            quorum.post(&one.call(quorum.now()), |_| ());
        }
        let error = |(one, ballot): &Unconfirmed| Some(one.lease.as_ref()?.unconfirmed(ballot.as_ref()));
        let errors = left.iter().filter_map(error).collect();
        (errors, confirmed.into_iter().chain(left).map(|(one, _)| one).collect())
    }

    /// Repeats a release until it is confirmed, or the lease has ended.
    pub(crate) fn add(self: &Arc<Self>, release: PendingRelease) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        state.add(release);
        // If no thread can be started, the next release tries again.
        state.is_planned = state.is_planned || self.plan(FIRST_PAUSE);
    }

    #[cfg(test)]
    pub(in crate::lease) fn is_idle(&self) -> bool {
        !self.state.lock().is_planned
    }

    /// Returns what is still to be released, and forgets it.
    pub(crate) fn take(&self) -> Vec<PendingRelease> {
        std::mem::take(&mut self.state.lock().list)
    }

    /// Like [`take`](Backlog::take). Further releases are not remembered.
    pub(crate) fn close(&self) -> Vec<PendingRelease> {
        self.state.lock().is_closed = true;
        self.take()
    }

    /// The planned call keeps this alive: a guard may be the last owner of its client. Returns false if no thread can
    /// be started.
    fn plan(self: &Arc<Self>, pause: Duration) -> bool {
        let this = Arc::clone(self);
        self.quorum.nodes.background().after(pause, move || this.repeat(pause))
    }

    /// A release stays in the list while it is sent. So `close` returns all of them, and the list is bounded as a
    /// whole.
    fn repeat(self: &Arc<Self>, pause: Duration) {
        self.send_all();
        let mut state = self.state.lock();
        state.is_planned = !state.list.is_empty() && self.plan(pause.saturating_mul(2).min(LAST_PAUSE));
    }

    /// For a client that ends, since its process may end next. Sends once more what failed.
    pub(in crate::lease) fn finish(self: &Arc<Self>) {
        self.await_outcomes();
        if !self.state.lock().list.is_empty() {
            self.send_all();
        }
    }

    fn send_all(&self) {
        let due = {
            let mut state = self.state.lock();
            let now = self.quorum.now();
            state.list.retain(|one| one.ends > now);
            state.list.clone()
        };
        let mut done: HashSet<ReleaseTarget> = due.iter().map(|one| one.what.clone()).collect();
        for (one, _) in send_releases(&self.quorum, due, self.quorum.round_deadline()) {
            done.remove(&one.what);
        }
        self.state.lock().list.retain(|one| !done.contains(&one.what));
    }
}

impl BacklogState {
    /// Adds one. For the waits of a lock, one is enough. A full list drops the release whose lease ends first: its key
    /// is the first to expire.
    fn add(&mut self, release: PendingRelease) {
        if !release.what.is_token() && self.list.iter().any(|other| other.what == release.what) {
            return;
        }
        self.list.push(release);
        let is_full = self.list.len() > MOST;
        if is_full && let Some(first) = (0..self.list.len()).min_by_key(|&i| self.list.get(i).map(|one| one.ends)) {
            self.list.swap_remove(first);
        }
        if is_full && !self.is_overflowing {
            log::warn!(
                "more than {MOST} releases are not confirmed, so some are not repeated; \
                 their locks stay taken until their leases end"
            );
        }
        self.is_overflowing = is_full;
    }
}
