//! The end of a client, and of what it holds.

use std::time::Duration;

use super::Redlock;
use crate::error::Error;
use crate::names::printable;

impl Redlock {
    /// Releases every lock that this client and its clones hold in this process, such as before the process exits.
    /// Their guards report [`Lost`](Error::Lost) with [`Revoked`](crate::LostReason::Revoked) from then on. Returns how
    /// many were released. All are released together, which takes two node timeouts at most. Then the
    /// [handlers](crate::Lease::on_lost) of their losses are called here, one after the other.
    ///
    /// # Errors
    /// [`Unconfirmed`](Error::Unconfirmed) for the first lock whose release no majority confirmed; all were tried, and
    /// are tried again in the background.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert_eq!(locks.unlock_all()?, 1);
    /// assert!(guard.check().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn unlock_all(&self) -> Result<usize, Error> {
        self.inner.unlock_all()
    }

    /// Ends this client and its clones in this process: every wait for a lock returns [`Closed`](Error::Closed)
    /// promptly, every later use does too, and every lock that is held is given up; its guard reports
    /// [`Lost`](Error::Lost) with [`Revoked`](crate::LostReason::Revoked). Returns how many were given up.
    ///
    /// All locks are given up together, which takes two node timeouts at most; a release that is not confirmed by then
    /// is not repeated. Then the [handlers](crate::Lease::on_lost) of their losses are called here, one after the
    /// other. At last it waits until the threads that waited for a lock have returned: a few milliseconds, or up to a
    /// second and a node timeout if a server hangs.
    ///
    /// A default client that was closed stays the default client, and can be replaced:
    /// [`set_default`](Redlock::set_default).
    ///
    /// # Errors
    /// As for [`unlock_all`](Redlock::unlock_all); the client is closed all the same.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _guard = locks.mutex("order:42").lock()?;
    /// assert_eq!(locks.close()?, 1);
    /// assert_eq!(locks.mutex("order:42").lock().unwrap_err(), redlock_sync::Error::Closed);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn close(&self) -> Result<usize, Error> {
        self.inner.close()
    }

    /// Ends this client and its clones as [`close`](Redlock::close) does, but gives the holders of locks time to
    /// finish. From now on no new lock is given out (every attempt is [`Closed`](Error::Closed)), and every wait for
    /// one ends with `Closed`. It returns as soon as all locks are released, those of claimed [jobs](crate::Job) too;
    /// after `grace` at the latest it gives up what is still held, and returns the keys, one for each lock. Their
    /// guards report [`Lost`](Error::Lost) with [`Revoked`](crate::LostReason::Revoked) from then on, and a line at
    /// WARN names the keys.
    ///
    /// Meanwhile holders can do what they need to come to an end: their leases are renewed; they can enter again what
    /// they hold, ask for fencing tokens, push tasks to a queue and count down a latch. A lock that they do not hold
    /// yet is refused, or the end could be put off again and again.
    ///
    /// A longer grace lets more work finish; choose it below the time after which the process is killed (Kubernetes: 30
    /// s, Docker: 10 s, systemd: 90 s). What follows the grace takes as long as `close` does. A second call, such as
    /// for a second signal, has a grace of its own: with zero it ends the first one. With signals, and at the end of
    /// `main`: [how to stop a process][page].
    ///
    /// # Errors
    /// [`Unconfirmed`](Error::Unconfirmed) for the first lock given up whose release no majority confirmed: it ends
    /// with its lease. The client is closed all the same. [`Closed`](Error::Closed) in a forked child.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let (finished, stuck) = (locks.mutex("order:42").lock()?, locks.mutex("order:7").lock()?);
    /// finished.unlock()?;
    /// assert_eq!(locks.shutdown(Duration::from_millis(50))?, ["order:7"]);
    /// assert!(stuck.check().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    ///
    /// [page]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/shutdown.md
    pub fn shutdown(&self, grace: Duration) -> Result<Vec<String>, Error> {
        let mut given_up = self.inner.end(grace)?;
        given_up.keys.sort_unstable();
        if !given_up.keys.is_empty() {
            let keys = printable(&given_up.keys.join(", "));
            log::warn!("locks given up, {grace:?} after the shutdown began: {keys}");
        }
        given_up.unconfirmed.map_or(Ok(given_up.keys), Err)
    }
}
