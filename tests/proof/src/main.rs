//! Prints what the models find. README.md lists the commands.
#![allow(clippy::disallowed_methods, reason = "measures by the real clock")]

use std::time::Instant;

use redlock_proof::rules::{ALL_OF_SEVERAL, ALL_OF_SINGLE, SEVERAL, SINGLE, several, single};
use redlock_proof::search::{Model, search};
use redlock_proof::several::{Bounds, Several};
use redlock_proof::single::Single;

/// The largest search: its fingerprints take 3 GB.
const MOST: usize = 80_000_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["complete"] => complete(""),
        ["complete", name] => complete(name),
        ["rules"] => rules(""),
        ["rules", name] => rules(name),
        ["larger"] => larger(""),
        ["larger", name] => larger(name),
        ["three", losses, lates, restarts, stops, attempts, lease] => {
            let numbers = [losses, lates, restarts, stops, attempts, lease].map(|word| word.parse().unwrap_or(0));
            let [losses, lates, restarts, stops, attempts, lease] = numbers;
            let bounds = Bounds { losses, lates, restarts, stops, attempts, lease, ..ALL_OF_SEVERAL[0].1 };
            report(&format!("{bounds:?}"), &several(bounds, None), MOST, true);
        }
        _ => println!(
            "redlock-proof complete [NAME] | rules [NAME] | larger [NAME] | three LOSSES LATES RESTARTS STOPS ATTEMPTS LEASE"
        ),
    }
}

/// The searches whose names contain this.
fn complete(name: &str) {
    for (what, bounds) in ALL_OF_SINGLE.into_iter().filter(|(what, _)| what.contains(name)) {
        report(what, &single(bounds, None), MOST, true);
    }
    for (what, bounds) in ALL_OF_SEVERAL.into_iter().filter(|(what, _)| what.contains(name)) {
        report(&format!("three servers: {what}"), &several(bounds, None), MOST, true);
    }
}

/// The story of each rule whose name begins so.
fn rules(name: &str) {
    for (rule, bounds, _) in SINGLE.iter().filter(|(rule, ..)| format!("{rule:?}").starts_with(name)) {
        report(&format!("one server without {rule:?}"), &single(*bounds, Some(*rule)), MOST, false);
    }
    for (rule, bounds, _) in SEVERAL.iter().filter(|(rule, ..)| format!("{rule:?}").starts_with(name)) {
        report(&format!("three servers without {rule:?}"), &several(*bounds, Some(*rule)), MOST, false);
    }
}

/// The searches whose names contain this.
fn larger(name: &str) {
    println!("at most {MOST} states each");
    let (tries, losses) = (true, 1);
    let one = "one server, with try_lock";
    if one.contains(name) {
        let bounds = redlock_proof::single::Bounds { tries, ..ALL_OF_SINGLE[0].1 };
        report(one, &single(bounds, None), MOST, true);
    }
    let one = "one server, three clients, one loss, one death";
    if one.contains(name) {
        let bounds = redlock_proof::single::Bounds { losses, lates: 0, ..ALL_OF_SINGLE[0].1 };
        report(one, &Single::<3> { bounds, without: None }, MOST, true);
    }
    for (what, bounds) in ALL_OF_SEVERAL {
        let what = format!("three servers: {what}, and one of each fault");
        if what.contains(name) {
            let attempts = bounds.attempts + 1;
            let larger = Bounds { attempts, deaths: 1, stops: 1, lates: 1, lease: 3, ..bounds };
            report(&what, &several(larger, None), MOST, true);
        }
    }
    let three = "three servers, three clients";
    if three.contains(name) {
        let bounds = Bounds { attempts: 3, ..ALL_OF_SEVERAL[0].1 };
        report(three, &Several::<3> { bounds, without: None }, MOST, true);
    }
}

fn report<M: Model>(name: &str, model: &M, most: usize, shows_premises: bool) {
    let started = Instant::now();
    let report = search(model, most);
    let extent = if report.is_complete { "all" } else { "the first" };
    println!("{name}: {extent} {} states, depth {}, {:.1?}", report.states, report.depth, started.elapsed());
    if shows_premises {
        report.premises.iter().for_each(|(premise, states)| println!("  {states:>9} states: {premise}"));
    }
    if let Some(violation) = report.violation {
        println!("  {}:", violation.property);
        violation.story.iter().for_each(|step| println!("    {step}"));
    }
}
