//! Readiness probes.

use super::Redlock;
use crate::error::Error;
use crate::health::{Health, health};
use crate::key::Key;

/// Name of the key that the readiness probe tries to write. It never exists.
const NAME: &str = "redlock-sync:health";

impl Redlock {
    /// Asks the servers whether they can keep locks, and what is wrong with them: permissions (ACL), eviction,
    /// persistence, replicas, clocks, and whatever keeps them from answering. Two rounds, so two node timeouts at most.
    /// Nothing is changed on the servers.
    ///
    /// For a probe that runs every few seconds, and for the log at the start of a program. It needs the permission
    /// `+info`; without it, a warning says so.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed) if the client is closed, or in a forked child. That no server can be asked is no error
    /// here.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
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

    /// Whether locks can be taken: for a readiness probe. False while no majority of the servers takes writes, and from
    /// the beginning of a [`shutdown`](Redlock::shutdown) on. It asks as [`health`](Redlock::health) does, which says
    /// why.
    ///
    /// Not for a liveness probe: a process that is restarted because a server is away is no better off.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
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
