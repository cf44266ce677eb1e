//! The workflow file runs each step of `.ci/run`, and no other steps.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::source::read;

#[test]
fn the_workflow_runs_each_step_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new("bash").arg(root.join(".ci/run")).arg("--list").output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let steps: BTreeSet<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(steps.len() > 15, "{list}");
    let workflow = read(Path::new(".github/workflows/ci.yml")).unwrap();
    assert_eq!(named(&workflow), steps);
}

/// The steps that a workflow names, in its matrices and after `.ci/run`.
fn named(workflow: &str) -> BTreeSet<&str> {
    let named = |line: &'static str| {
        let line = workflow.lines().filter_map(move |text| text.trim().strip_prefix(line));
        line.flat_map(|steps| steps.split([' ', ',', ']']))
    };
    let is_step = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    named("step: [").chain(named("- run: .ci/run ")).filter(is_step).collect()
}

#[test]
fn steps_are_read_from_a_matrix_and_from_a_command() {
    let workflow = "    matrix:\n      step: [one, two]\n    - run: .ci/run three four\n    - run: .ci/run ${{ matrix.step }}\n    - run: true\n";
    assert_eq!(named(workflow).into_iter().collect::<Vec<_>>(), ["four", "one", "three", "two"]);
}
