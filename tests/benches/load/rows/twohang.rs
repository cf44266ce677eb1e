//! Two of three nodes hang while a waiter arrives. It must get the lock as soon as the nodes run again and the lock is
//! released.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, MutexGuard, Redlock};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use crate::sides::Place;

const NODES: usize = 3;
/// The time for which the nodes hang.
const HANG: Duration = Duration::from_secs(1);
/// The time between the release of the lock and the return of the nodes.
const APART: Duration = Duration::from_millis(600);
/// The time limit of a round.
const PATIENCE: Duration = Duration::from_secs(8);
const ROUNDS: usize = 3;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let place = Place::start(NODES, None)?;
    let (mut after, mut before) = (Vec::new(), Vec::new());
    for round in 0..if plan.quick { 1 } else { ROUNDS } {
        after.push(hang(&place, true, &format!("hang:after:{round}"))?);
        before.push(hang(&place, false, &format!("hang:before:{round}"))?);
    }
    let bar = Bar::AtMost(10.0);
    Ok(vec![
        Line::new("return, then release -> lock", "ms", Rounds::alone(after), bar),
        Line::new("release, then return -> lock", "ms", Rounds::alone(before), bar),
    ])
}

/// Returns the time in milliseconds until the waiter has the lock. It counts from the later one of the release and the
/// return of the nodes.
fn hang(place: &Place, release_last: bool, key: &str) -> Outcome<f64> {
    let holder = Redlock::builder().nodes(&place.urls).build()?;
    let waiter = Redlock::builder().nodes(&place.urls).build()?;
    for locks in [&holder, &waiter] {
        locks.mutex("hang:other").lock()?.unlock()?;
    }
    let guard = holder.mutex(key).lock()?;
    let sick = &place.servers[1..];
    sick.iter().for_each(redlock_tests::Server::stop);
    let (tell, told) = channel();
    let mutex = waiter.mutex(key);
    thread::spawn(move || {
        let outcome = mutex.lock().and_then(|guard| {
            let got = clock::now();
            guard.unlock().map(|()| got)
        });
        tell.send(outcome)
    });
    let back = || {
        sick.iter().for_each(redlock_tests::Server::cont);
        clock::now()
    };
    thread::sleep(HANG);
    let later = if release_last {
        back();
        thread::sleep(APART);
        let now = clock::now();
        guard.unlock()?;
        now
    } else {
        release(guard)?;
        thread::sleep(APART);
        back()
    };
    match told.recv_timeout(PATIENCE) {
        Ok(got) => Ok(float(got?.saturating_sub(later)) / 1e6),
        Err(RecvTimeoutError::Timeout) => Ok(f64::INFINITY),
        Err(error) => Err(error.into()),
    }
}

/// Releases the lock. A majority cannot confirm the release yet.
fn release(guard: MutexGuard) -> Outcome<()> {
    match guard.unlock() {
        Ok(()) | Err(Error::Unconfirmed { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
