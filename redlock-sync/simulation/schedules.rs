//! Runs many schedules, and runs some schedules twice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::known::Counts;
use super::run::{Outcome, schedule};
use crate::clock::{Clock, SystemClock};

/// The number of schedules of a test run without settings.
const USUAL: u64 = if cfg!(debug_assertions) { 200 } else { 10_000 };

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Describes the schedule that failed, with all details that are needed to find the cause.
fn report(seed: u64, nodes: Option<usize>) -> String {
    let Outcome { violation, log, plan, .. } = schedule(seed, nodes, true);
    let mut text = format!("{plan:#?}\n");
    for line in log {
        _ = writeln!(text, "{line}");
    }
    _ = writeln!(text, "seed {seed}: {}", violation.unwrap_or_default());
    _ = writeln!(
        text,
        "repeat it: {}REDLOCK_SIM_SEED={seed} REDLOCK_SIM_SCHEDULES=1 cargo test -p redlock-sync simulation::schedules -- --nocapture",
        nodes.map_or_else(String::new, |nodes| format!("REDLOCK_SIM_NODES={nodes} "))
    );
    text
}

/// The result of many schedules.
#[derive(Debug, Default)]
struct Summary {
    counts: Counts,
    /// The violations by kind, each with the seeds that found it and their messages.
    violations: BTreeMap<String, BTreeMap<u64, String>>,
}

/// The kind of a violation: its message up to the details.
fn kind(violation: &str) -> String {
    // What the model refuses is told apart by the script.
    let details = violation.strip_prefix("refused by the model: ").unwrap_or(violation);
    let general = details.split_once(':').map_or(violation, |(general, _)| general);
    general.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Runs the schedules of these seeds: all of them, or until one fails.
fn run(seeds: Range<u64>, threads: u64, nodes: Option<usize>, goes_on: bool) -> Summary {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(u64::MAX));
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || !goes_on && failed.load(Ordering::Relaxed) < seed {
                return;
            }
            let outcome = schedule(seed, nodes, false);
            let mut summary = summary.lock();
            summary.counts.add(&outcome.counts);
            if let Some(violation) = outcome.violation {
                summary.violations.entry(kind(&violation)).or_default().insert(seed, violation);
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    summary.into_inner()
}

/// The first seed, and the number of schedules that the settings ask for.
fn wanted() -> (u64, u64) {
    (setting("REDLOCK_SIM_SEED").unwrap_or(1), setting("REDLOCK_SIM_SCHEDULES").unwrap_or(USUAL))
}

#[test]
fn nothing_is_violated() {
    let (first, many) = wanted();
    let threads = setting("REDLOCK_SIM_THREADS").unwrap_or(2).min(many);
    let nodes = setting("REDLOCK_SIM_NODES").map(|nodes| nodes as usize);
    let is_survey = std::env::var("REDLOCK_SIM_SURVEY").is_ok();
    let started = SystemClock.now();
    let Summary { counts, violations } = run(first..first + many, threads, nodes, is_survey);
    let took = SystemClock.now().since(started);
    for (kind, seen) in &violations {
        let (first, what) = seen.first_key_value().unwrap();
        let next: Vec<&u64> = seen.keys().take(20).collect();
        println!("{} times {kind}, in seeds {next:?}; in seed {first}: {what}", seen.len());
    }
    println!("{counts}; {:.0} schedules/s on {threads} threads", counts.schedules as f64 / took.as_secs_f64());
    if let Some(&seed) = violations.values().flat_map(BTreeMap::keys).min() {
        panic!("{}", report(seed, nodes));
    }
    if many >= USUAL {
        // Each count shows that the run has tried this part of the library.
        assert!(
            counts.grants > 0
                && counts.handovers > 0
                && counts.ran > 0
                && counts.led > 0
                && counts.cancelled > 0
                && counts.losses > 0
                && counts.restarts > 0
                && counts.modelled > 0
                && counts.beliefs > 0,
            "{counts}"
        );
        assert!(counts.excused * 1000 < counts.acquisitions, "{counts}");
    }
}

/// Runs a twentieth of the schedules twice each.
#[test]
fn a_seed_is_one_schedule() {
    let (first, many) = wanted();
    for seed in first..first + many.div_ceil(20) {
        let (a, b) = (schedule(seed, None, false), schedule(seed, None, true));
        assert_eq!((a.digest, a.counts.events), (b.digest, b.counts.events), "seed {seed}");
    }
}
