//! A queue of tasks, compared with bare lists: a push, a claim with its end, and how soon a push is claimed.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Job, Queue, Task};
use redlock_tests::Server;
use redlock_tests::bench::raw::{RawRing, Wire, packed};
use redlock_tests::bench::stats::{Rounds, p50_in_turns, p50_us, timed};
use redlock_tests::bench::table::Line;
use redlock_tests::bench::{Outcome, Plan, client, clock};

const BODY: [u8; 100] = [b'x'; 100];
/// The number of operations in a block.
const BLOCK: usize = 400;
/// The number of pushes to a waiting thread in a round, and the time from one to the next.
const PUSHES: usize = 100;
const EVERY: Duration = Duration::from_millis(5);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = pairs(plan, &Server::start())?;
    let server = Server::start();
    let mut waited = Rounds::default();
    for round in 0..plan.rounds() {
        let raw = hops(&server, plan.count(PUSHES))?;
        waited.push(p50_us(&claims(&server, &format!("waited{round}"), plan.count(PUSHES))?), p50_us(&raw));
    }
    lines.push(Line::beside("from a push to the claim that waits for it, p50", "us", waited, "LPUSH to BLPOP"));
    Ok(lines)
}

fn queue(server: &Server, name: &str) -> Outcome<Queue> {
    Ok(client(&[server.url()]).build()?.queue(name))
}

/// Measures a push, and a claim with its end. Each alternates with the list commands for the same purpose.
fn pairs(plan: Plan, server: &Server) -> Outcome<Vec<Line>> {
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
        Line::beside("push, p50", "us", of_pushes, "LPUSH"),
        Line::beside("claim and ack, p50", "us", claimed, "LMOVE and LREM"),
    ])
}

/// Measures from before a LPUSH to the return of the BLPOP that waits for it.
fn hops(server: &Server, count: usize) -> Outcome<Vec<u64>> {
    let (mut from, mut to) = (RawRing::open(&server.url(), "hop")?, RawRing::open(&server.url(), "hop")?);
    one_by_one(count, move || to.pop().map(drop), || from.push())
}

/// Measures from before a push to the return of the claim that waits for it. The queue must be empty, and its last job
/// is not ended.
fn claims(server: &Server, name: &str, count: usize) -> Outcome<Vec<u64>> {
    let (pushing, waiting) = (queue(server, name)?, queue(server, name)?);
    let mut ended: Option<Job> = None;
    let claim = move || {
        // The job before is ended here, so that the measured time does not contain it.
        ended.take().map_or(Ok(()), Job::ack)?;
        ended = Some(waiting.claim()?);
        Ok(())
    };
    one_by_one(count, claim, || Ok(pushing.push(Task::new(BODY)).map(drop)?))
}

/// Sends messages to a thread that waits for each of them. Returns nanoseconds.
fn one_by_one(
    count: usize,
    mut pop: impl FnMut() -> Outcome<()> + Send,
    mut push: impl FnMut() -> Outcome<()>,
) -> Outcome<Vec<u64>> {
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(move || (0..count).try_for_each(|_| tell.send(pop().map(|()| clock::now())).ok()));
        let mut samples = Vec::new();
        for _ in 0..count {
            thread::sleep(EVERY);
            let sent = clock::now();
            push()?;
            samples.push(told.recv()?? - sent);
        }
        Ok(samples)
    })
}
