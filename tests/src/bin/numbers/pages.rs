//! The parts of pages that are made from the kept results. A part stands between two marks:
//! `<!-- numbers: begin NAME -->` and `<!-- numbers: end -->`.

use redlock_tests::foreign::LockCrate;

use crate::amounts::{amount, digits};
use crate::locks::CRATE_THREADS;
use crate::results::Results;
use crate::tables;

/// The pages with such parts.
pub(crate) const PAGES: [&str; 3] = ["README.md", "docs/measurements.md", "docs/compare.md"];

const END: &str = "<!-- numbers: end -->";

/// The page with all its parts made anew.
pub(crate) fn fill(page: &str, results: &Results) -> String {
    let mut pieces = page.split("<!-- numbers: begin ");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(" -->").expect("a mark ends");
        let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("the part `{name}` has no end"));
        filled.extend(["<!-- numbers: begin ", name, " -->", &part(name, results), END, after]);
    }
    filled
}

fn part(name: &str, results: &Results) -> String {
    match name {
        "run" => block(&run(results)),
        "first" => block(&first(results)),
        "rows" => block(&tables::all(results)),
        "compared" => block(&compared(results)),
        "queues" => block(&queues(results)),
        "pair" => pair(results),
        other => panic!("no part is called `{other}`"),
    }
}

/// A part with lines of its own.
fn block(text: &str) -> String {
    format!("\n\n{}\n\n", text.trim_end())
}

/// The line that says which run a page is from.
fn run(results: &Results) -> String {
    if results.is_quick {
        return "**These numbers are of a short trial run, and mean nothing.** A full run will replace them.".into();
    }
    let Results { date, cores, server, .. } = results;
    format!("All numbers here are of one run on {date}, on {cores} cores, with {server} on the same machine.")
}

/// A table of Markdown.
pub(crate) fn table(head: &str, rows: impl IntoIterator<Item = String>) -> String {
    let rule = "|---".repeat(head.matches(" | ").count() + 1);
    let rows: Vec<String> = rows.into_iter().map(|row| format!("| {row} |\n")).collect();
    format!("| {head} |\n{rule}|\n{}", rows.concat())
}

/// What a user wants to know first: what it is, its row and line, and what it is compared with.
const FIRST: [[&str; 4]; 12] = [
    ["lock and unlock, one server", "pair", "lock and unlock, p50", "two bare commands"],
    ["the same on five servers", "nodes5", "lock and unlock, p50", "bare commands"],
    ["lock and unlock of a lock that this thread holds already", "nested", "lock and unlock, p50", ""],
    [
        "from a release to the next holder, in another process",
        "handover",
        "from a release to the next holder, p50",
        "a list with `BLPOP`",
    ],
    ["locks per second, 128 threads with a key each", "threads", "128: lock and drop", "bare commands"],
    ["locks per second, 8 threads of one process and one key", "local8", "locks per second", "bare commands"],
    [
        "a holder is killed: from the end of its lease to the next holder, at most",
        "takeover",
        "from the end of a lease to the next holder, longest",
        "",
    ],
    [
        "a server stops for 3 s: from its return to 80 % of the former rate",
        "stopped",
        "from its return to 80 % of the former rate",
        "",
    ],
    ["1 000 held locks: memory of the process", "guards1000", "resident memory of the process", ""],
    [
        "1 000 held locks with a lease of 6 s: processor time, of one core",
        "guards1000",
        "processor time, of one core",
        "bare extensions",
    ],
    ["1 000 threads wait: requests to the server, per second", "idle", "for locks: requests to the server", ""],
    ["jobs per second, a worker of 8 threads", "queues", "redlock-sync, 8 at once: jobs ended", "BullMQ for Rust"],
];

fn first(results: &Results) -> String {
    let row = |[what, row, measure, beside]: [&str; 4]| {
        let figure = results.one(row, measure);
        let raw = if beside.is_empty() { "" } else { &format!("{beside}: {}", amount(figure.raw(), &figure.unit)) };
        format!("{what} | {} | {raw}", amount(figure.ours(), &figure.unit))
    };
    table("What | redlock-sync | Compared with", FIRST.map(row))
}

/// The numbers of the page that compares libraries.
fn compared(results: &Results) -> String {
    let [fastest_blocking, fastest_handover] = [blocking_claim(results), handover_claim(results)];
    let locks = tables::crates(results);
    let turns = tables::turns(results);
    format!("{}\n\n{fastest_blocking}\n\n{locks}\n{fastest_handover}\n\n{turns}", run(results))
}

/// The client that blocks a thread and takes the most locks, for each number of threads.
fn blocking_claim(results: &Results) -> String {
    let best = CRATE_THREADS.map(|threads| {
        let peers = LockCrate::ALL.into_iter().filter(|peer| peer.blocks());
        let rates = peers.map(|peer| (peer.name.trim_end_matches(", threads"), results.of_crate(peer.name, threads)));
        let all = rates.chain([("redlock-sync", results.dropped(threads))]);
        all.max_by(|a, b| a.1.total_cmp(&b.1)).map_or("", |(name, _)| name)
    });
    if best.iter().all(|name| *name == "redlock-sync") {
        return "From threads that block, redlock-sync takes the most locks of the crates measured, if its guards are \
                dropped.\nA drop does not wait for the server."
            .into();
    }
    let each: Vec<String> =
        CRATE_THREADS.iter().zip(best).map(|(threads, name)| format!("with {threads}: {name}")).collect();
    format!("From threads that block, the most locks are taken by these crates,\n{}.", each.join(", "))
}

/// Whose processes hand over a lock fastest.
fn handover_claim(results: &Results) -> String {
    let [first, second, ..] = &tables::alone(results)[..] else { return String::new() };
    format!(
        "A lock that is wanted all the time changes hands fastest between processes of {}.\nThe next one is {}, with {} \
         of the turns.",
        first.0,
        second.0,
        amount(second.1 / first.1 * 100.0, "%")
    )
}

/// The numbers of queues for the page that compares libraries.
fn queues(results: &Results) -> String {
    let of = |what: &str| {
        let figure = results.one("queues", &format!("redlock-sync, 8 at once: {what}"));
        digits(figure.ratio().unwrap_or(f64::NAN))
    };
    let [pushes, jobs] = ["pushes one by one", "jobs ended"].map(of);
    format!(
        "Beside BullMQ for Rust, in turn, our queue takes {pushes} times as many pushes one by one.\nA worker of 8 \
         threads ends {jobs} times as many jobs: [measurements](measurements.md#queues)."
    )
}

/// The line of the README on the cost of a pair.
fn pair(results: &Results) -> String {
    let pair = results.one("pair", "lock and unlock, p50");
    format!("a lock and an unlock take {:.0} µs, two bare commands {:.0} µs", pair.ours(), pair.raw())
}
