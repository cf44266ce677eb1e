//! The lines of the table, and their output.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Row;
use super::stats::{Rounds, float, median, spread};

/// A limit that a line must keep. If it does not, the bench fails.
#[derive(Debug, Clone, Copy)]
pub enum Gate {
    /// The ratio of ours to raw must not be larger.
    RatioAtMost(f64),
    /// The ratio of ours to raw must not be smaller.
    RatioAtLeast(f64),
    /// Our value must not be larger.
    AtMost(f64),
    /// Our value must not be smaller.
    AtLeast(f64),
}

/// A line with one figure of a row. Without a gate it is a reading.
#[derive(Debug, Clone)]
pub struct Line {
    measure: String,
    unit: &'static str,
    rounds: Rounds,
    raw_is: String,
    gate: Option<Gate>,
}

impl Line {
    /// A figure of the library alone, in one or more rounds.
    pub fn alone(measure: impl Into<String>, unit: &'static str, ours: Vec<f64>) -> Self {
        Self::beside(measure, unit, Rounds { ours, raw: Vec::new() }, "")
    }

    /// A figure of the library, and of what `raw_is` says.
    pub fn beside(measure: impl Into<String>, unit: &'static str, rounds: Rounds, raw_is: impl Into<String>) -> Self {
        Self { measure: measure.into(), unit, rounds, raw_is: raw_is.into(), gate: None }
    }

    /// A count that must be zero.
    pub fn none(measure: impl Into<String>, count: u64) -> Self {
        Self::alone(measure, "", vec![float(count)]).gate(Gate::AtMost(0.0))
    }

    /// Sets the limit that the line must keep.
    #[must_use]
    pub fn gate(self, gate: Gate) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// The values that are compared with the gate, one for each round.
    fn judged(&self) -> Vec<f64> {
        let is_alone = matches!(self.gate, Some(Gate::AtMost(_) | Gate::AtLeast(_))) || self.rounds.raw.is_empty();
        if is_alone { self.rounds.ours.clone() } else { self.rounds.ratios() }
    }

    /// True if the median keeps the limit, or there is no limit.
    pub fn is_kept(&self) -> bool {
        let value = median(&self.judged());
        match self.gate {
            None => true,
            Some(Gate::RatioAtMost(limit) | Gate::AtMost(limit)) => value <= limit,
            Some(Gate::RatioAtLeast(limit) | Gate::AtLeast(limit)) => value >= limit,
        }
    }

    fn gate_text(&self) -> String {
        match self.gate {
            None => String::new(),
            Some(Gate::RatioAtMost(limit)) => format!("<= {} x", short(limit)),
            Some(Gate::RatioAtLeast(limit)) => format!(">= {} x", short(limit)),
            Some(Gate::AtMost(limit)) => format!("<= {}", self.with_unit(limit)),
            Some(Gate::AtLeast(limit)) => format!(">= {}", self.with_unit(limit)),
        }
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", short(value), self.unit).trim_end().to_owned()
    }

    /// The line as text, in columns.
    pub fn text(&self, row: &str) -> String {
        let (low, high) = spread(&self.judged());
        let of_raw = |value: fn(&Rounds) -> Vec<f64>, text: &dyn Fn(f64) -> String| {
            if self.rounds.raw.is_empty() { String::new() } else { text(median(&value(&self.rounds))) }
        };
        format_row([
            row,
            &self.measure,
            &self.with_unit(median(&self.rounds.ours)),
            &of_raw(|rounds| rounds.raw.clone(), &|raw| self.with_unit(raw)),
            &of_raw(Rounds::ratios, &short),
            &format!("{}..{}", short(low), short(high)),
            &self.gate_text(),
        ])
    }

    /// The line as a JSON object, with the values of each round.
    pub fn json(&self, row: &Row) -> Value {
        json!({
            "row": row.name, "about": row.about, "measure": self.measure, "unit": self.unit,
            "ours": numbers(&self.rounds.ours), "raw": numbers(&self.rounds.raw), "raw_is": self.raw_is,
            "gate": self.gate_text(),
        })
    }
}

/// The values with four significant digits. More would say nothing.
fn numbers(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| format!("{value:.3e}").parse().expect("a number")).collect()
}

/// The names of the columns.
pub fn head() -> String {
    let names = ["row", "measure", "ours", "raw", "ours/raw", "spread", "gate"];
    format!("{}\n{}", format_row(names), format_row(["---"; 7]))
}

/// Formats a row of a Markdown table.
fn format_row(cells: [&str; 7]) -> String {
    const WIDTHS: [usize; 7] = [10, 42, 12, 12, 8, 14, 12];
    let mut text = String::from("|");
    for (cell, width) in cells.into_iter().zip(WIDTHS) {
        write!(text, " {cell:width$} |").expect("a string takes everything");
    }
    text
}

/// Formats a number with three significant digits.
fn short(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        "?".to_owned()
    } else if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}
