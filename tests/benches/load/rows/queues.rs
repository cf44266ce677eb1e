//! Our queue beside those of other libraries. Jobs are pushed one by one and in hundreds, and ended by one worker
//! process whose handler does nothing.

use std::time::Duration;

use redlock_sync::{Queue, Task};
use redlock_tests::Server;
use redlock_tests::bench::stats::float;
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
    lines.extend(told("ours, a worker of 8 threads", ours(jobs, AT_ONCE)?));
    lines.extend(told("ours, a worker of 1 thread", ours(jobs, 1)?));
    for other in OtherQueue::ALL.into_iter().filter(|other| other.is_here()) {
        lines.extend(told(other.name(), other.rates(&Server::start().url(), jobs, AT_ONCE)));
    }
    Ok(lines)
}

fn told(name: &str, rates: Rates) -> [Line; 3] {
    let line = |what: &str, rate| alone(format!("{name}: {what}"), "/s", rate, Bar::None);
    [line("pushes one by one", rates.one), line("pushes in hundreds", rates.many), line("jobs ended", rates.ended)]
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
