//! The tables of all rows.

use redlock_tests::bench::stats::spread;
use redlock_tests::foreign::LockCrate;

use crate::amounts::{amount, digits};
use crate::locks::{CRATE_THREADS, SERIES, THREADS};
use crate::pages::table;
use crate::results::{Figure, Results};

/// The rows of the tables that have a line for each figure.
const COSTS: &[&str] = &["pair", "nested", "kinds", "observed", "nodes5", "stopped5"];
const HANDOVERS: &[&str] = &["handover", "handover5", "local8", "takeover"];
const LOADS: &[&str] = &["guards1000", "crowd", "stopped", "idle"];
const TASKS: &[&str] = &["queue"];
/// The rows that have tables of their own, some of them on the page that compares libraries.
const OWN: &[&str] = &["threads", "crates", "foreign", "queues"];

pub(crate) fn all(results: &Results) -> String {
    for Figure { row, .. } in &results.figures {
        let is_shown = [COSTS, HANDOVERS, LOADS, TASKS, OWN].iter().any(|rows| rows.contains(&row.as_str()));
        assert!(is_shown, "no table has the row `{row}`");
    }
    let parts = [
        ("What an operation costs", rows(results, COSTS)),
        ("Hand-overs", rows(results, HANDOVERS)),
        ("Loads and waits", rows(results, LOADS)),
        ("Many threads", threads(results)),
        ("Queues", format!("{}\n{}", rows(results, TASKS), queues(results))),
    ];
    parts.map(|(title, table)| format!("### {title}\n\n{table}\n")).concat()
}

/// A table with a line for each figure of these rows.
fn rows(results: &Results, names: &[&str]) -> String {
    let mut lines = Vec::new();
    for name in names {
        for (at, figure) in results.row(name).enumerate() {
            let about = if at == 0 { &figure.about } else { "" };
            lines.push(format!("{about} | {}", cells(figure)));
        }
    }
    table("what | measured | redlock-sync | compared with | gate", lines)
}

fn cells(figure: &Figure) -> String {
    let Figure { measure, unit, gate, raw_is, .. } = figure;
    let beside = figure
        .ratio()
        .map_or(String::new(), |ratio| format!("{raw_is}: {} ({} ×)", amount(figure.raw(), unit), digits(ratio)));
    let gate = gate.replace("<=", "≤").replace(">=", "≥").replace(" us", " µs").replace(" x", " ×");
    format!("{measure} | {} | {beside} | {gate}", shown(figure))
}

/// The values of a row of single events, such as takeovers, are a range. Those of rounds are a median.
fn shown(figure: &Figure) -> String {
    if figure.row != "takeover" {
        return amount(figure.ours(), &figure.unit);
    }
    let (low, high) = spread(figure.all());
    let range = format!("{} to {}", digits(low), amount(high, &figure.unit));
    if figure.all().len() > 1 { range } else { amount(high, &figure.unit) }
}

fn threads(results: &Results) -> String {
    let row = |threads: u16| {
        let of = |measure: &str| results.one("threads", &format!("{threads}: {measure}"));
        let rates = SERIES.map(|(measure, _)| {
            let figure = of(measure);
            format!("{} ({} ×)", digits(figure.ours()), digits(figure.ratio().unwrap_or(f64::NAN)))
        });
        format!("{threads} | {} | {}", digits(of(SERIES[0].0).raw()), rates.join(" | "))
    };
    table("threads or tasks | bare commands | lock and drop | lock and unlock | rslock, async tasks", THREADS.map(row))
}

pub(crate) fn crates(results: &Results) -> String {
    let rates = |of: &dyn Fn(u16) -> f64| CRATE_THREADS.map(|threads| digits(of(threads))).join(" | ");
    let unlock = |threads: u16| results.one("crates", &format!("{threads}: lock and unlock")).ours();
    let ours = [
        format!("redlock-sync, guards dropped | {}", rates(&|threads| results.dropped(threads))),
        format!("redlock-sync, `unlock()` | {}", rates(&unlock)),
    ];
    let peer = |peer: LockCrate| format!("{} | {}", peer.name, rates(&|threads| results.of_crate(peer.name, threads)));
    table("locks per second | 1 thread or task | 8 | 128", ours.into_iter().chain(LockCrate::ALL.map(peer)))
}

/// The turns per second of four processes of each library on one lock, from the most to the least.
pub(crate) fn alone(results: &Results) -> Vec<(&str, f64)> {
    let mut all = Vec::new();
    for figure in results.row("foreign") {
        if let Some(name) = figure.measure.strip_prefix("four of ") {
            all.push((name, figure.ours()));
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// Other libraries on one lock: four processes alone, and one beside four of ours.
pub(crate) fn turns(results: &Results) -> String {
    let row = |(name, turns): (&str, f64)| {
        let of = |what: &str| {
            let found = results.row("foreign").find(|figure| figure.measure == format!("one of {name}: {what}"));
            found.map_or(String::new(), |figure| amount(figure.ours(), &figure.unit))
        };
        format!("{name} | {} | {} | {}", digits(turns), of("its share"), of("its longest wait"))
    };
    let head = "library | turns per second, four alone | its share, one beside four of ours | its longest wait there";
    table(head, alone(results).into_iter().map(row))
}

fn queues(results: &Results) -> String {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |name: &str, rate: f64| match rows.iter_mut().find(|(known, _)| known == name) {
        Some((_, rates)) => rates.push(digits(rate)),
        None => rows.push((name.to_owned(), vec![digits(rate)])),
    };
    for figure in results.row("queues") {
        let (name, _) = figure.measure.split_once(": ").expect("a queue and what it does");
        add(name, figure.ours());
        if let Some((_, at_once)) = name.split_once(", ").filter(|_| figure.ratio().is_some()) {
            add(&format!("{}, {at_once}", figure.raw_is), figure.raw());
        }
    }
    let rows = rows.into_iter().map(|(name, rates)| format!("{name} | {}", rates.join(" | ")));
    table("queue, and jobs at once | pushes one by one, per second | pushes in hundreds | jobs ended", rows)
}
