//! The runs of both benches and of the chaos run, each as a process of cargo.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::{env, fs};

use redlock_tests::find;
use redlock_tests::pictures::data;

use crate::results::BENCHES;

/// The run that the picture `chaos` shows. `tests/CHAOS.md` describes it.
const CHAOS: [&str; 10] = ["--nodes", "3", "--clients", "6", "--keys", "3", "--seconds", "16", "--seed", "480118"];

/// Runs both benches and the chaos run, and keeps their data. Returns the names of those that failed.
pub(crate) fn all(is_quick: bool) -> Vec<&'static str> {
    let mut failed: Vec<&str> = BENCHES.into_iter().filter(|name| !bench(name, is_quick)).collect();
    if !chaos() {
        failed.push("chaos");
    }
    failed
}

/// Returns false if a row could not be measured, or a line does not keep its gate. stderr says which.
fn bench(name: &str, is_quick: bool) -> bool {
    let mut command = cargo(&["bench", "-p", "redlock-tests", "--bench", name, "--", "--json"]);
    let output = command.args(is_quick.then_some("--quick")).output().expect("cargo runs");
    if !output.stdout.is_empty() {
        fs::write(data(&format!("{name}.json")), output.stdout).expect("docs/images/data can be written");
    }
    output.status.success()
}

/// Returns false if a checker found a violation.
fn chaos() -> bool {
    let folder = find::target_dir().join("numbers-chaos");
    let mut command = cargo(&["run", "--release", "-p", "redlock-tests", "--bin", "chaos", "--"]);
    let output = command.args(CHAOS).arg("--out").arg(&folder).output().expect("cargo runs");
    eprintln!("{}", String::from_utf8_lossy(&output.stdout));
    fs::copy(folder.join("timeline.txt"), data("chaos.txt")).expect("the chaos run writes its timeline");
    output.status.success()
}

/// A command whose stderr is shown.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(args).stderr(Stdio::inherit());
    command
}
