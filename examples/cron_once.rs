//! A job of each day on several machines, run once: `REDIS_URL=redis://127.0.0.1/ cargo run --example cron_once 2026-11-24`.
//!
//! Each machine has it in its crontab, some times in the first hour: `5,25,45 0 * * * cron_once $(date +\%F)`. The first
//! call that gets through does the job. Later ones repeat it if it failed or its machine died, and are done at once if not.

use std::env;
use std::process::ExitCode;

use redlock_sync::{Error, distributed_lock};

/// It can run more than once, if a machine dies in it: so the report is written anew, and not appended to.
#[distributed_lock("example:report:{date}", once, remember = "48h", guard = lease)]
fn write_report(date: &str) -> Result<Option<String>, Error> {
    let report = format!("the report of {date} is written");
    lease.check()?; // before each step
    Ok(Some(report))
}

fn main() -> ExitCode {
    // The day for which the job was scheduled: five minutes after midnight all machines agree on it.
    let Some(date) = env::args().nth(1) else {
        eprintln!("cron_once DATE");
        return ExitCode::FAILURE;
    };
    match write_report(&date) {
        Ok(Some(report)) => println!("{report}"),
        Ok(None) => println!("the report of {date} was written before"),
        Err(error) if error.is_busy() => println!("another machine writes the report of {date}"),
        Err(error) => {
            eprintln!("report of {date}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
