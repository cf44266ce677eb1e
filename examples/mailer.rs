//! Two processes send mails from one queue. Some mails are delayed, some fail and are tried again, and some can never
//! be sent. One process is killed in the middle of its work. At the end, each mail was either sent and acknowledged
//! once, or it is among the dead tasks.
//!
//! ```text
//! cargo run --example mailer
//! ```
//!
//! The program exits with 1 if a mail was lost or acknowledged twice. It uses the server that `REDIS_URL` names, or
//! starts its own.
#![allow(clippy::disallowed_methods, reason = "sending takes time, and the books wait for the end of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufRead, stdin};
use std::process::{ExitCode, exit};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, Worker, now, work};
use redlock_sync::{Job, Queue, Redlock, Retry, Task};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WELCOMES: usize = 60;
const FLAKY: usize = 6;
const REMINDERS: usize = 6;
const BAD: usize = 2;
/// The longest time that the example waits for the next acknowledged mail.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    let outcome = match work() {
        Some(args) => send_mails(&args).map(|()| true),
        None => run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mailer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The queue that all processes share. With the short lease, the mail of the killed process soon returns to the queue.
fn queue(url: &str, name: &str) -> Outcome<Queue> {
    let retry = Retry::growing(Duration::from_millis(200), Duration::from_secs(1)).max_attempts(5);
    Ok(Redlock::open(url)?.queue(name).lease(Duration::from_millis(1500)).retry(retry))
}

// --- a process that sends ---------------------------------------------------------------------------------------------------

/// Sends mails with two threads until a line comes on stdin.
fn send_mails(args: &[String]) -> Outcome<()> {
    let [url, name] = args else { return Err("a URL and a name are wanted".into()) };
    let mails = queue(url, name)?;
    for _ in 0..2 {
        let mails = mails.clone();
        thread::spawn(move || {
            loop {
                match mails.claim() {
                    Ok(job) => send(job),
                    Err(error) => eprintln!("mailer: {error}"),
                }
            }
        });
    }
    stdin().lock().read_line(&mut String::new())?;
    exit(0)
}

/// Acts like a mail server. Each step is reported to the process that checks the result.
fn send(job: Job) {
    let (id, body) = (job.id().to_owned(), String::from_utf8_lossy(job.body()).into_owned());
    thread::sleep(Duration::from_millis(20));
    let ended = match body.split(' ').next() {
        Some("flaky") if job.attempt() == 1 => {
            println!("retries {id}");
            job.retry("the mail server is away")
        }
        Some("bad") => {
            println!("fails {id}");
            job.fail("no such address")
        }
        _ => {
            println!("sends {id}");
            let acked = job.ack();
            if acked.is_ok() {
                println!("acked {id}");
            }
            acked
        }
    };
    if let Err(error) = ended {
        println!("refused {id}: {error}");
    }
}

// --- the process that people start ------------------------------------------------------------------------------------------

/// The reports of the workers for each mail.
#[derive(Default)]
struct Books {
    sends: BTreeMap<String, usize>,
    acked: BTreeMap<String, usize>,
    retried: usize,
    refused: usize,
}

fn run() -> Outcome<bool> {
    let redis = Redis::any();
    println!("{}", redis.describe());
    let name = format!("mails:{}", std::process::id());
    let mails = queue(redis.url(), &name)?;
    let ids = push(&mails)?;
    println!("{} mails are queued, {REMINDERS} of them for later", ids.len());

    let began = now();
    let passed = || now().saturating_sub(began);
    let (tell, told) = mpsc::channel();
    let (mut first, mut second) = (start(redis.url(), &name, &tell)?, start(redis.url(), &name, &tell)?);
    let mut books = Books::default();
    books.note_until(&told, 10);
    first.kill()?;
    println!(
        "  {:.3} s  ** one of two processes is killed (SIGKILL) in the middle of its work",
        passed().as_secs_f64()
    );
    first.wait()?;

    while !mails.is_empty()? && passed() < LONGEST_WAIT {
        thread::sleep(Duration::from_millis(20));
    }
    println!("  {:.3} s  the queue is empty", passed().as_secs_f64());
    second.nod()?;
    second.wait()?;
    drop(tell);
    for line in told {
        books.note(&line);
    }
    let is_fine = settle(&mails, &books, &ids)?;
    mails.purge_dead()?;
    Ok(is_fine)
}

/// Pushes all mails. Returns their ids.
fn push(mails: &Queue) -> Outcome<BTreeSet<String>> {
    let named = |kind: &'static str, n: usize| {
        (0..n).map(move |i| Task::new(format!("{kind} {i}@a.example")).id(format!("{kind}:{i}")))
    };
    mails.push_all(named("welcome", WELCOMES))?;
    mails.push_all(named("flaky", FLAKY))?;
    mails.push_all(named("bad", BAD))?;
    mails.push_all(named("reminder", REMINDERS).map(|task| task.after(Duration::from_millis(1200))))?;
    // The mails are pushed again, as after an error. Each mail is still queued once.
    mails.push_all(named("welcome", WELCOMES))?;
    Ok(mails.peek(1000)?.iter().map(|entry| entry.id().to_owned()).collect())
}

fn start(url: &str, name: &str, tell: &Sender<String>) -> Outcome<Worker> {
    let mut worker = Worker::start([url, name])?;
    let (lines, tell) = (worker.lines()?, tell.clone());
    // A process that is killed may leave an incomplete line.
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    Ok(worker)
}

impl Books {
    fn note(&mut self, line: &str) {
        let Some((what, id)) = line.split_once(' ') else { return };
        match what {
            "sends" => *self.sends.entry(id.to_owned()).or_default() += 1,
            "acked" => *self.acked.entry(id.to_owned()).or_default() += 1,
            "retries" => self.retried += 1,
            "refused" => self.refused += 1,
            _ => {}
        }
    }

    /// Reads reports until this number of mails was acknowledged.
    fn note_until(&mut self, told: &Receiver<String>, mails: usize) {
        while self.acked.len() < mails
            && let Ok(line) = told.recv_timeout(LONGEST_WAIT)
        {
            self.note(&line);
        }
    }
}

/// Returns true if each mail was sent and acknowledged once, or is dead.
fn settle(mails: &Queue, books: &Books, ids: &BTreeSet<String>) -> Outcome<bool> {
    let dead: BTreeSet<String> = mails.dead(1000)?.iter().map(|entry| entry.id().to_owned()).collect();
    // The killed process may have acknowledged a mail without reporting it.
    let lost: Vec<_> = ids.iter().filter(|id| !books.sends.contains_key(*id) && !dead.contains(*id)).collect();
    let twice: Vec<_> = books.acked.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id).collect();
    let left = mails.len()?;
    println!("\nmails                            {:>4}", ids.len());
    println!("acknowledged                     {:>4}", books.acked.len());
    println!("tried again after a failure      {:>4}", books.retried);
    println!("dead, with the reason            {:>4}", dead.len());
    println!("sent once more after the kill    {:>4}", books.sends.values().filter(|times| **times > 1).count());
    println!("acknowledged too late, refused   {:>4}", books.refused);
    println!("left in the queue                {left:>4}");
    println!("lost                             {:>4} {lost:?}", lost.len());
    println!("acknowledged twice               {:>4} {twice:?}", twice.len());
    let is_fine = lost.is_empty() && twice.is_empty() && left == 0 && dead.len() == BAD && books.retried > 0;
    println!("\n{}", if is_fine { "OK: no mail was lost, none was acknowledged twice" } else { "NOT as it should be" });
    Ok(is_fine)
}
