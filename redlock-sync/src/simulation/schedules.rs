//! Many schedules, the same one twice, and the library broken on purpose.

use std::fmt::Write as _;

use super::controls::Control;
use super::referee::Counts;
use super::run::{Outcome, schedule};

/// How many schedules a test run has without further words.
const USUAL: u64 = if cfg!(debug_assertions) { 1500 } else { 20_000 };

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

#[test]
fn nothing_is_violated() {
    let (first, many) = (setting("REDLOCK_SIM_SEED").unwrap_or(1), setting("REDLOCK_SIM_SCHEDULES").unwrap_or(USUAL));
    let started = crate::clock::Clock::now(&crate::clock::SystemClock);
    let mut counts = Counts::default();
    for seed in first..first + many {
        let outcome = schedule(seed, None, None, false);
        assert!(outcome.violation.is_none(), "{}", report(seed, None, None));
        counts.add(&outcome.counts);
    }
    let took = crate::clock::Clock::now(&crate::clock::SystemClock).since(started);
    println!("{counts}; {:.0} schedules/s", counts.schedules as f64 / took.as_secs_f64());
    if many >= USUAL {
        assert!(counts.grants > 0 && counts.handovers > 0 && counts.losses > 0 && counts.crashes > 0, "{counts}");
        assert!(counts.excused * 100 < counts.acquisitions, "{counts}");
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
        (Control::AnchoredAtReply, 1, "two holders"),
        (Control::AnchoredAtReply, 3, "two holders"),
        (Control::GrantIsHeld, 3, "two holders"),
        (Control::ReleaseWithoutCompare, 1, "two holders"),
        (Control::ReleaseWithoutCompare, 3, "two holders"),
        (Control::FenceNotStored, 3, "does not rise"),
        (Control::RepeatedGrant, 1, "two holders"),
        (Control::ExtendCreates, 1, "a lock that was free"),
        (Control::NoRestartGuard, 3, "two holders"),
        (Control::ShortGrant, 1, "two holders"),
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
