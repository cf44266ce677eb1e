//! The settings of a client.

mod building;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Redlock;
use crate::clock::SystemClock;
use crate::error::Error;
#[cfg(feature = "tls")]
use crate::node::Tls;
use crate::node::{CredentialSource, Credentials, NodeSettings, NodeUrl};
use crate::observer::Observer;
use crate::options::{ClientOptions, LockOptions, Retry};

/// The largest number of connections to a node. More than a few do not help.
const MAX_CONNECTIONS: u32 = 16;

/// Collects the settings of a [`Redlock`] client; [`build`](Builder::build) checks them.
///
/// ```
/// use redlock_sync::Redlock;
/// use std::time::Duration;
/// let locks = Redlock::builder()
///     .node("redis://127.0.0.1/")
///     .key_prefix("shop:")
///     .node_timeout(Duration::from_millis(100))
///     .build()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder makes no client until `build`"]
pub struct Builder {
    urls: Vec<Result<NodeUrl, Error>>,
    prefix: String,
    limits: ClientOptions,
    pub(super) options: LockOptions,
    connections: u32,
    credentials: Option<CredentialSource>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
    /// The environment variables from which settings were read.
    pub(super) variables: Vec<&'static str>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            urls: Vec::new(),
            prefix: String::new(),
            limits: ClientOptions::default(),
            options: LockOptions::default(),
            connections: NodeSettings::default().connections,
            credentials: None,
            #[cfg(feature = "tls")]
            tls: None,
            variables: Vec::new(),
        }
    }
}

