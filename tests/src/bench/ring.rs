//! Processes that contend for one lock. Each process acquires the lock, holds it, releases it, pauses, and starts
//! again.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::Mutex;

use super::raw::RawRing;
use super::stats::{float, jain, percentile};
use super::worker::{Worker, answer_orders, ask_all};
use super::{Outcome, client, clock};
use crate::Server;

/// The time for which a worker may wait for the lock after the end of its block. A longer wait is an error.
const GRACE: Duration = Duration::from_secs(15);
/// The time between the order for a block and the start of the block.
const LEAD: Duration = Duration::from_millis(50);

/// The way in which a lock is used in a block.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// The length of the block.
    pub block: Duration,
    /// The time for which a holder keeps the lock.
    pub hold: Duration,
    /// The pause of a process after its release.
    pub pause: Duration,
}

impl Use {
    /// A short block that does not count.
    #[must_use]
    pub fn warm_up(self) -> Self {
        Self { block: Duration::from_millis(300), ..self }
    }
}

/// The result of a block.
#[derive(Debug)]
pub struct Block {
    /// The number of acquisitions per second.
    pub per_second: f64,
    /// The time from before a release until the next holder has the lock. It is the p50 in microseconds.
    pub gap_us: f64,
    /// The p95 of the same time.
    pub gap_p95_us: f64,
    /// Jain's fairness index of the numbers of acquisitions of the processes.
    pub jain: f64,
    /// The longest wait of any process in milliseconds, including waits that had not ended.
    pub longest_wait_ms: f64,
    /// The longest time without a new holder, in milliseconds.
    pub stall_ms: f64,
    /// The number of acquisitions in the block.
    pub acquisitions: usize,
}

/// The processes that contend for one lock.
#[derive(Debug)]
pub struct Ring(Vec<Worker>);

impl Ring {
    /// Starts workers of the kind `ring`. [`child`] is their main function.
    pub fn start(processes: usize, key: &str, urls: &[String]) -> Outcome<Self> {
        let args = [&[key.to_owned()], urls].concat();
        (0..processes).map(|_| Worker::start("ring", &args)).collect::<Outcome<_>>().map(Self)
    }

    /// Runs a block with the library (`ours`) or with a token in a list (`raw`). For `raw`, the token must already be
    /// in the list.
    pub fn block(&mut self, kind: &str, wanted: Use) -> Outcome<Block> {
        let start = clock::now() + clock::nanos(LEAD);
        let end = start + clock::nanos(wanted.block);
        let order = format!("{kind} {start} {end} {} {}", clock::nanos(wanted.hold), clock::nanos(wanted.pause));
        let answers = ask_all(&mut self.0, &order, wanted.block + GRACE * 2)?;
        evaluate(&answers, start, end)
    }
}

fn evaluate(answers: &[Vec<u64>], start: u64, end: u64) -> Outcome<Block> {
    let shares: Vec<f64> = answers.iter().map(|answer| float((answer.len() / 3) as u64)).collect();
    let mut turns: Vec<&[u64]> = answers.iter().flat_map(|answer| answer[1..].chunks_exact(3)).collect();
    turns.sort_unstable_by_key(|turn| turn[1]);
    let overlap = turns.windows(2).find(|two| two[1][1] < two[0][2]);
    if let Some(two) = overlap {
        return Err(format!("two holders at once for {} ns", two[0][2] - two[1][1]).into());
    }
    let gaps: Vec<u64> = turns.windows(2).map(|two| two[1][1] - two[0][2]).collect();
    let waits = turns.iter().map(|turn| turn[1] - turn[0]);
    let longest_wait = waits.chain(answers.iter().map(|answer| answer[0])).max().unwrap_or(0);
    let moments: Vec<u64> = [start].into_iter().chain(turns.iter().map(|turn| turn[1])).chain([end]).collect();
    let stall = moments.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
    Ok(Block {
        per_second: float(turns.len() as u64) / (float(end - start) / 1e9),
        gap_us: percentile(&gaps, 50) / 1e3,
        gap_p95_us: percentile(&gaps, 95) / 1e3,
        jain: jain(&shares),
        longest_wait_ms: float(longest_wait) / 1e6,
        stall_ms: float(stall) / 1e6,
        acquisitions: turns.len(),
    })
}

