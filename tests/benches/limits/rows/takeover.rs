//! A holder that is killed.

use std::thread;
use std::time::Duration;

use redis::pipe;
use redlock_sync::{Mutex, Redlock};
use redlock_tests::bench::stats::{Rounds, p99};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::Worker;
use redlock_tests::bench::{Outcome, Plan, clock};
use redlock_tests::{Server, servers};

use super::nodes::NODES;
use super::{LONG_ROUNDS, urls};
use crate::worker::holder::key;

const KEYS: usize = 100;
const LEASE: Duration = Duration::from_millis(1500);
/// The longest time for which a waiter waits for a notification before it checks the lock itself.
const CAP: Duration = Duration::from_secs(5);

pub(super) fn one_node(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, &servers(1))
}

pub(super) fn five_nodes(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, &servers(NODES))
}

fn lines(plan: Plan, servers: &[Server]) -> Outcome<Vec<Line>> {
    let urls = urls(servers);
    let locks = Redlock::builder().nodes(&urls).build()?;
    let mutexes: Vec<Mutex> = (0..plan.count(KEYS)).map(|i| locks.mutex(key(i))).collect();
    let (mut took, mut late) = (Vec::new(), Vec::new());
    for _ in 0..LONG_ROUNDS {
        let takeovers = round(&servers[0], &urls, &mutexes)?;
        let millis = |part: fn(&Takeover) -> u64| p99(takeovers.iter().map(part)) / 1e6;
        took.push(millis(|takeover| takeover.took));
        late.push(millis(|takeover| takeover.late));
    }
    let bar = (LEASE + CAP).as_secs_f64() * 1e3;
    Ok(vec![
        Line::new("SIGKILL -> next holder, p99", "ms", Rounds::alone(took), Bar::AtMost(bar)),
        Line::new("of it after the lease has ended, p99", "ms", Rounds::alone(late), Bar::None),
    ])
}

/// The times of one waiter, in nanoseconds.
struct Takeover {
    /// The time from the kill until the waiter has its lock.
    took: u64,
    /// The time from the end of the dead holder's lease until the waiter has its lock.
    late: u64,
}

/// A process acquires all locks, a thread waits for each of them, and the process is killed.
fn round(server: &Server, urls: &[String], mutexes: &[Mutex]) -> Outcome<Vec<Takeover>> {
    let args = [mutexes.len().to_string(), clock::nanos(LEASE).to_string()];
    let mut holder = Worker::start("holder", &[&args, urls].concat())?;
    holder.order("take")?;
    holder.answer(Duration::from_secs(30))?;
    thread::scope(|scope| {
        let wait = |mutex: &Mutex| -> Outcome<u64> {
            let guard = mutex.lock()?;
            let at = clock::now();
            guard.unlock()?;
            Ok(at)
        };
        let waiters: Vec<_> = mutexes.iter().map(|mutex| scope.spawn(move || wait(mutex))).collect();
        // The kill comes at a random time between two renewals.
        thread::sleep(LEASE.mul_f64(0.5 + fastrand::f64() / 3.0));
        let killed = clock::now();
        holder.kill()?;
        let ends = ends(server, mutexes.len())?;
        let takeover = |(waiter, end): (thread::ScopedJoinHandle<'_, Outcome<u64>>, u64)| {
            let at = waiter.join().map_err(|_| "a waiter panicked")??;
            Ok(Takeover { took: at - killed, late: at.saturating_sub(end) })
        };
        waiters.into_iter().zip(ends).map(takeover).collect()
    })
}

/// The times at which the keys expire on this server.
fn ends(server: &Server, keys: usize) -> Outcome<Vec<u64>> {
    let mut questions = pipe();
    for i in 0..keys {
        questions.pttl(key(i));
    }
    let left: Vec<u64> = questions.query(&mut server.client())?;
    let now = clock::now();
    Ok(left.into_iter().map(|ms| now + ms * 1_000_000).collect())
}
