//! `#[distributed_lock]`, compared with the same lines written by hand.

use redlock_sync::{Error, Redlock, distributed_lock};
use redlock_tests::Server;
use redlock_tests::bench::stats::p50_in_turns;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

const BLOCK: usize = 50;

#[distributed_lock("order:{id}", client = locks)]
fn annotated(locks: &Redlock, id: u64) -> Result<u64, Error> {
    Ok(std::hint::black_box(id))
}

fn by_hand(locks: &Redlock, id: u64) -> Result<u64, Error> {
    let guard = locks.reentrant_mutex(format!("order:{id}")).lock()?;
    let result = std::hint::black_box(id);
    guard.unlock()?;
    Ok(result)
}

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let locks = client(&[server.url()]).build()?;
    let take = |function: fn(&Redlock, u64) -> Result<u64, Error>, samples: &mut Vec<u64>| -> Outcome<()> {
        for _ in 0..BLOCK {
            let start = clock::now();
            function(&locks, 42)?;
            samples.push(clock::now() - start);
        }
        Ok(())
    };
    let rounds = p50_in_turns(plan.rounds(), plan.count(50), &mut |s| take(by_hand, s), &mut |s| take(annotated, s))?;
    Ok(vec![Line::new("call, p50 (raw: guard by hand)", "us", rounds, Bar::RatioAtMost(1.02))])
}
