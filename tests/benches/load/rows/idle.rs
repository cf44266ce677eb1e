//! The cost of threads that only wait, for the server and for the process.

use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::bench::counts::commands;
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::Worker;
use redlock_tests::bench::{Outcome, Plan, clock};

use crate::sides::Place;
use crate::worker::waiters::key;

/// The length of a round. Two rounds are longer than the longest time between two checks of a waiter.
const BLOCK: Duration = Duration::from_secs(4);
const ROUNDS: usize = 2;
/// The time until all threads wait.
const SETTLE: Duration = Duration::from_millis(1500);
const LEASE: Duration = Duration::from_secs(120);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for threads in [400, 1000] {
        lines.extend(wait(plan, threads)?);
    }
    Ok(lines)
}

fn wait(plan: Plan, threads: u16) -> Outcome<Vec<Line>> {
    let place = Place::start(1, None)?;
    let holder = Redlock::builder().node(place.servers[0].url()).lease(LEASE).build()?;
    let _held = (0..threads).map(|i| holder.mutex(key(i)).renew(false).lock()).collect::<Result<Vec<_>, _>>()?;
    let mut waiters = Worker::start("waiters", &[&[threads.to_string()], &place.urls[..]].concat())?;
    std::thread::sleep(SETTLE);
    let span = plan.span(BLOCK);
    let hundreds = f64::from(threads) / 100.0;
    let (mut sent, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = commands(&place.servers[0]);
        waiters.order(&clock::nanos(span).to_string())?;
        let used = waiters.answer(span + Duration::from_secs(30))?;
        sent.push(float(commands(&place.servers[0]) - before) / span.as_secs_f64() / hundreds);
        cpu.push(float(used[0]) / float(clock::nanos(span)) * 100.0 / hundreds);
    }
    let bar = Bar::AtMost(1.0);
    Ok(vec![
        Line::new(format!("{threads} wait; commands by 100 of them"), "/s", Rounds::alone(sent), bar),
        Line::new(format!("{threads} wait; CPU of 100 of them"), "%", Rounds::alone(cpu), bar),
    ])
}
