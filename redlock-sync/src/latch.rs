//! The count-down latch: its arrivals and waits, on one node or several.
//!
//! The set of arrivals only grows, so a "yes" of one node needs no majority: an arrival counts if **any** node has it.
//! The invariant is that a latch that was open for one thread is open for all.
//!
//! 1. An arrival is stored on a majority. Each check takes the union of all replies, so it includes every arrival that
//!    was confirmed, unless nodes lost it.
//! 2. If the union opens the latch, an open-mark is stored on a majority before a thread goes through. Otherwise the
//!    node with the last arrival could be missing from the next check, which would find the latch closed again. If each
//!    node of a majority has enough arrivals, no mark is needed.
//! 3. A check gives each node the arrivals or the mark that it lacks, with the lifetime that they have on the others.
//!    So a node that lost its data gets it back. If some node does not answer, it may have more arrivals than the
//!    others. The answer "closed" of a restarted node does not count then (`disqualify_restarted_within`).
//! 4. Many waiting threads would fetch many arrivals each second. So most of their checks ask for the counts only.
//!
//! Lost data can close a latch, never open it.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{MaxWait, WaitLimit};
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::error::Error;
use crate::handover::listener::{Awaits, ListenerWait, Woken};
use crate::handover::rules::{LONGEST_SLEEP, QUEUE_LIFETIME};
use crate::inner::ClientInner;
use crate::key::Key;
use crate::options::{Retry, jittered};
use crate::parker::pause;
use crate::protocol::latch_calls::LatchCalls;
use crate::protocol::reply::{LatchStatus, Vote};
use crate::protocol::{TypedCall, WaitArgs};

/// The pauses between the checks of a wait that will be notified. With one node, the client checks each second that the
/// wait is still recorded there. With several, the node that notifies can lack arrivals.
const LONGEST_ON_SEVERAL: Duration = Duration::from_secs(1);
/// The first of each group of this many checks asks for the arrivals, even if all nodes have the same count.
const FULL_CHECK_INTERVAL: u32 = 10;
/// The longest time for which one of several nodes keeps a wait without a further check.
const WAIT_LIFETIME_SEVERAL: Duration = Duration::from_secs(30);

/// How error messages name the operations of this latch, and the setting for the lifetime of its arrivals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatchTerms {
    pub(crate) check: &'static str,
    pub(crate) arrive: &'static str,
    pub(crate) reset: &'static str,
    pub(crate) lifetime: &'static str,
}

/// A latch of one name, with its settings.
#[derive(Debug)]
pub(crate) struct Latch {
    pub(crate) client: Arc<ClientInner>,
    /// The name of the latch in errors.
    pub(crate) name: Key,
    pub(crate) terms: LatchTerms,
    pub(crate) calls: LatchCalls,
    pub(crate) lifetime: Duration,
    pub(crate) retry: Retry,
    /// Like [`LockOptions::unavailable_after`](crate::options::LockOptions::unavailable_after).
    pub(crate) unavailable_after: Duration,
    pub(crate) cancel: Cancelling,
}

/// The state of a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) is_open: bool,
    pub(crate) arrived: usize,
}

/// The union of what the nodes have.
#[derive(Debug, Default, PartialEq, Eq)]
struct ArrivalUnion<'a> {
    arrivals: BTreeSet<&'a str>,
    /// The number of nodes on which the latch is open by itself.
    open: usize,
    /// The largest number of arrivals on one node.
    count: usize,
    /// The longest remaining lifetime of the arrivals on any node. Only an arrival extends it.
    kept: Duration,
}

impl<'a> ArrivalUnion<'a> {
    fn of(votes: &'a [Vote<LatchStatus>]) -> ArrivalUnion<'a> {
        // A lifetime of zero would delete the key.
        let mut union = ArrivalUnion { kept: Duration::from_millis(1), ..ArrivalUnion::default() };
        for status in votes.iter().filter_map(status_of) {
            union.arrivals.extend(status.arrivals.iter().map(String::as_str));
            union.open += usize::from(status.is_open);
            union.count = union.count.max(status.count);
            union.kept = union.kept.max(status.kept.unwrap_or_default());
        }
        union
    }

    fn arrived(&self) -> usize {
        self.arrivals.len().max(self.count)
    }

    /// True if some node that answered has fewer arrivals than another.
    fn is_uneven(&self, votes: &[Vote<LatchStatus>]) -> bool {
        votes.iter().filter_map(status_of).any(|status| status.count != self.count)
    }

    /// The arrivals that some nodes lack, and for each node whether it lacks any.
    fn lacking(&self, votes: &[Vote<LatchStatus>]) -> (BTreeSet<&'a str>, Vec<bool>) {
        let missing_in = |status: &LatchStatus| -> Vec<&'a str> {
            let has: BTreeSet<&str> = status.arrivals.iter().map(String::as_str).collect();
            self.arrivals.iter().copied().filter(|arrival| !has.contains(arrival)).collect()
        };
        let missing: Vec<Vec<&str>> =
            votes.iter().map(|vote| status_of(vote).map(missing_in).unwrap_or_default()).collect();
        let nodes = missing.iter().map(|arrivals| !arrivals.is_empty()).collect();
        (missing.into_iter().flatten().collect(), nodes)
    }
}

