//! The tokens of this client that a server may still have although no lease does, and the waits that a server queue may
//! still have. Each comes here from a release that is not confirmed, a roll-back that is not, or a grant that came too
//! late.
//!
//! If an attempt of this client finds the lock held by such a token, the client sends its release again
//! ([`Pending::release_again`]). So a late copy of its own call does not lock the client out. A token gets here only
//! when no lease can come from it any more: its attempt has failed, its lease has ended, or its wait is over.
//!
//! The background repeats each release until a majority and each node that may have the token confirmed it, or until
//! the lease has ended by itself. A majority is enough for the holder. But a node that was left out at that moment
//! would keep the token until it expires, and could not vote for the next holders.
//!
//! Only releases are sent from here. They compare a token that no lease can have any more, so a late or repeated call
//! does no harm. All that are due are sent at the same time. A call that was sent and not answered can be sent once
//! more when the client ends, or when it gives up all its locks.

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

/// A token or a wait that a node may still have, and the release that has to be sent, or sent again.
#[derive(Debug, Clone)]
pub(crate) struct PendingRelease {
    pub(crate) protocol: Arc<dyn LeaseCalls>,
    pub(crate) key: Arc<str>,
    /// The token. `None` for a wait that is over.
    pub(crate) id: Option<LockId>,
    /// That wait, or the holder's own wait if it may still be in a queue.
    pub(crate) wait: Option<Arc<str>>,
    /// The end of a minimum hold: the key has to stay until then.
    pub(crate) keep_until: Tick,
    /// No node keeps the token for longer than this.
    pub(crate) ends: Tick,
    /// The lease whose release no majority confirmed, if there was a lease.
    pub(crate) lease: Option<Arc<LeaseInner>>,
    /// The nodes that may have the token.
    pub(crate) may_have: Vec<bool>,
    /// The background repeats the release. False once it is confirmed.
    pub(crate) repeats: bool,
}

impl PendingRelease {
    /// The release of a token without a lease, a wait or a minimum hold.
    pub(crate) fn of_token(
        protocol: Arc<dyn LeaseCalls>,
        key: &Arc<str>,
        id: LockId,
        ends: Tick,
        may_have: Vec<bool>,
    ) -> PendingRelease {
        PendingRelease {
            protocol,
            key: Arc::clone(key),
            id: Some(id),
            wait: None,
            keep_until: Tick::ZERO,
            ends,
            lease: None,
            may_have,
            repeats: true,
        }
    }

    /// Removes a wait that is over. It has no token.
    pub(crate) fn of_wait(
        protocol: Arc<dyn LeaseCalls>,
        key: &Arc<str>,
        wait: &Arc<str>,
        quorum: &Quorum,
    ) -> PendingRelease {
        let is_in_slots = quorum.nodes.are_in_slots();
        // No grant lasts longer than the longest one. A queue lasts while its slot moves.
        let longest = if is_in_slots { QUEUE_LIFETIME } else { LONGEST_GRANT };
        PendingRelease {
            protocol,
            key: Arc::clone(key),
            id: None,
            wait: Some(Arc::clone(wait)),
            keep_until: Tick::ZERO,
            ends: quorum.now().after(longest),
            lease: None,
            may_have: if is_in_slots { vec![true; quorum.len()] } else { Vec::new() },
            repeats: true,
        }
    }

    /// The token or the wait. Each is unique.
    fn name(&self) -> &str {
        let wait = self.wait.as_deref().unwrap_or_default();
        self.id.as_ref().map_or(wait, LockId::as_str)
    }

    fn call(&self, now: Tick) -> TypedCall<Released> {
        self.protocol.release(&ReleaseArgs {
            id: self.id.as_ref(),
            keep: self.keep_until.since(now),
            wait: self.wait.as_deref(),
            next: Next::Anybody,
        })
    }

    fn is_done(&self, ballot: &Ballot<Released>) -> bool {
        is_confirmed(ballot) && is_gone_from(&self.may_have, ballot)
    }

    /// False while a round of its lease is under way, which may set the token once more. No other one begins.
    fn is_free(&self) -> bool {
        self.lease.as_ref().is_none_or(|inner| inner.rounds.try_lock().is_some())
    }

    /// The release is done. Returns the lease, which is needed no more.
    fn released(&mut self) -> Option<Arc<LeaseInner>> {
        self.repeats = false;
        self.lease.take()
    }
}

type Unconfirmed = (PendingRelease, Option<Ballot<Released>>);

/// True for a token if no majority said that it is gone.
fn is_unconfirmed((one, ballot): &Unconfirmed) -> bool {
    one.id.is_some() && !ballot.as_ref().is_some_and(is_confirmed)
}

