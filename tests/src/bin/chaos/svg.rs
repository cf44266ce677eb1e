//! The picture of a run: the holders of each lock over time, with the faults.
//!
//! Time is cut into strips of ten seconds, one below the other. A strip has a row for each node, with its faults, and a
//! row for each lock. In the row of a lock, each client has a track and a colour.
//!
//! A full bar is a hold. It has a red end if the lock was lost. A grey bar is a client that is stopped or dead. A red
//! line is a violation. Each element has a tooltip that explains it.

use std::fmt::Write;

use crate::clock::{MS, SEC};
use crate::event::Outcome;
use crate::history::{History, Hold, Struck};
use crate::names;
use crate::plan::{Kind, Target};
use crate::summary::Verdicts;

const STRIP: u64 = 10 * SEC;
const WIDTH: f64 = 1500.0;
const LEFT: f64 = 96.0;
const NODE: f64 = 18.0;
const TRACK: f64 = 5.0;
const GAP: f64 = 6.0;
const HEAD: f64 = 22.0;
const TOP: f64 = 64.0;

const COLOURS: [&str; 12] = [
    "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#ff7f0e", "#393b79", "#637939",
    "#7b4173", "#3182bd",
];

struct Picture<'a> {
    history: &'a History,
    clients: usize,
    out: String,
}

pub(crate) fn draw(title: &str, history: &History, verdicts: &Verdicts) -> String {
    let mut picture = Picture { history, clients: history.clients, out: String::new() };
    let strips = (history.end - history.begin).saturating_sub(SEC).div_ceil(STRIP).max(1);
    picture.head(title, strips);
    for strip in 0..strips {
        picture.strip(strip);
    }
    for (name, _, verdict) in verdicts {
        for violation in &verdict.violations {
            picture.violation(name, violation.at, &violation.what, strips);
        }
    }
    picture.out + "</svg>\n"
}

