//! A short chaos run, so that plain `cargo test` exercises the program. `tests/CHAOS.md` describes the long runs.

use std::process::{Command, Output};

fn chaos(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command.args(words.split_whitespace()).output().expect("the program can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_short_run_finds_nothing() {
    let out = redlock_tests::find::target_dir().join("chaos/smoke");
    let output = chaos(&format!("--safety --nodes 3 --clients 4 --seconds 7 --seed 5 --out {}", out.display()));
    let said = stdout(&output);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches(" ok ").count() + said.matches(" figure ").count(), 19, "{said}");
}

/// Workers are killed and stopped, and the server restarts. No task may be lost or left, and no outdated end may be
/// accepted.
#[test]
fn a_short_run_with_workers_finds_nothing() {
    let out = redlock_tests::find::target_dir().join("chaos/smoke-tasks");
    let output = chaos(&format!("--safety --tasks 400 --clients 3 --seconds 5 --seed 5 --out {}", out.display()));
    let said = stdout(&output);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches(" ok ").count() + said.matches(" figure ").count(), 10, "{said}");
}

#[test]
fn a_seed_repeats_its_schedule() {
    let schedule = |seed| stdout(&chaos(&format!("--schedule --nodes 5 --seconds 60 --seed {seed}")));
    assert_eq!(schedule(7), schedule(7));
    assert!(schedule(7).lines().count() > 50);
    assert_ne!(schedule(7).lines().nth(1), schedule(8).lines().nth(1));
}
