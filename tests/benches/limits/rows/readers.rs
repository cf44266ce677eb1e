//! A read-write lock. One thread uses it alone, and then beside another thread of its process that reads.

use std::sync::mpsc::channel;
use std::thread;

use redlock_sync::RwLock;
use redlock_tests::Server;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{Rounds, p50_in_turns, p50_us};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

/// The number of pairs in a block. It is small, so that raw and ours see the same machine.
const BLOCK: usize = 50;
/// The number of joins in a batch. It is larger than the number of joins between two checks for a writer.
const BATCH: u32 = 4096;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let urls = [server.url()];
    let lock = client(&urls).build()?.rw_lock("ours");
    let mut lines = Vec::new();
    for (measure, writes) in [("read + unlock, p50", false), ("write + unlock, p50", true)] {
        let mut raw = RawLock::of_readers(&urls, "raw", "", writes)?;
        let ours = &mut |samples: &mut Vec<u64>| pairs(&lock, writes, samples);
        let rounds = p50_in_turns(plan.rounds(), plan.count(50), &mut |s| raw.pairs(BLOCK, s), ours)?;
        lines.push(Line::new(measure, "us", rounds, Bar::RatioAtMost(1.25)));
    }
    lines.push(Line::new("beside a reader of the process, p50", "ns", joins(&lock, plan)?, Bar::AtMost(400.0)));
    Ok(lines)
}

fn pairs(lock: &RwLock, writes: bool, samples: &mut Vec<u64>) -> Outcome<()> {
    for _ in 0..BLOCK {
        let start = clock::now();
        if writes {
            lock.write()?.unlock()?;
        } else {
            lock.read()?.unlock()?;
        }
        samples.push(clock::now() - start);
    }
    Ok(())
}

/// Measures reads while another thread reads. The time includes the checks for a waiting writer.
fn joins(lock: &RwLock, plan: Plan) -> Outcome<Rounds> {
    let ((tell, told), (end, ended)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let first = scope.spawn(move || -> Outcome<()> {
            let guard = lock.read()?;
            tell.send(())?;
            _ = ended.recv();
            Ok(guard.unlock().map(drop)?)
        });
        told.recv()?;
        let mut nanos = Vec::new();
        for _ in 0..plan.rounds() {
            let mut batches = Vec::new();
            for _ in 0..plan.count(75) {
                let start = clock::now();
                for _ in 0..BATCH {
                    lock.read()?.unlock()?;
                }
                batches.push(clock::now() - start);
            }
            nanos.push(p50_us(&batches) * 1e3 / f64::from(BATCH));
        }
        drop(end);
        first.join().expect("no panic")?;
        Ok(Rounds::alone(nanos))
    })
}
