//! Each model is searched to its end. `rules/main.rs` searches it again without each of its rules.
#![allow(missing_docs)]

use redlock_proof::rules::{ALL_OF_SEVERAL, ALL_OF_SINGLE, SEVERAL, SINGLE, several, single};
use redlock_proof::search::{Report, search};

/// More states do not fit into three minutes.
const MOST: usize = 20_000_000;

fn assert_complete(name: &str, report: &Report) {
    assert!(report.violation.is_none(), "{name}: {:#?}", report.violation);
    assert!(report.is_complete, "{name}: {} states were not enough", report.states);
}

fn counts(report: &Report) -> String {
    let lines: Vec<_> = report.premises.iter().map(|(premise, states)| format!("{states:>10} {premise}")).collect();
    lines.join("\n")
}

#[test]
fn one_server_is_safe_and_serves_each_wait() {
    let mut reached = vec![0; 15];
    for (name, bounds) in ALL_OF_SINGLE {
        let report = search(&single(bounds, None), MOST);
        println!("{name}: {} states\n{}", report.states, counts(&report));
        assert_complete(name, &report);
        reached.iter_mut().zip(&report.premises).for_each(|(all, (_, states))| *all += states);
    }
    assert!(reached.iter().all(|states| *states > 0), "{reached:?}");
}

#[test]
fn three_servers_are_safe_and_serve_each_wait() {
    let mut reached = vec![0; 14];
    for (name, bounds) in ALL_OF_SEVERAL {
        let model = several(bounds, None);
        let report = search(&model, MOST);
        println!("{name}: {} states\n{}", report.states, counts(&report));
        assert_complete(name, &report);
        reached.iter_mut().zip(&report.premises).for_each(|(all, (_, states))| *all += states);
    }
    assert!(reached.iter().all(|states| *states > 0), "{reached:?}");
}

#[test]
fn each_rule_stands_in_the_table() {
    let of_single: Vec<_> = SINGLE.iter().map(|(rule, ..)| *rule).collect();
    let of_several: Vec<_> = SEVERAL.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(of_single, redlock_proof::single::Rule::ALL);
    assert_eq!(of_several, redlock_proof::several::Rule::ALL);
}
