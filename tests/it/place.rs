//! Where locks are kept: on a server, or in memory. What is written for any place shows that both are alike.

use std::time::Duration;

use redlock_sync::testing::Memory;
use redlock_sync::{__private, Builder, Redlock};
use redlock_tests::{Server, servers};

/// One node, with what a test sees and does behind the library's back. Each panics when the node does not answer.
pub(crate) trait Place: Send + Sync + Sized + 'static {
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

    fn one() -> Self {
        Self::start(1).pop().unwrap()
    }
}

impl Place for Server {
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
}

/// A node in memory.
pub(crate) struct InMemory {
    memory: Memory,
    number: usize,
}

impl InMemory {
    fn ask(&self, words: &[&str]) -> Vec<String> {
        __private::command(&self.memory, self.number, words)
    }
}

impl Place for InMemory {
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
}
