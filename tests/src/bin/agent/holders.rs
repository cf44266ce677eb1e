//! Holders in a process of their own, for faults that end or copy a process.
//!
//! 1. `hold KIND KEY LEASE_MS URL…`: acquires the lock and prints its token. Then it does what a line on stdin says.
//! 2. `fork KIND KEY URL…`: acquires the lock, forks, and prints what the child and the parent could do with the guard.
//! 3. `fork-often`: forks many times while other threads use the lease. The children have a copy of its guard.
//! 4. `hear URL…`: builds a client and prints what the library logs.
#![allow(unsafe_code, reason = "a forked child drops its copies of what the parent keeps")]

use std::io::{self, BufRead, Write};
use std::ops::Deref;
use std::process::{abort, exit};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Lease, LeaseState, Redlock};
use redlock_tests::{ended, fork, poll, wait_for};
use rustix::process::{Signal, getpid, kill_process};

type Guard = Box<dyn Deref<Target = Lease>>;

pub(crate) fn main(args: &[String]) {
    match args {
        [what, kind, key, lease, urls @ ..] if what == "hold" => hold(kind, key, lease.parse().unwrap(), urls),
        [what, kind, key, urls @ ..] if what == "fork" => copies(kind, key, urls),
        [what, kind, key, urls @ ..] if what == "fork-after-drop" => copies_of_dropped(kind, key, urls),
        [what] if what == "fork-often" => copies_in_a_crowd(),
        [what, urls @ ..] if what == "hear" => hear(urls),
        other => panic!("unknown arguments {other:?}"),
    }
}

fn client(urls: &[String], lease: Duration) -> Redlock {
    let timeout = (lease / 3).min(Duration::from_secs(2));
    Redlock::builder().nodes(urls).lease(lease).node_timeout(timeout).build().unwrap()
}

/// A key of a multi-lock, with the guard of the whole multi-lock.
struct OfSeveral(redlock_sync::MultiLockGuard);

impl Deref for OfSeveral {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.0.leases().next().unwrap()
    }
}

/// Acquires a lock of this kind. All tokens get the same readable part in every process.
fn lock(locks: &Redlock, kind: &str, key: &str, renew: bool) -> Result<Guard, Error> {
    Ok(match kind {
        "mutex" => Box::new(locks.mutex(key).holder_name("agent").renew(renew).lock()?),
        "reentrant" => Box::new(locks.reentrant_mutex(key).holder_name("agent").renew(renew).lock()?),
        "permit" => Box::new(locks.semaphore(key, 1).holder_name("agent").renew(renew).acquire()?),
        "reader" => Box::new(locks.rw_lock(key).holder_name("agent").renew(renew).read()?),
        "writer" => Box::new(locks.rw_lock(key).holder_name("agent").renew(renew).write()?),
        "several" => Box::new(OfSeveral(locks.multi_lock([key]).holder_name("agent").renew(renew).lock()?)),
        other => panic!("no such kind: {other}"),
    })
}

fn tell(what: &str, value: impl std::fmt::Debug) {
    println!("{what} {value:?}");
    io::stdout().flush().unwrap();
}

fn hold(kind: &str, key: &str, lease: u64, urls: &[String]) {
    let locks = client(urls, Duration::from_millis(lease));
    let guard = lock(&locks, kind, key, true).unwrap();
    println!("{}", guard.id().as_str());
    let mut word = String::new();
    io::stdin().lock().read_line(&mut word).unwrap();
    match word.trim() {
        "exit" => exit(0),
        "abort" => abort(),
        "drop" => {
            drop(guard);
            exit(0)
        }
        "drop and return" => {}
        "unlock_all" => exit(i32::try_from(locks.unlock_all().unwrap().given_up.len()).unwrap()),
        other => panic!("cannot {other:?}"),
    }
}

