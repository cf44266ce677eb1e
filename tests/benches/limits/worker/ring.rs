//! Processes that contend for one lock: each holds it, gives it up, pauses, and wants it again.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Mutex;

use super::{Worker, ask_all, child};
use crate::raw::RawRing;
use crate::stats::{float, jain, p50_us};
use crate::{Outcome, client, clock};

/// How much longer than its block a worker may wait for the lock, which is an error then.
const GRACE: Duration = Duration::from_secs(15);
/// How long before a block the workers are told of it.
const LEAD: Duration = Duration::from_millis(50);

/// How a lock is used in a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) block: Duration,
    pub(crate) hold: Duration,
    pub(crate) pause: Duration,
}

/// What came out of a block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) per_second: f64,
    /// From the moment before a release to the moment at which the next holder knows, p50 in microseconds.
    pub(crate) gap_us: f64,
    pub(crate) jain: f64,
    /// The longest that anybody waited, in milliseconds; those count that still waited at the end.
    pub(crate) longest_wait_ms: f64,
    /// The longest time in which nobody got the lock, in milliseconds.
    pub(crate) stall_ms: f64,
    pub(crate) acquisitions: usize,
}

/// The processes.
pub(crate) struct Ring(Vec<Worker>);

impl Ring {
    pub(crate) fn start(processes: usize, key: &str, urls: &[String]) -> Outcome<Self> {
        let args = [&[key.to_owned()], urls].concat();
        (0..processes).map(|_| Worker::start("ring", &args)).collect::<Outcome<_>>().map(Self)
    }

    /// Runs a block with the library (`ours`) or with the token (`raw`), which has to lie in its list.
    pub(crate) fn block(&mut self, kind: &str, wanted: Use) -> Outcome<Block> {
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
        gap_us: p50_us(&gaps),
        jain: jain(&shares),
        longest_wait_ms: float(longest_wait) / 1e6,
        stall_ms: float(stall) / 1e6,
        acquisitions: turns.len(),
    })
}

/// A lock or a token, as a contender needs it.
trait Contended {
    /// Waits for it until this moment or a little longer; false when it did not come.
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

/// The contender's own main function.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let (key, urls) = args.split_first().ok_or("a ring needs a key")?;
    let mut raw = RawRing::open(&urls[0], &list_of(key))?;
    let mut ours = Ours { mutex: client(urls).build()?.mutex(key), guard: None };
    child::answer_orders(|words| {
        let contended: &mut dyn Contended = if words[0] == "raw" { &mut raw } else { &mut ours };
        let numbers = words[1..].iter().map(|word| Ok(word.parse()?)).collect::<Outcome<Vec<u64>>>()?;
        contend(contended, &numbers)
    })
}

/// The list that the token of a raw ring lies in.
pub(crate) fn list_of(key: &str) -> String {
    format!("{key}:raw")
}

/// Answers how long the last wait was that the end of the block cut, then three moments for each turn: wanted, got, given up.
fn contend(contended: &mut dyn Contended, numbers: &[u64]) -> Outcome<Vec<u64>> {
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
                contended.give()?; // The token is passed on until all have seen the end.
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
