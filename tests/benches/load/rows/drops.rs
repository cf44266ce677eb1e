//! Guards that are dropped while their server hangs, as when requests time out.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, Redlock};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};
use redlock_tests::{Server, poll};

use crate::sides::Place;

const GUARDS: usize = 100;
const LEASE: Duration = Duration::from_secs(5);
/// The default node timeout of a client, in ms.
const NODE_TIMEOUT: f64 = 250.0;
/// The time limit of a round.
const PATIENCE: Duration = Duration::from_secs(6);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let place = Place::start(1, None)?;
    let mut lines = Vec::new();
    for hang in [400, 1000] {
        let (mut usable, mut gone) = (Vec::new(), Vec::new());
        for round in 0..if plan.quick { 1 } else { 2 } {
            let after = drop_all(&place, Duration::from_millis(hang), &format!("drops:{hang}:{round}"))?;
            usable.push(after.usable_ms);
            gone.push(after.gone_ms);
        }
        let (usable, gone) = (Rounds::alone(usable), Rounds::alone(gone));
        let measure = format!("hung {hang} ms; return -> client usable");
        lines.push(Line::new(measure, "ms", usable, Bar::AtMost(NODE_TIMEOUT)));
        let measure = format!("hung {hang} ms; return -> all locks gone");
        lines.push(Line::new(measure, "ms", gone, Bar::AtMost(LEASE.as_secs_f64() * 1e3)));
    }
    Ok(lines)
}

/// Times in milliseconds from when the server runs again.
struct After {
    /// The time until each of [`GUARDS`] threads has acquired and released a lock.
    usable_ms: f64,
    /// The time until the server has none of the dropped locks.
    gone_ms: f64,
}

fn drop_all(place: &Place, hang: Duration, name: &str) -> Outcome<After> {
    let server = &place.servers[0];
    let locks = Redlock::builder().nodes(&place.urls).lease(LEASE).build()?;
    let (taken, stopped) = (Barrier::new(GUARDS + 1), Barrier::new(GUARDS + 1));
    let hold = |i: usize| -> Outcome<()> {
        let guard = locks.mutex(format!("{name}:{i}")).lock();
        taken.wait();
        stopped.wait();
        drop(guard?);
        Ok(())
    };
    thread::scope(|scope| {
        let holders: Vec<_> = (0..GUARDS).map(|i| scope.spawn(move || hold(i))).collect();
        taken.wait();
        server.stop();
        stopped.wait();
        thread::sleep(hang);
        server.cont();
        let back = clock::now();
        let gone = scope.spawn(move || until_gone(server, name, back));
        let usable_ms = until_usable(&locks, back);
        let gone_ms = gone.join().map_err(|_| "the watch panicked")?;
        holders.into_iter().try_for_each(|holder| holder.join().map_err(|_| "a holder panicked")?)?;
        Ok(After { usable_ms, gone_ms: gone_ms? })
    })
}

/// The time in milliseconds until as many threads as have dropped a guard have had a lock again.
fn until_usable(locks: &Redlock, back: u64) -> f64 {
    let pair = |i: usize| -> Result<(), Error> { locks.mutex(format!("next:{i}")).try_lock_for(PATIENCE)?.unlock() };
    let first = |i| poll(PATIENCE, || pair(i).is_ok().then(clock::now));
    let took = |i| first(i).map_or(f64::INFINITY, |at| float(at - back) / 1e6);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..GUARDS).map(|i| scope.spawn(move || took(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
    })
}

/// The time in milliseconds until the server has none of the dropped locks.
fn until_gone(server: &Server, name: &str, back: u64) -> Outcome<f64> {
    let mut connection = server.client();
    let keys: Vec<String> = (0..GUARDS).map(|i| format!("{name}:{i}")).collect();
    let mut there = || cmd("EXISTS").arg(&keys).query::<usize>(&mut connection);
    let done = poll(PATIENCE, || match there() {
        Ok(0) => Some(Ok(clock::now())),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    done.map_or(Ok(f64::INFINITY), |at| Ok(float(at? - back) / 1e6))
}
