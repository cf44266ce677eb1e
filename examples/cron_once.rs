//! A nightly job on several machines that has to succeed once.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run --example cron_once 2026-11-24
//! ```
//!
//! Each machine has the job in its crontab: `5 0 * * * cron_once $(date -u +\%F)`. The first call that gets the lock does
//! the job, and the others wait for it. If the job fails or its machine dies, another machine does it. A machine that
//! comes late finds the job done.

use std::env;
use std::process::ExitCode;

use redlock_sync::{Error, distributed_lock};

/// Writes the report. If a machine dies in the middle, the job runs again. So it replaces the report and never appends
/// to it.
#[distributed_lock("example:report:{date}", once, wait = "1h", unavailable_after = "1h", guard = lease)]
fn write_report(date: &str) -> Result<Option<String>, Error> {
    let report = format!("the report of {date} is written");
    lease.check()?; // Check the lease before each step.
    Ok(Some(report))
}

fn main() -> ExitCode {
    // The day for which the job is scheduled. Five minutes after midnight, all machines agree on it.
    let Some(date) = env::args().nth(1) else {
        eprintln!("cron_once DATE");
        return ExitCode::FAILURE;
    };
    match write_report(&date) {
        Ok(Some(report)) => println!("{report}"),
        Ok(None) => println!("the report of {date} was written before"),
        Err(error) if error.is_busy() => println!("another machine has been at the report of {date} for an hour"),
        Err(error) => {
            eprintln!("report of {date}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
