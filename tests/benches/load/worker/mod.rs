//! Worker processes. Each one runs this binary with a hidden argument. The kinds are:
//!
//! 1. `ring`, shared with other benches: contends for one lock with other workers, with a hold and a pause.
//! 2. `busy-ring`: does the same, while other threads of it wait for other locks.
//! 3. `waiters.rs`: threads that only wait.
//! 4. `readers.rs`: threads that read one key.

pub(crate) mod readers;
pub(crate) mod waiters;

use redlock_tests::bench::{Outcome, client, ring};

/// The main function of a worker.
pub(crate) fn serve(kind: &str, args: &[String]) -> Outcome<()> {
    match kind {
        "ring" => ring::child(args),
        "busy-ring" => busy_ring(args),
        "readers" => readers::child(args),
        "waiters" => waiters::child(args),
        other => Err(format!("no such worker: {other}").into()),
    }
}

/// The main function of a worker of the kind `busy-ring`: `THREADS KEY URL`.
fn busy_ring(args: &[String]) -> Outcome<()> {
    let [threads, key, url] = args else { return Err("how many wait, for what, where?".into()) };
    let locks = client(std::slice::from_ref(url)).build()?;
    waiters::wait(&locks, threads.parse()?);
    ring::contend(&locks.mutex(key.as_str()), key, url)
}
