//! A process with threads that only wait.

use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::bench::worker::answer_orders;
use redlock_tests::bench::{Outcome, clock};

/// The name of the nth lock.
pub(crate) fn key(nth: u16) -> String {
    format!("waited:{nth}")
}

/// The main function of a worker: `THREADS URL…`. Each order is a time in nanoseconds. The answer is the processor time
/// that the process used in it.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [threads, urls @ ..] = args else { return Err("waiters need a number".into()) };
    let locks = Redlock::builder().nodes(urls).build()?;
    wait(&locks, threads.parse()?);
    answer_orders(|words| {
        let before = clock::process_cpu();
        thread::sleep(Duration::from_nanos(words[0].parse()?));
        Ok(vec![clock::process_cpu() - before])
    })
}

/// Lets this many threads wait, each for a lock of its own, until the process ends.
pub(super) fn wait(locks: &Redlock, threads: u16) {
    for nth in 0..threads {
        let mutex = locks.mutex(key(nth));
        thread::spawn(move || mutex.lock().and_then(redlock_sync::MutexGuard::unlock));
    }
}
