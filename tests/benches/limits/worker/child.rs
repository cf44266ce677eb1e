//! The main function of a worker.

use std::io::{self, BufRead};
use std::process::ExitCode;

use super::{crowd, guards, holder, ring};
use crate::raw::RawLock;
use crate::{Outcome, client};

/// Works until stdin ends.
pub(crate) fn serve(args: &[String]) -> ExitCode {
    match begin(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", error.to_string().replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn begin(args: &[String]) -> Outcome<()> {
    let (kind, args) = args.split_first().ok_or("a worker needs a kind")?;
    match kind.as_str() {
        "ring" => ring::child(args),
        "crowd" => crowd::child(args),
        "guards" => guards::child(args),
        "holder" => holder::child(args),
        "pairs" => pairs(args),
        "raw-pairs" => raw_pairs(args),
        other => Err(format!("no such worker: {other}").into()),
    }
}

/// Answers each line of stdin.
pub(crate) fn answer_orders(mut work: impl FnMut(&[&str]) -> Outcome<Vec<u64>>) -> Outcome<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let numbers = work(&line.split(' ').collect::<Vec<_>>())?;
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        println!("ok {}", words.join(" "));
    }
    Ok(())
}

/// For `strace -c` and `perf`, by hand: `limits --worker pairs N URL…` locks and unlocks N times.
fn pairs(args: &[String]) -> Outcome<()> {
    let (count, urls) = args.split_first().ok_or("how many?")?;
    let mutex = client(urls).build()?.mutex("pairs");
    for _ in 0..count.parse()? {
        mutex.lock()?.unlock()?;
    }
    Ok(())
}

/// The same of the raw limit.
fn raw_pairs(args: &[String]) -> Outcome<()> {
    let (count, urls) = args.split_first().ok_or("how many?")?;
    RawLock::open(urls, "raw-pairs")?.pairs(count.parse()?, &mut Vec::new())
}
