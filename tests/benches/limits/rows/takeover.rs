//! A holder that is killed, for three leases.

use std::thread;
use std::time::Duration;

use redis::pipe;
use redlock_sync::{Mutex, Redlock};
use redlock_tests::Server;
use redlock_tests::bench::stats::float;
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::worker::{Worker, answer_orders};
use redlock_tests::bench::{Outcome, Plan, clock};

const KEYS: u32 = 40;
const LEASES: [u64; 3] = [1, 5, 30];
const LATE_MS: f64 = 250.0;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    let mut late = 0.0_f64;
    for seconds in LEASES.into_iter().take(if plan.quick { 2 } else { 3 }) {
        let takeovers = round(Duration::from_secs(seconds))?;
        let seconds_of = |nanos: u64| float(nanos) / 1e9;
        let took = takeovers.iter().map(|one| seconds_of(one.took)).collect();
        lines.push(Line::alone(format!("lease {seconds} s: from the kill to the next holder"), "s", took));
        late = takeovers.iter().map(|one| seconds_of(one.late) * 1e3).fold(late, f64::max);
    }
    let measure = "from the end of a lease to the next holder, longest";
    lines.push(Line::alone(measure, "ms", vec![late]).gate(Gate::AtMost(LATE_MS)));
    Ok(lines)
}

/// The times of one waiter, in nanoseconds.
struct Takeover {
    /// The time from the kill until the waiter has its lock.
    took: u64,
    /// The time from the end of the dead holder's lease until the waiter has its lock.
    late: u64,
}

/// A process acquires all locks, a thread waits for each of them, and the process is killed.
fn round(lease: Duration) -> Outcome<Vec<Takeover>> {
    let server = Server::start();
    let locks = Redlock::builder().node(server.url()).build()?;
    let mutexes: Vec<Mutex> = (0..KEYS).map(|i| locks.mutex(key(i))).collect();
    let mut holder = Worker::start("holder", &[clock::nanos(lease).to_string(), server.url()])?;
    holder.order("take")?;
    holder.answer(lease + Duration::from_secs(30))?;
    thread::scope(|scope| {
        let wait = |mutex: &Mutex| -> Outcome<u64> {
            let guard = mutex.lock()?;
            let at = clock::now();
            guard.unlock()?;
            Ok(at)
        };
        let waiters: Vec<_> = mutexes.iter().map(|mutex| scope.spawn(move || wait(mutex))).collect();
        thread::sleep(Duration::from_millis(100));
        let killed = clock::now();
        holder.kill()?;
        let ends = ends(&server)?;
        let takeover = |(waiter, end): (thread::ScopedJoinHandle<'_, Outcome<u64>>, u64)| {
            let at = waiter.join().map_err(|_| "a waiter panicked")??;
            Ok(Takeover { took: at - killed, late: at.saturating_sub(end) })
        };
        waiters.into_iter().zip(ends).map(takeover).collect()
    })
}

/// The times at which the keys expire.
fn ends(server: &Server) -> Outcome<Vec<u64>> {
    let mut questions = pipe();
    for i in 0..KEYS {
        questions.pttl(key(i));
    }
    let left: Vec<u64> = questions.query(&mut server.client())?;
    let now = clock::now();
    Ok(left.into_iter().map(|ms| now + ms * 1_000_000).collect())
}

fn key(nth: u32) -> String {
    format!("held:{nth}")
}

/// The main function of the holder: `LEASE URL`. The order makes it acquire all locks, one after the other, so that
/// their leases differ in age. It holds them until it is killed.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [lease, url] = args else { return Err("a holder needs a lease and a server".into()) };
    let lease = Duration::from_nanos(lease.parse()?);
    let locks =
        Redlock::builder().node(url).lease(lease).node_timeout(lease.min(Duration::from_secs(1)) / 5).build()?;
    let mut guards = Vec::new();
    answer_orders(|_| {
        for nth in 0..KEYS {
            guards.push(locks.mutex(key(nth)).lock()?);
            thread::sleep(lease / 3 / KEYS);
        }
        Ok(vec![guards.len() as u64])
    })
}
