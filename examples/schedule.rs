//! A job that several instances of a service have on their schedule. Each time, one of them runs it.
//!
//! ```text
//! cargo run --example schedule
//! ```
//!
//! Three instances (processes) find the job due each second. Their clocks differ a little. `wait = "0s"` admits one of
//! them, and the others do not wait. The job takes almost no time, so an instance with a late clock could run it again.
//! `min_hold` prevents that: it keeps the lock after the job is done. In the third period, the instance that runs the
//! job is killed. The others continue.
//!
//! The program exits with 1 if a period had two runs. It does not require one run in each period. If an instance dies
//! in the job, or all of them are late, the next period runs it. A job with one runner cannot promise more.
#![allow(clippy::disallowed_methods, reason = "between two periods a scheduler sleeps")]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, Worker, now, work};
use redlock_sync::{Redlock, distributed_lock};

const INSTANCES: [&str; 3] = ["ann", "bob", "cid"];
const PERIODS: u32 = 6;
const PERIOD: Duration = Duration::from_secs(1);
/// The difference between the clocks of neighbouring instances.
const SKEW: Duration = Duration::from_millis(120);
/// An instance that is later than this leaves the run to the others, as good schedulers do.
const TOO_LATE: Duration = Duration::from_millis(200);

/// The job. It runs in one instance at a time. In the others, the call returns `Ok(())` at once.
///
/// `min_hold` is longer than the difference of the clocks, and shorter than a period. `lease` matters if an instance
/// dies: it keeps the others out until the lease has ended, here before the next period. A job may take longer, since
/// its lock is renewed.
#[distributed_lock("cron:report", wait = "0s", busy = skip, min_hold = "700ms", lease = "800ms")]
fn report(period: u32) -> Result<(), redlock_sync::Error> {
    println!("{period}");
    thread::sleep(Duration::from_millis(20));
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match work().as_deref() {
        Some([url, start, skew]) => {
            let start = Duration::from_micros(start.parse()?) + SKEW * skew.parse()?;
            instance(url, start).map(|()| ExitCode::SUCCESS)
        }
        _ => watch(),
    }
}

/// The work of each instance: a loop as in any blocking service.
fn instance(url: &str, start: Duration) -> Result<(), Box<dyn Error>> {
    Redlock::set_default(Redlock::open(url)?)?;
    for period in 0..PERIODS {
        let due = start + PERIOD * period;
        thread::sleep(due.saturating_sub(now()));
        if now() > due + TOO_LATE {
            continue;
        }
        if let Err(error) = report(period) {
            eprintln!("not this time: {error}"); // The server does not answer. The next period tries again.
        }
    }
    Ok(())
}

/// Starts the instances, kills one, and counts the runs of each.
fn watch() -> Result<ExitCode, Box<dyn Error>> {
    let redis = Redis::any();
    println!("{}\n{} instances, one job, due each {PERIOD:?}:\n", redis.describe(), INSTANCES.len());
    let start = now() + Duration::from_millis(300); // All instances are up by then.
    let (sender, receiver) = mpsc::channel();
    let mut instances = BTreeMap::new();
    for (name, skew) in INSTANCES.into_iter().zip(0..) {
        let (start, skew) = (start.as_micros().to_string(), i32::to_string(&skew));
        let mut worker = Worker::start([redis.url(), &start, &skew])?;
        let (lines, sender) = (worker.lines()?, sender.clone());
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| _ = sender.send((name, line))));
        instances.insert(name, worker);
    }
    drop(sender); // The channel ends with the last instance.

    let mut runs: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, line) in receiver {
        let period: u32 = line.parse()?;
        let at = now().saturating_sub(start).as_secs_f64();
        println!("{at:7.3} s  period {period} run by {name}");
        runs.entry(period).or_default().push(name);
        if period == 2
            && let Some(mut worker) = instances.remove(name)
        {
            worker.kill()?;
            println!("           killed {name} in the middle of it");
        }
    }
    let twice = runs.values().filter(|names| names.len() > 1).count();
    println!("\nperiods {PERIODS}, run {}, run twice {twice}", runs.len());
    println!("{}", if twice == 0 { "OK: no period had two runs" } else { "BROKEN" });
    Ok(if twice == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
