//! The count-down latch: what its arrivals and its waits do on one node or several.
//!
//! A latch only grows, so no votes are weighed against each other: an arrival counts if **any** node has it. What has
//! to be kept is that a latch that was open for one thread is open for all.
//!
//! 1. An arrival is stored on a majority. Each look takes the union of all replies, so it sees every arrival that was
//!    confirmed, unless nodes lost it.
//! 2. If the union opens the latch, a mark is stored on a majority before a thread goes through. Otherwise the node
//!    that had the last arrival could be missing from the next look, and the latch would be closed again. A majority of
//!    nodes that have enough arrivals each needs no mark.
//! 3. A look gives the nodes the arrivals that they lack, or the mark, for as long as the others keep them: a node that
//!    lost its data gets it back. While another node does not answer, which may have more, it does not count among
//!    those that call the latch closed (`disqualify_restarted_within`).
//! 4. Many threads that wait would fetch many arrivals each second: most of their looks are brief, and ask for the
//!    numbers alone.
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
use crate::handover::listener::{self, Awaits, Woken};
use crate::inner::ClientInner;
use crate::key::Key;
use crate::node::Priority;
use crate::options::{Retry, jittered};
use crate::protocol::latch::LatchCalls;
use crate::protocol::reply::{Done, LatchStatus, Vote};
use crate::protocol::{TypedCall, WaitEntry};
use crate::quorum::Ballot;

/// How often a wait that will be told looks all the same: with one node, where its client sees each second whether it
/// is remembered still, and with several, where the node that tells it can lack arrivals.
const NAP: Duration = Duration::from_secs(30 * 60);
const NAP_SEVERAL: Duration = Duration::from_secs(1);
/// Of so many looks of a wait one asks for the arrivals, although all nodes have as many.
const LOOKS: u32 = 10;
/// For how long a node remembers a wait that does not look again: to its deadline, or for so long.
const STAYS: Duration = Duration::from_secs(60 * 60);
const STAYS_SEVERAL: Duration = Duration::from_secs(30);

/// The words of errors: what was tried, and what says for how long arrivals are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) look: &'static str,
    pub(crate) arrive: &'static str,
    pub(crate) reset: &'static str,
    pub(crate) lifetime: &'static str,
}

/// One latch, ready to be used.
#[derive(Debug)]
pub(crate) struct Latch {
    pub(crate) client: Arc<ClientInner>,
    /// What errors call it, and their words.
    pub(crate) name: Key,
    pub(crate) words: Words,
    pub(crate) calls: LatchCalls,
    pub(crate) count: usize,
    pub(crate) lifetime: Duration,
    pub(crate) retry: Retry,
    pub(crate) cancel: Cancelling,
}

/// How far a latch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) is_open: bool,
    pub(crate) arrived: usize,
}

/// What a look at several nodes asks for, besides whether the latch is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// How many arrivals each node has, as long as all have as many.
    Brief,
    /// The arrivals.
    Full,
}

/// What the nodes know together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Union<'a> {
    arrivals: BTreeSet<&'a str>,
    /// How many nodes are open by themselves.
    open: usize,
    /// The largest number of arrivals that one node tells.
    count: usize,
    /// For how long some node keeps them. Only an arrival makes that longer.
    kept: Duration,
}

impl<'a> Union<'a> {
    fn of(votes: &'a [Vote<LatchStatus>]) -> Union<'a> {
        // Zero would delete the key.
        let mut union = Union { kept: Duration::from_millis(1), ..Union::default() };
        for looked in votes.iter().filter_map(said) {
            union.arrivals.extend(looked.arrivals.iter().map(String::as_str));
            union.open += usize::from(looked.is_open);
            union.count = union.count.max(looked.count);
            union.kept = union.kept.max(looked.kept.unwrap_or_default());
        }
        union
    }

    fn arrived(&self) -> usize {
        self.arrivals.len().max(self.count)
    }

    /// Whether some node that answered has fewer arrivals than another one.
    fn is_uneven(&self, votes: &[Vote<LatchStatus>]) -> bool {
        votes.iter().filter_map(said).any(|looked| looked.count != self.count)
    }

    /// The arrivals that some nodes lack, and these nodes.
    fn lacking(&self, votes: &[Vote<LatchStatus>]) -> (BTreeSet<&'a str>, Vec<bool>) {
        let missing_in = |looked: &LatchStatus| -> Vec<&'a str> {
            let has: BTreeSet<&str> = looked.arrivals.iter().map(String::as_str).collect();
            self.arrivals.iter().copied().filter(|arrival| !has.contains(arrival)).collect()
        };
        let missing: Vec<Vec<&str>> = votes.iter().map(|vote| said(vote).map(missing_in).unwrap_or_default()).collect();
        let nodes = missing.iter().map(|arrivals| !arrivals.is_empty()).collect();
        (missing.into_iter().flatten().collect(), nodes)
    }
}

