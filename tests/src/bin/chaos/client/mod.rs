//! A client process. The run sends orders over a pipe. The order `crowd N` starts N threads at once. The client works
//! until the pipe ends.
//!
//! Some clients are started as new programs (`chaos client …`), with stdin as that pipe. Other clients are forked by a
//! process of `nursery.rs`.
//!
//! 1. `log.rs`: the log of the client.
//! 2. `terms.rs`: the settings of one hold.
//! 3. `job.rs`: one acquire of a lock, and the work under it.
//! 4. `styles.rs`: the styles of jobs with mutexes.
//! 5. `kinds.rs`: jobs with the other kinds of lock.
//! 6. `built.rs`: jobs that are run once, and leaders.
//! 7. `worker.rs`: the threads of the client.
//! 8. `store.rs`: the connection to the store that the locks protect.
//! 9. `gauge.rs`: measures the pace of calls.
//! 10. `tasks.rs`: a client that is a worker of the queue of tasks.

mod built;
mod gauge;
mod job;
mod kinds;
mod log;
mod store;
mod styles;
mod tasks;
mod terms;
mod worker;

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::poll;

use crate::clock::{MS, now};
use crate::event::{KINDS, Phase, Session, What};
use crate::group;
use crate::names;
use crate::timing::{LEASES, LONGEST_LEASE, NODE_TIMEOUT};
pub(crate) use log::Log;
pub(crate) use tasks::queue;
use worker::{Clients, Worker};

/// The time limit for the threads and files of the library to disappear, after the client has ended its work.
const SETTLES: Duration = Duration::from_secs(45);

/// The work of the threads of a client that use no plain mutex.
const OTHERS: [fn(Worker, &AtomicBool); 4] =
    [Worker::run_with_any_kind, Worker::run_with_any_kind, Worker::run_jobs, Worker::run_for_leader];

/// The sleep of the thread that detects stops of the process, and the least length of a stop in ns.
const BEAT: Duration = Duration::from_millis(20);
const STALL: u64 = 60 * MS;

/// The parameters with which the run starts a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) client: u8,
    pub(crate) life: u8,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) keys: usize,
    /// The lease of a claim in ms, if the client is a worker of the queue. Otherwise zero.
    pub(crate) lease: u64,
    pub(crate) store: SocketAddr,
    pub(crate) dir: PathBuf,
    pub(crate) urls: Vec<String>,
}

impl Order {
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![self.client.to_string(), self.life.to_string(), self.seed.to_string()];
        words.extend([self.threads.to_string(), self.keys.to_string(), self.lease.to_string(), self.store.to_string()]);
        words.push(self.dir.to_str().expect("the directory's name is text").to_owned());
        words.extend(self.urls.iter().cloned());
        words
    }

    pub(crate) fn read(words: &[String]) -> Order {
        let [client, life, seed, threads, keys, lease, store, dir, urls @ ..] = words else {
            panic!("too few words: {words:?}")
        };
        Order {
            client: client.parse().unwrap(),
            life: life.parse().unwrap(),
            seed: seed.parse().unwrap(),
            threads: threads.parse().unwrap(),
            keys: keys.parse().unwrap(),
            lease: lease.parse().unwrap(),
            store: store.parse().unwrap(),
            dir: dir.into(),
            urls: urls.to_vec(),
        }
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.join(format!("client-{}.{}.log", self.client, self.life))
    }
}

/// The main function of a client that was started as a process.
pub(crate) fn main(words: &[String]) {
    live(Order::read(words), io::stdin());
}

/// Runs a client until its end. The calling thread is one of the threads of the client. In a forked child, it is the
/// only thread that comes from the parent.
pub(crate) fn live(order: Order, line: impl Read + Send + 'static) {
    let log = Arc::new(Log::create(&order.log_file()));
    let me = Session { client: order.client, life: order.life, ..Session::default() };
    let pulse = Arc::clone(&log);
    thread::spawn(move || beat(&pulse, me));
    let (threads, files) = used();
    log.note(me, 0, What::Uses { phase: Phase::Before, threads, files });
    if order.lease > 0 {
        tasks::work(&order, line, &log);
    } else {
        work(order, line, &log);
    }
    let settled = poll(SETTLES, || Some(used()).filter(|now| now.0 <= threads && now.1 <= files));
    let (threads, files) = settled.unwrap_or_else(used);
    log.note(me, 0, What::Uses { phase: Phase::After, threads, files });
}

