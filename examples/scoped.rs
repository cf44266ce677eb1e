//! Several processes use one lock in scoped code.
//!
//! ```text
//! cargo run --example scoped
//! ```
//!
//! The program starts a private Redis, or uses the server that `REDIS_URL` names. It also starts a few processes that
//! all want the same lock. Each process records the times of its holds, on a clock that all processes share. At the
//! end, the program compares them. No two holds may overlap, and each holder must have a larger fencing token than the
//! one before. Otherwise, the program exits with 1.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the lock is to sleep")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, Worker, now, work};
use redlock_sync::Redlock;

/// The processes that contend.
const PROCESSES: [&str; 4] = ["ann", "bob", "cid", "dee"];
/// The number of times that each process acquires the lock.
const HOLDS: usize = 6;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match work().as_deref() {
        Some([url]) => hold_again_and_again(url).map(|()| ExitCode::SUCCESS),
        _ => contend(),
    }
}

/// The work of each process. These calls are all that it needs of the library.
fn hold_again_and_again(url: &str) -> Result<(), Box<dyn Error>> {
    let locks = Redlock::open(url)?;
    let till = locks.mutex("scoped:till"); // Creates a handle without I/O. All processes use the same name.
    for _ in 0..HOLDS {
        {
            let guard = till.lock()?; // Blocks until the lock is acquired.
            let from = now();
            // This sleep stands for work that needs the lock.
            thread::sleep(Duration::from_millis(fastrand::u64(10..40)));
            guard.check()?; // Checks that the lock is still held, without I/O.
            println!("{} {} {}", guard.fencing_token()?, from.as_micros(), now().as_micros());
        } // The guard is dropped here, which releases the lock.
        thread::sleep(Duration::from_millis(fastrand::u64(20..90))); // This sleep stands for work that needs no lock.
    }
    Ok(())
}

/// One hold of the lock, as its holder recorded it.
struct Hold {
    who: &'static str,
    token: u64,
    from: Duration,
    to: Duration,
}

impl Hold {
    fn parse(who: &'static str, line: &str) -> Option<Self> {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [token, from, to] = numbers[..] else { return None };
        Some(Self { who, token, from: Duration::from_micros(from), to: Duration::from_micros(to) })
    }
}

/// Starts the processes, shows their holds while they run, and checks the holds.
fn contend() -> Result<ExitCode, Box<dyn Error>> {
    let redis = Redis::any();
    println!("{}\n{} processes want the same lock, {HOLDS} times each:\n", redis.describe(), PROCESSES.len());
    let start = now();
    let (sender, receiver) = mpsc::channel();
    let mut workers = Vec::new();
    for who in PROCESSES {
        let mut worker = Worker::start([redis.url()])?;
        println!("          {who} is process {}", worker.id());
        let (lines, sender) = (worker.lines()?, sender.clone());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                _ = sender.send(Hold::parse(who, &line).ok_or(line));
            }
        });
        workers.push(worker);
    }
    drop(sender); // The channel ends with the last process.
    let mut holds = Vec::new();
    for hold in receiver {
        let hold = hold.map_err(|line| format!("a process said `{line}`"))?;
        let (at, ms) = (hold.from.saturating_sub(start).as_secs_f64(), hold.to.saturating_sub(hold.from).as_millis());
        println!("{at:7.3} s  {} held it for {ms:3} ms with fencing token {}", hold.who, hold.token);
        holds.push(hold);
    }
    for mut worker in workers {
        let status = worker.wait()?;
        if !status.success() {
            return Err(format!("process {} ended with {status}", worker.id()).into());
        }
    }
    Ok(judge(&mut holds))
}

/// Sorts the holds by time, and compares each with the one before.
fn judge(holds: &mut [Hold]) -> ExitCode {
    holds.sort_by_key(|hold| hold.from);
    let pairs = || holds.iter().zip(holds.iter().skip(1));
    let hand_overs = pairs().filter(|(a, b)| a.who != b.who).count();
    let overlaps = pairs().filter(|(a, b)| b.from < a.to).count();
    let stale = pairs().filter(|(a, b)| b.token <= a.token).count();
    println!("\nholds {}, {hand_overs} of them handed over to another process", holds.len());
    println!("holds that overlapped the one before: {overlaps}");
    println!("fencing tokens that did not rise:     {stale}");
    let is_right = overlaps == 0 && stale == 0 && holds.len() == PROCESSES.len() * HOLDS;
    println!("{}", if is_right { "OK: one at a time" } else { "BROKEN" });
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
