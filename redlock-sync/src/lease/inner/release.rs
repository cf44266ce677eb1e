//! The end of a lease: release, grant, revocation.

use std::sync::Arc;
use std::time::Duration;

use super::loss::reason_of;
use super::pending::{Pending, PendingRelease};
use super::{LeaseInner, ReleaseOutcome, RoundState};
use crate::clock::Tick;
use crate::error::{Error, LostReason};
use crate::handover::grant;
use crate::lease::release_votes::{is_confirmed, is_gone, is_gone_from, merge};
use crate::lease::state::LeaseState;
use crate::protocol::TypedCall;
use crate::protocol::reply::{PerNode, Released, Reply, Vote};
use crate::protocol::{Next, ReleaseArgs};
use crate::quorum::Ballot;
use crate::sync::MutexGuard;
use crate::token::random_part_of;

/// The release of a lease: the call, and what decides how its votes are judged.
pub(in crate::lease) struct PreparedRelease {
    pub(in crate::lease) call: TypedCall<Released>,
    is_orderly: bool,
    /// The rest of the minimum hold.
    keep: Duration,
    /// The nodes that may have had the token.
    may_have: PerNode<bool>,
    /// A copy of our acquire may still be executed on a node.
    acquire_may_run: bool,
}

impl PreparedRelease {
    /// True if nothing is left to do: all nodes have freed or granted the lock.
    pub(in crate::lease) fn leaves_nothing_to_do(&self, ballot: &Ballot<Released>) -> bool {
        let is_plain =
            |vote: &Vote<Released>| matches!(vote, Vote::Yes(Released::Freed | Released::Granted | Released::InPause));
        self.is_orderly && !self.acquire_may_run && !ballot.duplicate && ballot.votes.iter().all(is_plain)
    }
}

impl LeaseInner {
    /// Ends the lease, if its time has not passed. Returns the state before: of all that end it, one gets a live one.
    fn end(&self, how: LeaseState, now: Tick) -> LeaseState {
        self.change(|state| {
            state.expire(now, &self.options);
            state.end(how)
        })
    }

    /// Records that the guard is dropped, and released in this way.
    pub(in crate::lease) fn record_drop(&self, release: &PreparedRelease) {
        self.state.lock().is_dropped = release.keep.is_zero();
    }

    /// Lets the release be sent again, before it is. From then on, its reply "not held" is no loss. False if the token
    /// may have a guard, or stays for a minimum hold.
    pub(in crate::lease) fn repeat_release(&self) -> bool {
        self.state.lock().repeat_release()
    }

    /// Records whether other processes wait for the lock, as the reply shows.
    pub(in crate::lease) fn record_waits(&self, release: &PreparedRelease, ballot: &Ballot<Released>) {
        // A grant was offered, and no wait took it. During a minimum hold, nothing is offered.
        let is_offered = release.is_orderly && release.keep.is_zero();
        let is_freed = |vote: &Vote<Released>| !vote.is_yes() || *vote == Vote::Yes(Released::Freed);
        let is_uncontended = is_offered && ballot.won() && ballot.votes.iter().all(is_freed);
        self.quorum.uncontended.record(self.key.as_str(), is_uncontended, self.quorum.now());
    }

    /// Concludes a release from its ballot. While connection errors leave it unconfirmed, it is repeated until `by`.
    /// A repetition grants nothing. The caller has locked `rounds`, so no other round of the lease begins.
    pub(in crate::lease) fn finish_release(
        self: &Arc<Self>,
        release: &PreparedRelease,
        mut ballot: Ballot<Released>,
        by: Tick,
        may_repeat: bool,
    ) -> ReleaseOutcome {
        self.record_waits(release, &ballot);
        let quorum = &self.quorum;
        if let Some(lock) = self.protocol().lock() {
            // Several nodes reserve it under the random part of the released token.
            grant::unreserve(quorum, lock, &ballot, random_part_of(self.id.as_str()), by);
        }
        let mut is_inferred = ballot.duplicate && ballot.votes.iter().any(is_gone);
        let pause = quorum.settings.resend_pause();
        while may_repeat && !is_confirmed(&ballot) && quorum.now().after(pause) < by {
            quorum.clock.sleep(pause);
            let missing = |i: usize| ballot.votes.get(i).is_some_and(|v| !v.is_definite());
            let again = quorum.round_on(&self.release_call(release.keep, Next::Anybody), by, &missing);
            is_inferred |= again.votes.iter().any(is_gone);
            merge(&mut ballot, again);
        }
        let result = self.release_result(&release.may_have, &ballot, is_inferred);
        ReleaseOutcome { result, is_orderly: release.is_orderly, pending: self.pending(release, &ballot) }
    }