fn work(order: Order, line: impl Read + Send + 'static, log: &Arc<Log>) {
    let clients = open(&order);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut workers = (0..order.threads).map(|thread| Worker::new(&order, thread, clients.clone(), log));
    let first = workers.next();
    let mut threads = Vec::new();
    for worker in workers {
        let is_over = Arc::clone(&is_over);
        threads.push(thread::spawn(move || worker.run(&is_over)));
    }
    let (slow, told) = (Worker::new(&order, order.threads, clients.clone(), log), Arc::clone(&is_over));
    threads.push(thread::spawn(move || slow.run_slowly(&told)));
    for (nth, run) in OTHERS.into_iter().enumerate() {
        let (worker, told) =
            (Worker::new(&order, usize::from(KINDS) + nth, clients.clone(), log), Arc::clone(&is_over));
        threads.push(thread::spawn(move || run(worker, &told)));
    }
    let (told, diary, locks) = (Arc::clone(&is_over), Arc::clone(log), clients.both[0].clone());
    let me = Session { client: order.client, life: order.life, ..Session::default() };
    threads.push(thread::spawn(move || {
        let name = names::own(me.client, me.life, 2);
        gauge::run(&locks, name, me, &diary, || told.load(Ordering::SeqCst));
    }));
    let (told, log) = (Arc::clone(&is_over), Arc::clone(log));
    threads.push(thread::spawn(move || listen(&order, line, &clients, &told, &log)));
    if let Some(worker) = first {
        worker.run(&is_over);
    }
    for thread in threads {
        thread.join().expect("a thread of the client panicked");
    }
}

/// Executes the orders of the run until the pipe ends.
fn listen(order: &Order, line: impl Read, clients: &Clients, is_over: &AtomicBool, log: &Arc<Log>) {
    let mut crowds = Vec::new();
    for (said, number) in BufReader::new(line).lines().map_while(Result::ok).zip(1..) {
        let size = said.strip_prefix("crowd ").and_then(|size| size.parse().ok());
        let size = size.unwrap_or_else(|| panic!("a client cannot `{said}`"));
        crowds.extend(Worker::crowd(order, clients, log, number, size));
        crowds.retain(|thread| !thread.is_finished());
    }
    is_over.store(true, Ordering::SeqCst);
    for thread in crowds {
        thread.join().expect("a thread of a crowd panicked");
    }
}

/// Detects the times in which the process does not run.
fn beat(log: &Log, me: Session) {
    loop {
        let from = now();
        thread::sleep(BEAT);
        if now() > from + STALL {
            log.note(me, 0, What::Stalled { from });
        }
    }
}

fn open(order: &Order) -> Clients {
    assert!(LEASES.contains(&LONGEST_LEASE));
    let both = [0, 1].map(|nth| {
        let locks = build(settings(&order.urls));
        // From this call on, the client knows the longest lease in use. Its judgement of restarted nodes depends on it.
        _ = locks.mutex(names::own(order.client, order.life, nth)).try_lock();
        locks
    });
    // Slow locks have leases that are longer than the time for which a fault keeps nodes from clients. So the restart
    // guard and the failover guard cannot protect them.
    Clients { both, slow: build(settings(&order.urls).restart_guard(false).failover_guard(false)) }
}

fn settings(urls: &[String]) -> Builder {
    group::guarded(Redlock::builder(), &urls[0])
        .nodes(urls)
        .lease(Duration::from_millis(LONGEST_LEASE))
        .node_timeout(NODE_TIMEOUT)
        .unavailable_after(Duration::from_secs(2))
}

fn build(settings: Builder) -> Redlock {
    settings.build().expect("the settings are good")
}

/// The numbers of threads and open files of this process. They are zero if the system does not report them.
fn used() -> (u64, u64) {
    let count =
        |what: &str| fs::read_dir(Path::new("/proc/self").join(what)).map_or(0, |entries| entries.count() as u64);
    (count("task"), count("fd"))
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn an_order_that_is_told_can_be_read() {
        let order = Order {
            client: 3,
            life: 1,
            seed: 7,
            threads: 2,
            keys: 4,
            lease: 0,
            store: "127.0.0.1:9".parse().unwrap(),
            dir: "/a b".into(),
            urls: vec!["redis://a".to_owned(), "redis://b".to_owned()],
        };
        assert_eq!(Order::read(&order.words()), order);
    }
}