fn status_of(vote: &Vote<LatchStatus>) -> Option<&LatchStatus> {
    if let Vote::Yes(status) = vote { Some(status) } else { None }
}

impl Latch {
    /// Stores an arrival on a majority. Repeated attempts use the same name, so the arrival counts once.
    pub(crate) fn arrive(&self, arrival: &str) -> Result<(), Error> {
        self.store(&self.calls.arrive(&[arrival], self.lifetime), MaxWait::Forever)
    }

    /// Opens the latch as if all had arrived. This works on a full server too.
    pub(crate) fn open(&self, limit: MaxWait) -> Result<(), Error> {
        self.store(&self.calls.open(self.lifetime), limit)
    }

    fn store(&self, call: &TypedCall<()>, limit: MaxWait) -> Result<(), Error> {
        let _call = self.client.begin_call();
        self.client.check_not_ended()?;
        let quorum = &self.client.quorum;
        let mut waiting = LatchWait::new(self, limit);
        loop {
            let tried_at = quorum.now();
            let ballot = quorum.round(call, quorum.round_deadline());
            quorum.no_conflict()?;
            if ballot.won() {
                waiting.limit.answered();
                return Ok(());
            }
            let error = quorum.failed(self.terms.arrive, self.name.as_str(), &ballot);
            waiting.pause_of_holder(error, tried_at)?;
        }
    }

