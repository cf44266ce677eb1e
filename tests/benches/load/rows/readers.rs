//! Readers of one key in eight processes, and a writer beside 64 readers of one process.

use std::thread;
use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::stats::{Rounds, float, median};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::{Worker, ask_all};
use redlock_tests::bench::{Outcome, Plan, client, clock};

const KEY: &str = "readers";
const PROCESSES: usize = 8;
const THREADS: usize = 64;
/// A hold that is long enough that the processors are not the only limit.
const SHORT_HOLD: Duration = Duration::from_millis(1);
/// The time for which a reader beside the writer holds the lock.
const HOLD: Duration = Duration::from_millis(50);
/// The number of writes in a round, and the pause before each of them.
const WRITES: usize = 10;
const PAUSE: Duration = Duration::from_millis(150);
/// The time in nanoseconds between the order for a block and its start.
const LEAD: u64 = 50_000_000;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let [rate, held_rate] = [Duration::ZERO, SHORT_HOLD].map(|hold| processes(&server, plan, hold));
    let (waits, ratios) = writer(&server, plan)?;
    Ok(vec![
        Line::new("8 processes: reads per second", "/s", rate?, Bar::RatioAtLeast(0.9)),
        Line::new("8 processes, hold 1 ms: reads per second", "/s", held_rate?, Bar::RatioAtLeast(0.9)),
        Line::new(
            "64 threads, hold 50 ms: longest wait of a writer (raw: longest hold)",
            "ms",
            ratios,
            Bar::RatioAtMost(2.0),
        ),
        Line::new("wait of a writer, p50", "ms", Rounds::alone(waits), Bar::None),
    ])
}

fn start(server: &Server, threads: usize) -> Outcome<Worker> {
    Worker::start("readers", &[threads.to_string(), KEY.to_owned(), server.url()])
}

fn processes(server: &Server, plan: Plan, hold: Duration) -> Outcome<Rounds> {
    let mut workers = (0..PROCESSES).map(|_| start(server, 1)).collect::<Outcome<Vec<_>>>()?;
    let span = plan.span(Duration::from_millis(500));
    let mut block = |kind: &str| -> Outcome<f64> {
        let start = clock::now() + LEAD;
        let order = format!("{kind} {start} {} {}", start + clock::nanos(span), clock::nanos(hold));
        let answers = ask_all(&mut workers, &order, PATIENCE)?;
        Ok(answers.iter().map(|answer| float(answer[0])).sum::<f64>() / span.as_secs_f64())
    };
    let mut rounds = Rounds::default();
    for round in 0..=plan.rounds() {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..plan.blocks().min(5) {
            raw.push(block("raw")?);
            ours.push(block("ours")?);
        }
        if round > 0 {
            rounds.push(median(&ours), median(&raw));
        }
    }
    Ok(rounds)
}

/// Returns the median waits of a writer in ms. The second value compares the longest wait with the longest hold of a
/// reader.
fn writer(server: &Server, plan: Plan) -> Outcome<(Vec<f64>, Rounds)> {
    let mut readers = start(server, THREADS)?;
    let lock = client(&[server.url()]).build()?.rw_lock(KEY);
    let (mut medians, mut ratios) = (Vec::new(), Rounds::default());
    for round in 0..=plan.rounds() {
        let start = clock::now() + LEAD;
        let span = (PAUSE + HOLD * 2) * u32::try_from(WRITES)?;
        readers.order(&format!("ours {start} {} {}", start + clock::nanos(span), clock::nanos(HOLD)))?;
        clock::sleep_until(start);
        let mut waits = Vec::new();
        for _ in 0..WRITES {
            thread::sleep(PAUSE);
            let wanted = clock::now();
            let guard = lock.try_write_for(PATIENCE)?;
            waits.push(float(clock::now() - wanted) / 1e6);
            guard.unlock()?;
        }
        let longest_hold = float(readers.answer(PATIENCE + span)?[1]) / 1e6;
        if round > 0 {
            medians.push(median(&waits));
            ratios.push(waits.iter().copied().fold(0.0, f64::max), longest_hold);
        }
    }
    Ok((medians, ratios))
}
