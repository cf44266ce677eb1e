//! A cluster as a place for tests that run on any place.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::Cluster;

use crate::place::{Place, command, replies};

/// A cluster that one test uses alone, because a cluster has one database and tests look at all keys.
pub(crate) struct Slots(&'static Cluster);

/// Enough clusters for three parallel tests with one, three and five nodes.
const CLUSTERS: usize = 9;

/// The clusters that no test uses. They live as long as the process.
struct Idle {
    give: Sender<&'static Cluster>,
    take: Mutex<Receiver<&'static Cluster>>,
}

static IDLE: LazyLock<Idle> = LazyLock::new(|| {
    let (give, take) = mpsc::channel::<&'static Cluster>();
    thread::scope(|scope| {
        let starting: Vec<_> = (0..CLUSTERS).map(|_| scope.spawn(Cluster::without_replicas)).collect();
        for cluster in starting {
            _ = give.send(Box::leak(Box::new(cluster.join().unwrap())));
        }
    });
    Idle { give, take: Mutex::new(take) }
});

impl Drop for Slots {
    fn drop(&mut self) {
        _ = IDLE.give.send(self.0);
    }
}

impl Place for Slots {
    // A cluster has six servers, and these tests run several at a time.
    const LEASE: Duration = Duration::from_secs(6);

    /// One test at a time takes all clusters that it needs, so that no two tests wait for each other.
    fn start(nodes: usize) -> Vec<Slots> {
        let idle = IDLE.take.lock().unwrap_or_else(PoisonError::into_inner);
        let next = || Slots(idle.recv().expect("an idle cluster"));
        let taken: Vec<Slots> = (0..nodes).map(|_| next()).collect();
        for master in taken.iter().flat_map(|Slots(cluster)| cluster.masters()) {
            master.ask::<()>(&command(&["FLUSHALL"]));
        }
        taken
    }

    fn client(nodes: &[Slots], settings: Builder) -> Redlock {
        settings.nodes(nodes.iter().map(|Slots(cluster)| cluster.url())).build().unwrap()
    }

    fn ask(&self, words: &[&str]) -> Vec<String> {
        let Slots(cluster) = self;
        let command = command(words);
        if words[0] == "KEYS" {
            return cluster.masters().iter().flat_map(|master| replies(master.ask(&command))).collect();
        }
        replies(cluster.master_of(words[1]).ask(&command))
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }
}
