//! Negative controls: the library is broken in one place, and some checker has to notice.
//!
//! The broken places are in `redlock-sync/src/sabotage.rs`. They exist only in a build of their own, which is made here.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::args::Options;
use crate::plan::GAP;
use crate::run;

/// One of them, with the faults under which it does harm.
struct Control {
    name: &'static str,
    about: &'static str,
    nodes: usize,
    faults: &'static str,
    /// The commands that single faults strike; empty: any.
    commands: &'static str,
    gap: u64,
    beyond: bool,
    seconds: u64,
    /// Further options.
    more: &'static str,
}

const fn control(name: &'static str, about: &'static str, nodes: usize, faults: &'static str) -> Control {
    Control { name, about, nodes, faults, commands: "", gap: GAP, beyond: false, seconds: SECONDS, more: "" }
}

/// The first one is whole: nothing may be found in it.
const CONTROLS: [Control; 22] = [
    control("nothing", "the library as it is", 3, "pause,stop,hold,hold_reply,reset,empty,delete"),
    control("release-without-compare", "a release deletes whatever stands there", 1, "pause,hold"),
    Control {
        commands: "*",
        gap: 120,
        ..control("deadline-at-reply", "a lease is counted from the reply, not from before the request", 1, "stall")
    },
    control(
        "fence-without-write-back",
        "plain counters, and the largest of a majority is not written back",
        3,
        "hole,refuse,silence",
    ),
    control("fence-without-end", "the fence counter is stored without a time to live", 1, "reset"),
    Control {
        beyond: true,
        // Often enough that one of those who hold it for long is struck while they are alone with it.
        gap: 300,
        more: "--clients 2",
        ..control("extend-creates", "an extension sets the key if it is gone", 1, "delete")
    },
    Control {
        commands: "extend",
        ..control("failed-extend-deletes", "an extension that finds another holder deletes the key", 1, "hold")
    },
    control("no-clean-up", "votes of an attempt that failed are not taken back", 3, "delete"),
    control("renewal-after-release", "the renewal thread goes on after the unlock", 3, "reset"),
    control("loss-unsignalled", "the handlers of a loss are not called", 1, "pause,reset"),
    control("check-trusts-flag", "check() does not look at the clock", 1, "pause,stop,hole"),
    control("grant-twice", "a release grants the lock to two waiters", 1, "reset"),
    control(
        "grant-as-token",
        "on several nodes too, whoever hears of a grant takes it for his",
        3,
        "silence,hold,hole,stop",
    ),
    control("body-on-busy", "a locked function runs although the lock is busy", 1, "reset"),
    control("half-is-enough", "less than a majority is enough", 3, "hole,refuse"),
    Control {
        // In the first seconds all servers are young, and a restart cannot be told from a cold start of all.
        seconds: 25,
        gap: 120,
        ..control("young-votes", "a node that restarted empty just now casts votes", 3, "amnesia")
    },
    control("acquire-steals", "an acquire takes the lock from its holder", 1, "reset"),
    control("shared-helpers", "locks `order` and `{order}` have their helper keys in common", 1, "reset"),
    Control {
        more: "--forked all",
        ..control("forked-tokens", "ids are drawn from a generator that a fork copies", 1, "reset")
    },
    control("grant-keeps-settings", "who is granted a lock has it on its last holder's settings", 1, "reset"),
    Control {
        // A storm of one partition, and a calm that is longer than a lock that was given up may stand.
        more: "--storm 4500 --calm 5500",
        ..control("release-gives-up", "a release that a partition swallowed is not repeated", 1, "partition,refuse")
    },
    Control {
        // Of the rig, not of the library; see `client/gauge.rs`. A storm that ends with an error for all, and time to come back.
        more: "--storm 4500 --calm 5500",
        ..control("recovers-late", "a client stays away for 3 s after an error", 1, "partition")
    },
];

/// How long one run is if nothing else is said, and how many are made before a control counts as escaped.
const SECONDS: u64 = 10;
const TRIES: u64 = 20;

pub(crate) fn main(options: &Options) -> ExitCode {
    let program = match build() {
        Ok(program) => program,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}\n\n| control | what is broken | caught by | in run, at |\n|---|---|---|---|", options.seed);
    let chosen = |control: &&Control| options.only.is_empty() || options.only.iter().any(|only| only == control.name);
    let mut escaped = 0;
    for control in CONTROLS.iter().filter(chosen) {
        let caught =
            (0..tries(control)).find_map(|nth| catch(&program, control, options.seed + nth).map(|by| (nth, by)));
        let is_good = caught.is_some() != is_whole(control);
        escaped += usize::from(!is_good);
        let said = match caught {
            Some((nth, (by, at))) => format!("{by} | {}, {at} s", nth + 1),
            None if is_good => "nothing, as it must be | ".to_owned(),
            None => "**escaped** | ".to_owned(),
        };
        println!("| `{}` | {} | {said} |", control.name, control.about);
    }
    println!();
    if escaped > 0 {
        println!("{escaped} did not end as they must");
    }
    ExitCode::from(u8::from(escaped > 0))
}

fn is_whole(control: &Control) -> bool {
    control.name == "nothing"
}

fn tries(control: &Control) -> u64 {
    if is_whole(control) { 1 } else { TRIES }
}

/// Builds this program with the broken places in it, into a folder of its own.
fn build() -> Result<PathBuf, String> {
    let target = redlock_tests::find::target_dir().join("sabotage");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    eprintln!("building the variant that can be broken");
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "redlock-tests", "--bin", "chaos"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "--cfg redlock_sabotage")
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(target.join("release/chaos")) } else { Err(format!("the build ended with {status}")) }
}

/// One run of a control: which checkers found something, and when the first thing happened.
fn catch(program: &Path, control: &Control, seed: u64) -> Option<(String, String)> {
    let out = redlock_tests::find::target_dir().join("chaos/controls").join(control.name);
    let mut command = Command::new(program);
    command.args(["--nodes", &control.nodes.to_string(), "--clients", "4", "--keys", "2"]);
    command.args(["--seconds", &control.seconds.to_string(), "--seed", &seed.to_string(), "--faults", control.faults]);
    command.arg("--out").arg(&out).args(control.beyond.then_some("--beyond"));
    command.args(["--gap", &control.gap.to_string()]).args(control.more.split_whitespace());
    if !control.commands.is_empty() {
        command.args(["--commands", control.commands]);
    }
    // The server that was found or fetched lies in this program's target directory.
    command.env("REDLOCK_SABOTAGE", control.name).env("REDLOCK_TEST_SERVER", redlock_tests::find::server());
    let output = command.stdin(Stdio::null()).output().expect("the broken variant can be run");
    if output.status.success() {
        return None;
    }
    let found = fs::read_to_string(out.join(run::FOUND)).unwrap_or_default();
    let mut by = String::new();
    let mut first = f64::INFINITY;
    for line in found.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [checker, count, at] = words[..] else { panic!("cannot read `{line}`") };
        _ = write!(by, "{}{checker} ({count})", if by.is_empty() { "" } else { ", " });
        first = first.min(at.parse().unwrap_or(f64::INFINITY));
    }
    assert!(!by.is_empty(), "{} died: {}", control.name, String::from_utf8_lossy(&output.stderr));
    Some((by, format!("{first:.1}")))
}