    /// Deletes all arrivals on every node. A node that was left out would give its arrivals back to the others.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let _call = self.client.begin_call();
        self.client.check_not_ended()?;
        let quorum = &self.client.quorum;
        let ballot = quorum.round(&self.calls.reset(), quorum.round_deadline());
        quorum.no_conflict()?;
        if ballot.votes.iter().all(|vote| vote.is_yes() || matches!(vote, Vote::Absent)) {
            return Ok(());
        }
        let (op, key) = (self.terms.reset, self.name.as_str());
        Err(quorum.wrong_type(op, key, &ballot).unwrap_or_else(|| quorum.failed(op, key, &ballot)))
    }

    /// Checks the latch once.
    pub(crate) fn progress(&self) -> Result<Progress, Error> {
        let _call = self.client.begin_call();
        self.client.check_not_ended()?;
        self.check(None, true)
    }

    /// Blocks until the latch is open.
    pub(crate) fn wait(&self, limit: MaxWait) -> Result<(), Error> {
        let _call = self.client.begin_call();
        self.client.check_open()?;
        self.cancel.check(self.terms.check, self.name.as_str())?;
        let mut waiting = LatchWait::new(self, limit);
        if self.client.listener.listens() {
            waiting.begin();
        }
        let outcome = self.wait_loop(&mut waiting);
        if outcome.is_err() {
            waiting.end_wait();
        }
        outcome
    }

    /// The loop of checks, with a sleep after each.
    fn wait_loop(&self, waiting: &mut LatchWait<'_>) -> Result<(), Error> {
        let quorum = &self.client.quorum;
        loop {
            let tried_at = quorum.now();
            let is_last = tried_at >= waiting.limit.until;
            // A check with an id is sent after the subscription was confirmed. So either the check finds the latch
            // open, or the call that opens it finds the wait.
            let id = waiting.wait.as_ref().and_then(ListenerWait::notified_id);
            // The thread sleeps for less time than the nodes keep the wait, so it is recorded whenever the latch opens.
            let longest = if quorum.len() > 1 { WAIT_LIFETIME_SEVERAL } else { QUEUE_LIFETIME };
            let stays = longest.min(waiting.limit.until.since(tried_at));
            let wait = id.as_deref().map(|id| WaitArgs { id, stays });
            waiting.entered = id.clone().or(waiting.entered.take());
            match self.check(wait, waiting.is_full_check_due(is_last)) {
                Ok(Progress { is_open: true, .. }) => {
                    waiting.limit.answered();
                    return Ok(());
                }
                Ok(_) => {
                    waiting.limit.answered();
                    // The last check has removed the wait from the nodes.
                    waiting.entered = waiting.entered.take().filter(|_| !is_last);
                    if is_last || waiting.limit.is_over() {
                        let key = self.name.as_str().to_owned();
                        return Err(Error::Busy { key, expires_in: None, by_this_thread: false, is_latch: true });
                    }
                    waiting.sleep(id.is_some())?;
                }
                Err(error) => waiting.pause_after(error, tried_at)?,
            }
        }
    }

    /// One round, and with several nodes up to two more, all within two node timeouts.
    ///
    /// A full check asks several nodes for their arrivals. Other checks ask for the numbers of arrivals; a full check
    /// follows if these differ.
    fn check(&self, wait: Option<WaitArgs<'_>>, is_full: bool) -> Result<Progress, Error> {
        let quorum = &self.client.quorum;
        self.check_within(wait, is_full, quorum.now().after(quorum.settings.two_rounds()))
    }

    fn check_within(&self, wait: Option<WaitArgs<'_>>, is_full: bool, by: Tick) -> Result<Progress, Error> {
        let quorum = &self.client.quorum;
        let is_full = is_full && quorum.len() > 1;
        let call = self.calls.check(wait, is_full);
        let mut ballot = quorum.round(&call, quorum.round_deadline().min(by));
        quorum.no_conflict()?;
        let union = ArrivalUnion::of(&ballot.votes);
        let is_open = union.open > 0 || union.arrived() >= self.calls.count;
        let progress = Progress { is_open, arrived: union.arrived().max(if is_open { self.calls.count } else { 0 }) };
        if is_open {
            return self.mark_open(&ballot.votes, &union, by).map(|()| progress);
        }
        if is_full {
            self.repair(&ballot.votes, &union, by);
        } else if union.is_uneven(&ballot.votes) {
            return self.check_within(wait, true, by);
        }
        // If all nodes have answered, no arrival can be missing from the union.
        if !ballot.votes.iter().all(Vote::is_yes) {
            quorum.disqualify_restarted_within(self.lifetime, self.terms.lifetime, &mut ballot.votes);
        }
        if ballot.won() { Ok(progress) } else { Err(quorum.failed(self.terms.check, self.name.as_str(), &ballot)) }
    }

    /// Makes sure that a majority is open. Every node that lacks the mark gets it, even if it is not needed now: a
    /// later round may depend on it.
    fn mark_open(&self, votes: &[Vote<LatchStatus>], union: &ArrivalUnion<'_>, by: Tick) -> Result<(), Error> {
        let quorum = &self.client.quorum;
        let is_open = |i: usize| votes.get(i).and_then(status_of).is_some_and(|status| status.is_open);
        let is_closed = |status: &LatchStatus| !status.is_open;
        if union.open >= quorum.need() && !votes.iter().filter_map(status_of).any(is_closed) {
            return Ok(());
        }
        let call = self.calls.open(union.kept);
        let ballot = quorum.round_on(&call, quorum.round_deadline().min(by), &|i| !is_open(i));
        if union.open + ballot.yes() >= quorum.need() {
            return Ok(());
        }
        Err(quorum.failed(self.terms.check, self.name.as_str(), &ballot))
    }

    /// Gives the nodes the arrivals that they lack. A node that is not reached gets them by a later check.
    fn repair(&self, votes: &[Vote<LatchStatus>], union: &ArrivalUnion<'_>, by: Tick) {
        let (lacking, nodes) = union.lacking(votes);
        if lacking.is_empty() {
            return;
        }
        let quorum = &self.client.quorum;
        let arrivals: Vec<&str> = lacking.into_iter().collect();
        let call = self.calls.arrive(&arrivals, union.kept);
        quorum.round_on(&call, quorum.round_deadline().min(by), &|i| nodes.get(i) == Some(&true));
    }
}

