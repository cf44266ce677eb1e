//! Processes with jobs that are run once, and with leaders. Tests kill and stop these processes.
#![allow(clippy::disallowed_methods, reason = "tells the time to other processes")]

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write, stdin, stdout};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_sync::{Error, Lease, Redlock, RunOutcome};

/// The roles of a process:
///
/// 1. `once NAME LEASE_MS URL…`: makes one call. Its body prints `body` and returns `Ok` after a line on stdin. Then
///    the process prints the result of the call.
/// 2. `lead NAME LEASE_MS URL…`: runs a candidate. Its body prints `leads`. For each line on stdin it prints the result
///    of `check`: `ok` or `lost`. After `lost` it returns.
/// 3. `jobs FILE LEASE_MS URL…`: calls for one name after the other, `job:0`, `job:1` and so on. It writes a line to
///    the file for each body that ends, for each call that returns `Ran`, and for each call that fails.
/// 4. `leaders FILE LEASE_MS URL…`: runs a candidate. It writes a line to the file for each `check` that returns `Ok`.
pub(crate) fn main(args: &[String]) {
    let [role, name, lease, urls @ ..] = args else { panic!("ROLE NAME LEASE_MS URL…") };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let builder = Redlock::builder().nodes(urls).lease(lease).node_timeout(lease / 3).restart_guard(false);
    let locks = builder.build().unwrap();
    match role.as_str() {
        "once" => once(&locks, name),
        "lead" => lead(&locks, name),
        "jobs" => jobs(&locks, &mut log(name)),
        "leaders" => leaders(&locks, &mut log(name)),
        other => panic!("no such role: {other}"),
    }
}

fn tell(what: impl Display) {
    println!("{what}");
    stdout().flush().unwrap();
}

/// Waits for the next line on stdin.
fn order() {
    stdin().lock().read_line(&mut String::new()).unwrap();
}

fn once(locks: &Redlock, name: &str) {
    let outcome = locks.once(name).run(|_| {
        tell("body");
        order();
        Ok::<_, Error>(())
    });
    tell(match outcome {
        Ok(RunOutcome::Ran(())) => "ran",
        Ok(RunOutcome::Done) => "done",
        Ok(RunOutcome::Busy) => "busy",
        Err(Error::Lost { .. }) => "lost",
        Err(_) => "other",
    });
}

fn lead(locks: &Redlock, name: &str) {
    let body = |lease: &Lease| {
        tell("leads");
        loop {
            order();
            let checked = lease.check();
            tell(if checked.is_ok() { "ok" } else { "lost" });
            checked?;
        }
        #[allow(unreachable_code, reason = "it tells the type of the error")]
        Ok::<_, Error>(())
    };
    locks.leader(name).pause(Duration::from_millis(10)).run(body).unwrap();
}

/// Opens a file to which several processes append.
fn log(path: &str) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}

/// Appends a line with one write, so that lines of several processes do not mix.
fn note(log: &mut File, line: &str) {
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn jobs(locks: &Redlock, log: &mut File) {
    for number in 0.. {
        let job = locks.once(format!("job:{number}"));
        loop {
            let outcome = job.run(|lease| {
                thread::sleep(Duration::from_millis(20));
                lease.check()?;
                note(log, &format!("body {number}"));
                Ok::<_, Error>(())
            });
            match outcome {
                Ok(RunOutcome::Ran(())) => note(log, &format!("ran {number}")),
                Ok(RunOutcome::Done) => break,
                Ok(RunOutcome::Busy) => thread::sleep(Duration::from_millis(5)),
                Err(_) => {
                    note(log, &format!("failed {number}"));
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

/// Runs a candidate. Writes a line for each `check` that returns `Ok`: the process, the number of the term, and the
/// times before and after the `check`.
fn leaders(locks: &Redlock, log: &mut File) {
    let mut term = 0;
    let body = |lease: &Lease| {
        term += 1;
        loop {
            let before = now();
            lease.check()?;
            note(log, &format!("{} {term} {before} {}", std::process::id(), now()));
            thread::sleep(Duration::from_millis(2));
        }
        #[allow(unreachable_code, reason = "it tells the type of the error")]
        Ok::<_, Error>(())
    };
    locks.leader("scheduler").pause(Duration::from_millis(10)).run(body).unwrap();
}
