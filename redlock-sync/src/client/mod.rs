//! The client: servers, settings, and the locks made from them.

mod builder;
mod ending;
mod environment;
mod listing;
mod locks;
mod snapshot;
mod trial;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::Builder;
pub use self::ending::ShutdownReport;
pub(crate) use self::environment::{NODES, URL, duration, with_nodes};
pub use self::listing::HeldLock;
pub use self::snapshot::{SeenLatch, SeenQueue, Snapshot, SnapshotOptions};
pub(crate) use self::trial::{listens, remove_keys};

use crate::error::Error;
use crate::health::{Health, health};
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lock::reentry;
use crate::options::LockOptions;

/// The name of the key that a readiness probe tries to write. It never exists.
const HEALTH_KEY: &str = "redlock-sync:health";

/// A client of one Redis server, or of several independent servers (the Redlock algorithm). It is cheap to clone, and
/// clones share everything.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::Redlock;
///
/// let locks = Redlock::open(&url)?; // such as "redis://127.0.0.1/"
/// let guard = locks.mutex("order:42").lock()?;
/// // … only one process at a time is here …
/// guard.unlock()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// After a `fork`, every call on the parent's client returns [`Error::Closed`] in the child. The child can open its own
/// client only if no client was used before the fork. Otherwise the child can hang, panic or crash, because the
/// library's threads exist only in the parent.
#[derive(Clone)]
pub struct Redlock {
    inner: Arc<ClientInner>,
    prefix: Arc<str>,
    options: Arc<LockOptions>,
}

impl Redlock {
    /// Makes a client of one server, with default settings. With one server, locks exclude each other as long as the
    /// server keeps its data. If locks must survive the loss of a server, give [`builder`](Redlock::builder) three or
    /// five servers.
    ///
    /// A URL looks like `redis://user:password@host:6379/0`. [Connect][connect] has the URLs for TLS, sockets, Sentinel
    /// groups and Redis Clusters, and says what a failed first call means. [Permissions](crate#permissions) says what
    /// the user has to be allowed.
    ///
    /// [connect]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#urls
    ///
    /// # Errors
    /// [`Config`](Error::Config) if the URL is not valid. This call makes no connection.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn open(url: impl AsRef<str>) -> Result<Redlock, Error> {
        Redlock::builder().node(url).build()
    }

    /// Starts a builder, which makes a client with other settings.
    ///
    /// ```
    /// use redlock_sync::Redlock;
    /// use std::time::Duration;
    /// let locks = Redlock::builder()
    ///     .nodes(["redis://a.example/", "redis://b.example/", "redis://c.example/"])
    ///     .lease(Duration::from_secs(10))
    ///     .build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

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
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let health = locks.health()?;
    /// assert!(health.is_ready());
    /// // This server has no append-only file: a restart would forget what is held.
    /// assert!(health.warnings()[0].contains("set appendonly yes"), "{health}");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn health(&self) -> Result<Health, Error> {
        let key = Key::new(&self.prefix, HEALTH_KEY)?;
        health(&self.inner, &key)
    }

    /// Returns whether locks can be acquired, for a readiness probe. The result is false while no majority of the
    /// servers accepts writes, and from the beginning of a [`shutdown`](Redlock::shutdown) on. The call sends the same
    /// requests as [`health`](Redlock::health), which says why the result is false.
    ///
    /// Do not use it for a liveness probe. If a server is away, a restart of the process does not help.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// assert!(locks.is_ready());
    /// # locks.shutdown(std::time::Duration::ZERO)?;
    /// # assert!(!locks.is_ready());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.is_closed() && self.health().is_ok_and(|health| health.is_ready())
    }

    /// Whether every use returns [`Closed`](Error::Closed) from now on.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.check_open().is_err()
    }

    /// How long an annotated function without a `wait` argument waits.
    pub(crate) fn default_wait(&self) -> Option<Duration> {
        self.inner.quorum.settings.default_wait
    }

    /// Whether this thread holds the lock of that name, through this client or a clone. No I/O.
    pub(crate) fn holds(&self, name: &str) -> Result<bool, Error> {
        let key = Key::new(&self.prefix, name)?;
        reentry::held_by_thread(self.inner.id, key.as_str()).map_or(Ok(false), |(held, _)| held.check().map(|()| true))
    }
}

impl fmt::Debug for Redlock {
    /// Shows addresses, databases and settings; never a user or password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("nodes", &self.inner.quorum.nodes)
            .field("key_prefix", &self.prefix)
            .field("settings", &self.inner.quorum.settings)
            .field("options", &self.options)
            .finish()
    }
}
