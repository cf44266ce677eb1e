//! Our queue beside those of other libraries. Jobs are pushed one by one and in hundreds, and ended by one worker
//! process whose handler does nothing.

use std::time::Duration;

use redlock_sync::{Queue, Task};
use redlock_tests::Server;
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};
use redlock_tests::foreign::{OtherQueue, Rates};

/// The number of jobs that are pushed one by one. As many are pushed in hundreds.
const JOBS: usize = 4000;
/// RQ ends jobs so slowly that more of them would take a minute.
const RQ_JOBS: usize = 500;
/// The measured rates, in their order.
const WHAT: [&str; 3] = ["pushes one by one", "pushes in hundreds", "jobs ended"];
const AT_ONCE: usize = 8;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for at_once in [AT_ONCE, 1] {
        lines.extend(beside_bullmq(plan, at_once)?);
    }
    for other in [OtherQueue::Bullmq, OtherQueue::Rq].into_iter().filter(|other| other.is_here()) {
        let (jobs, at_once) = if other == OtherQueue::Rq { (RQ_JOBS, 1) } else { (JOBS, AT_ONCE) };
        let rates = other.rates(&Server::start().url(), plan.count(jobs), at_once).all();
        let line = |(what, rate)| Line::alone(format!("{}, {at_once} at once: {what}", other.name()), "/s", vec![rate]);
        lines.extend(WHAT.into_iter().zip(rates).map(line));
    }
    Ok(lines)
}

/// Ours and the client of `BullMQ` for Rust in turn, with so many threads or jobs at once.
fn beside_bullmq(plan: Plan, at_once: usize) -> Outcome<Vec<Line>> {
    let (other, jobs) = (OtherQueue::BullmqRust, plan.count(JOBS));
    let mut all = [Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..plan.rounds() {
        let ours = ours(jobs, at_once)?.all();
        let theirs = other.rates(&Server::start().url(), jobs, at_once).all();
        for (rounds, (ours, theirs)) in all.iter_mut().zip(ours.into_iter().zip(theirs)) {
            rounds.push(ours, theirs);
        }
    }
    let line = |(what, rounds)| {
        let measure = format!("redlock-sync, {at_once} at once: {what}");
        Line::beside(measure, "/s", rounds, other.name()).gate(Gate::RatioAtLeast(0.8))
    };
    Ok(WHAT.into_iter().zip(all).map(line).collect())
}

fn ours(jobs: usize, threads: usize) -> Outcome<Rates> {
    let server = Server::start();
    let mails = client(&[server.url()]).build()?.queue("mails");
    let body = [b'x'; 100];
    let one = rate(jobs, || (0..jobs).try_for_each(|_| Ok(mails.push(Task::new(body)).map(drop)?)))?;
    let hundreds = jobs.div_ceil(100);
    let many = rate(100 * hundreds, || {
        (0..hundreds).try_for_each(|_| Ok(mails.push_all((0..100).map(|_| Task::new(body))).map(drop)?))
    })?;
    let ended = rate(jobs + 100 * hundreds, || end_all(&mails, threads))?;
    Ok(Rates { one, many, ended })
}

fn end_all(mails: &Queue, threads: usize) -> Outcome<()> {
    let worker = mails.worker(threads, |_| ())?;
    while !mails.is_empty()? {
        clock::sleep_until(clock::now() + 5_000_000);
    }
    if worker.stop(Duration::from_secs(10)) != 0 {
        return Err("a handler runs, though the queue is empty".into());
    }
    Ok(())
}

fn rate(jobs: usize, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let begin = clock::now();
    work()?;
    Ok(float(jobs as u64) / Duration::from_nanos(clock::now() - begin).as_secs_f64())
}
