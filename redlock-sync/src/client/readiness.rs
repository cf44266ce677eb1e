//! Readiness probes.

use super::Redlock;
use crate::error::Error;
use crate::health::{Health, health};
use crate::key::Key;

/// Name of the key that the readiness probe tries to write. It never exists.
const NAME: &str = "redlock-sync:health";

impl Redlock {
    /// Asks the servers whether they can keep locks, and what is wrong with them: permissions (ACL), eviction,
    /// persistence, replicas, clocks, and failures to answer. The call sends two requests to each server, one after the
    /// other, so it takes two node timeouts at most. It changes nothing on the servers.
    ///
    /// Use it for a probe that runs every few seconds, and for the log at the start of a program. The user needs the
    /// permission `+info`. Without it, a warning says so.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed) if the client is closed, or in a forked child. If no server answers, that is not an
    /// error of this call: the [`Health`] says so.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// # let locks = redlock_tests::open(&url); // waits longer, for a busy machine
    /// let health = locks.health()?;
    /// assert!(health.is_ready());
    /// // This server has no append-only file: a restart would forget what is held.
    /// assert!(health.warnings()[0].contains("set appendonly yes"), "{health}");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn health(&self) -> Result<Health, Error> {
        let key = Key::new(&self.prefix, NAME, usize::MAX)?;
        health(&self.inner, &key)
    }

    /// Returns whether locks can be acquired, for a readiness probe. The result is false while no majority of the
    /// servers accepts writes, and from the beginning of a [`shutdown`](Redlock::shutdown) on. The call sends the same
    /// requests as [`health`](Redlock::health), which says why the result is false.
    ///
    /// Do not use it for a liveness probe. If a server is away, a restart of the process does not help.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// # let locks = redlock_tests::open(&url); // waits longer, for a busy machine
    /// assert!(locks.is_ready());
    /// # locks.close()?;
    /// # assert!(!locks.is_ready());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.is_closed() && self.health().is_ok_and(|health| health.is_ready())
    }
}
