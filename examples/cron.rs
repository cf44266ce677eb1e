//! A cron job of several machines, run by one of them: `REDIS_URL=redis://127.0.0.1/ cargo run --example cron`.
//!
//! Each machine has it in its own crontab, at the same minute.

use redlock_sync::{Error, distributed_lock};

/// One machine writes the report. On the others the call is `Ok(())` at once.
///
/// `min_hold` keeps the lock after a short run, for machines whose clocks are up to 20 s late.
#[distributed_lock("cron:report", wait = "0s", busy = skip, min_hold = "20s")]
fn write_report() -> Result<(), Error> {
    println!("the report is written");
    Ok(())
}

fn main() -> Result<(), Error> {
    write_report()
}
