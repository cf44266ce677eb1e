//! Worker processes. Each one runs this binary with a hidden argument. The kinds are:
//!
//! 1. `ring`, shared with other benches: contends for one lock with other workers, with a hold and a pause.
//! 2. `crowd.rs`: threads of one process that contend for one lock.
//! 3. `guards.rs`: holds many guards.
//! 4. `holder.rs`: holds locks until it is killed.
//! 5. `pairs` and `raw-pairs`: processes for `strace` and `perf`.

pub(crate) mod crowd;
pub(crate) mod guards;
pub(crate) mod holder;

use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::{Outcome, client, ring};

/// The main function of a worker.
pub(crate) fn serve(kind: &str, args: &[String]) -> Outcome<()> {
    match kind {
        "ring" => ring::child(args),
        "crowd" => crowd::child(args),
        "guards" => guards::child(args),
        "holder" => holder::child(args),
        "pairs" => pairs(args),
        "raw-pairs" => raw_pairs(args),
        other => Err(format!("no such worker: {other}").into()),
    }
}

/// Locks and unlocks N times: `limits --worker pairs N URL…`. Call it by hand with `strace -c` or `perf`.
fn pairs(args: &[String]) -> Outcome<()> {
    let (count, urls) = args.split_first().ok_or("how many?")?;
    let mutex = client(urls).build()?.mutex("pairs");
    for _ in 0..count.parse()? {
        mutex.lock()?.unlock()?;
    }
    Ok(())
}

/// Does the same as [`pairs`] with raw locks.
fn raw_pairs(args: &[String]) -> Outcome<()> {
    let (count, urls) = args.split_first().ok_or("how many?")?;
    RawLock::open(urls, "raw-pairs")?.pairs(count.parse()?, &mut Vec::new())
}