impl Builder {
    /// Adds a node. With one node a lock is on that one; with N independent masters a majority of them holds it
    /// (Redlock). [How many, and how to run
    /// them](https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#servers).
    ///
    /// The URL is as in [`open`](Redlock::open). It names a server that stands alone, a group that Sentinels watch, or
    /// a whole Redis Cluster, which is one node, whatever the number of its servers.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn node(mut self, url: impl AsRef<str>) -> Builder {
        self.urls.push(NodeUrl::parse(url.as_ref()));
        self
    }

    /// Adds several servers.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().nodes(["redis://a/", "redis://b/", "redis://c/"]).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn nodes(self, urls: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
        urls.into_iter().fold(self, Builder::node)
    }

    /// Adds the server of a client of the `redis` crate, as [`node`](Builder::node) adds that of a URL: with its
    /// address, TLS, database, user and password. Connections of its own are made there; those of the client are not
    /// used. Feature `client`, which is not covered by the version of this crate until 1.0: it follows the major
    /// version of the `redis` crate, 1.
    ///
    /// [`build`](Builder::build) is [`Config`](Error::Config) for a client with certificates of its own, which nothing
    /// outside that crate can read (name them by `Builder::tls`, feature `tls`), and for one that does not verify the
    /// server's certificate.
    ///
    /// ```
    /// let client = redis::Client::open("redis://127.0.0.1/2")?;
    /// let locks = redlock_sync::Redlock::builder().client(&client).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "client")]
    #[cfg_attr(docsrs, doc(cfg(feature = "client")))]
    pub fn client(mut self, client: &crate::node::RedisClient) -> Builder {
        self.urls.push(NodeUrl::of_client(client));
        self
    }

    /// These servers and no others: takes out those that were named before, such as by [`from_env`](Builder::from_env).
    ///
    /// ```
    /// use redlock_sync::Builder;
    /// let locks = Builder::from_env()?.only_nodes(["redis://127.0.0.1/"]).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn only_nodes(mut self, urls: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
        self.urls.clear();
        self.nodes(urls)
    }

    /// Text that precedes the name of every lock, latch and queue to make its key; default empty. Programs that
    /// are to exclude each other need the same prefix; programs that share a server but no locks are kept apart by
    /// different ones. It counts towards [`max_key_len`](Builder::max_key_len).
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").key_prefix("Lock:").build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.prefix = prefix.into();
        self
    }

    /// Default lease of the locks, 10 ms to 24 h; default 30 s. Renewal is due at a third of it. See
    /// [`Mutex::lease`](crate::Mutex::lease).
    ///
    /// ```
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").lease(Duration::from_secs(10)).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.options.lease = lease;
        self
    }

    /// How long an operation waits for one node: to connect, and for its reply; at least 1 ms, default 250 ms. All
    /// nodes are asked at the same time, so it bounds the operation. Longer: slow nodes still count. Shorter: a dead
    /// node delays the first call less, and short leases become possible, since a lease must exceed it.
    ///
    /// ```
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder()
    ///     .node("redis://127.0.0.1/")
    ///     .node_timeout(Duration::from_millis(20))
    ///     .lease(Duration::from_millis(100))
    ///     .build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn node_timeout(mut self, timeout: Duration) -> Builder {
        self.limits.node_timeout = timeout;
        self
    }

    /// For how long `lock()`, which has no deadline, goes on trying while no majority of the nodes can be asked;
    /// default 10 s. Zero gives up at the first failure; longer rides out a longer failover. Counted for the client as
    /// a whole: a call in the midst of an outage does not wait all of it again. A lock that is merely busy is waited
    /// for without limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder()
    ///     .node("redis://127.0.0.1:1/")
    ///     .unavailable_after(Duration::ZERO)
    ///     .build()?;
    /// assert!(locks.mutex("order:42").lock().unwrap_err().is_unavailable());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn unavailable_after(mut self, time: Duration) -> Builder {
        self.limits.unavailable_after = time;
        self
    }

    /// How long functions with `#[distributed_lock]` wait for their lock if the attribute has no `wait`; default:
    /// without a limit. With a limit no such function blocks for ever: if the lock is still busy then, the call does
    /// what its `busy` says; without a `busy`, what its `failed` says, by default return [`Busy`](Error::Busy). A
    /// longer wait lets more calls run, and keeps their threads for longer. It does not apply to locks that are taken
    /// by hand.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder().node(&url).default_wait(Duration::from_secs(5)).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Builder {
        self.limits.default_wait = Some(wait);
        self
    }

    /// Asks for the user and the password at each new connection to a server, in the place of those in its URL: for
    /// secrets that change. It is given the server's address. Connections that exist stay logged in, as the server has
    /// it, unless the credentials say for how long they are [valid](Credentials::valid_for). A password that the server
    /// refuses is asked for once more.
    ///
    /// It is called by threads that make connections, and a call for a lock may wait for it: keep what takes long in a
    /// variable. An error, or a panic, is a failure of that server, [`Unavailable`](Error::Unavailable) if there are
    /// too many; the next connection asks again.
    ///
    /// ```
    /// # let server = redlock_tests::Server::builder().password("secret").start();
    /// # let url = format!("redis://{}/", server.addr());
    /// use redlock_sync::{Credentials, Redlock};
    /// let locks = Redlock::builder()
    ///     .node(&url)
    ///     .credentials(|_node| Ok::<_, std::io::Error>(Credentials::password("secret")))
    ///     .build()?;
    /// locks.mutex("order:42").lock()?.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn credentials<E: fmt::Display>(
        mut self,
        ask: impl Fn(&str) -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> Builder {
        self.credentials = Some(CredentialSource::of(ask));
        self
    }

    /// Reads the password of all servers from the first line of this file, at each new connection: a secret that is
    /// mounted into a container can change without a restart. The user is that of the URL. Default none. It takes the
    /// place of [`credentials`](Builder::credentials), and a file that cannot be read has the same effect as an error
    /// there.
    ///
    /// ```
    /// # let server = redlock_tests::Server::builder().password("secret").start();
    /// # let (url, file) = (format!("redis://{}/", server.addr()), server.dir().join("password"));
    /// # std::fs::write(&file, "secret\n").unwrap();
    /// let locks = redlock_sync::Redlock::builder().node(&url).password_file(&file).build()?;
    /// locks.mutex("order:42").lock()?.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn password_file(mut self, path: impl AsRef<Path>) -> Builder {
        self.credentials = Some(CredentialSource::file(path.as_ref()));
        self
    }

    /// Feature `tls`: which authorities servers with `rediss://` URLs are checked against, and which certificate this
    /// client shows. Default: the system's authorities, and none.
    ///
    /// [`build`](Builder::build) checks that all of it can be read and fits together; what cannot be read at a later
    /// connection is a failure of that server.
    ///
    /// ```no_run
    /// use redlock_sync::{Redlock, Tls};
    /// let tls = Tls::new().ca_file("/etc/redis/ca.pem").identity_files("/etc/redis/shop.pem", "/etc/redis/shop.key");
    /// let locks = Redlock::builder().node("rediss://redis.example/").tls(tls).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Builder {
        self.tls = Some(tls);
        self
    }

    /// Adds an observer, which is notified of events of the locks of the client: waits, holds, renewals, losses.
    /// Several observers are notified one after the other. Default none: then no event is made. Each observer is called
    /// three times for a lock that is taken and released, on the thread that does so.
    ///
    /// ```
    /// use redlock_sync::{Event, Observer, Redlock};
    /// struct Log;
    /// impl Observer for Log {
    ///     fn event(&self, event: &Event<'_>) {
    ///         println!("{event:?}");
    ///     }
    /// }
    /// let locks = Redlock::builder().node("redis://127.0.0.1/").observer(Log).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn observer(mut self, observer: impl Observer + 'static) -> Builder {
        self.limits.observers.add(Arc::new(observer));
        self
    }

    /// Checks the settings and makes the client. No I/O: servers are first spoken to when a lock is used, and what only
    /// they can tell (two URLs of the same server, a replica, a missing permission) is a [`Config`](Error::Config)
    /// error then.
    ///
    /// # Errors
    /// [`Config`](Error::Config) with the numbers or the URL (without its password).
    ///
    /// ```
    /// use redlock_sync::{Error, Redlock};
    /// let error = Redlock::builder().build().unwrap_err();
    /// assert!(matches!(error, Error::Config { .. }));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn build(self) -> Result<Redlock, Error> {
        self.build_by(Arc::new(SystemClock))
    }
}

