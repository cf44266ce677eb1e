//! Transfers between accounts. Each transfer holds the locks of both accounts.
//!
//! ```text
//! cargo run --example transfer
//! ```
//!
//! `#[distributed_lock(["account:{from}", "account:{to}"])]` acquires both keys or none. All processes acquire them in
//! the same order, so a transfer from 1 to 2 and one from 2 to 1 never block each other. Four processes move money at
//! random between a few accounts. The accounts are files that are read, and written a moment later. The program exits
//! with 1 if the sum of the accounts has changed.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the locks is to sleep")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, thread};

use redlock_examples::{Redis, TempDir, Worker, work};
use redlock_sync::{MultiLockGuard, Redlock, distributed_lock};

const ACCOUNTS: u32 = 4;
const EACH: i64 = 1000;
const PROCESSES: usize = 4;
const TRANSFERS: usize = 40;

struct Bank {
    dir: PathBuf,
}

impl Bank {
    #[distributed_lock(["account:{from}", "account:{to}"], wait = "20s", guard = accounts)]
    fn transfer(&self, from: u32, to: u32, amount: i64) -> Result<(), Box<dyn Error>> {
        if from != to {
            let (source, target) = (self.balance(from)?, self.balance(to)?);
            thread::sleep(Duration::from_millis(2)); // Without the locks, another transfer would come in between.
            self.write(accounts, from, source - amount)?;
            self.write(accounts, to, target + amount)?;
        }
        Ok(())
    }

    fn balance(&self, account: u32) -> Result<i64, Box<dyn Error>> {
        Ok(fs::read_to_string(self.file(account))?.parse()?)
    }

    fn write(&self, accounts: &MultiLockGuard, account: u32, balance: i64) -> Result<(), Box<dyn Error>> {
        accounts.check()?; // Checks that both locks are still held, without I/O.
        Ok(fs::write(self.file(account), balance.to_string())?)
    }

    fn file(&self, account: u32) -> PathBuf {
        self.dir.join(account.to_string())
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match work().as_deref() {
        Some([url, dir]) => transfers(url, Path::new(dir)).map(|()| ExitCode::SUCCESS),
        _ => audit(),
    }
}

fn transfers(url: &str, dir: &Path) -> Result<(), Box<dyn Error>> {
    Redlock::set_default(Redlock::open(url)?)?;
    let bank = Bank { dir: dir.to_owned() };
    for _ in 0..TRANSFERS {
        bank.transfer(fastrand::u32(0..ACCOUNTS), fastrand::u32(0..ACCOUNTS), fastrand::i64(1..100))?;
    }
    Ok(())
}

fn audit() -> Result<ExitCode, Box<dyn Error>> {
    let (redis, dir) = (Redis::any(), TempDir::new()?);
    println!("{}", redis.describe());
    let bank = Bank { dir: dir.path().to_owned() };
    for account in 0..ACCOUNTS {
        fs::write(bank.file(account), EACH.to_string())?;
    }
    let place = dir.path().display().to_string();
    let start = |_| Worker::start([redis.url(), &place]);
    let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        if !worker.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    let balances = (0..ACCOUNTS).map(|account| bank.balance(account)).collect::<Result<Vec<_>, _>>()?;
    let (sum, expected) = (balances.iter().sum::<i64>(), EACH * i64::from(ACCOUNTS));
    println!("{} transfers; balances {balances:?}, in all {sum} of {expected}", PROCESSES * TRANSFERS);
    println!("{}", if sum == expected { "OK" } else { "MONEY CAME OR WENT" });
    Ok(if sum == expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
