//! The lines of the table, and their output.

use std::fmt::Write;

use super::stats::{Rounds, median, spread};

/// The bar that a line must reach.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    /// The line has no bar. It explains another line.
    None,
    /// The ratio of ours to raw must not be larger.
    RatioAtMost(f64),
    /// The ratio of ours to raw must not be smaller.
    RatioAtLeast(f64),
    /// Our value must not be larger.
    AtMost(f64),
    /// Our value must not be smaller.
    AtLeast(f64),
}

/// A line with one figure of a row.
#[derive(Debug, Clone)]
pub struct Line {
    /// The name of the figure.
    pub measure: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// The measured values.
    pub rounds: Rounds,
    /// The bar that the line must reach.
    pub bar: Bar,
}

impl Line {
    /// Creates a line.
    pub fn new(measure: impl Into<String>, unit: &'static str, rounds: Rounds, bar: Bar) -> Self {
        Self { measure: measure.into(), unit, rounds, bar }
    }

    /// The values that are compared with the bar, one for each round.
    fn judged(&self) -> Vec<f64> {
        match self.bar {
            Bar::AtMost(_) | Bar::AtLeast(_) => self.rounds.ours.clone(),
            Bar::None if self.rounds.raw.is_empty() => self.rounds.ours.clone(),
            _ => self.rounds.ratios(),
        }
    }

    /// True if the median reaches the bar. `None` if there is no bar.
    pub fn met(&self) -> Option<bool> {
        let value = median(&self.judged());
        match self.bar {
            Bar::None => None,
            Bar::RatioAtMost(limit) | Bar::AtMost(limit) => Some(value <= limit),
            Bar::RatioAtLeast(limit) | Bar::AtLeast(limit) => Some(value >= limit),
        }
    }

    fn bar_text(&self) -> String {
        match self.bar {
            Bar::None => String::new(),
            Bar::RatioAtMost(limit) => format!("<= {} x", short(limit)),
            Bar::RatioAtLeast(limit) => format!(">= {} x", short(limit)),
            Bar::AtMost(limit) => format!("<= {}", self.with_unit(limit)),
            Bar::AtLeast(limit) => format!(">= {}", self.with_unit(limit)),
        }
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", short(value), self.unit).trim_end().to_owned()
    }

    fn ratio(&self) -> Option<f64> {
        (!self.rounds.raw.is_empty()).then(|| median(&self.rounds.ratios()))
    }

    fn raw(&self) -> Option<f64> {
        (!self.rounds.raw.is_empty()).then(|| median(&self.rounds.raw))
    }

    /// The line as text, in columns.
    pub fn text(&self, row: &str) -> String {
        let (low, high) = spread(&self.judged());
        let met = self.met().map_or("", |met| if met { "met" } else { "NOT MET" });
        format_row([
            row,
            &self.measure,
            &self.with_unit(median(&self.rounds.ours)),
            &self.raw().map_or(String::new(), |raw| self.with_unit(raw)),
            &self.ratio().map_or(String::new(), short),
            &format!("{}..{}", short(low), short(high)),
            &self.bar_text(),
            met,
        ])
    }

    /// The line as a JSON object.
    pub fn json(&self, row: &str) -> String {
        let (low, high) = spread(&self.judged());
        let met = self.met().map_or("null".to_owned(), |met| met.to_string());
        format!(
            "{{\"row\":{},\"measure\":{},\"unit\":{},\"value\":{},\"raw\":{},\"ratio\":{},\"low\":{},\"high\":{},\
             \"bar\":{},\"met\":{met}}}",
            quoted(row),
            quoted(&self.measure),
            quoted(self.unit),
            number(median(&self.rounds.ours)),
            self.raw().map_or("null".to_owned(), number),
            self.ratio().map_or("null".to_owned(), number),
            number(low),
            number(high),
            quoted(&self.bar_text()),
        )
    }
}

/// The names of the columns.
pub fn head() -> String {
    let names = ["row", "measure", "ours", "raw", "ours/raw", "spread", "bar", "met"];
    format!("{}\n{}", format_row(names), format_row(["---"; 8]))
}

/// Formats a row of a Markdown table.
fn format_row(cells: [&str; 8]) -> String {
    const WIDTHS: [usize; 8] = [13, 38, 12, 12, 8, 14, 12, 7];
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

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { "null".to_owned() }
}

/// Formats a JSON string.
pub fn quoted(text: &str) -> String {
    let mut result = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => result.extend(['\\', letter]),
            '\n' => result.push_str("\\n"),
            other if other.is_control() => result.push(' '),
            other => result.push(other),
        }
    }
    result.push('"');
    result
}
