//! Where locks are kept: on a server, or in memory. What is written for any place shows that both are alike.

use std::thread;
use std::time::Duration;

use redlock_sync::testing::Memory;
use redlock_sync::{__private, Builder, Redlock};
use redlock_tests::{Server, eventually, servers};

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

    /// All keys, sorted.
    fn keys(&self) -> Vec<String>;
    fn get(&self, key: &str) -> Option<String>;
    /// Without a time to live.
    fn set(&self, key: &str, value: &str);
    /// Whether it was there.
    fn del(&self, key: &str) -> bool;
    /// None when there is no such key, or it never expires.
    fn pttl(&self, key: &str) -> Option<Duration>;
    fn expire(&self, key: &str, after: Duration);
    /// The members of a sorted set.
    fn members(&self, key: &str) -> Vec<String>;

    /// Lets this time pass; locks are renewed meanwhile.
    fn pass(&self, time: Duration);

    /// How many waits are in the queues.
    fn waits(&self) -> usize {
        let queues = self.keys().into_iter().filter(|key| key.ends_with(":queue"));
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

impl Place for Server {
    const LEASE: Duration = Duration::from_secs(3);

    fn start(nodes: usize) -> Vec<Server> {
        servers(nodes)
    }

    fn client(nodes: &[Server], settings: Builder) -> Redlock {
        settings.nodes(nodes.iter().map(Server::url)).build().unwrap()
    }

    fn keys(&self) -> Vec<String> {
        Server::keys(self)
    }

    fn get(&self, key: &str) -> Option<String> {
        Server::get(self, key)
    }

    fn set(&self, key: &str, value: &str) {
        Server::set(self, key, value);
    }

    fn del(&self, key: &str) -> bool {
        Server::del(self, key)
    }

    fn pttl(&self, key: &str) -> Option<Duration> {
        Server::pttl(self, key)
    }

    fn expire(&self, key: &str, after: Duration) {
        self.ask::<()>(redis::cmd("PEXPIRE").arg(key).arg(after.as_millis()));
    }

    fn members(&self, key: &str) -> Vec<String> {
        self.ask(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1))
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

impl InMemory {
    fn ask(&self, words: &[&str]) -> Vec<String> {
        __private::command(&self.memory, self.number, words)
    }
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

    fn keys(&self) -> Vec<String> {
        self.ask(&["KEYS", "*"])
    }

    fn get(&self, key: &str) -> Option<String> {
        self.ask(&["GET", key]).pop()
    }

    fn set(&self, key: &str, value: &str) {
        self.ask(&["SET", key, value]);
    }

    fn del(&self, key: &str) -> bool {
        self.ask(&["DEL", key]) == ["1"]
    }

    fn pttl(&self, key: &str) -> Option<Duration> {
        let ms: i64 = self.ask(&["PTTL", key])[0].parse().unwrap();
        u64::try_from(ms).ok().map(Duration::from_millis)
    }

    fn expire(&self, key: &str, after: Duration) {
        self.ask(&["PEXPIRE", key, &after.as_millis().to_string()]);
    }

    fn members(&self, key: &str) -> Vec<String> {
        self.ask(&["ZRANGE", key, "0", "-1"])
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

/// As `each_kind!`, for tests `fn name<K: Kind, P: Place>()`: on servers and in memory.
macro_rules! each_kind_and_place {
    ($($test:ident),+ $(,)?) => {
        mod on_servers {
            $(fn $test<K: crate::kinds::Kind>() { super::$test::<K, redlock_tests::Server>() })+
            crate::kinds::each_kind!($($test),+);
        }
        mod in_memory {
            $(fn $test<K: crate::kinds::Kind>() { super::$test::<K, crate::place::InMemory>() })+
            crate::kinds::each_kind!($($test),+);
        }
    };
}

/// One `#[test]` on servers and one in memory for each test `fn name<P: Place>()`.
macro_rules! each_place {
    ($($test:ident),+ $(,)?) => {
        mod any_kind {
            mod on_servers {
                $(#[test] fn $test() { super::super::$test::<redlock_tests::Server>() })+
            }
            mod in_memory {
                $(#[test] fn $test() { super::super::$test::<crate::place::InMemory>() })+
            }
        }
    };
}

pub(crate) use {each_kind_and_place, each_place};
