//! Searches models that are too large for the tests.
#![allow(missing_docs)]
use redlock_proof::search::{search, Model};
use redlock_proof::{single, several};

fn run<M: Model>(model: &M, what: &str, premises: bool) {
        let started = std::time::Instant::now();
        let report = search(model, 60_000_000);
        println!("{what} {} states, depth {}, complete {} {:?}", report.states, report.depth, report.is_complete, started.elapsed());
        if premises { for (p, n) in &report.premises { println!("{n:>10} {p}"); } }
        if let Some(v) = &report.violation { println!("{}", v.property); for l in &v.story { println!("  {l}"); } }
}
fn main() {
    let arg: Vec<u8> = std::env::args().skip(3).map(|a| a.parse().unwrap()).collect();
    let what = std::env::args().nth(2).unwrap();
    if std::env::args().nth(1).unwrap() == "1" {
    let bounds = single::Bounds { tries: arg[0] == 1, losses: arg[1], lates: arg[2], deaths: arg[3] };
    for without in std::iter::once(None).chain(single::Rule::ALL.map(Some)) {
        if what != "all" && what != format!("{without:?}") && (what != "rules" || without.is_none()) { continue; }
        run(&single::Single::<2> { bounds, without }, &format!("{without:?}"), without.is_none());
    }
    } else {
    let bounds = several::Bounds { losses: arg[0], lates: arg[1], restarts: arg[2], deaths: arg[3], attempts: arg[4], extends: arg[5] == 1, queues: arg[6] == 1, fences: arg[7] == 1, lease: arg[8], stops: arg[9] };
    for without in std::iter::once(None).chain(several::Rule::ALL.map(Some)) {
        if what != "all" && what != format!("{without:?}") && (what != "rules" || without.is_none()) { continue; }
        run(&several::Several::<2> { bounds, without }, &format!("{without:?}"), without.is_none());
    }
    }
}
