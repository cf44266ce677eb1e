//! Many schedules, the same one twice, and the library broken on purpose.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::controls::Control;
use super::referee::Counts;
use super::run::{Outcome, Setup, schedule};
use crate::clock::{Clock, SystemClock};

/// How many schedules a test run has without further words.
const USUAL: u64 = if cfg!(debug_assertions) { 1000 } else { 10_000 };

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the environment wants.
fn setup() -> Setup {
    let control = std::env::var("REDLOCK_SIM_CONTROL").ok().map(|name| Control::named(&name));
    Setup { nodes: setting("REDLOCK_SIM_NODES").map(|nodes| nodes as usize), control }
}

/// The schedule that failed, as is needed to look for the cause.
fn report(seed: u64, setup: Setup) -> String {
    let Outcome { violation, log, plan, .. } = schedule(seed, setup, true);
    let mut text = format!("{plan:#?}\n");
    for line in log {
        _ = writeln!(text, "{line}");
    }
    _ = writeln!(text, "seed {seed}: {}", violation.unwrap_or_default());
    _ = writeln!(
        text,
        "repeat it: {}REDLOCK_SIM_SEED={seed} REDLOCK_SIM_SCHEDULES=1 cargo test -p redlock-sync simulation::schedules -- --nocapture",
        shown(setup)
    );
    text
}

/// As settings of the environment.
fn shown(Setup { nodes, control }: Setup) -> String {
    let nodes = nodes.map_or_else(String::new, |nodes| format!("REDLOCK_SIM_NODES={nodes} "));
    nodes + &control.map_or_else(String::new, |control| format!("REDLOCK_SIM_CONTROL={control:?} "))
}

/// What came of many schedules.
#[derive(Debug, Default)]
struct Summary {
    counts: Counts,
    /// What was violated, by its kind: in each seed what was seen there.
    violations: BTreeMap<String, BTreeMap<u64, String>>,
}

/// What a violation says before its particulars.
fn kind(violation: &str) -> String {
    let general = violation.split_once(':').map_or(violation, |(general, _)| general);
    general.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Runs schedules: all of them, or until one fails.
fn run(seeds: Range<u64>, threads: u64, setup: Setup, goes_on: bool) -> Summary {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(u64::MAX));
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || !goes_on && failed.load(Ordering::Relaxed) < seed {
                return;
            }
            let outcome = schedule(seed, setup, false);
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

#[test]
fn nothing_is_violated() {
    let (first, many) = (setting("REDLOCK_SIM_SEED").unwrap_or(1), setting("REDLOCK_SIM_SCHEDULES").unwrap_or(USUAL));
    let threads = setting("REDLOCK_SIM_THREADS").unwrap_or(2).min(many);
    let (setup, is_survey) = (setup(), std::env::var("REDLOCK_SIM_SURVEY").is_ok());
    let started = SystemClock.now();
    let Summary { counts, violations } = run(first..first + many, threads, setup, is_survey);
    let took = SystemClock.now().since(started);
    for (kind, seen) in &violations {
        let (first, what) = seen.first_key_value().unwrap();
        let next: Vec<&u64> = seen.keys().take(20).collect();
        println!("{} times {kind}, in seeds {next:?}; in seed {first}: {what}", seen.len());
    }
    println!("{counts}; {:.0} schedules/s on {threads} threads", counts.schedules as f64 / took.as_secs_f64());
    if let Some(&seed) = violations.values().flat_map(BTreeMap::keys).min() {
        panic!("{}", report(seed, setup));
    }
    if many >= USUAL {
        // Each of these is a part of the library that would else not have been tried.
        assert!(counts.grants > 0 && counts.handovers > 0 && counts.losses > 0 && counts.restarts > 0, "{counts}");
        assert!(counts.excused * 1000 < counts.acquisitions, "{counts}");
    }
}

#[test]
fn a_seed_is_one_schedule() {
    let setup = Setup::default();
    for seed in 0..50 {
        let (a, b) = (schedule(seed, setup, false), schedule(seed, setup, true));
        assert_eq!((a.digest, a.counts.events), (b.digest, b.counts.events), "seed {seed}");
    }
}

/// The seed of the first schedule in which the control is found out, and what was seen.
fn found_out(setup: Setup, seeds: Range<u64>) -> Option<(u64, String)> {
    { seeds }.find_map(|seed| Some((seed, schedule(seed, setup, false).violation?)))
}

/// The seed at which the search begins: a little before the first that shows a control which few schedules show.
fn first_seed(control: Control) -> u64 {
    if control == Control::GrantIsHeld { 550 } else { 0 }
}

#[test]
fn each_control_is_found_out() {
    // By one of these signs.
    let exclusion: &[&str] = &["two holders", "is taken away", "no lock", "is lost"];
    let names: &[&str] = &["two holders", "is taken away", "no lock", "nobody had key", "a script failed"];
    let left: &[&str] = &["an attempt is left", "nobody had key"];
    let livelock: &[&str] = &["an attempt is left", "no end"];
    let controls: [(Control, usize, &[&str]); 20] = [
        (Control::HalfIsEnough, 3, exclusion),
        (Control::AnchoredAtReply, 3, exclusion),
        (Control::GrantIsHeld, 3, exclusion),
        (Control::ReleaseWithoutCompare, 1, exclusion),
        (Control::ReleaseWithoutCompare, 3, exclusion),
        (Control::FenceNotStored, 3, &["does not rise"]),
        (Control::RepeatedGrant, 1, exclusion),
        (Control::UncertainGrant, 1, exclusion),
        (Control::Barging, 1, &["out of order"]),
        (Control::ExtendCreates, 1, &["a lock that was free"]),
        (Control::NoRestartGuard, 3, exclusion),
        (Control::ShortGrant, 1, exclusion),
        (Control::NoCleanUp, 1, left),
        (Control::NoCleanUp, 3, livelock),
        (Control::SharedHelpers, 1, names),
        (Control::RepeatedTokens, 1, &["for two"]),
        (Control::RepeatedTokens, 3, &["for two"]),
        (Control::GrantKeepsSettings, 1, &["settings not kept"]),
        (Control::ReleaseGivesUp, 1, &["a lock is left"]),
        (Control::ReleaseGivesUp, 3, &["a lock is left"]),
    ];
    let mut missed = Vec::new();
    for (control, nodes, signs) in controls {
        let first = first_seed(control);
        let found = found_out(Setup { nodes: Some(nodes), control: Some(control) }, first..first + 4000);
        match found {
            Some((seed, what)) if signs.iter().any(|sign| what.contains(sign)) => {
                println!("{control:?} on {nodes}: seed {seed}: {what}");
            }
            other => missed.push((control, nodes, other)),
        }
    }
    assert!(missed.is_empty(), "not found out, or by something else: {missed:#?}");
}
