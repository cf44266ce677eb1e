//! Feature `metrics`: reports events to the recorder that the program has installed for the crate `metrics`.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::error::Error;
use crate::observer::{Event, ObservedLock, Observer};

/// Feature `metrics`: an [`Observer`] that counts and measures by the crate `metrics`, for Prometheus and others.
///
/// | Metric | Kind | Labels | Meaning |
/// |---|---|---|---|
/// | `redlock_wait_seconds` | histogram | `lock`, `outcome` | how long calls took to acquire a lock, or to fail |
/// | `redlock_hold_seconds` | histogram | `lock` | how long locks were held |
/// | `redlock_waiting` | gauge | `lock` | threads that want a lock now |
/// | `redlock_held` | gauge | `lock` | locks that are held now |
/// | `redlock_renewals_total` | counter | `lock`, `outcome` | renewals: `confirmed`, `failed` |
/// | `redlock_lost_total` | counter | `lock`, `reason` | locks that were lost while their guards lived |
/// | `redlock_unconfirmed_total` | counter | `lock` | releases that no majority confirmed |
/// | `redlock_job_seconds` | histogram | `queue`, `verdict` | how long tasks were claimed |
/// | `redlock_job_wait_seconds` | histogram | `queue` | how long tasks had been due when they were claimed |
/// | `redlock_node_up` | gauge | `node` | 0 while a server cannot be used, and 1 when it can be used again |
///
/// An `outcome` is `acquired`, `busy`, `unavailable`, `cancelled`, `closed` or `error`. A `verdict` is `done`, `retry`,
/// `again`, `dead`, `lost` or `unconfirmed`. `redlock_node_up` does not exist before the first failure of a server.
///
/// `lock` is the [label](ObservedLock::label): the template of an annotated function, or the
/// [`label`](crate::Mutex::label) of a handle. It is never the key, of which there can be millions. `queue` is the
/// [`label`](crate::Queue::label) of the queue, or its name without the client's `key_prefix`. Install the recorder
/// before the client is used.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Metrics, Redlock};
/// let locks = Redlock::builder().node(&url).observer(Metrics::new()).build()?;
/// drop(locks.mutex("order:42").label("order").lock()?);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Metrics;

impl Metrics {
    /// Describes its metrics to the recorder of the program.
    ///
    /// ```
    /// let observer = redlock_sync::Metrics::new();
    /// # let _ = observer;
    /// ```
    #[must_use]
    pub fn new() -> Metrics {
        describe_histogram!("redlock_wait_seconds", Unit::Seconds, "How long calls took to acquire a lock, or to fail");
        describe_histogram!("redlock_hold_seconds", Unit::Seconds, "How long locks were held");
        describe_gauge!("redlock_waiting", "Threads that want a lock now");
        describe_gauge!("redlock_held", "Locks that are held now");
        describe_counter!("redlock_renewals_total", "Renewals of leases");
        describe_counter!("redlock_lost_total", "Locks that were lost while their guards lived");
        describe_counter!("redlock_unconfirmed_total", "Releases that no majority of the nodes confirmed");
        describe_histogram!("redlock_job_seconds", Unit::Seconds, "How long tasks of queues were claimed");
        describe_histogram!(
            "redlock_job_wait_seconds",
            Unit::Seconds,
            "How long tasks had been due when they were claimed"
        );
        describe_gauge!("redlock_node_up", "0 while a server cannot be used, 1 when it can be used again");
        Metrics
    }
}

impl Observer for Metrics {
    fn event(&self, event: &Event<'_>) {
        match *event {
            Event::Wanted { lock } => gauge!("redlock_waiting", "lock" => label(lock)).increment(1.0),
            Event::Acquired { lock, waited } => {
                gauge!("redlock_waiting", "lock" => label(lock)).decrement(1.0);
                gauge!("redlock_held", "lock" => label(lock)).increment(1.0);
                histogram!("redlock_wait_seconds", "lock" => label(lock), "outcome" => "acquired").record(waited);
            }
            Event::NotAcquired { lock, waited, error } => {
                gauge!("redlock_waiting", "lock" => label(lock)).decrement(1.0);
                histogram!("redlock_wait_seconds", "lock" => label(lock), "outcome" => outcome(error)).record(waited);
            }
            Event::Renewed { lock, .. } => renewals(lock, "confirmed"),
            Event::RenewalFailed { lock, .. } => renewals(lock, "failed"),
            Event::Lost { lock, held, reason } => {
                gauge!("redlock_held", "lock" => label(lock)).decrement(1.0);
                histogram!("redlock_hold_seconds", "lock" => label(lock)).record(held);
                counter!("redlock_lost_total", "lock" => label(lock), "reason" => reason.name()).increment(1);
            }
            Event::Released { lock, held, confirmed } => {
                gauge!("redlock_held", "lock" => label(lock)).decrement(1.0);
                histogram!("redlock_hold_seconds", "lock" => label(lock)).record(held);
                if !confirmed {
                    counter!("redlock_unconfirmed_total", "lock" => label(lock)).increment(1);
                }
            }
            Event::Job { queue, verdict, waited, ran, .. } => {
                histogram!("redlock_job_wait_seconds", "queue" => queue.to_owned()).record(waited);
                histogram!("redlock_job_seconds", "queue" => queue.to_owned(), "verdict" => verdict).record(ran);
            }
            Event::NodeDown { node, .. } => gauge!("redlock_node_up", "node" => node.to_owned()).set(0.0),
            Event::NodeUp { node, .. } => gauge!("redlock_node_up", "node" => node.to_owned()).set(1.0),
        }
    }
}

fn renewals(lock: ObservedLock<'_>, outcome: &'static str) {
    counter!("redlock_renewals_total", "lock" => label(lock), "outcome" => outcome).increment(1);
}

fn label(lock: ObservedLock<'_>) -> String {
    lock.label.to_owned()
}

fn outcome(error: &Error) -> &'static str {
    match error {
        Error::Busy { .. } => "busy",
        Error::Unavailable { .. } => "unavailable",
        Error::Cancelled { .. } => "cancelled",
        Error::Closed => "closed",
        _ => "error",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests;
