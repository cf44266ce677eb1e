//! Ends several leases at once: their releases are sent together.

use std::sync::Arc;

use super::Lease;
use super::inner::{GivenUp, LeaseInner, Pending, PendingRelease};
use crate::error::Error;
use crate::quorum::Quorum;

/// Ends the leases in this order, each like [`Lease::release`]. If several fail, a loss is returned rather than any
/// other error.
pub(crate) fn release_all(quorum: &Quorum, leases: &[Lease]) -> Result<(), Error> {
    let began = quorum.now();
    let (mut ends, mut held) = (Vec::new(), Vec::new());
    for lease in leases {
        match lease.prepare_end(began) {
            Some(result) => ends.push(result),
            None => held.push(lease),
        }
    }
    let _unanswered = held.first().map(|lease| lease.leases.pending.count_unanswered());
    let (mut ready, mut over) = (Vec::new(), Vec::new());
    for lease in held {
        lease.stop_renewals(began);
        let now = quorum.now();
        match lease.inner.begin_release(now, began.after(quorum.settings.two_rounds()).since(now)) {
            Ok(release) => ready.push((lease, release)),
            Err(release) => over.push((lease, release)),
        }
    }
    if !ready.is_empty() {
        let by = quorum.round_deadline();
        let calls: Vec<_> = ready.iter().map(|(_, (_, release))| release.call.clone()).collect();
        let ballots = quorum.quick_rounds(&calls, by);
        for ((lease, (_rounds, release)), ballot) in ready.into_iter().zip(ballots) {
            over.push((lease, lease.inner.finish_release(&release, ballot, by, true)));
        }
    }
    // All rounds have ended, so no handler and no observer runs between two of them.
    ends.extend(
        over.into_iter()
            .map(|(lease, release)| lease.released(began, lease.inner.end_release(release, &lease.leases.pending))),
    );
    let worst = ends.iter().position(|end| end.as_ref().is_err_and(Error::is_lost));
    worst.or_else(|| ends.iter().position(Result::is_err)).map_or(Ok(()), |worst| ends.swap_remove(worst))
}

/// Takes these locks from their guards, which report them lost, and releases them. Returns those that were held.
pub(crate) fn revoke(pending: &Arc<Pending>, held: Vec<Arc<LeaseInner>>) -> GivenUp {
    let held: Vec<_> = held.into_iter().filter(|inner| inner.revoke()).collect();
    let (given_up, left) = release_revoked(pending, &held, Vec::new());
    for one in left {
        pending.add(one);
    }
    notify_losses(&held);
    given_up
}

/// Releases the locks that were revoked and the overdue releases, together and within two node timeouts. Also returns
/// the releases that are not done by then.
pub(crate) fn release_revoked(
    pending: &Pending,
    revoked: &[Arc<LeaseInner>],
    overdue: Vec<PendingRelease>,
) -> (GivenUp, Vec<PendingRelease>) {
    let all = revoked.iter().map(LeaseInner::pending_release).chain(overdue).collect();
    let (unconfirmed, left) = pending.release_now(all);
    (GivenUp { keys: revoked.iter().map(|inner| inner.key.as_str().to_owned()).collect(), unconfirmed }, left)
}

/// Calls the loss handlers of these locks. It comes last, since a handler may take any time.
pub(crate) fn notify_losses(revoked: &[Arc<LeaseInner>]) {
    for inner in revoked {
        inner.notify_loss();
    }
}
