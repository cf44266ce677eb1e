//! Many schedules, the same one twice, and the library broken on purpose.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::controls::Control;
use super::referee::Counts;
use super::run::{Outcome, schedule};
use crate::clock::{Clock, SystemClock};

/// How many schedules a test run has without further words.
const USUAL: u64 = if cfg!(debug_assertions) { 1500 } else { 10_000 };

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The schedule that failed, as somebody needs it who looks for the cause.
fn report(seed: u64, nodes: Option<usize>, control: Option<Control>) -> String {
    let Outcome { violation, log, plan, .. } = schedule(seed, nodes, control, true);
    let mut text = format!("{plan:#?}\n");
    for line in log {
        _ = writeln!(text, "{line}");
    }
    _ = writeln!(text, "seed {seed}: {}", violation.unwrap_or_default());
    _ = writeln!(
        text,
        "repeat it: REDLOCK_SIM_SEED={seed} REDLOCK_SIM_SCHEDULES=1 cargo test -p redlock-sync simulation::schedules -- --nocapture"
    );
    text
}

/// What all of these schedules did, or the first seed with a violation.
fn run(seeds: std::ops::Range<u64>, threads: u64) -> Result<Counts, u64> {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(u64::MAX));
    let work = || {
        let mut counts = Counts::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.load(Ordering::Relaxed) < seed {
                return counts;
            }
            let outcome = schedule(seed, None, None, false);
            counts.add(&outcome.counts);
            if outcome.violation.is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            counts.add(&worker.join().unwrap());
        }
    });
    let failed = failed.into_inner();
    if failed == u64::MAX { Ok(counts) } else { Err(failed) }
}

#[test]
fn nothing_is_violated() {
    let (first, many) = (setting("REDLOCK_SIM_SEED").unwrap_or(1), setting("REDLOCK_SIM_SCHEDULES").unwrap_or(USUAL));
    let threads = setting("REDLOCK_SIM_THREADS").unwrap_or(2).min(many);
    let started = SystemClock.now();
    let counts = run(first..first + many, threads).unwrap_or_else(|seed| panic!("{}", report(seed, None, None)));
    let took = SystemClock.now().since(started);
    println!("{counts}; {:.0} schedules/s on {threads} threads", counts.schedules as f64 / took.as_secs_f64());
    if many >= USUAL {
        // Each of these is a part of the library that would else not have been tried.
        assert!(counts.grants > 0 && counts.handovers > 0 && counts.losses > 0 && counts.restarts > 0, "{counts}");
        assert!(counts.excused * 1000 < counts.acquisitions, "{counts}");
    }
}

#[test]
fn a_seed_is_one_schedule() {
    for seed in 0..50 {
        let (a, b) = (schedule(seed, None, None, false), schedule(seed, None, None, true));
        assert_eq!((a.digest, a.counts.events), (b.digest, b.counts.events), "seed {seed}");
    }
}

/// The seed of the first schedule in which the control is found out, and what was seen.
fn found_out(control: Control, nodes: usize, most: u64) -> Option<(u64, String)> {
    (0..most).find_map(|seed| Some((seed, schedule(seed, Some(nodes), Some(control), false).violation?)))
}

#[test]
fn each_control_is_found_out() {
    let controls = [
        (Control::HalfIsEnough, 3, "two holders"),
        (Control::AnchoredAtReply, 3, "two holders"),
        (Control::GrantIsHeld, 3, "two holders"),
        (Control::ReleaseWithoutCompare, 1, "two holders"),
        (Control::ReleaseWithoutCompare, 3, "two holders"),
        (Control::FenceNotStored, 3, "does not rise"),
        (Control::RepeatedGrant, 1, "two holders"),
        (Control::ExtendCreates, 1, "a lock that was free"),
        (Control::NoRestartGuard, 3, "two holders"),
        (Control::ShortGrant, 1, "two holders"),
        (Control::RepeatedTokens, 1, "two holders"),
    ];
    let mut missed = Vec::new();
    for (control, nodes, sign) in controls {
        match found_out(control, nodes, 4000) {
            Some((seed, what)) => println!("{control:?} on {nodes}: seed {seed}: {what} ({})", what.contains(sign)),
            _ => missed.push((control, nodes)),
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}
