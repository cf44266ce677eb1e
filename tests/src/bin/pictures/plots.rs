//! Plots of the gap between two holders, and of the time without a holder after a kill.

use redlock_tests::pictures::Data;

use crate::svg::{Anchor, Svg, Theme, WIDTH};

const LEFT: f64 = 60.0;
const RIGHT: f64 = 40.0;
/// The number of bins of the histogram.
const BINS: usize = 48;

pub(crate) fn gaps(data: &Data, theme: &'static Theme) -> String {
    let gaps = data.all("gap_us");
    let of = |percent: usize| gaps[gaps.len() * percent / 100];
    let (p50, p95) = (of(50), of(95));
    let about = format!(
        "Histogram of the time from a release to the next holder in another process: median {p50:.0} microseconds, 95 % \
         below {p95:.0} microseconds."
    );
    let (height, top, bottom) = (310.0, 56.0, 232.0);
    let mut svg = Svg::new(theme, height, &about);
    svg.title("From a release to the next holder, in another process");
    let last = (p95 * 1.5 / 50.0).ceil() * 50.0;
    let step = last / 48.0;
    let mut counts = [0_u32; BINS];
    for gap in gaps {
        let mut bin = 0;
        while bin < BINS && step * f64::from(u32::try_from(bin + 1).expect("few bins")) <= *gap {
            bin += 1;
        }
        if bin < BINS {
            counts[bin] += 1;
        }
    }
    let most = f64::from(counts.into_iter().max().unwrap_or(1));
    let x = |gap: f64| LEFT + gap / last * (WIDTH - LEFT - RIGHT);
    let wide = x(step) - x(0.0);
    for (bin, count) in (0_u32..).zip(counts) {
        let high = f64::from(count) / most * (bottom - top);
        if count > 0 {
            svg.bar((x(step * f64::from(bin)) + 0.5, bottom - high), (wide - 1.0, high), theme.blue);
        }
    }
    svg.line((LEFT, bottom), (WIDTH - RIGHT, bottom), theme.dim);
    let tick = [25.0, 50.0, 100.0, 200.0, 500.0].into_iter().find(|tick| last / tick <= 10.0).unwrap_or(1000.0);
    let mut at = 0.0;
    while at <= last {
        svg.text((x(at), bottom + 18.0), Anchor::Middle, theme.dim, &format!("{at:.0} µs"));
        at += tick;
    }
    for (value, name) in [(p50, "median"), (p95, "95 % are below")] {
        svg.dashes((x(value), top - 10.0), (x(value), bottom), theme.ink);
        let (place, anchor) = if value > last * 0.85 { (-6.0, Anchor::End) } else { (6.0, Anchor::Start) };
        svg.text((x(value) + place, top - 2.0), anchor, theme.ink, &format!("{name} {value:.0} µs"));
    }
    let words = format!(
        "{} hand-overs between three processes that hold the lock for 1 ms. {} are off the scale, up to {:.1} ms.",
        gaps.len(),
        gaps.iter().filter(|gap| **gap >= last).count(),
        gaps.iter().fold(0.0_f64, |most, gap| most.max(*gap)) / 1e3
    );
    svg.text((20.0, height - 32.0), Anchor::Start, theme.dim, &words);
    let words = format!("Each bar is {step:.1} µs wide. The server and the processes share two busy cores.");
    svg.text((20.0, height - 12.0), Anchor::Start, theme.dim, &words);
    svg.end()
}

pub(crate) fn takeover(data: &Data, theme: &'static Theme) -> String {
    let about = "Time without a holder after a SIGKILL, for leases of 1, 5 and 30 s: two thirds of the lease to the \
                 whole, and a few ms.";
    let (height, top, bottom) = (282.0, 58.0, 206.0);
    let mut svg = Svg::new(theme, height, about);
    svg.title("After a kill, the next holder has the lock within one lease");
    let x = |part: f64| 110.0 + part * (WIDTH - 110.0 - 150.0);
    for (third, name) in (0_u8..).zip(["the kill", "1/3 of the lease", "2/3", "the lease"]) {
        let at = x(f64::from(third) / 3.0);
        svg.line((at, top - 10.0), (at, bottom), theme.grid);
        svg.text((at, bottom + 18.0), Anchor::Middle, theme.dim, name);
    }
    for (i, lease) in [1_u8, 5, 30].into_iter().enumerate() {
        let y = top + 20.0 + 50.0 * f64::from(u8::try_from(i).expect("three leases"));
        svg.text((20.0, y + 5.0), Anchor::Start, theme.ink, &format!("lease {lease} s"));
        let times = data.all(&format!("lease-{lease}"));
        let (least, most) = times.iter().fold((f64::MAX, 0.0_f64), |(a, b), time| (a.min(*time), b.max(*time)));
        let lease_s = f64::from(lease);
        svg.bar((x(2.0 / 3.0), y - 11.0), (x(1.0) - x(2.0 / 3.0), 22.0), theme.pale);
        for time in times {
            svg.dot((x(*time / lease_s), y), 2.5, theme.blue);
        }
        svg.text((x(1.0) + 14.0, y + 5.0), Anchor::Start, theme.ink, &format!("{least:.2} to {most:.2} s"));
    }
    let words = [
        "A lease is renewed at each third, so two thirds or more of it are left at a kill: the grey range.",
        "One dot is the time until one lock had its next holder: 40 kills for each lease, a few ms for the wake-up.",
    ];
    for (line, y) in words.into_iter().zip([32.0, 12.0]) {
        svg.text((20.0, height - y), Anchor::Start, theme.dim, line);
    }
    svg.end()
}
