//! `agent cycles DIRECT_URL PROXY_URL CYCLES`: locks and unlocks, and reports the threads and files that the process
//! uses.
//!
//! There are two clients. One connects through the proxy, and the test cuts its connections. The other connects
//! directly to the server and contends for the same locks.
//!
//! The process prints a line four times, and then waits for a line on stdin: before it creates the clients, after a
//! hundred cycles, after all cycles, and after it has dropped the clients. Each time, it first waits until its threads
//! and files are within the expected bounds.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, MutexGuard, Redlock, Retry};
use redlock_tests::poll;

const THREADS: u64 = 4;
/// The number of connections that a client has for calls.
const SHARED: u32 = 4;
/// The number of further connections that a client may keep: two that do not answer, and one for notifications.
const BESIDES: u32 = 3;
/// The time limit for unused threads to end. They end after some seconds without work.
const SETTLES: Duration = Duration::from_secs(60);

/// The numbers of the outcomes of the cycles.
#[derive(Debug, Default)]
struct Ends {
    released: AtomicU64,
    busy: AtomicU64,
    failed: AtomicU64,
}

pub(crate) fn main(args: &[String]) {
    let [direct, proxy, cycles] = args else { panic!("expected two URLs and a number: {args:?}") };
    let cycles: u64 = cycles.parse().expect("a number");
    let ends = Ends::default();
    let base = settled((1, usize::MAX));
    tell(&ends, base);
    let (direct, proxied) = (open(direct), open(proxy));
    let full = base.1 + usize::try_from(2 * (SHARED + BESIDES)).expect("a small number");
    run(&direct, &proxied, 100, &ends);
    let first = settled((usize::MAX, full));
    tell(&ends, first);
    run(&direct, &proxied, cycles - 100, &ends);
    tell(&ends, settled((first.0, full)));
    drop((direct, proxied));
    tell(&ends, settled(base));
}

fn open(url: &str) -> Redlock {
    let builder = Redlock::builder().node(url).connections(SHARED).node_timeout(Duration::from_millis(500));
    builder.retry(Retry::every(Duration::from_millis(1))).build().expect("the settings are good")
}

fn run(direct: &Redlock, proxied: &Redlock, cycles: u64, ends: &Ends) {
    let work = |thread: u64| (0..cycles / THREADS).for_each(|i| cycle(direct, proxied, thread, i, ends));
    thread::scope(|scope| (0..THREADS).for_each(|thread| _ = scope.spawn(move || work(thread))));
}

/// Makes one cycle. Two threads share each key. Some cycles bypass the proxy, some hold the lock while others wait, and
/// some do not wait.
fn cycle(direct: &Redlock, proxied: &Redlock, thread: u64, i: u64, ends: &Ends) {
    let locks = if (i + thread).is_multiple_of(3) { direct } else { proxied };
    let lock = locks.mutex(format!("key:{}", thread / 2));
    let taken = match i % 5 {
        0 => lock.try_lock(),
        1 => lock.try_lock_for(Duration::from_millis(2)),
        2 => lock.renew(false).try_lock_for(Duration::from_millis(5)),
        _ => lock.try_lock_for(Duration::from_millis(200)),
    };
    note(ends, taken.and_then(|guard| hold(guard, thread / 2, i)));
}

/// Holds the lock, and asserts that no other thread holds it at the same time.
fn hold(guard: MutexGuard, key: u64, i: u64) -> Result<(), Error> {
    static INSIDE: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    let inside = &INSIDE[usize::from(key == 1)];
    assert!(!inside.swap(true, Ordering::SeqCst), "two holders at once");
    if i.is_multiple_of(4) {
        thread::sleep(Duration::from_millis(2));
    }
    guard.check()?;
    inside.store(false, Ordering::SeqCst);
    guard.unlock()
}

fn note(ends: &Ends, result: Result<(), Error>) {
    let end = match result {
        Ok(()) => &ends.released,
        Err(Error::Busy { .. }) => &ends.busy,
        Err(Error::Unavailable { .. } | Error::Unconfirmed { .. }) => &ends.failed,
        Err(other) => panic!("a cycle ended with: {other}"),
    };
    end.fetch_add(1, Ordering::Relaxed);
}

/// The numbers of threads and open files of this process.
fn used() -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).expect("this is Linux").count();
    (count("task"), count("fd"))
}

/// Returns the numbers of threads and files, once they have been stable for a while and are at most `most`. After a
/// minute, it returns the numbers as they are.
fn settled(most: (usize, usize)) -> (usize, usize) {
    let (mut last, mut calm) = (used(), 0);
    let found = poll(SETTLES, || {
        let now = used();
        calm = if now == last { calm + 1 } else { 0 };
        last = now;
        (calm > 100 && now.0 <= most.0 && now.1 <= most.1).then_some(now)
    });
    found.unwrap_or(last)
}

/// Prints a line, and waits for a line on stdin.
fn tell(ends: &Ends, used: (usize, usize)) {
    let [released, busy, failed] = [&ends.released, &ends.busy, &ends.failed].map(|n| n.load(Ordering::Relaxed));
    println!("{} {} {released} {busy} {failed}", used.0, used.1);
    io::stdin().read_line(&mut String::new()).expect("stdin can be read");
}
