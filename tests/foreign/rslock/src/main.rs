//! Locks KEY by rslock on the servers of URLS; `tests/src/foreign/mod.rs` has what a program is told, and says.

use std::env;
use std::error::Error;
use std::io::stdin;
use std::thread;
use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [urls, key] = &args[..] else { return Err("URLS KEY".into()) };
    let locks = LockManager::new(urls.split(',').collect());
    let mut hasty = LockManager::new(urls.split(',').collect());
    hasty.set_retry(1, Duration::ZERO);
    for locks in [&locks, &hasty] {
        let other = locks.lock("foreign-rslock".as_bytes(), TTL).await?;
        locks.unlock(&other).await;
    }
    println!("ready");
    let mut held: Option<Lock> = None;
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match (&words[..], &mut held) {
            (["turns", numbers @ ..], _) => println!("{}", turns(&locks, key, numbers).await?),
            (["pairs", numbers @ ..], _) => println!("{}", pairs(urls, key, numbers)?),
            (["acquire"], held) => {
                println!("{}", said(hasty.lock(key.as_bytes(), TTL).await.map(|lock| *held = Some(lock))))
            }
            (["extend"], Some(lock)) => println!("{}", said(hasty.extend(lock, TTL).await)),
            // It does not say whether the key was there.
            (["release"], Some(lock)) => println!("{}", said(Ok::<(), ()>(hasty.unlock(lock).await))),
            _ => return Err(format!("what is {line}?").into()),
        }
    }
    Ok(())
}

fn said<T, E>(result: Result<T, E>) -> &'static str {
    if result.is_ok() { "yes" } else { "no" }
}

async fn turns(locks: &LockManager, key: &str, numbers: &[&str]) -> Result<String, Box<dyn Error>> {
    let numbers = numbers.iter().map(|number| number.parse()).collect::<Result<Vec<f64>, _>>()?;
    let [seconds, hold, pause] = numbers[..] else { return Err("three numbers".into()) };
    let (hold, pause) = (Duration::from_secs_f64(hold), Duration::from_secs_f64(pause));
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut moments = Vec::new();
    let mut wanted = start;
    while Instant::now() < end {
        let Ok(lock) = locks.lock(key.as_bytes(), TTL).await else { continue }; // It gave up.
        moments.extend([wanted - start, start.elapsed()].map(|moment| moment.as_micros().to_string()));
        sleep(hold).await;
        locks.unlock(&lock).await;
        sleep(pause).await;
        wanted = Instant::now();
    }
    Ok(moments.join(" "))
}

/// Lets this many tasks, or threads, lock and unlock a key of their own each. Returns pairs per second.
///
/// A thread calls `Handle::block_on`, as a program without an async runtime of its own does. One more thread runs the
/// runtime. With 1 or 2 worker threads, tasks are slower here.
fn pairs(urls: &str, key: &str, numbers: &[&str]) -> Result<f64, Box<dyn Error>> {
    let [kind, count, seconds] = numbers else { return Err("a kind and two numbers".into()) };
    let (are_threads, count, seconds) = (*kind == "threads", count.parse::<usize>()?, seconds.parse::<f64>()?);
    let (locks, key) = (LockManager::new(urls.split(',').collect()), key.to_owned());
    let crew = async move {
        let mut running = Vec::new();
        let other = locks.lock("foreign-rslock".as_bytes(), TTL).await.map_err(|error| format!("{error:?}"))?;
        locks.unlock(&other).await;
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(seconds);
        for n in 0..count {
            let work = work(locks.clone(), format!("{key}:{n}"), end);
            running.push(if are_threads {
                let (done, handle) = (oneshot::channel(), Handle::current());
                thread::spawn(move || done.0.send(handle.block_on(work)));
                done.1
            } else {
                let done = oneshot::channel();
                tokio::spawn(async { done.0.send(work.await) });
                done.1
            });
        }
        let mut sum = 0;
        for done in running {
            sum += done.await.map_err(|error| error.to_string())?;
        }
        Ok::<f64, String>(f64::from(sum) / start.elapsed().as_secs_f64())
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || runtime.block_on(crew);
    // The thread that reads commands has a runtime already.
    Ok(thread::spawn(run).join().map_err(|_| "a task panicked")??)
}

async fn work(locks: LockManager, key: String, end: Instant) -> u32 {
    let mut count = 0;
    while Instant::now() < end {
        let Ok(lock) = locks.lock(key.as_bytes(), TTL).await else { continue };
        locks.unlock(&lock).await;
        count += 1;
    }
    count
}
