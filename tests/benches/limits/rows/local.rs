//! Threads of one process that hand over a lock to each other. They run alone, and beside a second such process.

use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{Rounds, blocks_in_turns, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::{Worker, ask_all};
use redlock_tests::bench::{Outcome, Plan, clock};

use super::{BLOCK, LONG_ROUNDS, mutex};
use crate::worker::crowd;

const THREADS: usize = 8;
const KEY: &str = "local";
/// The time in nanoseconds between the order for a block and its start.
const LEAD: u64 = 10_000_000;

pub(super) fn alone(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let urls = [server.url()];
    let ours = mutex(&urls, KEY)?;
    let mut raw = RawLock::open(&urls, "raw")?;
    let mut of_ours = || {
        let start = clock::now() + LEAD;
        let done = crowd::run(&ours, THREADS, start, start + clock::nanos(BLOCK))?;
        Ok(float(done.acquisitions) / BLOCK.as_secs_f64())
    };
    let rounds = blocks_in_turns(plan.rounds(), plan.blocks(), &mut || on_the_wire(&mut raw, BLOCK), &mut of_ours)?;
    Ok(vec![Line::new("acquisitions per second", "/s", rounds, Bar::RatioAtLeast(5.0))])
}

/// Acquires and releases as fast as one bare connection can. Returns pairs per second.
fn on_the_wire(raw: &mut RawLock, span: Duration) -> Outcome<f64> {
    let mut samples = Vec::new();
    let start = clock::now();
    while clock::now() < start + clock::nanos(span) {
        raw.pairs(10, &mut samples)?;
    }
    Ok(float(samples.len() as u64) / (float(clock::now() - start) / 1e9))
}

pub(super) fn beside(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let url = server.url();
    let args = [THREADS.to_string(), KEY.to_owned(), url.clone()];
    let mut crowds = (0..2).map(|_| Worker::start("crowd", &args)).collect::<Outcome<Vec<_>>>()?;
    let mut raw = RawLock::open(&[url], "raw")?;
    let span = plan.span(Duration::from_secs(2));
    let (mut rate, mut share, mut wait) = (Rounds::default(), Vec::new(), Vec::new());
    for round in 0..=LONG_ROUNDS {
        let wire = on_the_wire(&mut raw, span / 4)?;
        let start = clock::now() + LEAD * 5;
        let order = format!("{start} {}", start + clock::nanos(span));
        let answers = ask_all(&mut crowds, &order, span + Duration::from_secs(30))?;
        if round == 0 {
            continue; // The first round is a warm-up.
        }
        let counts: Vec<f64> = answers.iter().map(|answer| float(answer[0])).collect();
        let sum: f64 = counts.iter().sum();
        rate.push(sum / span.as_secs_f64(), wire);
        share.push(counts.iter().fold(f64::INFINITY, |low, count| count.min(low)) / sum);
        wait.push(answers.iter().map(|answer| float(answer[1]) / 1e6).fold(0.0, f64::max));
    }
    Ok(vec![
        Line::new("acquisitions per second, both", "/s", rate, Bar::None),
        Line::new("smaller share of the two", "", Rounds::alone(share), Bar::AtLeast(0.4)),
        Line::new("longest wait", "ms", Rounds::alone(wait), Bar::AtMost(100.0)),
    ])
}