fn copies(kind: &str, key: &str, urls: &[String]) {
    let locks = client(urls, Duration::from_secs(10));
    // Until a client of this process is used, the library has no threads. So a child can open a client of its own.
    in_a_child(|| {
        tell("early-lock", lock(&locks, kind, key, true).map(|guard| guard.id().clone()));
        let own = client(urls, Duration::from_secs(10));
        let guard = lock(&own, kind, key, true).unwrap();
        tell("early-own", guard.check());
        own.unlock_all().unwrap();
    });
    // The lease is not renewed. So the child sends everything that is sent for this token while it lives.
    let guard = lock(&locks, kind, key, false).unwrap();
    println!("token {}", guard.id().as_str());
    let left = locks.mutex(format!("{key}-left")).renew(false).lock().unwrap();
    in_a_child(|| {
        // SAFETY: the copy is read once, and the process ends before its owner would drop it again.
        let copy = unsafe { std::ptr::read(&raw const left) };
        tell("into_token", copy.into_token().map(|_| ()));
        tell("check", guard.check());
        tell("extend", guard.extend(Duration::from_secs(20)));
        tell("fence", guard.fencing_token());
        tell("lock", lock(&locks, kind, "another", true).map(|guard| guard.id().clone()));
        tell("lock-again", lock(&locks, kind, key, true).map(|guard| guard.id().clone()));
        tell("unlock_all", locks.unlock_all());
        // The child drops its copies of the guard and the client, as at the end of a function that the child returns
        // from.
        // SAFETY: each copy is read once, and the process ends before its owner would drop it again.
        unsafe {
            drop(std::ptr::read(&raw const guard));
            drop(std::ptr::read(&raw const locks));
        }
    });
    tell("forked", ());
    io::stdin().lock().read_line(&mut String::new()).unwrap();
    tell("parent-check", guard.check().and(left.check()));
    drop((guard, left));
    tell("parent-dropped", ());
}

/// Forks while a release is under way.
fn copies_of_dropped(kind: &str, key: &str, urls: &[String]) {
    let locks = client(urls, Duration::from_secs(120));
    for _ in 0..20 {
        drop(lock(&locks, kind, key, false).unwrap());
        in_a_child(|| {
            // SAFETY: the copy is dropped once, and the process ends before its owner would drop it again.
            unsafe { drop(std::ptr::read(&raw const locks)) }
        });
        drop(lock(&locks, kind, key, false).unwrap());
    }
}

/// A lock that another thread of the parent holds at the fork stays locked in the child. So no call with a copy may
/// wait for such a lock.
fn copies_in_a_crowd() {
    let locks = Redlock::in_memory();
    let guard = locks.rw_lock("crowded").read().unwrap();
    for _ in 0..3 {
        let locks = locks.clone();
        thread::spawn(move || {
            loop {
                drop(locks.rw_lock("crowded").read().unwrap());
            }
        });
    }
    for _ in 0..600 {
        let child = fork(|| {
            assert_eq!(guard.check(), Err(Error::Closed));
            assert_eq!(guard.extend(Duration::from_secs(20)), Err(Error::Closed));
            assert_eq!(guard.fencing_token(), Err(Error::Closed));
            assert_eq!((guard.remaining(), guard.state()), (Duration::ZERO, LeaseState::Released));
            assert!(!format!("{guard:?}").is_empty());
            // The child kills itself, because a normal exit could wait for the output that another thread has locked.
            kill_process(getpid(), Signal::KILL).unwrap();
        });
        assert!(poll(Duration::from_secs(10), || ended(child)).is_some(), "a child hangs");
    }
    exit(0);
}

/// Runs `work` in a forked child, waits until the child has ended, and asserts that the child succeeded.
pub(crate) fn in_a_child(work: impl FnOnce()) {
    // Other threads, if there are any, are asleep. So they hold no lock that the child needs.
    let status = wait_for(fork(work));
    assert!(status.success(), "the child died: {status}");
}

/// A logger that writes every record of the library to stdout.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("{} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Writes the records of the library at this level and above to stdout from now on.
pub(crate) fn listen(level: log::LevelFilter) {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(level);
}

fn hear(urls: &[String]) {
    listen(log::LevelFilter::Warn);
    let locks = client(urls, Duration::from_secs(30));
    for _ in 0..3 {
        locks.mutex("heard").lock().unwrap().unlock().unwrap();
    }
}
