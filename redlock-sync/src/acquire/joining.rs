//! Joining what threads of this process have together.

use crate::inner::ClientInner;
use crate::lease::Lease;
use crate::observer::{Event, LockKind};
use crate::options::{Kind, LockOptions, Mode};

/// A part of the lease that threads of this process have together, if there is one for these settings. Without I/O, but
/// for a look from time to time whether another process is kept out: then, and if the lease may end soon, no more
/// threads join it.
pub(crate) fn join(client: &ClientInner, key: &str, kind: Kind, options: &LockOptions) -> Option<Lease> {
    if kind.mode != Mode::Joint || !options.is_plain() || options.cancel.is_cancelled() || client.ready().is_err() {
        return None;
    }
    let (mut lease, is_check_due) = client.queues.join(key, kind, options)?;
    // It was held at that moment, which is within this call.
    let now = lease.taken;
    if !lease.core().is_fresh(now) || is_check_due && !lease.core().keeps_none_out() {
        lease.core().gate.close();
        return None;
    }
    // Only readers share a lease.
    client.quorum.limits.observers.tell(&Event::Wanted { lock: options.observed(key, LockKind::Read) });
    lease.acquired(now);
    Some(lease)
}