fn said(vote: &Vote<LatchStatus>) -> Option<&LatchStatus> {
    if let Vote::Yes(looked) = vote { Some(looked) } else { None }
}

impl Latch {
    /// Stores an arrival on a majority. Repeated under the same name, so that it counts once.
    pub(crate) fn arrive(&self, arrival: &str) -> Result<(), Error> {
        self.store(&self.calls.arrive(&[arrival], self.lifetime), MaxWait::Forever)
    }

    /// Opens it, as if all had arrived; also on a full server.
    pub(crate) fn open(&self, limit: MaxWait) -> Result<(), Error> {
        self.store(&self.calls.open(self.lifetime), limit)
    }

    fn store(&self, call: &TypedCall<Done>, limit: MaxWait) -> Result<(), Error> {
        let _competing = self.client.competes();
        self.client.serves()?;
        let quorum = &self.client.quorum;
        let mut waiting = LatchWait::new(self, limit);
        loop {
            let tried_at = quorum.now();
            let ballot = quorum.round(call, Priority::Normal, quorum.round_deadline(), &|_| true);
            match self.won(self.words.arrive, &ballot) {
                Ok(()) => {
                    waiting.limit.answered();
                    return Ok(());
                }
                Err(error) => waiting.after(error, tried_at)?,
            }
        }
    }