/// A lock or a token that processes contend for.
trait Contended {
    /// Waits for the lock until about this time. Returns false if the wait ended without it.
    fn take(&mut self, end: u64) -> Outcome<bool>;
    fn give(&mut self) -> Outcome<()>;
}

impl Contended for RawRing {
    fn take(&mut self, end: u64) -> Outcome<bool> {
        while !self.pop()? {
            if clock::now() >= end {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn give(&mut self) -> Outcome<()> {
        self.push()
    }
}

struct Ours {
    mutex: Mutex,
    guard: Option<redlock_sync::MutexGuard>,
}

impl Contended for Ours {
    fn take(&mut self, end: u64) -> Outcome<bool> {
        let left = Duration::from_nanos(end.saturating_sub(clock::now()));
        self.guard = Some(self.mutex.try_lock_until(Instant::now() + left + GRACE)?);
        Ok(true)
    }

    fn give(&mut self) -> Outcome<()> {
        Ok(self.guard.take().ok_or("there is a guard")?.unlock()?)
    }
}

/// The main function of a worker: `KEY URL…`. It contends for the lock, or for the raw token, as each order says.
pub fn child(args: &[String]) -> Outcome<()> {
    let (key, urls) = args.split_first().ok_or("a ring needs a key")?;
    let mutex = client(urls).build()?.mutex(key.as_str());
    answer_orders(|words| {
        let numbers = words[1..].iter().map(|word| Ok(word.parse()?)).collect::<Outcome<Vec<u64>>>()?;
        match words[0] {
            "raw" => take_turns(&mut RawRing::open(&urls[0], &list_of(key))?, &numbers),
            _ => take_turns(&mut Ours { mutex: mutex.clone(), guard: None }, &numbers),
        }
    })
}

/// The name of the list that holds the raw token.
fn list_of(key: &str) -> String {
    format!("{key}:raw")
}

/// Acquires and releases until the end of the block. The first number of the result is the length of the last wait, if
/// the end of the block cut it off. Three times follow for each turn: of the call, the acquisition, and the release.
fn take_turns(contended: &mut dyn Contended, numbers: &[u64]) -> Outcome<Vec<u64>> {
    let &[start, end, hold, pause] = numbers else { return Err("four numbers".into()) };
    let (hold, pause) = (Duration::from_nanos(hold), Duration::from_nanos(pause));
    let mut turns = vec![0];
    clock::sleep_until(start);
    loop {
        let wanted = clock::now();
        if wanted >= end {
            return Ok(turns);
        }
        let is_mine = contended.take(end)?;
        let got = clock::now();
        if got >= end {
            turns[0] = end - wanted;
            if is_mine {
                contended.give()?; // Passes the token on, so that the other processes see the end too.
            }
            return Ok(turns);
        }
        thread::sleep(hold);
        let given = clock::now();
        contended.give()?;
        turns.extend([wanted, got, given]);
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
}

/// A server and the processes that contend on it.
#[derive(Debug)]
pub struct Field {
    /// The server on which the processes contend.
    pub server: Server,
    key: String,
    ring: Ring,
}

impl Field {
    /// Starts a server and this many processes.
    pub fn start(processes: usize, key: &str) -> Outcome<Self> {
        let server = Server::start();
        let ring = Ring::start(processes, key, &[server.url()])?;
        Ok(Self { server, key: key.to_owned(), ring })
    }

    /// Runs a block with a token in a list.
    pub fn raw(&mut self, wanted: Use) -> Outcome<Block> {
        let list = list_of(&self.key);
        self.server.del(&list);
        self.server.ask::<()>(cmd("LPUSH").arg(&list).arg("token"));
        let block = self.ring.block("raw", wanted);
        self.server.del(&list);
        block
    }

    /// Runs a block with the lock of the library.
    pub fn ours(&mut self, wanted: Use) -> Outcome<Block> {
        self.ring.block("ours", wanted)
    }
}