impl Picture<'_> {
    fn height(&self) -> f64 {
        HEAD + float(self.history.nodes) * NODE
            + float(self.history.keys + 1) * (float(self.clients) * TRACK + GAP)
            + 2.0 * GAP
    }

    fn top(&self, strip: u64) -> f64 {
        TOP + wide(strip) * self.height()
    }

    fn head(&mut self, title: &str, strips: u64) {
        let (width, height) = (LEFT + WIDTH + 10.0, self.top(strips));
        self.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"8\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{}</text>",
            escape(title)
        ));
        let mut x = 8.0;
        for client in 0..self.clients {
            self.put(&format!(
                "<rect x=\"{x}\" y=\"28\" width=\"12\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"37\">client {client}</text>",
                colour(client),
                x + 16.0
            ));
            x += 74.0;
        }
        let mut x = 8.0;
        let kinds = [Kind::Kill, Kind::Stop, Kind::Refuse, Kind::Full, Kind::Hold];
        for (kind, name) in kinds.into_iter().zip([
            "process ends",
            "process stops",
            "network",
            "state of the server",
            "single commands",
        ]) {
            self.put(&format!(
                "<rect x=\"{x}\" y=\"44\" width=\"12\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"53\">{name}</text>",
                shade(kind),
                x + 16.0
            ));
            x += 130.0;
        }
        let words = "grey: the client stands still or is dead; pink: a crowd; a red end: the lock was lost; hollow: by its own account no more";
        self.put(&format!("<text x=\"{x}\" y=\"53\" fill=\"#555\">{words}</text>"));
    }

    fn strip(&mut self, strip: u64) {
        let top = self.top(strip);
        for second in 0..=STRIP / SEC {
            let x = LEFT + wide(second) * WIDTH / wide(STRIP / SEC);
            let (from, to) = (top + HEAD - 6.0, top + self.height() - GAP);
            self.put(&format!("<line x1=\"{x}\" x2=\"{x}\" y1=\"{from}\" y2=\"{to}\" stroke=\"#ddd\"/>"));
            let label = strip * STRIP / SEC + second;
            self.put(&format!(
                "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{label} s</text>",
                top + HEAD - 9.0
            ));
        }
        for node in 0..self.history.nodes {
            let y = node_row(top, node);
            self.put(&format!("<text x=\"8\" y=\"{}\">node {node}</text>", y + NODE - 6.0));
            self.put(&format!(
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{1}\" y2=\"{1}\" stroke=\"#bbb\"/>",
                LEFT + WIDTH,
                y + NODE - 1.0
            ));
        }
        for key in 0..=self.history.keys {
            let y = self.key_row(top, key);
            let height = float(self.clients) * TRACK;
            self.put(&format!("<rect x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#f6f6f6\"/>"));
            let name = if key < self.history.keys { names::of(key) } else { "slow ones".to_owned() };
            self.put(&format!("<text x=\"8\" y=\"{}\">{}</text>", y + height / 2.0 + 4.0, escape(&name)));
        }
        for struck in &self.history.struck {
            self.fault(strip, struck);
        }
        for hold in &self.history.holds {
            self.hold(strip, hold);
        }
    }

    /// The top of the row of a lock. All slow locks share one row.
    fn key_row(&self, top: f64, key: usize) -> f64 {
        let row = key.min(self.history.keys);
        top + HEAD + float(self.history.nodes) * NODE + GAP + float(row) * (float(self.clients) * TRACK + GAP)
    }

    /// The left edge and the width of a span on this strip. `None` if the span is not on the strip.
    fn place(&self, strip: u64, from: u64, until: u64) -> Option<(f64, f64)> {
        let begin = self.history.begin + strip * STRIP;
        if until < begin || from >= begin + STRIP {
            return None;
        }
        let x = |at: u64| wide(at.clamp(begin, begin + STRIP) - begin) / wide(STRIP) * WIDTH;
        Some((LEFT + x(from), (x(until) - x(from)).max(1.0)))
    }

    fn fault(&mut self, strip: u64, struck: &Struck) {
        let Some((x, width)) = self.place(strip, struck.from, struck.until) else { return };
        let top = self.top(strip);
        let told = format!("{} to {}: {}", self.at(struck.from), self.at(struck.until), struck.fault);
        match struck.fault.target {
            Target::Node(node) => {
                let y = node_row(top, node) + 2.0;
                let (fill, word) = (shade(struck.fault.kind), struck.fault.kind.word());
                let opacity = if struck.hits > 0 { "0.85" } else { "0.3" };
                let width = width.max(3.0);
                self.bar((x, y, width, NODE - 5.0), &format!("fill=\"{fill}\" fill-opacity=\"{opacity}\""), &told);
                if width > float(word.len()) * 6.5 {
                    self.put(&format!(
                        "<text x=\"{}\" y=\"{}\" pointer-events=\"none\">{word}</text>",
                        x + 3.0,
                        y + 10.0
                    ));
                }
            }
            Target::Client(client) => {
                let fill = match struck.fault.kind {
                    Kind::Pause => "#c4c4c4",
                    Kind::Crowd => "#ff69b4",
                    _ => "#777777",
                };
                for key in 0..=self.history.keys {
                    let y = self.key_row(top, key) + float(client) * TRACK;
                    self.bar((x, y, width, TRACK), &format!("fill=\"{fill}\""), &told);
                }
            }
            Target::Key(key) if struck.hits > 0 => {
                let y = self.key_row(top, key);
                let height = float(self.clients) * TRACK;
                self.bar(
                    (x - 1.0, y, 2.0, height),
                    "fill=\"#d62728\" fill-opacity=\"0.5\"",
                    &format!("deleted by hand: {told}"),
                );
            }
            Target::Key(_) => {}
        }
    }

    fn hold(&mut self, strip: u64, hold: &Hold) {
        let y = self.key_row(self.top(strip), hold.key) + float(usize::from(hold.session.client)) * TRACK;
        let fill = colour(usize::from(hold.session.client));
        let sure = hold.span().map_or(hold.begin, |span| span.1);
        let over = hold.unlocked.map(|(end, _)| end).or(hold.dropped).unwrap_or(sure).max(sure);
        let end = end_of(hold);
        let told = format!(
            "{} held by {}, lease {} ms, from {} for {} ms; unlock: {end}{}",
            names::of(hold.key),
            hold.session,
            hold.wants.lease / MS,
            self.at(hold.begin),
            (sure - hold.begin) / MS,
            hold.fence.map_or(String::new(), |fence| format!("; token {fence}"))
        );
        if let Some((x, width)) = self.place(strip, hold.begin, over).filter(|_| over > sure + MS) {
            self.bar(
                (x, y + 0.5, width, TRACK - 1.0),
                &format!("fill=\"none\" stroke=\"{fill}\" stroke-width=\"0.6\""),
                &told,
            );
        }
        if let Some((x, width)) = self.place(strip, hold.begin, sure) {
            self.bar((x, y, width, TRACK), &format!("fill=\"{fill}\""), &told);
            if is_lost(hold) && self.place(strip, sure, sure).is_some() {
                self.bar((x + width - 1.0, y, 2.5, TRACK), "fill=\"#d62728\"", &told);
            }
        }
    }

    fn violation(&mut self, name: &str, at: u64, what: &str, strips: u64) {
        for strip in 0..strips {
            let Some((x, _)) = self.place(strip, at, at) else { continue };
            let top = self.top(strip);
            self.bar(
                (x - 1.0, top + HEAD - 4.0, 2.0, self.height() - HEAD),
                "fill=\"red\"",
                &format!("{name}: {what}"),
            );
            self.put(&format!(
                "<text x=\"{}\" y=\"{}\" fill=\"red\" font-weight=\"bold\">{name}</text>",
                x + 4.0,
                top + HEAD + 2.0
            ));
        }
    }

    fn at(&self, at: u64) -> String {
        self.history.seconds(at).trim().to_owned()
    }

    fn bar(&mut self, (x, y, width, height): (f64, f64, f64, f64), style: &str, told: &str) {
        self.put(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {style}><title>{}</title></rect>",
            escape(told)
        ));
    }

    fn put(&mut self, line: &str) {
        _ = writeln!(self.out, "{line}");
    }
}

pub(crate) fn is_lost(hold: &Hold) -> bool {
    hold.saw_loss().is_some() || hold.unlocked.is_some_and(|(_, outcome)| outcome == Outcome::Lost)
}

fn end_of(hold: &Hold) -> &'static str {
    hold.unlocked.map_or(if hold.dropped.is_some() { "by drop" } else { "no end" }, |(_, outcome)| outcome.word())
}

fn node_row(top: f64, node: usize) -> f64 {
    top + HEAD + float(node) * NODE
}

fn colour(client: usize) -> &'static str {
    COLOURS[client % COLOURS.len()]
}

fn shade(kind: Kind) -> &'static str {
    match kind {
        Kind::Kill | Kind::Empty | Kind::Amnesia => "#e4605e",
        Kind::Stop => "#f2a7a5",
        Kind::Reset | Kind::Refuse | Kind::Partition | Kind::Hole | Kind::Latency => "#f6b26b",
        Kind::Full | Kind::Password | Kind::Role | Kind::Flush | Kind::Scripts => "#b4a7d6",
        _ => "#ffe08a",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn float(n: usize) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss, reason = "a picture is not that exact")]
fn wide(n: u64) -> f64 {
    n as f64
}
