//! A limit for all processes together: a service allows ten connections at a time.
//!
//! ```text
//! cargo run --example limiter
//! ```
//!
//! Four processes with five threads each want to connect, and `kind = semaphore(10)` admits ten of the twenty threads.
//! One process is killed in the middle. Its permits end with their leases, and the other processes continue. At the
//! end, the program counts the connections that overlapped. It exits with 1 if there were more than ten, or never more
//! than one process has threads.
#![allow(clippy::disallowed_methods, reason = "the work to be done with a permit is to sleep")]

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, Worker, now, work};
use redlock_sync::{Redlock, distributed_lock};

/// The number of connections that the service allows.
const LIMIT: u32 = 10;
const PROCESSES: usize = 4;
const THREADS: usize = 5;
const CALLS: usize = 8;

/// Calls the service. The attribute is all that the limit needs.
#[distributed_lock("limiter:service", kind = semaphore(LIMIT), guard = permit)]
fn call_service() -> Result<(), redlock_sync::Error> {
    let from = now();
    thread::sleep(Duration::from_millis(fastrand::u64(20..60))); // This sleep stands for the time of the connection.
    permit.check()?; // Checks that the permit is still held, without I/O.
    println!("{} {}", from.as_micros(), now().as_micros());
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match work().as_deref() {
        Some([url]) => call_again_and_again(url).map(|()| ExitCode::SUCCESS),
        _ => limit(),
    }
}

fn call_again_and_again(url: &str) -> Result<(), Box<dyn Error>> {
    // The lease is short to keep the example short. The default is 30 s.
    Redlock::set_default(Redlock::builder().node(url).lease(Duration::from_secs(3)).build()?)?;
    let caller = || (0..CALLS).try_for_each(|_| call_service());
    let callers: Vec<_> = (0..THREADS).map(|_| thread::spawn(caller)).collect();
    for caller in callers {
        caller.join().map_err(|_| "a caller panicked")??;
    }
    Ok(())
}

fn limit() -> Result<ExitCode, Box<dyn Error>> {
    let redis = Redis::any();
    println!("{}", redis.describe());
    let mut workers = (0..PROCESSES).map(|_| Worker::start([redis.url()])).collect::<Result<Vec<_>, _>>()?;
    let mut lines = workers.iter_mut().map(Worker::lines).collect::<Result<Vec<_>, _>>()?;

    let first = lines.first_mut().and_then(Iterator::next).ok_or("the first process ended early")??;
    workers.first_mut().ok_or("no process")?.kill()?;
    println!("one of {PROCESSES} processes is killed while its threads are connected, or wait");

    let rest: Vec<String> = lines.into_iter().flatten().map_while(Result::ok).collect();
    for worker in workers.iter_mut().skip(1) {
        if !worker.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    let (calls, most) = (rest.len() + 1, most_at_a_time(rest.iter().chain([&first]))?);
    println!("{calls} calls, at most {most} at a time of {} threads", PROCESSES * THREADS);
    let is_well = most > 1 && most <= LIMIT && calls > (PROCESSES - 1) * THREADS * CALLS;
    println!("{}", if is_well { "OK" } else { "NOT AS TOLD" });
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns how many of these calls overlapped at most.
fn most_at_a_time<'a>(calls: impl Iterator<Item = &'a String>) -> Result<u32, Box<dyn Error>> {
    let mut events: Vec<(u64, bool)> = Vec::new();
    for call in calls {
        let (from, to) = call.split_once(' ').ok_or("not a call")?;
        events.extend([(from.parse()?, true), (to.parse()?, false)]);
    }
    events.sort_unstable(); // At the same time, an end comes before a begin.
    let (mut inside, mut most) = (0_u32, 0);
    for (_, begins) in events {
        inside = if begins { inside + 1 } else { inside - 1 };
        most = most.max(inside);
    }
    Ok(most)
}
