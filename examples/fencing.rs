//! What a lock with a lease cannot prevent, and how a fencing token prevents it.
//!
//! ```text
//! cargo run --example fencing
//! ```
//!
//! A process can be paused at any moment: by a page fault, a suspended laptop, or a busy hypervisor. If the pause is
//! longer than the lease, another process acquires the lock. After the pause, the first process still believes that it
//! holds the lock. No lock can prevent that, but the protected resource can. Each holder gets a larger *fencing token*
//! than the holder before, and sends it with each write. The resource refuses a token that is smaller than one that it
//! has seen.
//!
//! Here, the resource is an `SQLite` table. The program pauses a process between its check of the lock and its write,
//! once with a plain `UPDATE`, and once with one that compares the token. It exits with 1 if anything differs from this
//! description.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the lock is to sleep")]

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, TempDir, Worker, work};
use redlock_sync::{Lease, Redlock};
use rusqlite::{Connection, params};

/// The lease is short to keep the example short. The default is 30 s.
const LEASE: Duration = Duration::from_millis(600);

/// The last fencing token is a column of the row that it protects.
const SCHEMA: &str = "
    CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
    INSERT INTO account (name, balance) VALUES ('till', 100);";

fn main() -> Result<(), Box<dyn Error>> {
    match work().as_deref() {
        Some([url, file, deposit, fenced]) => slow_holder(url, Path::new(file), deposit.parse()?, fenced == "fenced"),
        _ => both_ways(),
    }
}

fn both_ways() -> Result<(), Box<dyn Error>> {
    let redis = Redis::any();
    println!("{}", redis.describe());

    println!("\nWithout a fence:");
    let balance = one_is_paused(&redis, "unfenced")?;
    if balance != 110 {
        return Err(format!("expected that the quick process' deposit is lost, but found {balance}").into());
    }
    println!("   100 + 5 + 10 should be 115: the late write has undone the other deposit");

    println!("\nWith a fence:");
    let balance = one_is_paused(&redis, "fenced")?;
    if balance != 105 {
        return Err(format!("expected that the late write is refused, but found {balance}").into());
    }
    println!(
        "   the late write is refused, the other deposit stands, and the slow process knows that it has to start over"
    );
    println!("\nOK");
    Ok(())
}

/// A slow process wants to add 10 and is paused beyond its lease. Meanwhile, this process adds 5. Returns the final
/// balance.
fn one_is_paused(redis: &Redis, fenced: &str) -> Result<i64, Box<dyn Error>> {
    let dir = TempDir::new()?;
    let file = dir.path().join("bank.sqlite");
    let bank = Connection::open(&file)?;
    bank.execute_batch(SCHEMA)?;

    let mut slow = Worker::start([redis.url(), &file.display().to_string(), "10", fenced])?;
    let mut said = slow.lines()?.map_while(Result::ok);
    let holding = said.next().ok_or("the slow process ended early")?;
    slow.pause()?; // The process is now between its check of the lock and its write.
    println!("{holding}\n          … and is paused (SIGSTOP)");

    let locks = Redlock::builder().node(redis.url()).lease(LEASE).build()?;
    let guard = locks.mutex("account:till").lock()?; // This waits until the lease of the paused process has ended.
    let balance = deposit("quick", &bank, &guard, 5, fenced == "fenced")?;
    println!("   quick: wrote {balance}");
    guard.unlock()?;

    slow.resume()?;
    said.for_each(|line| println!("{line}"));
    slow.wait()?;
    let balance = bank.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
    println!("   in the till: {balance}");
    Ok(balance)
}

/// The work of the slow process.
fn slow_holder(url: &str, file: &Path, amount: i64, is_fenced: bool) -> Result<(), Box<dyn Error>> {
    let bank = Connection::open(file)?;
    let locks = Redlock::builder().node(url).lease(LEASE).build()?;
    let guard = locks.mutex("account:till").lock()?;
    match deposit("slow ", &bank, &guard, amount, is_fenced) {
        Ok(balance) => println!("   slow : wrote {balance}, and never knew better"),
        Err(error) => println!("   slow : write refused: {error}"),
    }
    if let Err(error) = guard.unlock() {
        println!("   slow : on unlock: {error}"); // The library reports the loss, but the write cannot be undone.
    }
    Ok(())
}

/// Reads the balance and writes the new one. The result is wrong if another process writes in between.
fn deposit(who: &str, bank: &Connection, lease: &Lease, amount: i64, is_fenced: bool) -> Result<i64, Box<dyn Error>> {
    let token = lease.fencing_token()?;
    let balance: i64 = bank.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
    lease.check()?; // The lock is still held, but perhaps not for long.
    println!("   {who}: locked with fencing token {token}, read {balance}");
    thread::sleep(Duration::from_millis(100)); // The slow process is paused here.
    let balance = balance + amount;
    if is_fenced {
        let sql = "UPDATE account SET balance = ?1, fence = ?2 WHERE fence <= ?2";
        if bank.execute(sql, params![balance, token.cast_signed()])? == 0 {
            return Err("no row has changed: a later holder of the lock has written".into());
        }
    } else {
        bank.execute("UPDATE account SET balance = ?1", params![balance])?;
    }
    Ok(balance)
}