    /// Forgets all arrivals, on every node: one that was left out would give them back to the others.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let _competing = self.client.competes();
        self.client.serves()?;
        let quorum = &self.client.quorum;
        let ballot = quorum.round(&self.calls.reset(), Priority::Normal, quorum.round_deadline(), &|_| true);
        self.no_conflict()?;
        if ballot.votes.iter().all(|vote| vote.is_yes() || matches!(vote, Vote::Absent)) {
            return Ok(());
        }
        let (op, key) = (self.words.reset, self.name.as_str());
        if let Some(error) = quorum.wrong_type(op, key, &ballot) {
            return Err(error);
        }
        Err(quorum.failed(op, key, &ballot))
    }

    /// Looks once.
    pub(crate) fn progress(&self) -> Result<Progress, Error> {
        let _competing = self.client.competes();
        self.client.serves()?;
        self.look(None, Depth::Full)
    }

    fn is_on_several(&self) -> bool {
        self.client.quorum.len() > 1
    }

    /// For how long the nodes remember a wait that looks now. Its thread sleeps no longer, so it is told of whatever
    /// opens the latch before it looks again.
    fn stays(&self, until: Tick, now: Tick) -> Duration {
        let longest = if self.is_on_several() { STAYS_SEVERAL } else { STAYS };
        longest.min(until.since(now))
    }

    /// Blocks until it is open.
    pub(crate) fn wait(&self, limit: MaxWait) -> Result<(), Error> {
        let _competing = self.client.competes();
        self.client.ready()?;
        self.cancel.check(self.words.look, self.name.as_str())?;
        let listener = &self.client.listener;
        let mut waiting = LatchWait::new(self, limit);
        if limit != MaxWait::No && listener.listens() {
            waiting.wait = Some(listener.begin());
        }
        let outcome = self.looks(&mut waiting);
        if outcome.is_err() {
            waiting.leave();
        }
        outcome
    }

    fn looks(&self, waiting: &mut LatchWait<'_>) -> Result<(), Error> {
        let quorum = &self.client.quorum;
        loop {
            let tried_at = quorum.now();
            let is_last = tried_at >= waiting.limit.until;
            let id = waiting.id();
            let stays = self.stays(waiting.limit.until, tried_at);
            let entry = id.as_deref().map(|id| WaitEntry { id, stays, waited: Duration::ZERO });
            waiting.entered = id.clone().or(waiting.entered.take());
            match self.look(entry, waiting.depth(is_last)) {
                Ok(Progress { is_open: true, .. }) => {
                    waiting.limit.answered();
                    return Ok(());
                }
                Ok(_) => {
                    waiting.limit.answered();
                    // The last look has left.
                    waiting.entered = waiting.entered.take().filter(|_| !is_last);
                    if is_last || waiting.limit.is_over() {
                        let key = self.name.as_str().to_owned();
                        return Err(Error::Busy { key, expires_in: None, by_this_thread: false });
                    }
                    waiting.sleep(id.is_some())?;
                }
                Err(error) => waiting.after(error, tried_at)?,
            }
        }
    }

    /// One round, and what follows from it on several nodes: up to two more, all within two node timeouts.
    fn look(&self, entry: Option<WaitEntry<'_>>, depth: Depth) -> Result<Progress, Error> {
        let quorum = &self.client.quorum;
        self.look_within(entry, depth, quorum.now().after(quorum.limits.node_timeout * 2))
    }

    fn look_within(&self, entry: Option<WaitEntry<'_>>, depth: Depth, by: Tick) -> Result<Progress, Error> {
        let quorum = &self.client.quorum;
        let is_full = quorum.len() > 1 && depth == Depth::Full;
        let call = self.calls.check(entry, is_full);
        let mut ballot = quorum.round(&call, Priority::Normal, quorum.round_deadline().min(by), &|_| true);
        self.no_conflict()?;
        let union = Union::of(&ballot.votes);
        let is_open = union.open > 0 || union.arrived() >= self.count;
        let progress = Progress { is_open, arrived: union.arrived().max(if is_open { self.count } else { 0 }) };
        if is_open {
            return self.mark_open(&ballot.votes, &union, by).map(|()| progress);
        }
        if is_full {
            self.repair(&ballot.votes, &union, by);
        } else if union.is_uneven(&ballot.votes) {
            return self.look_within(entry, Depth::Full, by);
        }
        // If all have answered, no arrival is left that is not in the union.
        if !ballot.votes.iter().all(Vote::is_yes) {
            quorum.disqualify_restarted_within(self.lifetime, self.words.lifetime, &mut ballot.votes);
        }
        self.won(self.words.look, &ballot)?;
        Ok(progress)
    }

    /// Sees to it that a majority is open. Nodes that lack arrivals get the mark, also those that are not needed: they
    /// may be the next time.
    fn mark_open(&self, votes: &[Vote<LatchStatus>], union: &Union<'_>, by: Tick) -> Result<(), Error> {
        let quorum = &self.client.quorum;
        let is_open = |i: usize| votes.get(i).and_then(said).is_some_and(|looked| looked.is_open);
        let is_closed = |looked: &LatchStatus| !looked.is_open;
        if union.open >= quorum.need() && !votes.iter().filter_map(said).any(is_closed) {
            return Ok(());
        }
        let call = self.calls.open(union.kept);
        let ballot = quorum.round(&call, Priority::Normal, quorum.round_deadline().min(by), &|i| !is_open(i));
        if union.open + ballot.tally().yes >= quorum.need() {
            return Ok(());
        }
        Err(quorum.failed(self.words.look, self.name.as_str(), &ballot))
    }

    /// Gives nodes the arrivals that they lack. Those that it does not reach get them by a later look.
    fn repair(&self, votes: &[Vote<LatchStatus>], union: &Union<'_>, by: Tick) {
        let (lacking, nodes) = union.lacking(votes);
        if lacking.is_empty() {
            return;
        }
        let quorum = &self.client.quorum;
        let arrivals: Vec<&str> = lacking.into_iter().collect();
        let call = self.calls.arrive(&arrivals, union.kept);
        quorum.round(&call, Priority::Normal, quorum.round_deadline().min(by), &|i| nodes.get(i) == Some(&true));
    }

    fn won<R>(&self, op: &'static str, ballot: &Ballot<R>) -> Result<(), Error> {
        self.no_conflict()?;
        if ballot.tally().won() {
            return Ok(());
        }
        Err(self.client.quorum.failed(op, self.name.as_str(), ballot))
    }

    /// Asked after a round: only then every node that answered has told its identity.
    fn no_conflict(&self) -> Result<(), Error> {
        self.client.quorum.nodes.conflict().map_or(Ok(()), |conflict| Err(Error::config(conflict)))
    }
}

