//! A client process: `chaos client …`, started by the run. It works until its stdin ends.
//!
//! 1. `log.rs`: what it writes down.
//! 2. `job.rs`: one way to a lock and what is done under it.
//! 3. `styles.rs`: the kinds of jobs.
//! 4. `resource.rs`: what the locks protect.

mod job;
mod log;
mod resource;
mod styles;

use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::poll;

use crate::clock::{MS, now};
use crate::event::{Phase, Session, What};
use crate::timing::{LEASES, LONGEST_LEASE, NODE_TIMEOUT};
use log::Log;
use styles::Worker;

/// How long threads and files of a client that is gone may take to go too.
const SETTLES: Duration = Duration::from_secs(15);

/// The pulse of a client, and what is a gap in it, in ns.
const BEAT: Duration = Duration::from_millis(20);
const STALL: u64 = 60 * MS;

/// What the run tells a client on its command line.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) client: u8,
    pub(crate) life: u8,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) keys: usize,
    pub(crate) store: SocketAddr,
    pub(crate) dir: PathBuf,
    pub(crate) urls: Vec<String>,
}

impl Order {
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words =
            vec!["client".to_owned(), self.client.to_string(), self.life.to_string(), self.seed.to_string()];
        words.extend([self.threads.to_string(), self.keys.to_string(), self.store.to_string()]);
        words.push(self.dir.to_str().expect("the directory's name is text").to_owned());
        words.extend(self.urls.iter().cloned());
        words
    }

    fn read(words: &[String]) -> Order {
        let [client, life, seed, threads, keys, store, dir, urls @ ..] = words else {
            panic!("too few words: {words:?}")
        };
        Order {
            client: client.parse().unwrap(),
            life: life.parse().unwrap(),
            seed: seed.parse().unwrap(),
            threads: threads.parse().unwrap(),
            keys: keys.parse().unwrap(),
            store: store.parse().unwrap(),
            dir: dir.into(),
            urls: urls.to_vec(),
        }
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.join(format!("client-{}.{}.log", self.client, self.life))
    }
}

pub(crate) fn main(words: &[String]) {
    let order = Order::read(words);
    let log = Arc::new(Log::create(&order.log_file()));
    let me = Session { client: order.client, life: order.life, ..Session::default() };
    let pulse = Arc::clone(&log);
    thread::spawn(move || beat(&pulse, me));
    let (threads, files) = used();
    log.note(me, 0, What::Uses { phase: Phase::Before, threads, files });
    let locks = open(&order.urls);
    // From here on this client knows the longest lease in use, which its judgement of restarted nodes depends on.
    _ = locks.mutex(format!("own-{}-{}", order.client, order.life)).try_lock();
    let is_over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..order.threads)
        .map(|thread| {
            let worker = Worker::new(&order, thread, locks.clone(), &log);
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || worker.run(&is_over))
        })
        .collect();
    _ = io::stdin().read_to_end(&mut Vec::new());
    is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.join().expect("a thread of the client panicked");
    }
    drop(locks);
    let settled = poll(SETTLES, || Some(used()).filter(|now| now.0 <= threads && now.1 <= files));
    let (threads, files) = settled.unwrap_or_else(used);
    log.note(me, 0, What::Uses { phase: Phase::After, threads, files });
}

/// Notices when the process stands still.
fn beat(log: &Log, me: Session) {
    loop {
        let from = now();
        thread::sleep(BEAT);
        if now() > from + STALL {
            log.note(me, 0, What::Stalled { from });
        }
    }
}

fn open(urls: &[String]) -> Redlock {
    assert!(LEASES.contains(&LONGEST_LEASE));
    Redlock::builder()
        .nodes(urls)
        .lease(Duration::from_millis(LONGEST_LEASE))
        .node_timeout(NODE_TIMEOUT)
        .unavailable_after(Duration::from_secs(2))
        .build()
        .expect("the settings are good")
}

/// Threads and open files of this process; none where the system does not tell.
fn used() -> (u64, u64) {
    let count =
        |what: &str| fs::read_dir(Path::new("/proc/self").join(what)).map_or(0, |entries| entries.count() as u64);
    (count("task"), count("fd"))
}
