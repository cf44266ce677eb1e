//! The places where locks are kept: a server, or memory. Tests that run at each place show that all places behave
//! alike.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

use redlock_sync::__private::{self, Rule};
use redlock_sync::testing::Memory;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Group, Server, eventually, servers};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// One node, with direct access for tests. Each method panics if the node does not reply.
pub(crate) trait Place: Send + Sync + Sized + 'static {
    /// A lease that a busy machine renews in time, and of which a test can wait for several.
    const LEASE: Duration;

    /// Starts this number of nodes.
    fn start(nodes: usize) -> Vec<Self>;
    /// A client of these nodes.
    fn client(nodes: &[Self], settings: Builder) -> Redlock;
    /// The node's replies to a command, flattened. A nil reply is empty.
    fn ask(&self, words: &[&str]) -> Vec<String>;

    /// All keys, sorted.
    fn keys(&self) -> Vec<String> {
        let mut keys = self.ask(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    fn get(&self, key: &str) -> Option<String> {
        self.ask(&["GET", key]).pop()
    }

    /// Sets a key without expiry.
    fn set(&self, key: &str, value: &str) {
        self.ask(&["SET", key, value]);
    }

    /// Deletes the key, and returns whether it existed.
    fn del(&self, key: &str) -> bool {
        self.ask(&["DEL", key]) == ["1"]
    }

    /// Returns `None` if the key does not exist or never expires.
    fn pttl(&self, key: &str) -> Option<Duration> {
        let ms: i64 = self.ask(&["PTTL", key])[0].parse().unwrap();
        u64::try_from(ms).ok().map(Duration::from_millis)
    }

    fn expire(&self, key: &str, after: Duration) {
        self.ask(&["PEXPIRE", key, &after.as_millis().to_string()]);
    }

    /// The members of a sorted set.
    fn members(&self, key: &str) -> Vec<String> {
        self.ask(&["ZRANGE", key, "0", "-1"])
    }

    /// Lets this time pass. The client renews locks meanwhile.
    fn pass(&self, time: Duration);

    /// The number of waits in the queues.
    fn waits(&self) -> usize {
        let is_queue = |key: &String| QUEUES.iter().any(|name| key.ends_with(name));
        let queues = self.keys().into_iter().filter(is_queue);
        queues.flat_map(|queue| self.members(&queue)).filter(|wait| !wait.starts_with('*')).count()
    }

    /// Waits until `so` holds, while a little more than a lease passes. No more time passes, because other threads'
    /// leases must not end meanwhile.
    fn until(&self, what: &str, so: impl Fn() -> bool) {
        for _ in 0..66 {
            if so() {
                return;
            }
            self.pass(Self::LEASE / 60);
        }
        eventually(what, SOON, so);
    }

    fn one() -> Self {
        Self::start(1).pop().unwrap()
    }
}

/// The ends of the keys of queues.
const QUEUES: [&str; 4] = [":waits", ":permit_queue", ":readers", ":writers"];

impl Place for Server {
    const LEASE: Duration = Duration::from_secs(3);

    fn start(nodes: usize) -> Vec<Server> {
        servers(nodes)
    }

    fn client(nodes: &[Server], settings: Builder) -> Redlock {
        settings.nodes(nodes.iter().map(Server::url)).build().unwrap()
    }

    fn ask(&self, words: &[&str]) -> Vec<String> {
        replies(Server::ask(self, &command(words)))
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }
}

pub(crate) fn command(words: &[&str]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command
}

pub(crate) fn replies(value: redis::Value) -> Vec<String> {
    match value {
        redis::Value::Nil => Vec::new(),
        redis::Value::Array(values) => values.into_iter().flat_map(replies).collect(),
        value => vec![redis::from_redis_value(value).unwrap()],
    }
}

/// If this variable is `sentinel`, then clients find the servers by a Sentinel: `.ci/run sentinel`.
const PLACE: &str = "REDLOCK_TEST_PLACE";

/// The rules by which nodes in memory differ from Redis, in the order of `Rule::ALL`, such as `PublishInSlot,NoInfo`:
/// `.ci/run rules`.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let names = env::var("REDLOCK_TEST_RULES").unwrap_or_default();
    let is_named = |rule: &Rule| names.split(',').any(|name| name == format!("{rule:?}"));
    let rules: Vec<Rule> = Rule::ALL.into_iter().filter(is_named).collect();
    assert_eq!(rules.iter().map(|rule| format!("{rule:?}")).collect::<Vec<_>>().join(","), names, "unknown rules");
    rules
});

/// The servers, or the groups by which clients find them.
static WAYS: LazyLock<Vec<Way>> = LazyLock::new(|| {
    let groups = env::var(PLACE).is_ok_and(|place| place == "sentinel");
    let settings = Server::builder().arg("--databases").arg("10000");
    let start =
        || if groups { Way::Group(Group::with(&settings, 0, 1)) } else { Way::Server(Box::new(settings.start())) };
    thread::scope(|scope| {
        let starting: Vec<_> = (0..MOST).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|way| way.join().unwrap()).collect()
    })
});

/// The most nodes of one test.
const MOST: usize = 5;

/// A server, or a group with the server as its master.
enum Way {
    Server(Box<Server>),
    Group(Group),
}

impl Way {
    /// The URLs of a database, for a client of the library and for the test itself.
    fn urls(&self, number: usize) -> [String; 2] {
        match self {
            Way::Server(server) => [server.url(), server.url()].map(|url| format!("{url}{number}")),
            Way::Group(group) => [format!("{}/{number}", group.url()), format!("{}{number}", group.servers[0].url())],
        }
    }
}

