//! A picture of the hand-over of a lock between three processes on one server.

use crate::results::Results;
use crate::svg::{Anchor, Svg, Theme};

const HEIGHT: f64 = 392.0;
const BAR: f64 = 26.0;
const RELEASE: f64 = 250.0;
const NEXT: f64 = 530.0;
const END: f64 = 780.0;

pub(crate) fn draw(results: &Results, theme: &'static Theme) -> String {
    let of = |measure: &str| results.one("handover", measure).ours();
    let (p50, p95) = (of("from a release to the next holder, p50"), of("the same, p95"));
    let about = format!(
        "How a lock changes hands. Process 1 releases it. The server takes the first wait out of the queue, gives the \
         lock to it, and publishes that, in one script. Process 2, which waited longest, has the lock {p50:.0} \
         microseconds later (median). Process 3 is first in the queue then."
    );
    let mut svg = Svg::new(theme, HEIGHT, &about);
    svg.title("A release wakes the process that has waited longest");
    let (one, server, two, three) = (52.0, 112.0, 226.0, 288.0);
    for (y, name) in [(one, "process 1"), (server + 28.0, "server"), (two, "process 2"), (three, "process 3")] {
        svg.text((20.0, y + 18.0), Anchor::Start, theme.ink, name);
    }

    svg.bar((110.0, one), (RELEASE - 110.0, BAR), theme.blue);
    svg.word((118.0, one + 18.0), Anchor::Start, theme.on_bar, "holds");
    svg.text((RELEASE + 10.0, one + 18.0), Anchor::Start, theme.ink, "unlock()");

    svg.bar((110.0, server), (END - 110.0, 84.0), theme.pale);
    svg.word((120.0, server + 24.0), Anchor::Start, theme.dim, "queue");
    svg.word((120.0, server + 46.0), Anchor::Start, theme.ink, "1st: process 2");
    svg.word((120.0, server + 68.0), Anchor::Start, theme.ink, "2nd: process 3");
    svg.word((RELEASE + 26.0, server + 24.0), Anchor::Start, theme.ink, "one script, atomic:");
    svg.word((RELEASE + 26.0, server + 46.0), Anchor::Start, theme.ink, "gives the lock to process 2,");
    svg.word((RELEASE + 26.0, server + 68.0), Anchor::Start, theme.ink, "PUBLISH to its channel");
    svg.word((NEXT + 26.0, server + 24.0), Anchor::Start, theme.dim, "queue");
    svg.word((NEXT + 26.0, server + 46.0), Anchor::Start, theme.ink, "1st: process 3");
    svg.arrow((RELEASE, one + BAR), (RELEASE + 24.0, server + 14.0), theme.blue);
    svg.arrow((RELEASE + 196.0, server + 66.0), (NEXT - 2.0, two + 6.0), theme.green);

    let waits = |svg: &mut Svg, y: f64, to: f64| {
        svg.dashes((110.0, y + BAR / 2.0), (to, y + BAR / 2.0), theme.dim);
        svg.text((118.0, y + 6.0), Anchor::Start, theme.dim, "waits, asleep");
    };
    waits(&mut svg, two, NEXT);
    svg.bar((NEXT, two), (END - NEXT, BAR), theme.green);
    svg.word((NEXT + 8.0, two + 18.0), Anchor::Start, theme.on_bar, "holds: lock() has returned");
    waits(&mut svg, three, END);
    svg.text((NEXT + 8.0, three + 6.0), Anchor::Start, theme.dim, "waits: first in the queue");

    let y = HEIGHT - 64.0;
    for (at, from) in [(RELEASE, one + BAR + 2.0), (NEXT, server)] {
        svg.dashes((at, from), (at, y + 8.0), theme.red);
    }
    svg.arrow((f64::midpoint(RELEASE, NEXT), y), (RELEASE, y), theme.red);
    svg.arrow((f64::midpoint(RELEASE, NEXT), y), (NEXT, y), theme.red);
    svg.text((f64::midpoint(RELEASE, NEXT), y - 8.0), Anchor::Middle, theme.ink, &format!("{p50:.0} µs (median)"));
    let words =
        format!("Hand-overs between four processes that hold the lock for 1 ms: 95 % took less than {p95:.0} µs.");
    svg.text((20.0, HEIGHT - 32.0), Anchor::Start, theme.dim, &words);
    let words = "Three of the processes are shown, not to scale. The server is on the same machine.";
    svg.text((20.0, HEIGHT - 12.0), Anchor::Start, theme.dim, words);
    svg.end()
}
