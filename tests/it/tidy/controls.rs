//! The patches of the negative controls must apply to the current code, and name what detects each fault. The program
//! `controls` checks that each fault is detected.

use std::path::Path;
use std::process::Command;

use redlock_tests::control::{self, Control};

use super::source::{read, tracked};

#[test]
fn each_patch_applies_once() {
    let problems = |control: &Control| -> Vec<String> {
        let applied = control.changes.iter().map(|change| change.apply(&text(&change.path)));
        applied.filter_map(Result::err).map(|problem| format!("{}: {problem}", control.name)).collect()
    };
    let wrong: Vec<String> = control::all().iter().flat_map(problems).collect();
    assert!(wrong.is_empty(), "adapt these patches in tests/controls:\n{}", wrong.join("\n"));
}

fn text(path: &str) -> String {
    read(Path::new(path)).unwrap_or_else(|| panic!("`{path}` is no text"))
}

/// Each option and checker must be one of the chaos run. The text of each violation must be in the simulation's code.
#[test]
fn each_control_names_what_must_notice_it() {
    let simulation: String =
        tracked().iter().filter(|path| is_of_simulation(path)).filter_map(|path| read(path)).collect();
    assert!(!simulation.is_empty(), "the simulation lies elsewhere now");
    for control in control::all() {
        let name = &control.name;
        if let Some(options) = &control.chaos {
            let until = (!control.is_whole()).then(|| ["--until".to_owned(), control.checkers.join(",")]);
            let mut chaos = Command::new(env!("CARGO_BIN_EXE_chaos"));
            let output = chaos.arg("--schedule").args(options).args(until.iter().flatten()).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let unknown = control.violations.iter().find(|words| !simulation.contains(words.as_str()));
        assert_eq!(unknown, None, "{name}: the simulation does not say this");
    }
}

fn is_of_simulation(path: &Path) -> bool {
    path.starts_with("redlock-sync") && path.iter().any(|part| part == "simulation")
}

/// The models of `tests/proof` refuse what is broken by themselves, without the other rules of the simulation.
#[test]
fn ten_controls_are_for_the_models() {
    let is_for_models = |control: &Control| {
        control.simulation.iter().any(|settings| settings.contains("REDLOCK_SIM_ONLY=models"))
            && control.violations.iter().any(|words| words == "refused by the model")
    };
    let all: Vec<String> = control::all().into_iter().filter(is_for_models).map(|control| control.name).collect();
    assert!(all.len() >= 10, "{all:?}");
}

/// A second control for the same guarantee would cost time and show nothing else.
#[test]
fn each_control_has_a_guarantee_of_its_own() {
    let mut guarantees: Vec<String> = control::all().into_iter().map(|control| control.guarantee).collect();
    guarantees.sort_unstable();
    let twice = guarantees.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None);
}
