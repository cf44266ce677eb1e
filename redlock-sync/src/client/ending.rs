//! Ends a client, and gives up the locks that it holds.

use std::time::Duration;

use super::Redlock;
use crate::error::Error;
use crate::lease::GivenUp;
use crate::names::escaped;

/// What [`Redlock::shutdown`] or [`Redlock::unlock_all`] gave up.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let _guard = locks.mutex("order:42").lock()?;
/// let ended = locks.unlock_all()?;
/// assert_eq!((ended.given_up, ended.unconfirmed), (vec!["order:42".to_owned()], 0));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The keys of the locks that were still held, sorted, one for each lease. Permits that were acquired together are
    /// one lease. The guards of these locks report [`Lost`](Error::Lost) with [`Revoked`](crate::LostReason::Revoked).
    pub given_up: Vec<String>,
    /// The number of releases that no majority of the nodes confirmed; zero if all is well. Each such lock stays
    /// taken until a server executes the release after all, and at most until its lease ends. A client that ends also
    /// counts the releases of earlier guards that it was still repeating. Of several calls, one counts a release. What
    /// failed attempts have left on servers is released too, but not counted. A line at WARN names the first cause.
    pub unconfirmed: usize,
}

impl ShutdownReport {
    fn new(mut given_up: GivenUp) -> ShutdownReport {
        given_up.keys.sort_unstable();
        let unconfirmed = given_up.unconfirmed.len();
        if let Some(first) = given_up.unconfirmed.first() {
            log::warn!(
                "{unconfirmed} releases were not confirmed, so these locks may stay taken until their leases end; \
                 the first: {first}"
            );
        }
        ShutdownReport { given_up: given_up.keys, unconfirmed }
    }
}

impl Redlock {
    /// Releases every lock that this client and its clones hold in this process. From then on, the guards report
    /// [`Lost`](Error::Lost) with [`Revoked`](crate::LostReason::Revoked). The client can be used as before.
    ///
    /// All locks are released together, which takes two node timeouts at most. If a release is not confirmed by then,
    /// the client repeats it in the background. A lock that one thread is just handing to another one can be missed;
    /// [`shutdown`](Redlock::shutdown) finds it. Then this call runs the [handlers](crate::Lease::on_lost) of the
    /// losses, one after the other.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed) after [`shutdown`](Redlock::shutdown), and in a forked child.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert_eq!(locks.unlock_all()?.given_up, ["order:42"]);
    /// assert!(guard.check().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn unlock_all(&self) -> Result<ShutdownReport, Error> {
        self.inner.unlock_all().map(ShutdownReport::new)
    }

    /// Ends this client and its clones in this process. From now on, every attempt to get a new lock returns
    /// [`Closed`](Error::Closed), and so does every call that waits for one. Holders have time to finish: this call
    /// returns as soon as all locks are released, those of claimed [jobs](crate::Job) too. After `grace` it gives up
    /// the locks that are still held, and returns their keys. From then on, their guards report [`Lost`](Error::Lost)
    /// with [`Revoked`](crate::LostReason::Revoked), and a line at WARN names the keys.
    ///
    /// Within the grace, holders can do what they need to finish. Their leases are renewed. They can lock again what
    /// they hold, ask for fencing tokens, push tasks to a queue and count down a latch. They cannot get a lock that
    /// they do not hold yet. Otherwise the end could be delayed again and again.
    ///
    /// With a longer grace, more work can finish. Choose less than the time after which the process is killed
    /// (Kubernetes: 30 s, Docker: 10 s, systemd: 90 s). With a grace of zero, all locks are given up at once. A second
    /// call, such as for a second signal, has a grace of its own. With a grace of zero, it ends the first call, and
    /// waits for its releases. [How to stop a process][page] has an example with signals.
    ///
    /// After the grace, all locks are given up together, which takes two node timeouts at most. If the release of a
    /// dropped guard has no answer yet, it takes one node timeout more. A release that is not confirmed by then is
    /// written once more at most, and its reply is not awaited. Then this call runs the
    /// [handlers](crate::Lease::on_lost) of the losses, one after the other. At last it waits until the threads that
    /// waited for a lock have returned. That takes a few milliseconds. If a server hangs, it takes up to a node timeout
    /// and a second. Then it releases what they have acquired or left behind. If an observer or a handler calls it, it
    /// can wait for its own thread, for up to 5 s. So call it from another thread there.
    ///
    /// A default client that was shut down stays the default client until [`set_default`](Redlock::set_default)
    /// replaces it.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed) in a forked child.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let (finished, stuck) = (locks.mutex("order:42").lock()?, locks.mutex("order:7").lock()?);
    /// finished.unlock()?;
    /// let ended = locks.shutdown(Duration::from_millis(50))?;
    /// assert_eq!((ended.given_up, ended.unconfirmed), (vec!["order:7".to_owned()], 0));
    /// assert!(stuck.check().unwrap_err().is_lost());
    /// assert_eq!(locks.mutex("order:42").lock().unwrap_err(), redlock_sync::Error::Closed);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    ///
    /// [page]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#shutdown
    #[doc(alias = "close")]
    pub fn shutdown(&self, grace: Duration) -> Result<ShutdownReport, Error> {
        let ended = ShutdownReport::new(self.inner.end(grace)?);
        if !ended.given_up.is_empty() {
            let keys = ended.given_up.iter().map(|key| escaped(key)).collect::<Vec<_>>().join(", ");
            log::warn!("the shutdown gave up locks that were still held after {grace:?}: {keys}");
        }
        Ok(ended)
    }
}
