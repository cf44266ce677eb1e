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
use crate::node::{CredentialSource, Credentials, NodeUrl};
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
#[derive(Clone, Default)]
#[must_use = "a builder makes no client until `build`"]
pub struct Builder {
    urls: Vec<Result<NodeUrl, Error>>,
    prefix: String,
    settings: ClientOptions,
    pub(super) options: LockOptions,
    credentials: Option<CredentialSource>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
    /// The environment variables from which settings were read.
    pub(super) variables: Vec<&'static str>,
}

impl Builder {
    /// Adds a node. With one node, a lock is on that node. With several independent masters, a lock is on a majority of
    /// them (the Redlock algorithm). [How many, and how to run
    /// them](https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#how-many-nodes).
    ///
    /// The URL is as in [`open`](Redlock::open). It names a single server, a group that Sentinels watch, or a whole
    /// Redis Cluster. A group or a cluster is one node, whatever the number of its servers.
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

    /// Adds the server of a client of the `redis` crate, with its address, TLS, database, user and password. The locks
    /// open their own connections to that server, and use none of the client. This method needs feature `client`. The
    /// client has to be of version 1 of the `redis` crate. Until 1.0, any version of this crate may need another one.
    ///
    /// If the client has its own certificates, [`build`](Builder::build) returns [`Config`](Error::Config), because
    /// nothing outside of that crate can read them. Give them with `Builder::tls` (feature `tls`). `build` also returns
    /// `Config` if the client does not verify the server's certificate.
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

    /// Sets the text that precedes the name of every lock, latch and queue in its key; default empty. Programs that
    /// should exclude each other need the same prefix. If programs share a server but no locks, give them different
    /// prefixes. A key has at most 1024 bytes, prefix included.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").key_prefix("Lock:").build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.prefix = prefix.into();
        self
    }

    /// Sets the lease of locks that have none of their own, 10 ms to 24 h; default 30 s. A thread renews the lease each
    /// time a third of it has passed. [`Mutex::lease`](crate::Mutex::lease) says what a longer and a shorter lease
    /// cost.
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

    /// Sets how long an operation waits for one node, to connect and for its reply; at least 1 ms, default 250 ms. The
    /// client asks all nodes at the same time, so this time limits the whole operation. With a longer time, slow nodes
    /// still count. With a shorter time, a dead node delays the first call less. Leases can be shorter too, because a
    /// lease must be longer than this time.
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
        self.settings.node_timeout = timeout;
        self
    }

    /// Sets for how long calls that wait go on trying while no majority of the nodes answers; default 10 s. A call with
    /// a deadline, such as `try_lock_for`, gives up at the earlier of the two. With zero, calls give up at the first
    /// failure. With a longer time, they outlast a longer failover. The time counts for the client as a whole, from the
    /// beginning of an outage. So a call that begins during the outage waits only for the rest of it. If the user may
    /// not use a key, or the server of a key in a cluster does not answer, the time counts for this key alone. A handle
    /// can have [a time of its own](crate::Mutex::unavailable_after). If another holder has the lock, `lock()` waits
    /// without a limit.
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
        self.options.unavailable_after = time;
        self
    }

    /// Sets how long functions with `#[distributed_lock]` wait for their lock if the attribute has no `wait`; default:
    /// without a limit. With a limit, no such function blocks for ever. If the lock is still busy at the end, the call
    /// does what its `busy` says. Without a `busy`, it does what its `failed` says: by default it returns
    /// [`Busy`](Error::Busy). With a longer limit, more calls get the lock, and threads wait for longer. The limit has
    /// no effect on calls of the handles of locks.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::builder().node(&url).default_wait(Duration::from_secs(5)).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Builder {
        self.settings.default_wait = Some(wait);
        self
    }

    /// Sets a function that returns the user and the password for each new connection to a server, for secrets that
    /// change. They replace those in the URL. The function gets the server's address. Existing connections stay logged
    /// in, as the server has it, unless the credentials say for how long they are [valid](Credentials::valid_for). If
    /// the server refuses a password, the client calls the function once more.
    ///
    /// Threads that make connections call the function, and a call for a lock may wait for it. So keep what takes long
    /// in a variable. If the function returns an error or panics, that counts as a failure of the server. The error is
    /// [`Unavailable`](Error::Unavailable) if too many servers fail. The next connection calls the function again.
    ///
    /// ```
    /// # redlock_sync::__private::be_patient();
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

    /// Reads the password of all servers from the first line of this file, at each new connection; default none. So a
    /// secret that is mounted into a container can change without a restart. The user is that of the URL. This setting
    /// replaces [`credentials`](Builder::credentials). If the file cannot be read, that has the same effect as an error
    /// there.
    ///
    /// ```
    /// # redlock_sync::__private::be_patient();
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

    /// Feature `tls`: sets which authorities the client trusts for servers with `rediss://` URLs, and which certificate
    /// the client shows. Default: the system's authorities, and no certificate.
    ///
    /// [`build`](Builder::build) checks that all certificates and keys can be read and fit together. If one cannot be
    /// read at a later connection, that counts as a failure of that server.
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

    /// Adds an observer, which is notified of events of the client's locks: calls that wait, holds, renewals, losses.
    /// Default none, and then no event is made. Several observers are notified one after the other. For a lock that is
    /// acquired and released, each observer is called three times, on the thread that does so. A background thread
    /// reports the release of a dropped guard. If it is more than 64 releases behind, a drop waits for it, half a node
    /// timeout at most.
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
        self.settings.observers.add(Arc::new(observer));
        self
    }

    /// Checks the settings and makes the client. No I/O: the client asks the servers when a lock is first used. Some
    /// mistakes can be found only then: two URLs of the same server, a replica, a missing permission. They are
    /// [`Config`](Error::Config) errors of that call.
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
/// The defaults of these suit nearly every program. `docs/guide.md` has all settings in tables.
impl Builder {
    /// Sets the pauses between attempts if no message can notify a waiter that the lock is free. [`Retry`] says when
    /// that is, and has the default.
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

