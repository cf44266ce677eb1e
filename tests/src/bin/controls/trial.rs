//! One control in the chaos run, or in the simulation. The result is whether it is noticed.

use std::fs;
use std::path::Path;
use std::process::Command;

use redlock_tests::control::Control;
use redlock_tests::find;

use crate::scratch::{Scratch, output, text};

/// The largest number of chaos runs of a control, each with another seed. If all of them find nothing, the control
/// counts as escaped.
const TRIES: u64 = 20;
/// The largest number of schedules of a simulation.
const SCHEDULES: u64 = 4000;
/// The options of all chaos runs, unless the control says otherwise.
const USUAL: &str = "--clients 4 --keys 2 --seconds 10";

/// What was found and when, or why the result is unexpected.
pub(crate) type Found = Result<String, String>;

/// Makes chaos runs until one of the checkers that the control names finds a violation. A control that breaks nothing
/// has one run, in which no checker may find a violation.
pub(crate) fn chaos(program: &Path, control: &Control, seed: u64) -> Found {
    let is_expected = |found: &str| control.checkers.iter().any(|checker| found.split(' ').next() == Some(checker));
    let tries = if control.is_whole() { 1 } else { TRIES };
    let mut others = Vec::new();
    for nth in 1..=tries {
        let found = run(program, control, seed + nth - 1)?;
        if found.iter().any(|found| is_expected(found)) {
            return Ok(format!("{}, in run {nth}", found.join(", ")));
        }
        others.extend(found);
    }
    match (control.is_whole(), others.is_empty()) {
        (true, true) => Ok("nothing, as it must be".to_owned()),
        (_, true) => Err(format!("nothing in {tries} runs")),
        (_, false) => Err(format!("{} only, in {tries} runs", others.join(", "))),
    }
}

/// Makes one run. Returns what each checker found, such as `overlap 22 (first at 0.9 s)`.
fn run(program: &Path, control: &Control, seed: u64) -> Result<Vec<String>, String> {
    let out = find::target_dir().join("chaos/controls").join(&control.name);
    let mut command = Command::new(program);
    command.args(USUAL.split_whitespace()).args(control.chaos.iter().flatten());
    command.args(["--seed", &seed.to_string()]).arg("--out").arg(&out);
    if !control.is_whole() {
        command.args(["--until", &control.checkers.join(",")]);
    }
    // The server that was found or fetched is in the target directory of this program.
    command.env(find::VARIABLE, find::server());
    let output = output(&mut command)?;
    let found = fs::read_to_string(out.join("found.txt")).unwrap_or_default();
    let told = |line: &str| line.rsplit_once(' ').map(|(found, at)| format!("{found} (first at {at} s)"));
    let found: Vec<String> = found.lines().filter_map(told).collect();
    if output.status.success() == found.is_empty() {
        return Ok(found);
    }
    Err(format!("the run ended with {}: {}", output.status, text(&output.stderr)))
}

/// Runs schedules until one fails. Its violation must be one that the control names.
pub(crate) fn simulation(scratch: &Scratch, control: &Control, settings: &str) -> Found {
    // The models notice most of what is broken first. Their rule is tried by the lines that want no other one.
    let usual = format!("REDLOCK_SIM_SCHEDULES={SCHEDULES} REDLOCK_SIM_WITHOUT=models");
    let output = scratch.simulation(&format!("{usual} {settings}"))?;
    let said = text(&output.stdout);
    if !said.contains("\nrunning 1 test\n") {
        return Err(format!("the simulation did not run: {}", text(&output.stderr)));
    }
    if output.status.success() {
        return Err(format!("nothing in {SCHEDULES} schedules with {settings}"));
    }
    let violation = said.lines().rev().find_map(|line| line.strip_prefix("seed ")).unwrap_or(&said);
    let found = format!("{settings}: seed {violation}");
    if control.violations.iter().any(|words| violation.contains(words)) { Ok(found) } else { Err(found) }
}