/// The pauses of a call that waits, and when it gives up.
struct LatchWait<'a> {
    latch: &'a Latch,
    limit: WaitLimit<'a>,
    /// Pauses in which the wait was told nothing.
    polls: u32,
    /// Brief looks until the next full one.
    brief_looks: u32,
    wait: Option<listener::ListenerWait>,
    /// The name under which nodes may remember it.
    entered: Option<String>,
}

impl<'a> LatchWait<'a> {
    fn new(latch: &'a Latch, limit: MaxWait) -> LatchWait<'a> {
        let limit = WaitLimit::new(&latch.client, limit);
        LatchWait { latch, limit, polls: 0, brief_looks: 0, wait: None, entered: None }
    }

    /// The wait's name to the nodes, while its client listens. A look that names it comes after the subscription was
    /// confirmed, so either it finds the latch open, or what opens it finds the wait.
    fn id(&self) -> Option<String> {
        let wait = self.wait.as_ref()?;
        wait.subscription().map(|at| format!("{}/{}", at.channel, wait.number()))
    }

    /// The first look and the last one are full.
    fn depth(&mut self, is_last: bool) -> Depth {
        let is_due = self.brief_looks == 0;
        self.brief_looks = self.brief_looks.checked_sub(1).unwrap_or(LOOKS - 1);
        if is_due || is_last { Depth::Full } else { Depth::Brief }
    }

    fn wait(&mut self) -> &listener::ListenerWait {
        self.wait.get_or_insert_with(|| self.latch.client.listener.begin())
    }

    /// Until it is time to look again at a closed latch.
    fn sleep(&mut self, is_told: bool) -> Result<(), Error> {
        let (several, waits) = (self.latch.is_on_several(), self.latch.calls.waits().into());
        let wait = self.wait();
        if !is_told && wait.subscription().is_some() {
            return Ok(());
        }
        // The node forgets its waits when it opens.
        let is_watched = is_told && !several;
        wait.await_also(if is_watched { Awaits::Set(waits, Tick::NEVER) } else { Awaits::Nothing });
        let nap = match (is_told, several) {
            (true, true) => NAP_SEVERAL,
            (true, false) => jittered(NAP),
            (false, _) => self.poll(),
        };
        self.rest(nap, self.latch.words.look)
    }

    /// Has the nodes forget it. Where that does not get through it is remembered until its deadline, or for as long as
    /// any wait.
    fn leave(&self) {
        let (Some(id), Latch { client, calls, .. }) = (self.entered.as_deref(), self.latch) else { return };
        let quorum = &client.quorum;
        // Two node timeouts behind the deadline in all, for what was under way and for this.
        let by = quorum.round_deadline().min(self.limit.until.after(quorum.limits.node_timeout * 2));
        let call = calls.check(Some(WaitEntry { id, stays: Duration::ZERO, waited: Duration::ZERO }), false);
        drop(quorum.round(&call, Priority::Normal, by, &|_| true));
    }

    /// Rests after a failure; returns the error if no further attempt can help, or the time is up.
    fn after(&mut self, error: Error, tried_at: Tick) -> Result<(), Error> {
        let Error::Unavailable { op, .. } = error else { return Err(error) };
        if self.limit.unanswered(&error, tried_at) {
            return Err(error);
        }
        self.wait().await_also(Awaits::Servers);
        let nap = self.poll();
        self.rest(nap, op)
    }

    fn poll(&mut self) -> Duration {
        self.polls = self.polls.saturating_add(1);
        self.latch.retry.pause(self.polls, fastrand::f64())
    }

    fn rest(&mut self, nap: Duration, op: &'static str) -> Result<(), Error> {
        let Latch { client, name, cancel, .. } = self.latch;
        let until = client.quorum.now().after(nap).min(self.limit.until);
        match self.wait().sleep(until, cancel) {
            Woken::Closed => Err(Error::Closed),
            Woken::Push(_) | Woken::Timer | Woken::Connected => {
                client.ready().and_then(|()| cancel.check(op, name.as_str()))
            }
        }
    }
}
