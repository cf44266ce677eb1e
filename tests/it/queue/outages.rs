//! Workers during an outage. They make fewer and fewer attempts, and continue without help when the outage ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Job, Queue, Worker};
use redlock_tests::{Act, Proxy, Server, eventually};

use super::rig::{SOON, ms, queue, task};
use crate::rig::for_each;

const OUTAGE: Duration = ms(2000);
/// The most requests in that time. One thread makes requests with pauses that grow from 10 ms to half a second. The
/// handshakes of connections are counted too.
const MOST: usize = 80;

struct Rig {
    server: Server,
    proxy: Proxy,
    direct: Queue,
    worker: Worker,
    runs: Arc<AtomicUsize>,
}

impl Rig {
    /// Starts a worker behind a proxy, and waits until it has handled a task.
    fn start() -> Rig {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let handler = move |_: &Job| _ = count.fetch_add(1, Ordering::SeqCst);
        let worker = queue(&proxy.url()).lease(ms(30_000)).worker(4, handler).unwrap();
        let direct = queue(&server.url());
        let rig = Rig { server, proxy, direct, worker, runs };
        rig.works();
        rig
    }

    /// Pushes a task, and asserts that the worker handles it.
    fn works(&self) {
        let before = self.runs.load(Ordering::SeqCst);
        eventually("a task is pushed", SOON, || self.direct.push("body").is_ok());
        eventually("the task is handled", SOON, || self.runs.load(Ordering::SeqCst) == before + 1);
        eventually("the task is acked", SOON, || self.direct.is_empty().unwrap());
    }

    /// The number of requests during an outage.
    fn requests(&self) -> usize {
        self.proxy.clear_log();
        thread::sleep(OUTAGE);
        self.proxy.seen().len()
    }

    fn goes_on(self, during: &str, requests: usize) {
        eprintln!("{during}: {requests} requests in {OUTAGE:?}");
        assert!(requests < MOST, "{during}: {requests} requests: {:?}", self.proxy.seen());
        self.works();
        assert_eq!(self.worker.stop(SOON), 0);
    }
}

#[test]
fn a_worker_goes_on_behind_a_server_that_was_away() {
    let rig = Rig::start();
    rig.proxy.refuse();
    let requests = rig.requests();
    rig.proxy.heal();
    rig.goes_on("refused", requests);
    // This server accepts connections, and closes each of them.
    let rig = Rig::start();
    rig.proxy.on_each("*", Act::ResetBefore);
    let requests = rig.requests();
    rig.proxy.heal();
    rig.goes_on("reset", requests);
}

#[test]
fn a_worker_goes_on_behind_a_server_that_hung() {
    let rig = Rig::start();
    rig.proxy.black_hole();
    let requests = rig.requests();
    rig.proxy.heal();
    rig.goes_on("lost on the way", requests);
    let rig = Rig::start();
    rig.server.stop();
    let requests = rig.requests();
    rig.server.cont();
    rig.goes_on("stopped", requests);
}

/// Errors that a server can return for a while: it is full, cannot write to disk, is loading, or is a replica.
#[test]
fn a_worker_goes_on_behind_a_server_that_refused() {
    let said = [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
    ];
    for_each("", &said, |words| {
        let rig = Rig::start();
        rig.proxy.on_each("claim", Act::Error(words.into()));
        // The task stays due, and its notification was sent.
        rig.direct.push(task("waits")).unwrap();
        let requests = rig.requests();
        rig.proxy.heal();
        eventually("the task is handled", SOON, || rig.direct.is_empty().unwrap());
        rig.goes_on(words, requests);
    });
}

/// The worker repeats the ends of its jobs after the outage, so no task runs twice.
#[test]
fn jobs_under_way_in_an_outage_are_ended_after_it() {
    for act in [None, Some(Act::Error("OOM command not allowed".into()))] {
        let rig = Rig::start();
        match act {
            Some(act) => _ = rig.proxy.on_each("finish", act),
            None => _ = rig.proxy.on_each("finish", Act::ResetBefore),
        }
        let before = rig.runs.load(Ordering::SeqCst);
        rig.direct.push_all((0..40).map(|n| task(&n.to_string()))).unwrap();
        rig.proxy.clear_log();
        thread::sleep(OUTAGE);
        let ends = rig.proxy.count("finish");
        rig.proxy.heal();
        eventually("all are done", SOON, || rig.direct.is_empty().unwrap());
        assert_eq!(rig.runs.load(Ordering::SeqCst), before + 40);
        eprintln!("{ends} ends");
        assert!(ends < 600, "{ends} ends in {OUTAGE:?}");
        rig.works();
        assert_eq!(rig.worker.stop(SOON), 0);
    }
}

/// When the worker connects again, the server reports its role.
#[test]
fn a_worker_goes_on_behind_a_server_that_was_a_replica() {
    let master = Server::start();
    let rig = Rig::start();
    rig.server.replica_of(&master);
    let requests = rig.requests();
    rig.server.promote();
    rig.goes_on("a replica", requests);
}