/// Sends all of these together. Returns those that are not done, each with what the nodes answered, if they were asked.
fn send_releases(quorum: &Quorum, all: Vec<PendingRelease>, by: Tick) -> Vec<Unconfirmed> {
    // A round of a lease that is under way could set its token again after the release.
    let (due, others): (Vec<_>, Vec<_>) = all.into_iter().partition(PendingRelease::is_free);
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

/// The pending releases of one client.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) quorum: Arc<Quorum>,
    list: Mutex<PendingList>,
    /// The releases that were sent, for which no thread waits, and whose outcome is unknown.
    unanswered: AtomicUsize,
    /// The answered releases whose observers have not been called yet.
    unobserved: AtomicUsize,
}

/// If more answered releases of dropped guards wait for the observers, drops wait as well.
const MAX_UNOBSERVED: usize = 64;

/// A release whose outcome is unknown. When this is dropped, the outcome is known or the release is in the list.
#[derive(Debug)]
pub(in crate::lease) struct UnansweredRelease {
    pub(in crate::lease) pending: Arc<Pending>,
    is_answered: bool,
}

impl UnansweredRelease {
    pub(in crate::lease) fn answered(&mut self) {
        self.is_answered = true;
        self.pending.unobserved.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for UnansweredRelease {
    fn drop(&mut self) {
        if self.is_answered {
            self.pending.unobserved.fetch_sub(1, Ordering::Relaxed);
        }
        // After the release was confirmed or added to the list. Pairs with `await_outcomes`.
        self.pending.unanswered.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct PendingList {
    all: Vec<PendingRelease>,
    /// A repetition is planned or under way.
    is_planned: bool,
    /// The last release that was added has replaced another one.
    is_overflowing: bool,
    is_closed: bool,
}

impl Pending {
    pub(crate) fn new(quorum: &Arc<Quorum>) -> Arc<Pending> {
        Arc::new(Pending {
            quorum: Arc::clone(quorum),
            list: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            unobserved: AtomicUsize::new(0),
        })
    }

    /// Changes the list. What is removed from it is returned, and so dropped without the lock: a lease can be the last
    /// owner of what its handlers have captured.
    fn change<R>(&self, change: impl FnOnce(&mut PendingList) -> R) -> R {
        change(&mut self.list.lock())
    }

    // --- releases for which no thread waits --------------------------------------------------------------------------

    /// Counts a release for which no thread waits.
    pub(in crate::lease) fn count_unanswered(self: &Arc<Self>) -> UnansweredRelease {
        // Before the release is sent. Pairs with `await_outcomes`.
        self.unanswered.fetch_add(1, Ordering::SeqCst);
        UnansweredRelease { pending: Arc::clone(self), is_answered: false }
    }

    /// Waits while observers are too slow for the rate at which guards are dropped, until `by` at the latest. A server
    /// that hangs answers no release, so it leads to no such wait.
    pub(in crate::lease) fn wait_for_observers(&self, by: Tick) {
        while self.unobserved.load(Ordering::Relaxed) > MAX_UNOBSERVED && self.quorum.now() < by {
            self.quorum.clock.sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the outcome of all counted releases is known, for a node timeout at most.
    pub(crate) fn await_outcomes(&self) {
        // Pairs with `count_unanswered` and the drop of `UnansweredRelease`: after zero is read, each counted release
        // is confirmed or in the list. Otherwise `ClientInner::end` could miss one.
        let are_known = || self.unanswered.load(Ordering::SeqCst) == 0;
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

    // --- releases that are sent now ----------------------------------------------------------------------------------

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

    /// Sends these releases, and those of the pending tokens of the key that `is_holder` selects. It does not wait for
    /// the replies. True if one was sent.
    pub(in crate::lease) fn release_again(
        &self,
        key: &Arc<str>,
        is_holder: impl Fn(&LockId) -> bool,
        mut releases: Vec<PendingRelease>,
    ) -> bool {
        let now = self.quorum.now();
        let is_selected = |one: &&PendingRelease| one.key == *key && one.id.as_ref().is_some_and(&is_holder);
        let _expired = self.change(|list| {
            let expired = list.expire(now);
            releases.extend(list.all.iter().filter(is_selected).cloned());
            expired
        });
        // Without the lock: a callback can add a release. During a minimum hold, a release would free nothing.
        let due = releases.iter().filter(|one| one.keep_until <= now && one.is_free());
        due.map(|one| self.quorum.post(&one.call(now), |_| ())).count() > 0
    }

    // --- the list ----------------------------------------------------------------------------------------------------

    /// Adds a release, which is repeated soon.
    pub(crate) fn add(self: &Arc<Self>, release: PendingRelease) {
        let mut is_first_lost = false;
        let mut is_new_plan = false;
        self.change(|list| {
            if list.is_closed {
                return vec![release];
            }
            let was_overflowing = list.is_overflowing;
            let removed = list.add(release, self.quorum.now());
            is_first_lost = list.is_overflowing && !was_overflowing;
            is_new_plan = !list.is_planned && list.has_repeats();
            list.is_planned |= is_new_plan;
            removed
        });
        // Without the lock: the logger of a program may use this client.
        if is_first_lost {
            log::warn!(
                "more than {MOST} releases are not confirmed, so some are not repeated; \
                 their locks stay taken until their leases end"
            );
        }
        if is_new_plan {
            self.plan(FIRST_PAUSE);
        }
    }

    /// Adds a release that was never sent, and sends it in the background.
    pub(crate) fn add_unsent(self: &Arc<Self>, release: PendingRelease) {
        let (this, first) = (Arc::clone(self), release.clone());
        self.add(release);
        self.quorum.nodes.background().after(Duration::ZERO, move || this.send(&[first]));
    }

    #[cfg(test)]
    pub(in crate::lease) fn is_idle(&self) -> bool {
        !self.list.lock().is_planned
    }

    /// Returns what is still to be released, and forgets it.
    pub(crate) fn take(&self) -> Vec<PendingRelease> {
        let mut all = self.change(|list| std::mem::take(&mut list.all));
        all.retain(|one| one.repeats);
        all
    }

    /// Like [`take`](Pending::take). Further releases are not remembered.
    pub(crate) fn close(&self) -> Vec<PendingRelease> {
        self.list.lock().is_closed = true;
        self.take()
    }

    /// The planned call keeps this alive: a guard may be the last owner of its client. If no thread can be started, the
    /// next release tries again. Without the lock, since that is logged.
    fn plan(self: &Arc<Self>, pause: Duration) {
        let this = Arc::clone(self);
        if !self.quorum.nodes.background().after(pause, move || this.repeat(pause)) {
            self.list.lock().is_planned = false;
        }
    }

    /// A release stays in the list while it is sent. So `close` returns all of them, and the list is bounded as a
    /// whole.
    fn repeat(self: &Arc<Self>, pause: Duration) {
        self.send_all();
        let goes_on = self.change(|list| {
            list.is_planned = list.has_repeats();
            list.is_planned
        });
        if goes_on {
            self.plan(pause.saturating_mul(2).min(LAST_PAUSE));
        }
    }

    /// For a client that ends, since its process may end next. Sends once more what failed.
    pub(in crate::lease) fn finish(self: &Arc<Self>) {
        self.await_outcomes();
        if self.list.lock().has_repeats() {
            self.send_all();
        }
    }

    fn send_all(&self) {
        self.change(|list| list.expire(self.quorum.now()));
        let due: Vec<_> = self.list.lock().all.iter().filter(|one| one.repeats).cloned().collect();
        self.send(&due);
    }

    /// Sends these releases. Those that are done are not repeated any more. They stay in the list, since a late copy of
    /// an acquire may set their tokens again.
    fn send(&self, due: &[PendingRelease]) {
        let left = send_releases(&self.quorum, due.to_vec(), self.quorum.round_deadline());
        let left: HashSet<&str> = left.iter().map(|(one, _)| one.name()).collect();
        let done: HashSet<&str> = due.iter().map(PendingRelease::name).filter(|name| !left.contains(name)).collect();
        self.change(|list| {
            let done = list.all.iter_mut().filter(|one| done.contains(one.name()));
            done.filter_map(PendingRelease::released).collect::<Vec<_>>()
        });
    }
}

impl PendingList {
    /// Adds one, unless it is there. A full list drops one that is not repeated, or else the one that ends first: its
    /// key is the first to expire. Returns what was removed.
    fn add(&mut self, release: PendingRelease, now: Tick) -> Vec<PendingRelease> {
        if let Some(other) = self.all.iter_mut().find(|other| other.name() == release.name()) {
            return vec![if other.repeats { release } else { std::mem::replace(other, release) }];
        }
        self.all.push(release);
        let mut removed = self.expire(now);
        let worth = |i: &usize| self.all.get(*i).map(|one| (one.repeats, one.ends));
        let first = (0..self.all.len()).filter(|_| self.all.len() > MOST).min_by_key(worth);
        let lost = first.map(|first| self.all.remove(first));
        self.is_overflowing = lost.as_ref().is_some_and(|one| one.repeats);
        removed.extend(lost);
        removed
    }

    fn expire(&mut self, now: Tick) -> Vec<PendingRelease> {
        self.all.extract_if(.., |one| one.ends <= now).collect()
    }

    fn has_repeats(&self) -> bool {
        self.all.iter().any(|one| one.repeats)
    }
}
