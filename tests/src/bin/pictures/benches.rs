//! Plots of what the benches measured: what an operation costs, and how many pairs a second many threads make.

use std::fs;

use redlock_tests::pictures::Data;
use serde_json::Value;

use crate::svg::{Anchor, Svg, Theme, WIDTH};

/// Rows of `limits` with a raw time: how the bench calls the row and the measure, and how the picture does.
const COSTS: [(&str, &str, &str); 6] = [
    ("uncontended", "lock + unlock, p50", "lock + unlock"),
    ("readers", "read + unlock, p50", "read + unlock"),
    ("readers", "write + unlock, p50", "write + unlock"),
    ("permits", "of 10, p50", "a permit of 10"),
    ("handover", "gap release -> next holder, p50", "release to next holder"),
    ("nodes5", "lock + unlock, p50", "lock + unlock, 5 servers"),
];
/// Rows of `load`: the row, the beginning of the measure, and the number of threads.
const THREADS: [(&str, &str, u16); 5] = [
    ("threads", "8 threads, pairs", 8),
    ("threads", "32 threads, pairs", 32),
    ("threads", "128 threads, pairs", 128),
    ("crowd", "600 threads", 600),
    ("crowd", "1000 threads", 1000),
];

/// Takes the numbers out of the `--json` output of both benches.
pub(crate) fn import(limits: &str, load: &str) {
    let [limits, load] = [limits, load].map(|path| {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str::<Value>(&text).expect("the output of a bench with --json")
    });
    let mut cost = Data::default();
    for (i, (row, measure, _)) in COSTS.into_iter().enumerate() {
        for value in pair(&limits, row, measure) {
            cost.add(&format!("{i}"), value);
        }
    }
    cost.write("cost");
    let mut threads = Data::default();
    for (row, measure, count) in THREADS {
        for value in pair(&load, row, measure) {
            threads.add(&format!("{count}"), value);
        }
    }
    threads.write("threads");
}

/// Ours and raw, of the first line of this row whose measure begins so.
fn pair(bench: &Value, row: &str, measure: &str) -> [f64; 2] {
    let lines = bench["lines"].as_array().expect("a bench has lines");
    let begins = |line: &&Value| line["measure"].as_str().is_some_and(|text| text.starts_with(measure));
    let line = lines.iter().filter(|line| line["row"] == row).find(begins);
    let line = line.unwrap_or_else(|| panic!("the bench has no line `{row}`, `{measure}`"));
    ["value", "raw"].map(|name| line[name].as_f64().unwrap_or_else(|| panic!("`{row}`, `{measure}` has no {name}")))
}

/// The colours' meaning.
fn legend(svg: &mut Svg, y: f64) {
    let theme = svg.theme;
    svg.bar((500.0, y - 11.0), (12.0, 12.0), theme.blue);
    svg.text((518.0, y), Anchor::Start, theme.ink, "redlock-sync");
    svg.bar((620.0, y - 11.0), (12.0, 12.0), theme.dim);
    svg.text((638.0, y), Anchor::Start, theme.ink, "bare commands");
}

pub(crate) fn cost(data: &Data, theme: &'static Theme) -> String {
    let height = 92.0 + 44.0 * 6.0;
    let mut svg =
        Svg::new(theme, height, "What an operation costs, beside the bare commands that no library can avoid.");
    svg.title("Median time of an operation");
    legend(&mut svg, 28.0);
    let most = (0..COSTS.len()).flat_map(|i| data.all(&format!("{i}"))).fold(1.0_f64, |most, value| most.max(*value));
    for (i, (.., name)) in COSTS.into_iter().enumerate() {
        let y = 50.0 + 44.0 * f64::from(u8::try_from(i).expect("six rows"));
        svg.text((20.0, y + 21.0), Anchor::Start, theme.ink, name);
        let [ours, raw] = data.all(&format!("{i}")) else { panic!("row {i} has not two numbers") };
        for (value, colour, y) in [(ours, theme.blue, y), (raw, theme.dim, y + 16.0)] {
            let wide = value / most * 480.0;
            svg.bar((220.0, y), (wide, 14.0), colour);
            svg.text((226.0 + wide, y + 12.0), Anchor::Start, theme.ink, &format!("{value:.0} µs"));
        }
    }
    let words = "The server is on the same machine. Measured by `cargo bench --bench limits`, in turns.";
    svg.text((20.0, height - 12.0), Anchor::Start, theme.dim, words);
    svg.end()
}

pub(crate) fn threads(data: &Data, theme: &'static Theme) -> String {
    let (height, top, bottom) = (330.0, 64.0, 250.0);
    let mut svg = Svg::new(theme, height, "Pairs of lock and unlock per second, over the number of threads.");
    svg.title("Lock + unlock per second, a key for each thread");
    legend(&mut svg, 28.0);
    let all = THREADS.iter().flat_map(|(.., count)| data.all(&format!("{count}")));
    let most = all.fold(1.0_f64, |most, value| most.max(*value));
    for (i, (row, _, count)) in THREADS.into_iter().enumerate() {
        let x = 50.0 + 148.0 * f64::from(u8::try_from(i).expect("five rows"));
        let [ours, raw] = data.all(&format!("{count}")) else { panic!("{count} threads have not two numbers") };
        for (value, colour, x) in [(ours, theme.blue, x), (raw, theme.dim, x + 52.0)] {
            let high = value / most * (bottom - top);
            svg.bar((x, bottom - high), (48.0, high), colour);
            let thousands = format!("{:.1} k", value / 1e3);
            svg.text((x + 24.0, bottom - high - 6.0), Anchor::Middle, theme.ink, &thousands);
        }
        svg.text((x + 50.0, bottom + 18.0), Anchor::Middle, theme.ink, &format!("{count} threads"));
        let load = if row == "crowd" { "hold, pause 20 ms" } else { "no hold" };
        svg.text((x + 50.0, bottom + 36.0), Anchor::Middle, theme.dim, load);
    }
    svg.line((40.0, bottom), (WIDTH - 20.0, bottom), theme.dim);
    let words = "The server is on the same machine. Bare: a connection for each thread. By `cargo bench --bench load`.";
    svg.text((20.0, height - 12.0), Anchor::Start, theme.dim, words);
    svg.end()
}