/// One call that waits for the latch.
struct LatchWait<'a> {
    latch: &'a Latch,
    limit: WaitLimit<'a>,
    /// The number of pauses without a subscription.
    polls: u32,
    /// The number of checks of counts until the next full check.
    count_checks: u32,
    wait: Option<ListenerWait>,
    /// The id under which the nodes may have recorded the wait.
    entered: Option<Arc<str>>,
}

impl<'a> LatchWait<'a> {
    fn new(latch: &'a Latch, limit: MaxWait) -> LatchWait<'a> {
        let limit = WaitLimit::new(&latch.client, latch.name.as_str(), limit, latch.unavailable_after);
        LatchWait { latch, limit, polls: 0, count_checks: 0, wait: None, entered: None }
    }

    /// The first check and the last one are full.
    fn is_full_check_due(&mut self, is_last: bool) -> bool {
        let is_due = self.count_checks == 0;
        self.count_checks = self.count_checks.checked_sub(1).unwrap_or(FULL_CHECK_INTERVAL - 1);
        is_due || is_last
    }

    fn begin(&mut self) -> &ListenerWait {
        self.wait.get_or_insert_with(|| self.latch.client.listener.begin())
    }

    /// Sleeps until the next check of a closed latch is due.
    fn sleep(&mut self, is_notified: bool) -> Result<(), Error> {
        let (several, waits) = (self.latch.client.quorum.len() > 1, self.latch.calls.waits.as_str().into());
        let wait = self.begin();
        if !is_notified && wait.subscription().is_some() {
            return Ok(());
        }
        // The client watches the set of waits: the node deletes it when the latch opens.
        let is_watched = is_notified && !several;
        wait.await_also(if is_watched { Awaits::Set(waits, Tick::NEVER) } else { Awaits::Nothing });
        let time = match (is_notified, several) {
            (true, true) => LONGEST_ON_SEVERAL,
            (true, false) => jittered(LONGEST_SLEEP),
            (false, _) => self.poll(),
        };
        self.sleep_for(time)
    }

    /// Removes the wait from the nodes. If that fails, they keep it until its deadline, or for [`QUEUE_LIFETIME`] at
    /// most.
    fn end_wait(&self) {
        let (Some(id), Latch { client, calls, .. }) = (self.entered.as_deref(), self.latch) else { return };
        let quorum = &client.quorum;
        // The check that was under way and this call together end two node timeouts after the deadline at the latest.
        let by = quorum.round_deadline().min(self.limit.until.after(quorum.settings.two_rounds()));
        let call = calls.check(Some(WaitArgs { id, stays: Duration::ZERO }), false);
        drop(quorum.round(&call, by));
    }

    /// Pauses after a failed round. Returns the error if a further attempt cannot help, or if the time is up.
    fn pause_after(&mut self, error: Error, tried_at: Tick) -> Result<(), Error> {
        self.may_repeat(error, tried_at)?;
        self.begin().await_also(Awaits::Servers);
        let time = self.poll();
        self.sleep_for(time)
    }

    /// Like [`pause_after`](Self::pause_after), for a call that goes on while the client shuts down. The listener is
    /// closed then, so it is not used.
    fn pause_of_holder(&mut self, error: Error, tried_at: Tick) -> Result<(), Error> {
        self.may_repeat(error, tried_at)?;
        let Latch { client, name, terms, cancel, .. } = self.latch;
        let end = client.quorum.now().after(self.poll()).min(self.limit.until);
        pause(&*client.quorum.clock, end, &[Some(&client.ended), cancel.get()]);
        client.check_not_ended()?;
        cancel.check(terms.arrive, name.as_str())
    }

    /// Returns the error of a round that failed, unless a further attempt can help and there is time left.
    fn may_repeat(&mut self, error: Error, tried_at: Tick) -> Result<(), Error> {
        if error.is_unavailable() && !self.limit.unanswered(&error, tried_at) { Ok(()) } else { Err(error) }
    }

    fn poll(&mut self) -> Duration {
        self.polls = self.polls.saturating_add(1);
        self.latch.retry.pause(self.polls, fastrand::f64())
    }

    fn sleep_for(&mut self, time: Duration) -> Result<(), Error> {
        let Latch { client, name, terms, cancel, .. } = self.latch;
        let until = client.quorum.now().after(time).min(self.limit.until);
        match self.begin().sleep(until, cancel) {
            Woken::Closed => Err(Error::Closed),
            Woken::Notified(_) | Woken::Timer | Woken::Connected => {
                client.check_open().and_then(|()| cancel.check(terms.check, name.as_str()))
            }
        }
    }
}
