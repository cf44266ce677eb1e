//! Other processes: this binary, started again with a hidden argument. Its kinds:
//!
//! 1. `ring`, shared with other benches: contends for one lock with other workers, with a hold and a pause.
//! 2. `crowd.rs`: threads of one process that want one lock.
//! 3. `guards.rs`: holds many guards.
//! 4. `holder.rs`: holds locks until it is killed.
//! 5. `pairs` and `raw-pairs`: for `strace` and `perf`.

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

/// For `strace -c` and `perf`, by hand: `limits --worker pairs N URL…` locks and unlocks N times.
fn pairs(args: &[String]) -> Outcome<()> {
    let (count, urls) = args.split_first().ok_or("how many?")?;
    let mutex = client(urls).build()?.mutex("pairs");
    for _ in 0..count.parse()? {
        mutex.lock()?.unlock()?;
    }
    Ok(())
}

/// The same of the raw limit.
fn raw_pairs(args: &[String]) -> Outcome<()> {
    let (count, urls) = args.split_first().ok_or("how many?")?;
    RawLock::open(urls, "raw-pairs")?.pairs(count.parse()?, &mut Vec::new())
}
