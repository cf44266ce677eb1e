//! Worker processes. Each one runs this binary with a hidden argument. It reads orders, one line each, and answers each
//! order with one line.
//!
//! A worker exits when its stdin ends, so it never outlives this process.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, thread};

use super::Outcome;

/// The argument that starts this binary as a worker.
pub(super) const HIDDEN: &str = "--worker";

/// A worker process, as its parent sees it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Worker {
    /// Starts a worker of this kind.
    pub fn start(kind: &str, args: &[String]) -> Outcome<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args([HIDDEN, kind])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let stdout = child.stdout.take().ok_or("stdout is piped")?;
        let (tell, answers) = channel();
        // The thread ends with the stdout of the child.
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Ok(Self { child, orders, answers })
    }

    /// Sends an order to the worker.
    pub fn order(&mut self, order: &str) -> Outcome<()> {
        let orders = self.orders.as_mut().ok_or("the worker takes no orders")?;
        Ok(writeln!(orders, "{order}")?)
    }

    /// Kills the worker with SIGKILL.
    pub fn kill(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits for the answer to the last order.
    pub fn answer(&mut self, within: Duration) -> Outcome<Vec<u64>> {
        let line = self.answers.recv_timeout(within).map_err(|_| format!("a worker did not answer in {within:?}"))?;
        match line.split_once(' ') {
            Some(("ok", numbers)) => numbers.split(' ').map(|number| Ok(number.parse()?)).collect(),
            _ => Err(line.into()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends an order to all workers, then collects their answers.
pub fn ask_all(workers: &mut [Worker], order: &str, within: Duration) -> Outcome<Vec<Vec<u64>>> {
    for worker in &mut *workers {
        worker.order(order)?;
    }
    workers.iter_mut().map(|worker| worker.answer(within)).collect()
}

/// The main function of a worker process. It works until stdin ends.
pub(super) fn serve(work: fn(&str, &[String]) -> Outcome<()>, args: &[String]) -> ExitCode {
    let begin = || {
        let (kind, args) = args.split_first().ok_or("a worker needs a kind")?;
        work(kind, args)
    };
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", error.to_string().replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Answers each line of stdin.
pub fn answer_orders(mut work: impl FnMut(&[&str]) -> Outcome<Vec<u64>>) -> Outcome<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let numbers = work(&line.split(' ').collect::<Vec<_>>())?;
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        println!("ok {}", words.join(" "));
    }
    Ok(())
}
