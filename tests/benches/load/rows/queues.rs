//! Our queue beside those of other libraries. Jobs are pushed one by one and in hundreds, and ended by one worker
//! process whose handler does nothing.

use std::time::Duration;

use redlock_sync::{Queue, Task};
use redlock_tests::Server;
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};
use redlock_tests::foreign::{OtherQueue, Rates};

use super::alone;

/// The number of jobs that are pushed one by one. As many are pushed in hundreds.
const JOBS: usize = 4000;
const AT_ONCE: usize = 8;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let jobs = plan.count(JOBS);
    let mut lines = Vec::new();
    for at_once in [AT_ONCE, 1] {
        lines.extend(beside_bullmq(plan, jobs, at_once)?);
    }
    for other in [OtherQueue::Bullmq, OtherQueue::Rq].into_iter().filter(|other| other.is_here()) {
        let rates = other.rates(&Server::start().url(), jobs, AT_ONCE);
        let line = |what: &str, rate| alone(format!("{}: {what}", other.name()), "/s", rate, Bar::None);
        lines.push(line("pushes one by one", rates.one));
        lines.push(line("pushes in hundreds", rates.many));
        lines.push(line("jobs ended", rates.ended));
    }
    Ok(lines)
}

/// Ours and the client of `BullMQ` for Rust in turn, with so many threads or jobs at once.
fn beside_bullmq(plan: Plan, jobs: usize, at_once: usize) -> Outcome<[Line; 3]> {
    let other = OtherQueue::BullmqRust;
    let rates = |of: Rates| [of.one, of.many, of.ended];
    let mut all = [Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..plan.rounds() {
        let ours = rates(ours(jobs, at_once)?);
        let theirs =
            if other.is_here() { rates(other.rates(&Server::start().url(), jobs, at_once)) } else { [f64::NAN; 3] };
        for ((rounds, ours), theirs) in all.iter_mut().zip(ours).zip(theirs) {
            rounds.push(ours, theirs);
        }
    }
    let [one, many, ended] = all;
    let line = |what: &str, rounds| {
        Line::new(format!("{what}, {at_once} at once (raw: {})", other.name()), "/s", rounds, Bar::None)
    };
    Ok([line("pushes one by one", one), line("pushes in hundreds", many), line("jobs ended", ended)])
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