    /// What a node may still have after a release. `None` if a majority and each node that may have had the token said
    /// that it is gone, and no copy of the acquire may still be executed.
    pub(in crate::lease) fn pending(
        self: &Arc<Self>,
        release: &PreparedRelease,
        ballot: &Ballot<Released>,
    ) -> Option<Box<PendingRelease>> {
        let has_majority = is_confirmed(ballot);
        // A majority is enough for the caller. A node that was just left out keeps the token until it expires, unless
        // it is asked again.
        let is_gone_everywhere = has_majority && is_gone_from(&release.may_have, ballot);
        (!is_gone_everywhere || release.acquire_may_run || ballot.duplicate).then(|| {
            Box::new(PendingRelease {
                // With a majority, the end of the client does not wait for the other nodes.
                lease: (!has_majority).then(|| Arc::clone(self)),
                repeats: !is_gone_everywhere,
                ..self.pending_release_from(release.may_have.to_vec())
            })
        })
    }

    /// Releases the lock on all nodes. Waits up to `grace` for a renewal round under way, then a node timeout for the
    /// answers.
    pub(crate) fn release(self: &Arc<Self>, grace: Duration, pending: &Arc<Pending>) -> Result<(), Error> {
        let outcome = self.begin_release(self.quorum.now(), grace).map(|(_rounds, release)| {
            let by = self.quorum.round_deadline();
            let ballot = self.quorum.quick_round(&release.call, by);
            self.finish_release(&release, ballot, by, true)
        });
        self.end_release(outcome.unwrap_or_else(|outcome| outcome), pending)
    }

    /// Releases the lock, with another call behind the release, in one packet.
    pub(in crate::lease) fn release_and<R: Reply>(
        self: &Arc<Self>,
        then: &TypedCall<R>,
        grace: Duration,
    ) -> (ReleaseOutcome, Option<Ballot<R>>) {
        match self.begin_release(self.quorum.now(), grace) {
            Ok((_rounds, release)) => {
                let by = self.quorum.round_deadline();
                let (released, ballot) = self.quorum.round_of_two(&release.call, then, by);
                (self.finish_release(&release, released, by, true), Some(ballot))
            }
            Err(outcome) => (outcome, None),
        }
    }

    /// Everything before the call. While the state of the rounds is locked, no other round of the lease begins. `Err`
    /// is the outcome if there is nothing to send.
    pub(in crate::lease) fn begin_release(
        self: &Arc<Self>,
        now: Tick,
        grace: Duration,
    ) -> Result<(MutexGuard<'_, RoundState>, PreparedRelease), ReleaseOutcome> {
        let before = self.end(LeaseState::Released, now);
        if before == LeaseState::Lost(LostReason::Revoked) {
            // `unlock_all` releases it together with all others, and repeats that if it is not confirmed.
            let result = Err(self.lost(LostReason::Revoked));
            return Err(ReleaseOutcome { result, is_orderly: false, pending: None });
        }
        let is_orderly = before.is_live();
        let Some(rounds) = self.rounds.try_lock_for(grace) else { return Err(self.unreleased(is_orderly)) };
        let keep = self.keep();
        // A lease that was lost passes nothing on: the lock may have another holder.
        let next = if is_orderly {
            Next::First(grant::next_grant(&self.quorum, &self.options, self.threads_wait()))
        } else {
            Next::Anybody
        };
        let call = self.release_call(keep, next);
        let may_have = rounds.may_have.clone();
        let release = PreparedRelease { call, is_orderly, keep, may_have, acquire_may_run: rounds.acquire_may_run };
        Ok((rounds, release))
    }

    /// Everything after the call. Never with `rounds` of a lease held, since handlers are called.
    pub(in crate::lease) fn end_release(&self, release: ReleaseOutcome, pending: &Arc<Pending>) -> Result<(), Error> {
        // Before the next thread goes on: its attempt may find the token.
        release.pending.into_iter().for_each(|one| pending.add(*one));
        self.release_queue_head();
        self.notify_loss();
        // The lock was lost before, and that is noticed only now.
        if let Err(Error::Lost { reason, .. }) = release.result {
            if release.is_orderly {
                self.log_loss(reason);
            }
            self.notify_handlers(reason);
        }
        release.result
    }

    /// The rest of the minimum hold.
    pub(super) fn keep(&self) -> Duration {
        let until = self.state.lock().keep_until;
        until.since(self.quorum.now())
    }

    /// The outcome if the round under way did not end in time.
    fn unreleased(self: &Arc<Self>, is_orderly: bool) -> ReleaseOutcome {
        let state = self.state.lock().now;
        let error = match state {
            LeaseState::Lost(reason) if !self.may_still_end(reason) => self.lost(reason),
            _ => self.unconfirmed(None),
        };
        ReleaseOutcome { result: Err(error), is_orderly, pending: Some(Box::new(self.pending_release())) }
    }

    fn release_call(&self, keep: Duration, next: Next) -> TypedCall<Released> {
        self.protocol().release(&ReleaseArgs { id: Some(&self.id), keep, wait: self.wait.as_deref(), next })
    }

