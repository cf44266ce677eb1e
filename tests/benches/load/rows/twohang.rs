//! Two of three nodes hang while a waiter arrives. It must have the lock as soon as they are back and the lock is released.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, MutexGuard, Redlock};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, clock};

use super::connections;
use crate::census::Census;
use crate::sides::Place;

const NODES: usize = 3;
/// How long they hang.
const HANG: Duration = Duration::from_secs(1);
/// How long before or after their return the lock is released.
const APART: Duration = Duration::from_millis(600);
/// When a round gives up.
const PATIENCE: Duration = Duration::from_secs(8);
const ROUNDS: usize = 3;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let place = Place::start(NODES, None)?;
    let census = Census::start(&place.servers[0])?;
    let (mut after, mut before) = (Vec::new(), Vec::new());
    for round in 0..if plan.quick { 1 } else { ROUNDS } {
        after.push(hang(&place, true, &format!("hang:after:{round}"))?);
        before.push(hang(&place, false, &format!("hang:before:{round}"))?);
    }
    connections::note("twohang", census.most()?);
    let bar = Bar::AtMost(10.0);
    Ok(vec![
        Line::new("return, then release -> lock", "ms", Rounds::alone(after), bar),
        Line::new("release, then return -> lock", "ms", Rounds::alone(before), bar),
    ])
}

/// How long the waiter takes from the later of both, in milliseconds.
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

/// A release that a majority cannot confirm yet.
fn release(guard: MutexGuard) -> Outcome<()> {
    match guard.unlock() {
        Ok(()) | Err(Error::Unconfirmed { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