/// A separate database on a server that all tests of this process share. Most tests do not disturb their server, so
/// they need no server of their own.
pub(crate) struct Database {
    url: String,
    connection: Mutex<redis::Connection>,
}

impl Place for Database {
    const LEASE: Duration = Server::LEASE;

    fn start(nodes: usize) -> Vec<Database> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let open = |way: &Way| {
            let [url, direct] = way.urls(number);
            let connection = redis::Client::open(direct).unwrap().get_connection().unwrap();
            Database { url, connection: Mutex::new(connection) }
        };
        assert!(nodes <= MOST);
        WAYS.iter().take(nodes).map(open).collect()
    }

    /// The shared servers never restart. A busy machine starts them up to seconds apart. So when the first of them is as
    /// old as a lease, the guard would leave the others out for as long.
    fn client(nodes: &[Database], settings: Builder) -> Redlock {
        settings.restart_guard(false).nodes(nodes.iter().map(|node| &node.url)).build().unwrap()
    }

    fn ask(&self, words: &[&str]) -> Vec<String> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        replies(command(words).query(&mut connection).unwrap())
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// A node in memory.
pub(crate) struct InMemory {
    pub(crate) memory: Memory,
    /// The number of the node, which starts at 1.
    pub(crate) number: usize,
}

impl Place for InMemory {
    const LEASE: Duration = Duration::from_secs(60);

    fn start(nodes: usize) -> Vec<InMemory> {
        let memory = Memory::new(nodes);
        __private::follow(&memory, &RULES);
        (1..=nodes).map(|number| InMemory { memory: memory.clone(), number }).collect()
    }

    fn client(nodes: &[InMemory], settings: Builder) -> Redlock {
        nodes[0].memory.build(settings).unwrap()
    }

    fn ask(&self, words: &[&str]) -> Vec<String> {
        __private::command(&self.memory, self.number, words)
    }

    /// The time passes in steps that leave each thread time for its renewals, which cannot run within a step.
    fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(Self::LEASE / 6);
            self.memory.advance(step);
            left -= step;
        }
    }
}

/// Three nodes in memory in place of one, so that tests for one node also run on three. A command goes to all three,
/// and the first reply counts. If a test wants several nodes, each of them is a single node.
pub(crate) struct ThreeInMemory(Vec<InMemory>);

impl Place for ThreeInMemory {
    const LEASE: Duration = InMemory::LEASE;

    fn start(nodes: usize) -> Vec<ThreeInMemory> {
        if nodes == 1 {
            return vec![ThreeInMemory(InMemory::start(3))];
        }
        InMemory::start(nodes).into_iter().map(|node| ThreeInMemory(vec![node])).collect()
    }

    fn client(nodes: &[ThreeInMemory], settings: Builder) -> Redlock {
        InMemory::client(&nodes[0].0, settings)
    }

    fn ask(&self, words: &[&str]) -> Vec<String> {
        let mut said: Vec<_> = self.0.iter().map(|node| node.ask(words)).collect();
        said.swap_remove(0)
    }

    fn pass(&self, time: Duration) {
        self.0[0].pass(time);
    }
}

/// Makes tests of functions `fn name<K: Kind, P: Place>()`: one `#[test]` on servers, one in memory, and one on three
/// nodes in memory. Each runs for all kinds of a group (`kinds_of!`).
macro_rules! each_kind_and_place {
    ($group:ident: $($test:ident),+ $(,)?) => {
        mod $group {
            mod on_servers {
                crate::place::each_kind_at!($group, crate::place::Database, $($test),+);
            }
            mod in_memory {
                crate::place::each_kind_at!($group, crate::place::InMemory, $($test),+);
            }
            mod on_three_in_memory {
                crate::place::each_kind_on_three!($group, $($test),+);
            }
            #[cfg(feature = "cluster")]
            mod on_clusters {
                crate::place::each_kind_at!($group, crate::cluster::place::Slots, $($test),+);
            }
        }
    };
}

/// Does the same as `each_kind_and_place!`, on three nodes in memory. Several permits at once need one server.
macro_rules! each_kind_on_three {
    (held, $($test:ident),+) => {
        crate::place::each_kind_at!(held_on_several, crate::place::ThreeInMemory, $($test),+);
    };
    ($group:ident, $($test:ident),+) => {
        crate::place::each_kind_at!($group, crate::place::ThreeInMemory, $($test),+);
    };
}

/// Does the same as `each_kind_and_place!`, at one place.
macro_rules! each_kind_at {
    ($group:ident, $place:ty, $($test:ident),+ $(,)?) => {
        $(#[test] fn $test() {
            use super::super::$test;
            crate::kinds::at_once(&crate::kinds::kinds_of!($group, $test, $place));
        })+
    };
}

/// Makes one `#[test]` on servers, one in memory, and one on three nodes in memory for each function `fn name<P:
/// Place>()`.
macro_rules! each_place {
    ($($test:ident),+ $(,)?) => {
        mod any_kind {
            mod on_servers {
                $(#[test] fn $test() { super::super::$test::<crate::place::Database>() })+
            }
            mod in_memory {
                $(#[test] fn $test() { super::super::$test::<crate::place::InMemory>() })+
            }
            mod on_three_in_memory {
                $(#[test] fn $test() { super::super::$test::<crate::place::ThreeInMemory>() })+
            }
            #[cfg(feature = "cluster")]
            mod on_clusters {
                $(#[test] fn $test() { super::super::$test::<crate::cluster::place::Slots>() })+
            }
        }
    };
}

pub(crate) use {each_kind_and_place, each_kind_at, each_kind_on_three, each_place};