    /// The result of a release. `may_have`: the nodes that may have had the token. `is_inferred`: only a repetition was
    /// answered, by "not held". Before the lease ends, that means that the first copy released the lock. Afterwards,
    /// the key may have expired.
    fn release_result(&self, may_have: &[bool], ballot: &Ballot<Released>, is_inferred: bool) -> Result<(), Error> {
        if self.protocol().may_end_late() {
            if is_inferred && is_confirmed(ballot) && self.quorum.now() >= self.state.lock().until {
                return Err(self.unconfirmed(None));
            }
            if ballot.won() {
                return Ok(());
            }
        }
        let (state, is_release_repeated) = {
            let state = self.state.lock();
            (state.now, state.is_release_repeated)
        };
        if let LeaseState::Lost(reason) = state
            && (!self.may_still_end(reason) || is_confirmed(ballot))
        {
            return Err(self.lost(reason));
        }
        let had_it = may_have.iter().zip(&ballot.votes).filter(|(has, vote)| **has && !vote.is_definite_no()).count();
        // "Not held" is no loss in two cases. A transmission broke off: then it was executed. Or the release was sent
        // again: `repeat_release` stored that before, and it is read after the reply.
        let could_be_ours = had_it >= self.quorum.need() || ballot.duplicate || is_release_repeated;
        if !could_be_ours {
            let wrong_type = self.quorum.wrong_type("release", self.key.as_str(), ballot);
            return Err(wrong_type.unwrap_or_else(|| self.lost(reason_of(ballot))));
        }
        if is_confirmed(ballot) {
            return Ok(());
        }
        Err(self.unconfirmed(Some(ballot)))
    }

    /// True if a release after such a loss may still be accepted. Then the loss does not decide how the lease ends.
    fn may_still_end(&self, reason: LostReason) -> bool {
        match reason {
            LostReason::Revoked => true,
            LostReason::Taken | LostReason::Deleted => false,
            LostReason::Expired | LostReason::Unreachable | LostReason::MaxHold => self.protocol().may_end_late(),
        }
    }

    /// Ends the lease here and leaves the lock held, until it expires or another token adopts it. If a round under way
    /// does not end in time, the lease goes on, and the result is an error.
    pub(in crate::lease) fn leave_held(&self, grace: Duration, pending: &Arc<Pending>) -> Result<(), Error> {
        // No renewal may follow: it could set the token again on a node that lost the key.
        let Some(_rounds) = self.rounds.try_lock_for(grace) else { return Err(self.unconfirmed(None)) };
        self.still_ours()?;
        // `unlock_all` may have come in between.
        self.held_in(self.end(LeaseState::Released, self.quorum.now()))?;
        self.release_queue_head();
        // A release would remove this wait too.
        if let Some(wait) = &self.wait {
            pending.add(PendingRelease::of_wait(Arc::clone(&self.protocol), self.key.name(), wait, &self.quorum));
        }
        Ok(())
    }

    /// Revokes the lock although its guard lives; from now on the guard reports it lost. False if it was not held any
    /// more. The caller has to release it, and to call [`notify_loss`](LeaseInner::notify_loss).
    pub(crate) fn revoke(&self) -> bool {
        if self.process.is_forked_child() {
            return false;
        }
        // In the meantime its guard may have ended, or handed the lock over: then the token is not ours to release.
        self.end(LeaseState::Lost(LostReason::Revoked), self.quorum.now()).is_live()
    }

    /// The error for a release that no majority confirmed. `ballot` is what the nodes answered.
    pub(crate) fn unconfirmed(&self, ballot: Option<&Ballot<Released>>) -> Error {
        Error::Unconfirmed {
            key: self.key.as_str().to_owned(),
            confirmed: ballot.map_or(0, Ballot::definite),
            of: self.quorum.len(),
            nodes: ballot.map_or_else(Vec::new, |ballot| self.quorum.node_errors(&ballot.votes)),
        }
    }

    /// The latest time at which a node can still have the token. A lost lease may have been extended by calls whose
    /// replies never came.
    fn token_ends(&self) -> Tick {
        let state = self.state.lock();
        let is_over = matches!(state.now, LeaseState::Lost(reason) if reason != LostReason::Revoked);
        if is_over { state.latest } else { state.latest.max(self.quorum.now().after(self.options.lease)) }
    }

    /// The release of a lease that has ended. While a round is under way, any node may have the token.
    pub(crate) fn pending_release(self: &Arc<Self>) -> PendingRelease {
        let known = self.rounds.try_lock().map(|rounds| rounds.may_have.to_vec());
        self.pending_release_from(known.unwrap_or_else(|| vec![true; self.quorum.len()]))
    }

    fn pending_release_from(self: &Arc<Self>, may_have: Vec<bool>) -> PendingRelease {
        let keep_until = self.state.lock().keep_until;
        PendingRelease {
            protocol: Arc::clone(self.protocol()),
            key: Arc::clone(self.key.name()),
            id: Some(self.id.clone()),
            wait: self.wait.clone(),
            keep_until,
            ends: self.token_ends(),
            lease: Some(Arc::clone(self)),
            may_have,
            repeats: true,
        }
    }
}
