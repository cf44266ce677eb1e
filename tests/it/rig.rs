//! N servers, each behind its own proxy, which records the traffic and can cause faults. `handover` and `faults` add
//! their clients.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Builder, Redlock};
use redlock_tests::{Proxy, Server, Stopwatch, Took, eventually, servers};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) struct Rig {
    pub(crate) servers: Vec<Server>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Rig {
    pub(crate) fn start(n: usize) -> Rig {
        Rig::of(servers(n))
    }

    pub(crate) fn of(servers: Vec<Server>) -> Rig {
        let proxies = servers.iter().map(Proxy::start).collect();
        Rig { servers, proxies }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    pub(crate) fn proxy_urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// The number of servers that have the key.
    pub(crate) fn holding(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| exists(server, key)).count()
    }

    /// The number of servers that have this token under the key.
    pub(crate) fn having(&self, key: &str, token: &str) -> usize {
        self.servers.iter().filter(|server| server.holder(key).as_deref() == Some(token)).count()
    }
}

/// Settings without the restart guard, because these servers have just started. The node timeout is long for a busy
/// machine.
pub(crate) fn settings(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
    Redlock::builder().nodes(urls).restart_guard(false).node_timeout(ms(2000))
}

/// A client of these servers.
pub(crate) fn open(servers: &[Server]) -> Redlock {
    settings(servers.iter().map(Server::url)).build().unwrap()
}

/// A client with a short lease, and a node timeout that fits it.
pub(crate) fn brisk(servers: &[Server], lease: Duration) -> Redlock {
    settings(servers.iter().map(Server::url)).node_timeout(lease / 3).lease(lease).build().unwrap()
}

pub(crate) fn exists(server: &Server, key: &str) -> bool {
    server.ask(cmd("EXISTS").arg(key))
}

/// Waits until the servers are older than this.
pub(crate) fn until_older(servers: &[Server], age: Duration) {
    let uptime = |server: &Server| server.info("uptime_in_seconds").unwrap().parse::<u64>().unwrap();
    eventually("the servers are old", Duration::from_secs(60), || {
        servers.iter().all(|server| uptime(server) > age.as_secs())
    });
}

/// Runs the test for all numbers of servers in parallel, because the tests mostly wait.
pub(crate) fn for_sizes(sizes: &[usize], test: impl Fn(&Rig) + Sync) {
    for_each("nodes", sizes, |n| test(&Rig::start(n)));
}

/// Runs the test for all given values in parallel, each in a thread of that name.
pub(crate) fn for_each<T: Clone + Send + Debug>(what: &str, all: &[T], test: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        for one in all {
            let (one, test) = (one.clone(), &test);
            let named = thread::Builder::new().name(format!("{one:?} {what}"));
            named.spawn_scoped(scope, move || test(one)).unwrap();
        }
    });
}

/// Returns the result of `work` and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let start = Stopwatch::start();
    (work(), start.elapsed())
}

/// The path of this thread in `/proc`, for [`until_asleep`].
pub(crate) fn this_thread() -> PathBuf {
    fs::read_link("/proc/thread-self").unwrap()
}

/// Waits until the thread was seen asleep ten times in a row. It then waits in the queue, because it does no I/O before
/// that.
pub(crate) fn until_asleep(thread: &Path) {
    let stat = Path::new("/proc").join(thread).join("stat");
    let mut calm = 0;
    eventually("the thread waits in the queue", Duration::from_secs(30), || {
        let text = fs::read_to_string(&stat).unwrap();
        let sleeps = text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        calm = if sleeps { calm + 1 } else { 0 };
        calm >= 10
    });
}
