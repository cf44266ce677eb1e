//! The kept results of both benches.

use std::fs;

use redlock_tests::bench::stats::{Rounds, median};
use redlock_tests::pictures::data;
use serde_json::Value;

/// The benches, in the order of the page. The kept output of each is `docs/images/data/NAME.json`.
pub(crate) const BENCHES: [&str; 2] = ["limits", "load"];

/// A line of a bench.
pub(crate) struct Figure {
    pub(crate) row: String,
    pub(crate) about: String,
    pub(crate) measure: String,
    pub(crate) unit: String,
    pub(crate) gate: String,
    pub(crate) raw_is: String,
    rounds: Rounds,
}

impl Figure {
    fn read(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().expect("a text").to_owned();
        // What was infinite or no number is null.
        let values = |name: &str| {
            line[name].as_array().expect("a list").iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
        };
        Self {
            row: text("row"),
            about: text("about"),
            measure: text("measure"),
            unit: text("unit"),
            gate: text("gate"),
            raw_is: text("raw_is"),
            rounds: Rounds { ours: values("ours"), raw: values("raw") },
        }
    }

    /// The median of the library.
    pub(crate) fn ours(&self) -> f64 {
        median(&self.rounds.ours)
    }

    /// The values of the library in all rounds.
    pub(crate) fn all(&self) -> &[f64] {
        &self.rounds.ours
    }

    /// The median of what the library is compared with.
    pub(crate) fn raw(&self) -> f64 {
        median(&self.rounds.raw)
    }

    /// The median of the ratios of the rounds, unless the library is compared with nothing.
    pub(crate) fn ratio(&self) -> Option<f64> {
        (!self.rounds.raw.is_empty()).then(|| median(&self.rounds.ratios()))
    }
}

/// All lines of both benches, and the run.
pub(crate) struct Results {
    pub(crate) figures: Vec<Figure>,
    pub(crate) date: String,
    pub(crate) cores: u64,
    pub(crate) server: String,
    pub(crate) is_quick: bool,
}

impl Results {
    pub(crate) fn read() -> Self {
        let benches = BENCHES.map(|name| {
            let text = fs::read_to_string(data(&format!("{name}.json"))).expect("a run was kept");
            serde_json::from_str::<Value>(&text).expect("the output of a bench with --json")
        });
        let lines = benches.iter().flat_map(|bench| bench["lines"].as_array().expect("a bench has lines"));
        let head = &benches[0]["head"];
        let text = |name: &str| head[name].as_str().expect("a text").to_owned();
        Self {
            figures: lines.map(Figure::read).collect(),
            date: text("date"),
            cores: head["cores"].as_u64().expect("a number"),
            server: text("server"),
            is_quick: benches.iter().any(|bench| bench["head"]["quick"] == true),
        }
    }

    /// The lines of a row.
    pub(crate) fn row<'a>(&'a self, row: &str) -> impl Iterator<Item = &'a Figure> {
        self.figures.iter().filter(move |figure| figure.row == row)
    }

    /// The line of this row with this measure.
    pub(crate) fn one(&self, row: &str, measure: &str) -> &Figure {
        let found = self.row(row).find(|figure| figure.measure == measure);
        found.unwrap_or_else(|| panic!("the row `{row}` has no line `{measure}`"))
    }

    /// The rate of a Rust crate from so many threads or tasks.
    pub(crate) fn of_crate(&self, name: &str, threads: u16) -> f64 {
        let measure = format!("{threads}: lock and drop");
        let found = self.row("crates").find(|figure| figure.measure == measure && figure.raw_is == name);
        found.unwrap_or_else(|| panic!("the row `crates` has no line of `{name}`")).raw()
    }

    /// Our rate from so many threads that drop their guards, in the row of the other crates.
    pub(crate) fn dropped(&self, threads: u16) -> f64 {
        self.one("crates", &format!("{threads}: lock and drop")).ours()
    }
}
