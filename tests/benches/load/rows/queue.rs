//! A queue of tasks, compared with bare lists. The rows show the cost of a push, of a claim with its ack, and of idle
//! workers. They also show how soon a push is claimed.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Queue, Task};
use redlock_tests::Server;
use redlock_tests::bench::counts::{commands, requests};
use redlock_tests::bench::raw::{Wire, packed};
use redlock_tests::bench::stats::{Rounds, float, p50_in_turns, p50_us, p99};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

use super::{alone, wakes};

const BODY: [u8; 100] = [b'x'; 100];
/// The number of operations in a block.
const BLOCK: usize = 400;
const WAITING: usize = 1_000_000;
const IDLE_THREADS: usize = 1000;
const IDLE: Duration = Duration::from_secs(20);
/// The time from one push to the next, in nanoseconds.
const EVERY: u64 = 5_000_000;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let mut lines = pairs(plan, &server, "")?;
    let waiting = plan.count(WAITING);
    let before = memory(&server);
    let mails = queue(&server, "busy")?;
    let begin = clock::now();
    for _ in 0..waiting / 10_000 {
        mails.push_all((0..10_000).map(|_| Task::new(BODY)))?;
    }
    let rate = float(waiting as u64) / Duration::from_nanos(clock::now() - begin).as_secs_f64();
    lines.push(alone("push_all", "/s", rate, Bar::None));
    lines.push(alone(
        "memory of a task that waits",
        "bytes",
        (memory(&server) - before) / float(waiting as u64),
        Bar::None,
    ));
    lines.extend(pairs(plan, &server, &format!("{waiting} wait; "))?);
    lines.extend(latency(plan, &Server::start())?);
    lines.extend(idle(plan, &Server::start())?);
    Ok(lines)
}

fn queue(server: &Server, name: &str) -> Outcome<Queue> {
    Ok(client(&[server.url()]).build()?.queue(name))
}

fn memory(server: &Server) -> f64 {
    server.info("used_memory").and_then(|bytes| bytes.parse().ok()).unwrap_or(f64::NAN)
}

/// Measures a push, and a claim with its ack. Each alternates with the list commands for the same purpose.
fn pairs(plan: Plan, server: &Server, what: &str) -> Outcome<Vec<Line>> {
    let mails = queue(server, "busy")?;
    let mut wire = Wire::open(&server.url())?;
    let push = packed(cmd("LPUSH").arg("raw").arg(&BODY));
    let take = packed(cmd("LMOVE").arg("raw").arg("working").arg("RIGHT").arg("LEFT"));
    let done = packed(cmd("LREM").arg("working").arg(1).arg(&BODY));
    let count = plan.count(BLOCK);
    let mut pushes = |samples: &mut Vec<u64>| timed(count, samples, || wire.call(&push).map(drop));
    let of_pushes = p50_in_turns(plan.rounds(), plan.blocks(), &mut pushes, &mut |samples| {
        timed(count, samples, || Ok(mails.push(Task::new(BODY)).map(drop)?))
    })?;
    let mut pair = |samples: &mut Vec<u64>| {
        timed(count, samples, || {
            wire.call(&take)?;
            wire.call(&done).map(drop)
        })
    };
    // There are as many claims as pushes, so that neither side runs out of tasks.
    let claimed = p50_in_turns(plan.rounds(), plan.blocks(), &mut pair, &mut |samples| {
        timed(count, samples, || Ok(mails.try_claim()?.ok_or("no task is left")?.ack()?))
    })?;
    Ok(vec![
        Line::new(format!("{what}push (raw: LPUSH), p50"), "us", of_pushes, Bar::RatioAtMost(2.0)),
        Line::new(format!("{what}claim + ack (raw: LMOVE + LREM), p50"), "us", claimed, Bar::RatioAtMost(2.0)),
    ])
}

fn timed(count: usize, samples: &mut Vec<u64>, mut work: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    for _ in 0..count {
        let begin = clock::now();
        work()?;
        samples.push(clock::now() - begin);
    }
    Ok(())
}

/// Measures from before a push to the return of the claim that has waited for it. Raw is LPUSH to a thread in BLPOP.
fn latency(plan: Plan, server: &Server) -> Outcome<Vec<Line>> {
    let (mut middle, mut tail) = (Rounds::default(), Rounds::default());
    for _ in 0..plan.rounds() {
        let raw = wakes::hops(server, plan.count(200))?;
        let ours = claims(server, plan.count(200))?;
        middle.push(p50_us(&ours), p50_us(&raw));
        tail.push(p99(ours.into_iter()) / 1e3, p99(raw.into_iter()) / 1e3);
    }
    Ok(vec![
        Line::new("push -> claimed (raw: LPUSH -> BLPOP), p50", "us", middle, Bar::None),
        Line::new("the same, p99", "us", tail, Bar::None),
    ])
}

fn claims(server: &Server, count: usize) -> Outcome<Vec<u64>> {
    let (pushing, waiting) = (queue(server, "waited")?, queue(server, "waited")?);
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..count).try_for_each(|_| {
                let claimed = waiting.claim();
                let at = clock::now();
                tell.send(claimed.and_then(redlock_sync::Job::ack).map(|()| at)).ok()
            })
        });
        let mut samples = Vec::new();
        let start = clock::now() + 40 * EVERY;
        for due in (start..).step_by(usize::try_from(EVERY)?).take(count) {
            clock::sleep_until(due);
            let sent = clock::now();
            pushing.push(Task::new(BODY))?;
            samples.push(told.recv()?? - sent);
        }
        Ok(samples)
    })
}

/// Measures a worker with idle threads.
fn idle(plan: Plan, server: &Server) -> Outcome<Vec<Line>> {
    let worker = queue(server, "idle")?.worker(IDLE_THREADS, |_| ())?;
    thread::sleep(Duration::from_secs(2));
    let span = plan.span(IDLE);
    let (before, inside, used) = (requests(server), commands(server), clock::process_cpu());
    thread::sleep(span);
    let per_second = |count: u64| float(count) / span.as_secs_f64();
    let cpu = per_second(clock::process_cpu() - used) / 1e7;
    let (sent, executed) = (per_second(requests(server) - before), per_second(commands(server) - inside));
    if worker.stop(Duration::from_secs(10)) != 0 {
        return Err("a handler runs, though there was no task".into());
    }
    Ok(vec![
        alone(format!("{IDLE_THREADS} idle threads; requests"), "/s", sent, Bar::AtMost(1.0)),
        alone("the same, with commands inside scripts", "/s", executed, Bar::None),
        alone("the same; CPU", "%", cpu, Bar::AtMost(1.0)),
    ])
}
