//! Where locks are kept: on a server, or in memory. What is written for any place shows that both are alike.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

use redlock_sync::testing::Memory;
use redlock_sync::{__private, Builder, Redlock};
use redlock_tests::{Group, Server, eventually, servers};

/// More than a busy machine needs for anything here.
const SOON: Duration = Duration::from_secs(30);

/// One node, with what a test sees and does behind the library's back. Each panics when the node does not answer.
pub(crate) trait Place: Send + Sync + Sized + 'static {
    /// A lease of which some can be waited for, and that a busy machine renews in time.
    const LEASE: Duration;

    /// So many nodes.
    fn start(nodes: usize) -> Vec<Self>;
    /// A client of these nodes.
    fn client(nodes: &[Self], settings: Builder) -> Redlock;
    /// What the node replies to a command, one after the other; nothing for nil.
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

    /// Without a time to live.
    fn set(&self, key: &str, value: &str) {
        self.ask(&["SET", key, value]);
    }

    /// Whether it was there.
    fn del(&self, key: &str) -> bool {
        self.ask(&["DEL", key]) == ["1"]
    }

    /// None when there is no such key, or it never expires.
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

    /// Lets this time pass; locks are renewed meanwhile.
    fn pass(&self, time: Duration);

    /// How many waits are in the queues.
    fn waits(&self) -> usize {
        let is_queue = |key: &String| QUEUES.iter().any(|name| key.ends_with(name));
        let queues = self.keys().into_iter().filter(is_queue);
        queues.flat_map(|queue| self.members(&queue)).filter(|wait| !wait.starts_with('*')).count()
    }

    /// Waits until it is so, for which a little more than a lease may have to pass. No more does: what another thread holds then must not end meanwhile.
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

/// What the keys of queues end in.
const QUEUES: [&str; 4] = [":queue", ":permit_queue", ":readers", ":writers"];

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

/// With this variable set to `sentinel`, databases are found by a Sentinel: `.ci/run sentinel`.
const PLACE: &str = "REDLOCK_TEST_PLACE";

/// What the servers are found by.
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

/// Most nodes of a test.
const MOST: usize = 5;

/// A server, or the group of which it is the master.
enum Way {
    Server(Box<Server>),
    Group(Group),
}

impl Way {
    /// For a client with the library, and for the test itself.
    fn urls(&self, number: usize) -> [String; 2] {
        match self {
            Way::Server(server) => [server.url(), server.url()].map(|url| format!("{url}{number}")),
            Way::Group(group) => [format!("{}/{number}", group.url()), format!("{}{number}", group.servers[0].url())],
        }
    }
}

/// A database of its own on a server that is shared by all tests of this process: most tests injure no server, and need none to themselves.
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

    fn client(nodes: &[Database], settings: Builder) -> Redlock {
        settings.nodes(nodes.iter().map(|node| &node.url)).build().unwrap()
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
    /// From 1 on.
    pub(crate) number: usize,
}

impl Place for InMemory {
    const LEASE: Duration = Duration::from_secs(60);

    fn start(nodes: usize) -> Vec<InMemory> {
        let memory = Memory::new(nodes);
        (1..=nodes).map(|number| InMemory { memory: memory.clone(), number }).collect()
    }

    fn client(nodes: &[InMemory], settings: Builder) -> Redlock {
        nodes[0].memory.build(settings).unwrap()
    }

    fn ask(&self, words: &[&str]) -> Vec<String> {
        __private::command(&self.memory, self.number, words)
    }

    /// In steps that are shorter than what leaves a thread time for a renewal: none runs within one.
    fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(Self::LEASE / 6);
            self.memory.advance(step);
            left -= step;
        }
    }
}

/// Three nodes in memory in place of one, so that what is written for one node shows that three are alike. A command goes to all of them, and the
/// reply of the first is told. Where a test wants several nodes, each is one.
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

/// For tests `fn name<K: Kind, P: Place>()`: one `#[test]` on servers, one in memory, and one on three nodes in memory, each for all kinds of a group
/// (`kinds_of!`) at once.
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
                crate::place::each_kind_at!($group, crate::place::ThreeInMemory, $($test),+);
            }
            #[cfg(feature = "cluster")]
            mod on_clusters {
                crate::place::each_kind_at!($group, crate::cluster::place::Slots, $($test),+);
            }
        }
    };
}

/// As `each_kind_and_place!`, at one place.
macro_rules! each_kind_at {
    ($group:ident, $place:ty, $($test:ident),+ $(,)?) => {
        $(#[test] fn $test() {
            use super::super::$test;
            crate::kinds::at_once(&crate::kinds::kinds_of!($group, $test, $place));
        })+
    };
}

/// One `#[test]` on servers, one in memory, and one on three nodes in memory for each test `fn name<P: Place>()`.
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

pub(crate) use {each_kind_and_place, each_kind_at, each_place};
