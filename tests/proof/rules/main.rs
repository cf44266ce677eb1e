//! Each model is searched without each of its rules: the rule is needed, or the table says that it is not.
#![allow(missing_docs)]

use redlock_proof::rules::{SEVERAL, SINGLE, Without, several, single};
use redlock_proof::search::{Model, search};

/// More states do not fit into three minutes.
const MOST: usize = 20_000_000;

/// What the model does without a rule has to be what the table says.
fn compare<M: Model>(rule: &str, model: &M, expected: Without) -> Option<String> {
    let report = search(model, MOST);
    let found = report.violation.as_ref().map_or(Without::Nothing, |violation| Without::Violates(violation.property));
    let steps = report.violation.as_ref().map_or(0, |violation| violation.story.len());
    println!("{rule}: {found:?} in {steps} steps, {} states", report.states);
    let is_so = found == expected && (report.is_complete || steps > 0);
    (!is_so).then(|| format!("{rule}: {expected:?} is expected: {report:#?}"))
}

#[test]
fn each_rule_of_one_server_is_needed_or_is_listed() {
    let wrong: Vec<String> = SINGLE
        .into_iter()
        .filter_map(|(rule, bounds, expected)| compare(&format!("{rule:?}"), &single(bounds, Some(rule)), expected))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_rule_of_three_servers_is_needed_or_is_listed() {
    let wrong: Vec<String> = SEVERAL
        .into_iter()
        .filter_map(|(rule, bounds, expected)| compare(&format!("{rule:?}"), &several(bounds, Some(rule)), expected))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