    /// Sets how many connections to each node the calls of all threads share, 1 to 16; default 2. The client opens them
    /// when it needs them, and opens new ones when they break. It has one more connection for notifications and one for
    /// bodies of tasks. While a server does not answer, it has up to two more.
    ///
    /// The hash of its key decides over which connection a call goes. Calls of many threads travel together in one
    /// packet, and a connection carries the next calls before the last ones are answered. So hundreds of threads need
    /// no more connections than one. With more, calls about other keys pass one that is not answered, and packets are
    /// smaller. With [`min_replicas_ack`](Builder::min_replicas_ack) there is one.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").connections(4).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn connections(mut self, each: u32) -> Builder {
        self.settings.connections = each;
        self
    }

    /// How many replicas of a node must have confirmed what gives or extends a lease, before the node's vote counts.
    /// That is an acquire, a renewal, a fencing token, an arrival at a latch, a push to a queue, or a claim. Default 0:
    /// the node's own word is enough, and a replica that becomes the master may not have the last locks.
    ///
    /// The node asks its replicas within the same request (`WAIT`). It waits for them for a quarter of
    /// [`node_timeout`](Builder::node_timeout) at most, or up to 100 ms longer if the server is idle. So the node
    /// timeout should be 400 ms or more. Meanwhile, further calls that need replicas are not sent to that node; then
    /// they wait for the replicas together. If fewer replicas confirm in time, there is no lock: the client takes back
    /// what was written, and the error is [`Unavailable`](Error::Unavailable) with their number. So a node without
    /// enough replicas grants no lock. A lease that is held ends if the replicas stay away. A push may still be queued.
    /// A release asks no replica. The user needs the permission `+wait`.
    ///
    /// Use the number of all replicas, so that none of them can become the master without a lock that was granted. With
    /// a smaller number, the new master may lack a lock. Or use several independent servers
    /// ([`nodes`](Builder::nodes)). Nodes in memory (feature `testing`) always confirm.
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
        self.settings.min_replicas_ack = replicas;
        self
    }

    /// Sets whether the client ignores the vote of a node that has just restarted, if there are several nodes; default
    /// true. That is because the node may have forgotten a lock that is still held. A node has just restarted if its
    /// uptime is shorter than the longest lease that this client has asked for so far, extensions included. If no node
    /// is known to be up for longer, all of them vote. A start of all nodes at the same time is no restart. The cost is
    /// that the node's vote is missing in every acquire for that time.
    ///
    /// The guard has two limits. A client knows only its own leases. So a client with short leases trusts a node again
    /// too early. It can get a lock that another client holds by a longer lease, and that the node forgot. Use the same
    /// longest lease in all clients of a lock. And the guard reads the uptime from `INFO`. If that is forbidden, or if
    /// a proxy hides a restart, it has no effect.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::builder().node("redis://127.0.0.1/").restart_guard(false).build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn restart_guard(mut self, on: bool) -> Builder {
        self.settings.restart_guard = on;
        self
    }

    /// Sets whether a server that has just become the master of its Sentinel group counts as one that has just
    /// restarted. That is because it may not know of locks that the previous master granted. "Just" means the same time
    /// as in [`restart_guard`](Builder::restart_guard). Default: on with several nodes, off with one.
    ///
    /// With one node, the client gets no new lock until its longest lease has passed since the failover: calls return
    /// [`Unavailable`](Error::Unavailable) meanwhile. Locks that are held go on. The same holds after a restart of a
    /// single server, and after a start of all servers: no lock can be had for one lease. So use this guard with a
    /// short lease. With several nodes, the new master casts no vote for that time, and the others go on.
    ///
    /// The limits are those of `restart_guard`. The [page on Sentinel][page] says what can still happen. The guard
    /// needs the sentinels' answer to `SENTINEL MASTER`. If that is forbidden, each new connection counts as a
    /// failover. A Redis Cluster does not report failovers. So with a cluster as the only node, `build` returns
    /// [`Config`](Error::Config).
    ///
    /// [page]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#sentinel
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
        self.settings.failover_guard = Some(on);
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
            .field("settings", &self.settings)
            .field("options", &self.options)
            .field("credentials", &self.credentials.is_some())
            .field("variables", &self.variables)
            .finish()
    }
}