/// # Rarely needed
///
/// The defaults of these suit nearly every program. `docs/settings.md` has all settings in tables.
impl Builder {
    /// Default pauses between attempts, when no message notifies a waiter that the lock is free; see [`Retry`] for when
    /// that is, and for the default.
    ///
    /// ```
    /// use redlock_sync::{Redlock, Retry};
    /// use std::time::Duration;
    /// let steady = Retry::every(Duration::from_millis(20));
    /// let locks = Redlock::builder().node("redis://127.0.0.1/").retry(steady).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn retry(mut self, retry: Retry) -> Builder {
        self.options.retry = retry;
        self
    }

    /// Connections to each node that the calls of all threads share, 1 to 16; default 3. They are opened when they are
    /// needed, and made anew when they break. One more is for waiting, one for bodies of tasks, and up to two are added
    /// while a server does not answer.
    ///
    /// Calls of many threads travel together in one packet, and a connection carries the next calls before the last
    /// ones are answered. So hundreds of threads need no more connections than one. More connections let calls about
    /// other keys pass one that is not answered. With [`min_replicas_ack`](Builder::min_replicas_ack) there is one.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").connections(4).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn connections(mut self, each: u32) -> Builder {
        self.connections = each;
        self
    }

    /// What must be left of the lease when an acquire returns, or it counts as failed; default 10 ms. Longer: a holder
    /// has more time before its first renewal, and the shortest possible lease is longer by as much.
    ///
    /// ```
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder()
    ///     .node("redis://127.0.0.1/")
    ///     .min_validity(Duration::from_millis(500))
    ///     .build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn min_validity(mut self, validity: Duration) -> Builder {
        self.limits.min_validity = validity;
        self
    }

    /// Longest key in bytes, prefix included; default 1024. A longer key is [`Config`](Error::Config) when the lock is
    /// used. A larger limit admits longer names, which take more of the servers' memory and of each request; a smaller
    /// one reports a name that grew by mistake sooner.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").max_key_len(16).build()?;
    /// assert!(locks.mutex("a key that is longer than this").try_lock().is_err());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn max_key_len(mut self, bytes: usize) -> Builder {
        self.limits.max_key_len = bytes;
        self
    }

    /// How many replicas of a node must have confirmed what gives or extends a lease, before the node's vote counts:
    /// an acquire, a renewal, a fencing token, an arrival at a latch, a push to a queue, a claim. Default 0: the node's
    /// own word is enough, and a replica that becomes the master may not have the last locks.
    ///
    /// The node asks its replicas in the same round trip (`WAIT`), which takes their round trip longer, for up to half
    /// of [`node_timeout`](Builder::node_timeout). With fewer confirmations there is no lock: what was written is taken
    /// back, and the error is [`Unavailable`](Error::Unavailable) with their number. So a node without enough replicas
    /// takes no lock, and a lease that is held ends if they stay away; a push may be queued all the same. Releases ask
    /// no replica. The user needs the permission `+wait`.
    ///
    /// With the number of all replicas, no replica that becomes the master lacks a lock that was given. With fewer, the
    /// one that becomes it may: give the number of all, or have servers of their own ([`nodes`](Builder::nodes)). Nodes
    /// in memory (feature `testing`) confirm always.
    ///
    /// ```
    /// # let (server, replica) = (redlock_tests::Server::start(), redlock_tests::Server::start());
    /// # replica.replica_of(&server);
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::builder().node(&url).min_replicas_ack(1).build()?;
    /// locks.mutex("order:42").lock()?.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn min_replicas_ack(mut self, replicas: u32) -> Builder {
        self.limits.min_replicas_ack = replicas;
        self
    }

    /// Whether a node of several that restarted just now is kept from voting in an acquire, since it may have forgotten
    /// a lock that is still held; default true. "Just now" means that its uptime is shorter than the longest lease that
    /// this client has asked for so far, extensions included. While no node is known to be up for longer than that, all
    /// of them vote: a cold start of all is no restart. The price: for that long after a restart, the node's vote is
    /// missing in every acquire.
    ///
    /// Its limits: a client knows its own leases only, so one with a shorter lease can let a node vote that forgot the
    /// longer lock of another client; give all clients of a lock the same longest lease. And it relies on the uptime in
    /// `INFO`: where that is forbidden, or a proxy hides a restart, it has no effect.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").restart_guard(false).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn restart_guard(mut self, on: bool) -> Builder {
        self.limits.restart_guard = on;
        self
    }

    /// Whether a server that has just become the master of its Sentinel group counts as one that restarted just now: it
    /// may not have heard of locks that the master before it had granted. "Just now" is as in
    /// [`restart_guard`](Builder::restart_guard). Default: on with several nodes, off with one.
    ///
    /// With one node no new lock is taken then until the longest lease of this client has passed since the failover,
    /// [`Unavailable`](Error::Unavailable) meanwhile; locks that are held go on. The same holds after a restart of a
    /// server that stands alone, and after a start of all: nothing can be locked for one lease. Take it with a short
    /// lease. With several nodes the new master casts no vote for that time, and the others go on.
    ///
    /// Its limits are those of `restart_guard`; the [page on Sentinel][page] says what can still happen. It needs the
    /// sentinels' answer to `SENTINEL MASTER`: where that is forbidden, each new connection counts as a failover. A
    /// Redis Cluster does not report failovers: with a cluster as the only node the guard is [`Config`](Error::Config)
    /// at the build.
    ///
    /// [page]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/sentinel.md
    ///
    /// ```
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder()
    ///     .node("redis+sentinel://a.example,b.example,c.example/mymaster")
    ///     .lease(Duration::from_secs(5))
    ///     .failover_guard(true)
    ///     .build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn failover_guard(mut self, on: bool) -> Builder {
        self.limits.failover_guard = Some(on);
        self
    }
}

impl fmt::Debug for Builder {
    /// Never shows a user or password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &Result<NodeUrl, Error>| url.as_ref().map_or_else(Error::to_string, NodeUrl::to_string);
        let nodes: Vec<String> = self.urls.iter().map(shown).collect();
        let mut shown = f.debug_struct("Builder");
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls);
        shown
            .field("nodes", &nodes)
            .field("key_prefix", &self.prefix)
            .field("limits", &self.limits)
            .field("options", &self.options)
            .field("connections", &self.connections)
            .field("credentials", &self.credentials.is_some())
            .field("variables", &self.variables)
            .finish()
    }
}
