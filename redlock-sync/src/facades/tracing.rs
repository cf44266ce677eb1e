//! Feature `tracing`: events with fields.

use tracing::{debug, warn};

use crate::observer::{Event, Observer};

/// Feature `tracing`: an [`Observer`] that writes an event with fields for each thing that happens. The target is
/// `redlock_sync::locks`. A loss, a renewal that fails and a release that no majority confirmed are at WARN. The rest
/// is at DEBUG. Events are recorded in the span of the thread that holds the lock. Only those of renewals are not,
/// since renewals have a thread of their own.
///
/// With or without this observer, the body of an annotated function runs in a span `locked` of the same target, at
/// DEBUG. The span has the fields `label`, `key` (of several locks all of them) and `kind`. It lasts until the lock is
/// released.
///
/// The library still logs the same losses with the crate `log`: leave out one of the two.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Redlock, Tracing};
/// let locks = Redlock::builder().node(&url).observer(Tracing::new()).build()?;
/// drop(locks.mutex("order:42").label("order").lock()?);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Tracing;

impl Tracing {
    /// The observer.
    ///
    /// ```
    /// let observer = redlock_sync::Tracing::new();
    /// # let _ = observer;
    /// ```
    #[must_use]
    pub fn new() -> Tracing {
        Tracing
    }
}

/// An event of this target, with the fields of the lock before its own.
macro_rules! tell {
    ($level:ident, $lock:ident, $text:literal $(, $($field:tt)+)?) => {
        $level!(
            target: "redlock_sync::locks",
            label = $lock.label,
            key = $lock.key,
            kind = $lock.kind.as_str(),
            $($($field)+,)?
            $text
        )
    };
}

impl Observer for Tracing {
    fn event(&self, event: &Event<'_>) {
        match *event {
            Event::Wanted { lock } => tell!(debug, lock, "wanted"),
            Event::Acquired { lock, waited } => tell!(debug, lock, "acquired", ?waited),
            Event::NotAcquired { lock, waited, error } => tell!(debug, lock, "not acquired", ?waited, %error),
            Event::Renewed { lock, remaining } => tell!(debug, lock, "renewed", ?remaining),
            Event::RenewalFailed { lock, remaining, error } => {
                tell!(warn, lock, "renewal failed", ?remaining, %error);
            }
            Event::Lost { lock, held, reason } => tell!(warn, lock, "lost", ?held, ?reason),
            Event::Released { lock, held, confirmed: true } => tell!(debug, lock, "released", ?held),
            Event::Released { lock, held, .. } => tell!(warn, lock, "released, not confirmed", ?held),
            Event::Job { queue, id, attempt, verdict: verdict @ ("lost" | "unconfirmed"), waited, ran } => {
                warn!(target: "redlock_sync::locks", queue, id, attempt, verdict, ?waited, ?ran, "job ended");
            }
            Event::Job { queue, id, attempt, verdict, waited, ran } => {
                debug!(target: "redlock_sync::locks", queue, id, attempt, verdict, ?waited, ?ran, "job ended");
            }
            Event::NodeDown { node, why } => warn!(target: "redlock_sync::locks", node, why, "node down"),
            Event::NodeUp { node, after } => debug!(target: "redlock_sync::locks", node, ?after, "node up"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests;
