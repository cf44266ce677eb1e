//! A plot of the time without a holder after a kill.

use crate::results::Results;
use crate::svg::{Anchor, Svg, Theme, WIDTH};

pub(crate) fn draw(results: &Results, theme: &'static Theme) -> String {
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
        let measure = format!("lease {lease} s: from the kill to the next holder");
        let Some(figure) = results.row("takeover").find(|figure| figure.measure == measure) else { continue };
        let times = figure.all();
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
