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
        if std::env::var("REDLOCK_SIM_VERBOSE").is_ok() { eprintln!("seed {seed}"); }
        let outcome = schedule(seed, None, None, std::env::var("REDLOCK_SIM_VERBOSE").is_ok());
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
