//! A client with an observer, compared with a client without one. The operations are a lock and a task.

use std::sync::atomic::{AtomicU64, Ordering};

use redlock_sync::{Event, Observer, Queue};
use redlock_tests::Server;
use redlock_tests::bench::stats::{Rounds, p50_in_turns};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

use super::pairs;

const BLOCK: usize = 50;

/// An observer that does the least useful work.
#[derive(Default)]
struct Counter(AtomicU64);

impl Observer for Counter {
    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let settings = client(&[server.url()]);
    let (bare, observed) = (settings.clone().build()?, settings.observer(Counter::default()).build()?);
    let (raw, ours) = (bare.mutex("order:42"), observed.mutex("order:42").label("order:{id}"));
    let locks =
        p50_in_turns(plan.rounds(), plan.count(50), &mut |samples| pairs(&raw, BLOCK, samples), &mut |samples| {
            pairs(&ours, BLOCK, samples)
        })?;
    let (raw, ours) = (bare.queue("bare"), observed.queue("observed"));
    let ended = p50_in_turns(plan.rounds(), plan.count(50), &mut |samples| jobs(&raw, samples), &mut |samples| {
        jobs(&ours, samples)
    })?;
    Ok([lines("lock + unlock", locks), lines("push + claim + ack", ended)].concat())
}

fn lines(what: &str, rounds: Rounds) -> Vec<Line> {
    let added = rounds.differences();
    vec![
        Line::new(format!("{what}, p50 (raw: no observer)"), "us", rounds, Bar::None),
        Line::new(format!("{what}: more with an observer"), "us", added, Bar::AtMost(1.0)),
    ]
}

/// Measures the time of each task of a block, from its push to its end.
fn jobs(queue: &Queue, samples: &mut Vec<u64>) -> Outcome<()> {
    for _ in 0..BLOCK {
        let start = clock::now();
        queue.push("body")?;
        queue.try_claim()?.ok_or("no task is there")?.ack()?;
        samples.push(clock::now() - start);
    }
    Ok(())
}
