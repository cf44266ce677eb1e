//! A cron job that runs often, on one of several machines: `REDIS_URL=redis://127.0.0.1/ cargo run --example cron`.
//!
//! Each machine has the job in its own crontab, at the same minute. If a run fails, the next one makes up for it. A job
//! that has to succeed once a night is in `cron_once.rs`.

use std::process::ExitCode;
use std::time::Duration;

use redlock_sync::{Error, distributed_lock};

/// Writes the report on one machine. On the other machines, the call returns `Ok(())` at once.
///
/// `min_hold` keeps the lock after a short run. So a machine whose clock is up to 20 s late does not run the job again.
#[distributed_lock("cron:report", wait = "0s", busy = skip, min_hold = "20s", guard = lease)]
fn write_report() -> Result<(), Error> {
    let report = "the report is written";
    lease.extend(Duration::from_secs(30))?; // Asks the server, since the next step cannot be undone.
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
