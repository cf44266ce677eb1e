//! Searches models that are too large for the tests.
#![allow(missing_docs)]
use redlock_proof::search::search;
use redlock_proof::single::{Bounds, Single, Rule};

fn main() {
    let arg: Vec<u8> = std::env::args().skip(2).map(|a| a.parse().unwrap()).collect();
    let bounds = Bounds { tries: arg[0] == 1, losses: arg[1], lates: arg[2], deaths: arg[3] };
    let what = std::env::args().nth(1).unwrap();
    for without in std::iter::once(None).chain(Rule::ALL.map(Some)) {
        if what != "all" && what != format!("{without:?}") { continue; }
        let started = std::time::Instant::now();
        let report = search(&Single::<2> { bounds, without }, 60_000_000);
        println!("{without:?} {} states, depth {}, complete {} {:?}", report.states, report.depth, report.is_complete, started.elapsed());
        if without.is_none() { for (p, n) in &report.premises { println!("{n:>10} {p}"); } }
        if let Some(v) = &report.violation { println!("{}", v.property); for l in &v.story { println!("  {l}"); } }
    }
}
