//! Locks in memory, for unit tests of programs that use this library. The module needs feature `testing`.
//!
//! [`Redlock::in_memory`] makes a client that needs no server. Nothing else differs: the code is the same, and the node
//! in memory runs the same scripts as a Redis server. [`Memory`] is for tests in which something happens. It deletes
//! the key of a lock, denies a lock, takes a node away, or advances the time.
//!
//! ```toml
//! [dev-dependencies]
//! redlock-sync = { git = "https://github.com/redlock-sync/redlock-sync", features = ["testing"] }
//! ```
//!
//! The feature needs a C compiler, which builds the Lua interpreter that runs the scripts. As a dev-dependency, it is
//! in no program that you ship.
//!
//! The interpreter is Lua 5.1, from crate `mlua` 0.11 with its features `lua51` and `vendored`. A build has one Lua
//! only. If another crate of the build uses `mlua` 0.11 with another Lua, such as `lua54`, or with feature `module`,
//! `mlua` does not compile. If another crate uses another version of `mlua`, cargo refuses the build, since both link
//! `lua`. Such a package cannot enable `testing`. Its tests can use a server, or be a package of their own that is
//! built alone.
//!
//! # An annotated function, tested without Redis
//!
//! ```
//! use std::sync::LazyLock;
//!
//! use redlock_sync::testing::Memory;
//! use redlock_sync::{Error, Redlock, distributed_lock};
//!
//! #[distributed_lock("order:{id}", wait = "50ms")]
//! fn ship(id: u64) -> Result<String, Error> {
//!     Ok(format!("order {id} is on its way"))
//! }
//!
//! /// A process has one default client, so its tests share this one; keys of their own keep them apart.
//! static MEMORY: LazyLock<Memory> = LazyLock::new(|| {
//!     let memory = Memory::new(1);
//!     Redlock::set_default(memory.client()).expect("no test sets another one");
//!     memory
//! });
//!
//! // #[test]
//! fn an_order_is_shipped() {
//!     LazyLock::force(&MEMORY);
//!     assert_eq!(ship(1).unwrap(), "order 1 is on its way");
//! }
//!
//! // #[test]
//! fn an_order_that_is_being_shipped_is_not_shipped_again() {
//!     let elsewhere = MEMORY.client(); // as another process has it
//!     let guard = elsewhere.mutex("order:2").lock().unwrap();
//!     assert!(ship(2).unwrap_err().is_busy()); // after 50 ms
//!     guard.unlock().unwrap();
//!     assert!(ship(2).is_ok());
//! }
//! # an_order_is_shipped();
//! # an_order_that_is_being_shipped_is_not_shipped_again();
//! ```
//!
//! # Time
//!
//! The clients of a [`Memory`] and its nodes have a clock of their own. It runs like the machine's clock, and
//! [`advance`](Memory::advance) adds to it. So a test need not sleep until a lease or a time limit ends.

mod test_clock;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use self::test_clock::TestClock;
use crate::client::{Builder, Redlock};
use crate::error::Error;
use crate::inner::ClientInner;
use crate::node::Dial;
use crate::node::memory::MemoryServer;
use crate::sync::Mutex;

/// Nodes in memory, and clients of these nodes.
///
/// All clients of one `Memory` see the same locks, like clients of different processes that use the same servers. A
/// clone has the same nodes. Several threads may use a `Memory` at the same time.
///
/// ```
/// use redlock_sync::testing::Memory;
///
/// let memory = Memory::new(1);
/// let (one, two) = (memory.client(), memory.client());
/// let guard = one.mutex("order:42").lock()?;
/// assert!(two.mutex("order:42").try_lock().unwrap_err().is_busy());
/// guard.unlock()?;
/// two.mutex("order:42").try_lock()?;
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Clone)]
pub struct Memory(Arc<MemoryInner>);

struct MemoryInner {
    clock: TestClock,
    servers: Vec<Arc<MemoryServer>>,
    clients: Mutex<Vec<Weak<ClientInner>>>,
}

impl Memory {
    /// Makes this number of nodes, without any lock.
    ///
    /// # Panics
    /// If the number is zero.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// let memory = Memory::new(3);
    /// let guard = memory.client().mutex("order:42").lock()?; // on a majority of the three
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn new(nodes: usize) -> Memory {
        assert!(nodes > 0, "a client needs at least one node");
        let clock = TestClock::default();
        let server = |number| MemoryServer::new(number, Arc::new(clock.clone()));
        let servers = (1..=nodes).map(server).collect();
        Memory(Arc::new(MemoryInner { clock, servers, clients: Mutex::default() }))
    }

