//! Locks in a program with an async runtime. The section under the lock is a closure of `spawn_blocking`.
//!
//! ```text
//! cargo run --example with_tokio
//! ```
//!
//! Three processes each run 40 tasks on the two threads of a runtime. The tasks add to one number in a file, which is
//! read, and written a moment later. They also run async code while they hold the lock. Meanwhile, a task counts its
//! turns to show that the runtime is not blocked. The program exits with 1 if an addition is lost or a runtime was
//! blocked. docs/guide.md has the rules for such programs.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock_examples::{Redis, TempDir, Worker, work};
use redlock_sync::{Redlock, distributed_lock};
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: usize = 3;
const TASKS: usize = 40;
/// The number of turns that each runtime must find for other work meanwhile. If its threads were blocked, there would
/// be almost none.
const TURNS: usize = 10;

/// Blocks a thread of the blocking pool. The threads of the runtime stay free.
#[distributed_lock("number", wait = "60s", client = locks)]
fn add(locks: &Redlock, file: &Path, runtime: &Handle) -> Outcome<()> {
    let number: usize = fs::read_to_string(file)?.parse()?;
    runtime.block_on(sleep(Duration::from_millis(2))); // The task runs async code while the lock is held.
    fs::write(file, (number + 1).to_string())?;
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    match work().as_deref() {
        Some([url, file]) => {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
            let turns = runtime.block_on(tasks(Redlock::open(url)?, file.into()))?;
            Ok(if turns >= TURNS { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => processes(),
    }
}

/// Runs the tasks. Returns the number of turns that other work had meanwhile.
async fn tasks(locks: Redlock, file: PathBuf) -> Outcome<usize> {
    let turns = Arc::new(AtomicUsize::new(0));
    let other_work = tokio::spawn(count(Arc::clone(&turns)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (locks, file, runtime) = (locks.clone(), file.clone(), Handle::current());
        tasks.spawn(async move { spawn_blocking(move || add(&locks, &file, &runtime)).await? });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    other_work.abort();
    Ok(turns.load(Ordering::Relaxed))
}

async fn count(turns: Arc<AtomicUsize>) {
    loop {
        sleep(Duration::from_millis(1)).await;
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

fn processes() -> Outcome<ExitCode> {
    let (redis, dir) = (Redis::any(), TempDir::new()?);
    println!("{}", redis.describe());
    let file = dir.path().join("number");
    fs::write(&file, "0")?;
    let place = file.display().to_string();
    let start = |_| Worker::start([redis.url(), &place]);
    let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        if !worker.wait()?.success() {
            return Err("a task failed, or a runtime was held up".into());
        }
    }
    let (number, expected) = (fs::read_to_string(&file)?.parse::<usize>()?, PROCESSES * TASKS);
    println!("{number} of {expected} additions; no runtime was held up");
    println!("{}", if number == expected { "OK" } else { "ADDITIONS WERE LOST" });
    Ok(if number == expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
