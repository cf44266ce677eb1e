//! `agent cycles DIRECT_URL PROXY_URL`: locks and unlocks a hundred times, tells what it uses, and again after ten thousand.
//!
//! Two clients: one by the proxy, whose connections the test cuts, and one straight to the server, which makes the first one's locks
//! contended. After each part it prints `threads files` once they do not grow any more, and waits for a line.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Redlock, Retry};
use redlock_tests::poll;

const THREADS: u64 = 4;
/// Threads and late sockets end by themselves, after some seconds without work.
const SETTLES: Duration = Duration::from_secs(60);

/// How the cycles ended.
#[derive(Debug, Default)]
struct Ends {
    released: AtomicU64,
    busy: AtomicU64,
    failed: AtomicU64,
}

pub(crate) fn main(args: &[String]) {
    let [direct, proxy] = args else { panic!("expected two URLs: {args:?}") };
    let (direct, proxied) = (open(direct), open(proxy));
    let ends = Ends::default();
    run(&direct, &proxied, 100, &ends);
    let first = settled(&used());
    tell(&ends, &first);
    run(&direct, &proxied, 9_900, &ends);
    tell(&ends, &settled(&first));
}

fn open(url: &str) -> Redlock {
    let builder = Redlock::builder().node(url).connections(4).node_timeout(Duration::from_millis(500));
    builder.retry(Retry::every(Duration::from_millis(1))).build().expect("the settings are good")
}

fn run(direct: &Redlock, proxied: &Redlock, cycles: u64, ends: &Ends) {
    let work = |thread: u64| (0..cycles / THREADS).for_each(|i| cycle(direct, proxied, thread, i, ends));
    thread::scope(|scope| (0..THREADS).for_each(|thread| _ = scope.spawn(move || work(thread))));
}

/// Keys are shared by two threads; some cycles go past the proxy, some hold on while the others wait, some do not wait at all.
fn cycle(direct: &Redlock, proxied: &Redlock, thread: u64, i: u64, ends: &Ends) {
    let locks = if (i + thread).is_multiple_of(3) { direct } else { proxied };
    let lock = locks.mutex(format!("key:{}", thread / 2));
    let taken = match i % 5 {
        0 => lock.try_lock(),
        1 => lock.try_lock_for(Duration::from_millis(2)),
        2 => lock.renew(false).try_lock_for(Duration::from_millis(5)),
        _ => lock.try_lock_for(Duration::from_millis(200)),
    };
    if i.is_multiple_of(4) && taken.is_ok() {
        thread::sleep(Duration::from_millis(2));
    }
    note(ends, taken.and_then(redlock_sync::MutexGuard::unlock));
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

/// Threads and open files of this process.
fn used() -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).expect("this is Linux").count();
    (count("task"), count("fd"))
}

/// What is used once that is no more than `before` and has stayed the same for a while; or what there is after a minute.
fn settled(before: &(usize, usize)) -> (usize, usize) {
    let mut last = (used(), 0);
    let calm = poll(SETTLES, || {
        let now = used();
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        (last.1 > 100 && now.0 <= before.0 && now.1 <= before.1).then_some(now)
    });
    calm.unwrap_or(last.0)
}

/// Tells, and waits for a line.
fn tell(ends: &Ends, used: &(usize, usize)) {
    let [released, busy, failed] = [&ends.released, &ends.busy, &ends.failed].map(|n| n.load(Ordering::Relaxed));
    println!("{} {} {released} {busy} {failed}", used.0, used.1);
    io::stdin().read_line(&mut String::new()).expect("stdin can be read");
}
