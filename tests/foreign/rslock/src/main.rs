//! Takes the lock KEY again and again for so many SECONDS, by the defaults of rslock; see `tests/src/foreign/mod.rs` for what it prints.

use std::env;
use std::error::Error;
use std::io::stdin;
use std::time::{Duration, Instant};

use rslock::LockManager;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [url, key, numbers @ ..] = &args[..] else { return Err("URL KEY SECONDS HOLD PAUSE".into()) };
    let numbers = numbers.iter().map(|number| number.parse()).collect::<Result<Vec<f64>, _>>()?;
    let [seconds, hold, pause] = numbers[..] else { return Err("three numbers".into()) };
    let (hold, pause) = (Duration::from_secs_f64(hold), Duration::from_secs_f64(pause));
    let locks = LockManager::new(vec![url.as_str()]);
    let other = locks.lock("foreign-rslock".as_bytes(), TTL).await?;
    locks.unlock(&other).await;
    println!("ready");
    stdin().read_line(&mut String::new())?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut waits = Vec::new();
    let mut wanted = start;
    while Instant::now() < end {
        let Ok(lock) = locks.lock(key.as_bytes(), TTL).await else { continue }; // It gave up.
        let moments = [wanted - start, start.elapsed()];
        waits.extend(moments.map(|moment| moment.as_micros().to_string()));
        sleep(hold).await;
        locks.unlock(&lock).await;
        sleep(pause).await;
        wanted = Instant::now();
    }
    println!("{}", waits.join(" "));
    Ok(())
}
