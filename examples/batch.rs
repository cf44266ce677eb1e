//! A batch that continues when all of its parts are there, by a count-down latch.
//!
//! ```text
//! cargo run --example batch
//! ```
//!
//! Five processes each load a part of a data set, and then count down a latch. One of them is killed in the middle and
//! started again. Another one arrives a second time, like a worker that was restarted after its work was done. The
//! batch waits for the latch, and then adds up the parts. The program exits with 1 if the batch continued before all
//! parts were there, or if the sum is wrong.
#![allow(clippy::disallowed_methods, reason = "to sleep is what the workers do for work")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, id};
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, TempDir, Worker, work};
use redlock_sync::{CountDownLatch, Redlock};

const PARTS: usize = 5;
/// The count of numbers in a part.
const SIZE: u64 = 1000;
/// The longest wait. It is longer than a busy machine needs.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The latch that the batch and its workers share. It has the name of the batch and the number of parts. Each batch
/// needs a new name.
fn loaded(locks: &Redlock, batch: &str) -> CountDownLatch {
    locks.count_down_latch(format!("batch:{batch}:loaded"), PARTS)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match work().as_deref() {
        Some([url, batch, dir, part]) => load(url, batch, Path::new(dir), part.parse()?).map(|()| ExitCode::SUCCESS),
        _ => run(),
    }
}

/// A worker: it loads its part, and then arrives at the latch.
fn load(url: &str, batch: &str, dir: &Path, part: u64) -> Result<(), Box<dyn Error>> {
    let locks = Redlock::open(url)?;
    println!("part {part}: begins");
    thread::sleep(Duration::from_millis(100 + 50 * part)); // This sleep stands for the work.
    let sum: u64 = (part * SIZE..(part + 1) * SIZE).sum();
    fs::write(dir.join(part.to_string()), sum.to_string())?;
    // The worker arrives under the name of its part. So the part counts once, even if the worker is started again.
    loaded(&locks, batch).count_down_as(&format!("part {part}"))?;
    Ok(())
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let (redis, dir) = (Redis::any(), TempDir::new()?);
    println!("{}", redis.describe());
    let locks = Redlock::open(redis.url())?;
    let batch = id().to_string();
    let latch = loaded(&locks, &batch);
    let path = dir.path().to_str().ok_or("the path is no text")?;
    let start = |part: usize| Worker::start([redis.url(), &batch, path, &part.to_string()]);
    let mut workers = (0..PARTS).map(start).collect::<Result<Vec<_>, _>>()?;

    let last = workers.last_mut().ok_or("no worker")?;
    last.lines()?.next().ok_or("the worker ended early")??;
    last.kill()?;
    println!("the worker of part {} is killed, and started again", PARTS - 1);
    end(workers.iter_mut().take(PARTS - 1))?;
    println!("those of the others are done, and that of part 0 is started again all the same");
    end([&mut start(0)?])?;
    let early = latch.is_open()?;
    println!("{} of {PARTS} have arrived, the latch is {}", latch.arrived()?, if early { "open" } else { "closed" });
    *workers.last_mut().ok_or("no worker")? = start(PARTS - 1)?;

    latch.wait_for(LONGEST_WAIT)?;
    let part = |part: usize| Ok(fs::read_to_string(dir.path().join(part.to_string()))?.parse::<u64>()?);
    let parts = (0..PARTS).map(part).collect::<Result<Vec<u64>, Box<dyn Error>>>();
    let sum = parts.map(|parts| parts.iter().sum::<u64>()).unwrap_or_default();
    let all = u64::try_from(PARTS)? * SIZE;
    println!("the latch is open: the sum of {all} numbers is {sum}");
    end(workers.iter_mut().skip(PARTS - 1))?;
    latch.reset()?; // Without a reset, the latch ends with its lifetime.
    let is_well = !early && sum == (0..all).sum::<u64>();
    println!("{}", if is_well { "OK" } else { "NOT AS TOLD" });
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until these workers have ended, and checks that they succeeded.
fn end<'a>(workers: impl IntoIterator<Item = &'a mut Worker>) -> Result<(), Box<dyn Error>> {
    for worker in workers {
        if !worker.wait()?.success() {
            return Err("a worker failed".into());
        }
    }
    Ok(())
}
