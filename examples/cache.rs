//! A cache that several processes share. Any number of readers use it at a time, and one writer at a time fills it.
//!
//! ```text
//! cargo run --example cache
//! ```
//!
//! The cache consists of two files that have to agree. Threads of three processes look up values (`kind = read`). Now
//! and then, a thread fills the cache again (`kind = write`), one file after the other. No reader may find one old and
//! one new file. Each fill has the fencing token of its lock. A store could use it to refuse a write of a process that
//! was paused for too long. The program exits with 1 if a reader found files that differ, or if no two readers
//! overlapped.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the lock is to sleep")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, thread};

use redlock_examples::{Redis, TempDir, Worker, work};
use redlock_sync::{Redlock, distributed_lock};

const PROCESSES: usize = 3;
const THREADS: usize = 4;
const LOOK_UPS: usize = 30;

struct Cache {
    dir: PathBuf,
    reading: AtomicU32,
    most: AtomicU32,
}

impl Cache {
    /// Returns the fencing token of the fill that this reader finds.
    #[distributed_lock("cache:prices", kind = read)]
    fn look_up(&self) -> Result<u64, Box<dyn Error>> {
        self.most.fetch_max(self.reading.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let first = self.file("first")?;
        thread::sleep(Duration::from_millis(3)); // Without the lock, a fill could come in between.
        let second = self.file("second")?;
        self.reading.fetch_sub(1, Ordering::SeqCst);
        if first == second { Ok(first) } else { Err(format!("half of {first}, half of {second}").into()) }
    }

    #[distributed_lock("cache:prices", kind = write, fenced = true, guard = lock)]
    fn fill(&self) -> Result<(), Box<dyn Error>> {
        let fence = lock.fencing_token()?;
        if self.file("first")? > fence {
            return Err("refused: a later fill was here".into());
        }
        fs::write(self.dir.join("first"), fence.to_string())?;
        thread::sleep(Duration::from_millis(3));
        Ok(fs::write(self.dir.join("second"), fence.to_string())?)
    }

    fn file(&self, name: &str) -> Result<u64, Box<dyn Error>> {
        Ok(fs::read_to_string(self.dir.join(name))?.parse()?)
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match work().as_deref() {
        Some([url, dir]) => use_it(url, Path::new(dir)).map(|()| ExitCode::SUCCESS),
        _ => watch(),
    }
}

fn use_it(url: &str, dir: &Path) -> Result<(), Box<dyn Error>> {
    Redlock::set_default(Redlock::open(url)?)?;
    let cache = Arc::new(Cache { dir: dir.to_owned(), reading: AtomicU32::default(), most: AtomicU32::default() });
    let user = |cache: Arc<Cache>| {
        (0..LOOK_UPS).try_for_each(|n| {
            let used = if n % 10 == 9 { cache.fill() } else { cache.look_up().map(drop) };
            used.map_err(|error| error.to_string())
        })
    };
    let users: Vec<_> =
        (0..THREADS).map(|_| Arc::clone(&cache)).map(|cache| thread::spawn(move || user(cache))).collect();
    for user in users {
        user.join().map_err(|_| "a thread panicked")??;
    }
    println!("{}", cache.most.load(Ordering::SeqCst));
    Ok(())
}

fn watch() -> Result<ExitCode, Box<dyn Error>> {
    let (redis, dir) = (Redis::any(), TempDir::new()?);
    println!("{}", redis.describe());
    for half in ["first", "second"] {
        fs::write(dir.path().join(half), "0")?;
    }
    let place = dir.path().display().to_string();
    let mut workers = (0..PROCESSES).map(|_| Worker::start([redis.url(), &place])).collect::<Result<Vec<_>, _>>()?;
    let (mut most, mut failed) = (0, 0);
    for worker in &mut workers {
        let said = worker.lines()?.map_while(Result::ok).last();
        most = most.max(said.and_then(|line| line.parse().ok()).unwrap_or(0));
        failed += usize::from(!worker.wait()?.success());
    }
    println!("at most {most} of a process' {THREADS} threads read at a time; processes that found a half: {failed}");
    let is_well = failed == 0 && most > 1;
    println!("{}", if is_well { "OK" } else { "NOT AS TOLD" });
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
