//! Locks KEY by rslock on the servers of URLS; `tests/src/foreign/mod.rs` has what a program is told, and says.

use std::env;
use std::error::Error;
use std::io::stdin;
use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};
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
