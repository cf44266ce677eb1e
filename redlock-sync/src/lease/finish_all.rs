//! Ends several leases at once: their releases are sent together.

use std::sync::Arc;

use super::Lease;
use super::backlog::{Backlog, GivenUp, PendingRelease};
use super::core::{Core, PreparedRelease, ReleaseOutcome};
use crate::clock::Tick;
use crate::error::Error;
use crate::node::Priority;
use crate::quorum::Quorum;

/// Ends the leases in this order, each like [`Lease::finish`]. If several fail, a loss is returned rather than any
/// other error.
pub(crate) fn finish_all(quorum: &Quorum, leases: &[Lease]) -> Result<(), Error> {
    let (began, timeout) = (quorum.now(), quorum.limits.node_timeout);
    let (mut ends, mut ready) = (Vec::new(), Vec::new());
    for lease in leases {
        if let Some(result) = lease.prepare_end(began) {
            ends.push(result);
            continue;
        }
        match lease.core.begin_release(began.after(timeout * 2).since(quorum.now())) {
            Ok(release) => ready.push((lease, release)),
            Err(release) => ends.push(lease.released(began, release)),
        }
    }
    if !ready.is_empty() {
        ends.extend(release_all(quorum, ready, began));
    }
    let worst = ends.iter().position(|end| end.as_ref().is_err_and(Error::is_lost));
    worst.or_else(|| ends.iter().position(Result::is_err)).map_or(Ok(()), |worst| ends.swap_remove(worst))
}

fn release_all(quorum: &Quorum, ready: Vec<(&Lease, PreparedRelease<'_>)>, began: Tick) -> Vec<Result<(), Error>> {
    let by = quorum.round_deadline();
    let (leases, ready): (Vec<&Lease>, Vec<PreparedRelease<'_>>) = ready.into_iter().unzip();
    let calls: Vec<_> = ready.iter().map(|one| one.call.clone()).collect();
    let ballots = quorum.rounds(&calls, Priority::High, by);
    // All rounds end before a handler is called.
    let conclude = |(one, ballot): (PreparedRelease<'_>, _)| (one.is_orderly(), one.conclude(ballot, by, true));
    let ends: Vec<(bool, ReleaseOutcome)> = ready.into_iter().zip(ballots).map(conclude).collect();
    let end = |(lease, (is_orderly, release)): (&Lease, (bool, ReleaseOutcome))| {
        lease.released(began, lease.core.end_release(release, is_orderly))
    };
    leases.into_iter().zip(ends).map(end).collect()
}

/// Releases all these locks and the overdue releases, together and within two node timeouts, and then calls the loss
/// handlers. The guards report their locks lost. Returns those that were held.
pub(crate) fn revoke(backlog: &Arc<Backlog>, held: Vec<Arc<Core>>, overdue: Vec<PendingRelease>) -> GivenUp {
    let revoked: Vec<_> = held.into_iter().filter(|core| core.revoke()).collect();
    let unconfirmed = backlog.release_now(revoked.iter().map(Core::pending_release).chain(overdue).collect());
    // Last, since a handler may take any time.
    for core in &revoked {
        core.tell_loss();
    }
    GivenUp { keys: revoked.iter().map(|core| core.key.as_str().to_owned()).collect(), unconfirmed }
}
