//! Locks KEY by rslock on the servers of URLS; `tests/src/foreign/mod.rs` has what a program is told, and says.

use std::env;
use std::error::Error;
use std::io::stdin;
use std::thread;
use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};
use tokio::runtime::Builder;
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

/// So many tasks, each with a key of its own, on a runtime of its own; pairs per second.
fn pairs(urls: &str, key: &str, numbers: &[&str]) -> Result<f64, Box<dyn Error>> {
    let [tasks, seconds] = numbers else { return Err("two numbers".into()) };
    let (tasks, seconds) = (tasks.parse::<usize>()?, seconds.parse::<f64>()?);
    let (locks, key) = (LockManager::new(urls.split(',').collect()), key.to_owned());
    let crew = async move {
        let mut running = Vec::new();
        let other = locks.lock("foreign-rslock".as_bytes(), TTL).await.map_err(|error| format!("{error:?}"))?;
        locks.unlock(&other).await;
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(seconds);
        for task in 0..tasks {
            let (locks, key) = (locks.clone(), format!("{key}:{task}"));
            running.push(tokio::spawn(async move {
                let mut count = 0_u32;
                while Instant::now() < end {
                    let Ok(lock) = locks.lock(key.as_bytes(), TTL).await else { continue };
                    locks.unlock(&lock).await;
                    count += 1;
                }
                count
            }));
        }
        let mut sum = 0;
        for task in running {
            sum += task.await.map_err(|error| error.to_string())?;
        }
        Ok::<f64, String>(f64::from(sum) / start.elapsed().as_secs_f64())
    };
    // With 1 or 2 worker threads rslock is slower here.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || runtime.block_on(crew);
    // The thread that reads commands has a runtime already.
    Ok(thread::spawn(run).join().map_err(|_| "a task panicked")??)
}
