//! A cron job of several machines, run by one of them: `REDIS_URL=redis://127.0.0.1/ cargo run --example cron`.
//!
//! Each machine has it in its own crontab, at the same minute.

use std::process::ExitCode;
use std::time::Duration;

use redlock_sync::{Error, distributed_lock};

/// One machine writes the report. On the others the call is `Ok(())` at once.
///
/// `min_hold` keeps the lock after a short run, for machines whose clocks are up to 20 s late.
#[distributed_lock("cron:report", wait = "0s", busy = skip, min_hold = "20s", guard = lease)]
fn write_report() -> Result<(), Error> {
    let report = "the report is written";
    lease.extend(Duration::from_secs(30))?; // asks the server: what follows cannot be undone
    println!("{report}");
    Ok(())
}

fn main() -> ExitCode {
    match write_report() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("report: {error}");
            ExitCode::FAILURE
        }
    }
}
