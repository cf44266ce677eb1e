//! Threads of one process that hand over a lock to each other, compared with one thread that takes it by bare commands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::Mutex;
use redlock_tests::Server;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{blocks_in_turns, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use super::mutex;

const THREADS: usize = 8;
/// The length of a block. It is short, so that raw and ours see the same machine.
const BLOCK: Duration = Duration::from_millis(60);
/// The time in nanoseconds until all threads of a block have started.
const LEAD: u64 = 10_000_000;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let urls = [server.url()];
    let (ours, mut raw) = (mutex(&urls, "local")?, RawLock::open(&urls, "raw")?);
    let mut of_raw = || per_second(|start, end| alone(&mut raw, start, end));
    let mut of_ours = || per_second(|start, end| crowd(&ours, start, end));
    let rounds = blocks_in_turns(plan.rounds(), plan.blocks(), &mut of_raw, &mut of_ours)?;
    Ok(vec![Line::beside("locks per second", "/s", rounds, "one bare connection").gate(Gate::RatioAtLeast(3.0))])
}

/// The rate of a block. The work counts its pairs between two times.
fn per_second(mut work: impl FnMut(u64, u64) -> Outcome<u64>) -> Outcome<f64> {
    let start = clock::now() + LEAD;
    Ok(float(work(start, start + clock::nanos(BLOCK))?) / BLOCK.as_secs_f64())
}

fn alone(raw: &mut RawLock, start: u64, end: u64) -> Outcome<u64> {
    clock::sleep_until(start);
    let mut pairs = 0;
    while clock::now() < end {
        raw.pair()?;
        pairs += 1;
    }
    Ok(pairs)
}

fn crowd(mutex: &Mutex, start: u64, end: u64) -> Outcome<u64> {
    let inside = AtomicBool::new(false);
    let one = || -> Outcome<u64> {
        clock::sleep_until(start);
        let mut pairs = 0;
        while clock::now() < end {
            let guard = mutex.lock()?;
            if inside.swap(true, Ordering::AcqRel) {
                return Err("two threads hold the lock".into());
            }
            inside.store(false, Ordering::Release);
            guard.unlock()?;
            pairs += 1;
        }
        Ok(pairs)
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}
