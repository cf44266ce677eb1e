//! Sharing the lease that a thread of this process already holds.

use crate::inner::ClientInner;
use crate::lease::Lease;
use crate::observer::{Event, LockKind};
use crate::options::{Kind, LockOptions, Mode};

/// Joins a lease that threads of this process share, if there is one for these settings.
///
/// A join needs no I/O, except for a check from time to time whether another process waits for the lock. If one does,
/// or if the lease may end soon, no more threads join this lease.
pub(crate) fn join(client: &ClientInner, key: &str, kind: Kind, options: &LockOptions) -> Option<Lease> {
    if kind.mode != Mode::Joint || !options.is_plain() || options.cancel.is_cancelled() || client.ready().is_err() {
        return None;
    }
    let (mut lease, is_check_due) = client.queues.join(key, kind, options)?;
    // The lease was held at that time, which is within this call.
    let now = lease.taken;
    if !lease.core().is_fresh(now) || is_check_due && !lease.core().keeps_none_out() {
        lease.core().gate.close();
        return None;
    }
    // Only readers share a lease.
    client.quorum.limits.observers.notify(&Event::Wanted { lock: options.observed(key, LockKind::Read) });
    lease.acquired(now);
    Some(lease)
}