    /// Returns a client of these nodes, with default settings.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// let locks = Memory::new(1).client();
    /// locks.mutex("order:42").lock()?.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn client(&self) -> Redlock {
        self.add_client(Redlock::builder())
    }

    /// Returns a client of these nodes, with the settings of this builder. The builder must name no server.
    ///
    /// # Errors
    /// The errors of [`Builder::build`], and [`Config`](Error::Config) if the builder names a server.
    ///
    /// ```
    /// use redlock_sync::{Redlock, testing::Memory};
    /// use std::time::Duration;
    /// let memory = Memory::new(1);
    /// let locks = memory.build(Redlock::builder().key_prefix("shop:").lease(Duration::from_secs(10)))?;
    /// assert_eq!(locks.mutex("order:42").lock()?.key(), "shop:order:42");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn build(&self, settings: Builder) -> Result<Redlock, Error> {
        settings.check_without_urls()?;
        Ok(self.add_client(settings))
    }

    fn add_client(&self, settings: Builder) -> Redlock {
        let servers = self.0.servers.iter().map(|server| Arc::clone(server) as Arc<dyn Dial>).collect();
        let (client, inner) = settings.build_on(servers, Arc::new(self.0.clock.clone()));
        let mut clients = self.0.clients.lock();
        clients.retain(|client| client.strong_count() > 0);
        clients.push(inner);
        client
    }

    /// Deletes the key of a lock on all nodes, as an operator could. `key` is the whole key, with the client's prefix.
    /// The holder learns of the loss when another second has passed, if it has held the lock for a second by then.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// use std::time::Duration;
    /// let memory = Memory::new(1);
    /// let guard = memory.client().mutex("order:42").lock()?;
    /// memory.lose("order:42");
    /// memory.advance(Duration::from_secs(10)); // of a lease of 30 s
    /// assert!(guard.check().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn lose(&self, key: &str) {
        for server in &self.0.servers {
            server.lose(key);
        }
    }

    /// Makes the next `times` attempts to take that lock fail, on each node, as if another holder had it for a moment.
    /// `key` is the whole key, with the client's prefix. A call that waits tries again, and succeeds after these
    /// attempts. Each of them takes about 20 ms.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// let memory = Memory::new(1);
    /// let locks = memory.client();
    /// memory.deny("order:42", 1);
    /// assert!(locks.mutex("order:42").try_lock().unwrap_err().is_busy());
    /// assert!(locks.mutex("order:42").try_lock().is_ok());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn deny(&self, key: &str, times: u32) {
        for server in &self.0.servers {
            server.deny(key, times);
        }
    }

    /// Takes a node away, as if the network to it were broken: its connections break, and new ones are refused. The
    /// node keeps its data. Nodes are numbered from 1, as in [`NodeError`](crate::NodeError).
    ///
    /// # Panics
    /// If there is no node with that number.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// let memory = Memory::new(3);
    /// let locks = memory.client();
    /// memory.take_away(3);
    /// locks.mutex("order:42").try_lock()?.unlock()?; // two of three are a majority
    /// memory.take_away(2);
    /// assert!(locks.mutex("order:42").try_lock().unwrap_err().is_unavailable());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn take_away(&self, node: usize) {
        self.on_node(node, MemoryServer::go_away);
    }

    /// Brings a node back after [`take_away`](Memory::take_away). When this returns, the clients know that the node is
    /// back.
    ///
    /// # Panics
    /// If there is no node with that number.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// let memory = Memory::new(1);
    /// let locks = memory.client();
    /// memory.take_away(1);
    /// assert!(locks.mutex("order:42").try_lock().unwrap_err().is_unavailable());
    /// memory.bring_back(1);
    /// assert!(locks.mutex("order:42").try_lock().is_ok());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn bring_back(&self, node: usize) {
        self.on_node(node, MemoryServer::come_back);
        let clients: Vec<_> = self.0.clients.lock().iter().filter_map(Weak::upgrade).collect();
        for client in clients {
            client.quorum.nodes.probe_now(node - 1);
        }
    }

    pub(crate) fn servers(&self) -> &[Arc<MemoryServer>] {
        &self.0.servers
    }

    pub(crate) fn on_node<R>(&self, node: usize, act: impl FnOnce(&MemoryServer) -> R) -> Option<R> {
        let server = node.checked_sub(1).and_then(|i| self.0.servers.get(i));
        assert!(server.is_some(), "there is no node {node}: they are 1 to {}", self.0.servers.len());
        server.map(|server| act(server))
    }

    /// Lets this time pass at once for the nodes and all their clients. When this returns, leases that end in this time
    /// have ended, and renewals that are due have been made. Calls whose time limit has passed return.
    ///
    /// No thread runs while the time passes, as on a machine that sleeps. So a lease that ends in this time is lost,
    /// although a thread renews it. To let more time pass than a lease while the lock stays held, advance by half a
    /// lease several times. All advances together reach 292 years at most. When this returns,
    /// [handlers](crate::Lease::on_lost) of losses have ended too. If a handler waits for what the test does next, this
    /// call waits for the handler, for 30 s at most.
    ///
    /// ```
    /// use redlock_sync::testing::Memory;
    /// use std::time::Duration;
    /// let memory = Memory::new(1);
    /// let guard = memory.client().mutex("order:42").lock()?; // for 30 s
    /// for _ in 0..10 {
    ///     memory.advance(Duration::from_secs(15));
    ///     guard.check()?; // was renewed
    /// }
    /// memory.advance(Duration::from_secs(31));
    /// assert!(guard.check().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn advance(&self, time: Duration) {
        self.0.clock.advance(time);
    }
}

impl Redlock {
    /// Returns a client of a node in memory, for unit tests without a server. No other client uses that node. For nodes
    /// that several clients share, or that fail, see [`testing`](crate::testing). Needs feature `testing`.
    ///
    /// ```
    /// use redlock_sync::Redlock;
    /// let locks = Redlock::in_memory();
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert!(locks.mutex("order:43").try_lock().is_ok());
    /// guard.unlock()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn in_memory() -> Redlock {
        Memory::new(1).client()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.0.servers).finish()
    }
}
