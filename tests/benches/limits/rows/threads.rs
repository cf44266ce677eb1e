//! Threads of one process on one node.

use std::thread;
use std::time::Duration;

use redlock_sync::Mutex;
use redlock_tests::Server;
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::stats::{Rounds, blocks_in_turns, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

use super::{BLOCK, mutex};

const THREADS: usize = 8;

pub(super) fn own_keys(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let mut raw = RawThreads::open(&server)?;
    let ours = OurThreads::open(&server)?;
    let rounds =
        blocks_in_turns(plan.rounds(), plan.blocks(), &mut || raw.per_second(BLOCK), &mut || ours.per_second(BLOCK))?;
    Ok(vec![Line::new("pairs per second, 8 keys", "/s", rounds, Bar::RatioAtLeast(0.95))])
}

/// Bare connections, one for each thread.
struct RawThreads(Vec<RawLock>);

impl RawThreads {
    fn open(server: &Server) -> Outcome<Self> {
        (0..THREADS).map(|i| RawLock::open(&[server.url()], &format!("raw:{i}"))).collect::<Outcome<_>>().map(Self)
    }

    fn per_second(&mut self, span: Duration) -> Outcome<f64> {
        all_at_once(self.0.iter_mut().map(|lock| || lock.pair()).collect(), span)
    }
}

/// Threads that share one client, each with a key of its own.
pub(super) struct OurThreads(Vec<Mutex>);

impl OurThreads {
    pub(super) fn open(server: &Server) -> Outcome<Self> {
        let locks = client(&[server.url()]).build()?;
        Ok(Self((0..THREADS).map(|i| locks.mutex(format!("ours:{i}"))).collect()))
    }

    pub(super) fn per_second(&self, span: Duration) -> Outcome<f64> {
        all_at_once(self.0.iter().map(|mutex| || Ok(mutex.lock()?.unlock()?)).collect(), span)
    }
}

/// Repeats each piece of work on its own thread for a while. Returns how often per second all threads together did it.
fn all_at_once<F: FnMut() -> Outcome<()> + Send>(work: Vec<F>, span: Duration) -> Outcome<f64> {
    let start = clock::now() + 2_000_000;
    let end = start + clock::nanos(span);
    let counts: Vec<Outcome<u64>> = thread::scope(|scope| {
        let repeat = |mut work: F| {
            clock::sleep_until(start);
            let mut count = 0;
            while clock::now() < end {
                work()?;
                count += 1;
            }
            Ok(count)
        };
        let running: Vec<_> = work.into_iter().map(|work| scope.spawn(move || repeat(work))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let sum = counts.into_iter().sum::<Outcome<u64>>()?;
    Ok(float(sum) / span.as_secs_f64())
}

const QUEUE: usize = 20;
const HOLD: Duration = Duration::from_millis(200);

/// All threads start to wait for the lock at the same time, and each holds it for 200 ms. That takes four seconds and
/// should need only few requests.
pub(super) fn queue(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let ours = mutex(&[server.url()], "ours")?;
    let mut raw = RawLock::open(&[server.url()], "raw")?;
    ours.lock()?.unlock()?;
    let (mut seconds, mut asked, mut executed) = (Rounds::default(), Vec::new(), Vec::new());
    for _ in 0..if plan.quick { 1 } else { 3 } {
        let of_raw = one_after_the_other(&mut raw)?;
        let before = (requests(&server), server.commands_processed());
        seconds.push(all_in_line(&ours)?, of_raw);
        executed.push(float(server.commands_processed() - before.1));
        asked.push(float(requests(&server) - before.0));
    }
    Ok(vec![
        Line::new("all 20 done", "s", seconds, Bar::AtMost(4.05)),
        Line::new("requests in all", "", Rounds::alone(asked), Bar::AtMost(200.0)),
        Line::new("commands, those in scripts included", "", Rounds::alone(executed), Bar::None),
    ])
}

fn all_in_line(mutex: &Mutex) -> Outcome<f64> {
    let start = clock::now();
    let results: Vec<Outcome<()>> = thread::scope(|scope| {
        let one = || -> Outcome<()> {
            let guard = mutex.try_lock_for(Duration::from_secs(60))?;
            thread::sleep(HOLD);
            Ok(guard.unlock()?)
        };
        let running: Vec<_> = (0..QUEUE).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    results.into_iter().collect::<Outcome<()>>()?;
    Ok(float(clock::now() - start) / 1e9)
}

/// Does a quarter of the work with one thread on a bare connection. Returns the time multiplied by four.
fn one_after_the_other(raw: &mut RawLock) -> Outcome<f64> {
    let start = clock::now();
    for _ in 0..QUEUE / 4 {
        raw.acquire()?;
        thread::sleep(HOLD);
        raw.release()?;
    }
    Ok(float(clock::now() - start) * 4.0 / 1e9)
}
