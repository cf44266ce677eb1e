//! The release of a dropped guard: its thread sends it, and does not wait for the servers. It waits only if observers
//! are too slow.
//!
//! To every thread of this client, the lock is free at once. The next attempt follows the release on the connection on
//! which that is unanswered. So the drop need not wait.
//!
//! If a connection breaks or is stuck, the attempt can use another one, and find the token of the dropped guard. Then
//! the client sends the release again, before one more attempt: it knows its dropped guards until their releases are
//! answered (`Leases::release_again`).
//!
//! [`DroppedLock::answered`] gets the replies. Usually all servers have freed the lock, and nothing is left to do.
//! Otherwise the token becomes a pending one (`inner/pending.rs`). A background thread concludes the release like that
//! of any other guard: it logs a loss and calls the observers. It calls no loss handlers, since they are gone with the
//! guard.

use std::sync::Arc;
use std::time::Duration;

use super::Lease;
use super::inner::{LeaseInner, PreparedRelease, ReleaseOutcome, UnansweredRelease};
use crate::clock::Tick;
use crate::error::Error;
use crate::observer::Event;
use crate::protocol::reply::Released;
use crate::quorum::Ballot;

struct DroppedLock {
    inner: Arc<LeaseInner>,
    release: PreparedRelease,
    /// How long the lock was held, if observers were notified of the acquisition.
    held: Option<Duration>,
    unanswered: UnansweredRelease,
}

impl Lease {
    /// For a guard that is dropped. Waits for a renewal round under way, half a node timeout at most. Logs at most one
    /// line.
    pub(crate) fn release_detached(&self) {
        self.release_detached_within(self.inner.quorum.settings.half_round());
    }

    pub(crate) fn release_detached_within(&self, grace: Duration) {
        let began = self.inner.quorum.now();
        if self.prepare_end(began).is_some() {
            return;
        }
        // Before the lease says that it is released. Then `ClientInner::end` waits for the release.
        let unanswered = self.leases.pending.count_unanswered();
        self.stop_renewals(began);
        match self.inner.begin_release(began, grace) {
            Ok((rounds, release)) => {
                // No renewal follows the release: each first checks whether the lease is over.
                drop(rounds);
                self.post(release, began, unanswered);
                // Otherwise the background, which also repeats releases, would fall behind without a limit.
                self.leases.pending.wait_for_observers(began.after(grace));
            }
            Err(release) => log_end(&self.released(began, self.inner.end_release(release, &self.leases.pending))),
        }
    }

    fn post(&self, release: PreparedRelease, began: Tick, unanswered: UnansweredRelease) {
        self.inner.record_drop(&release);
        let call = release.call.clone();
        let dropped =
            DroppedLock { inner: Arc::clone(&self.inner), release, held: self.observed_until(began), unanswered };
        self.inner.quorum.post(&call, move |ballot| dropped.answered(ballot));
        // The next thread of this client goes on now. Its attempt is sent after the release.
        self.inner.release_queue_head();
        self.inner.notify_loss();
        // What the handlers have captured is dropped here, and not on a thread that reads replies.
        self.inner.forget_all_handlers();
    }
}

impl DroppedLock {
    /// Called by a thread that must neither block nor send anything.
    fn answered(mut self, ballot: Ballot<Released>) {
        if self.release.leaves_nothing_to_do(&ballot) && self.held.is_none() {
            self.inner.record_waits(&self.release, &ballot);
            return;
        }
        if let Some(pending) = self.inner.pending(&self.release, &ballot) {
            self.unanswered.pending.add(*pending);
        }
        self.unanswered.answered();
        let quorum = Arc::clone(&self.inner.quorum);
        quorum.nodes.background().after(Duration::ZERO, move || self.finish(ballot));
    }

    fn finish(self, ballot: Ballot<Released>) {
        // Dropped at the end: until then the observers are not called.
        let DroppedLock { inner, release, held, unanswered: _unanswered } = self;
        let by = inner.quorum.round_deadline();
        let rounds = inner.rounds.lock();
        let ReleaseOutcome { result, is_orderly, .. } = inner.finish_release(&release, ballot, by, false);
        drop(rounds);
        // A loss that was noticed before was already reported.
        if let (Err(Error::Lost { reason, .. }), true) = (&result, is_orderly) {
            inner.log_loss(*reason);
            if let Some(held) = held {
                inner.quorum.settings.observers.notify(&Event::Lost { lock: inner.observed(), held, reason: *reason });
            }
        }
        inner.notify_end(held, &result);
        log_end(&result);
    }
}

/// Logs what went wrong at the end of a lease, if no call returns it. A loss is logged where it is noticed.
pub(crate) fn log_end(result: &Result<(), Error>) {
    match result {
        Ok(()) | Err(Error::Closed | Error::Lost { .. }) => {}
        Err(error @ Error::Unconfirmed { .. }) => log::warn!("{error}; the call is repeated in the background"),
        Err(error) => log::warn!("{error}"),
    }
}
