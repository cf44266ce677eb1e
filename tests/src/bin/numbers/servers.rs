//! A picture of a lock call on five servers, one of which is stopped. It shows the majority, and how long the lock is
//! valid.

use crate::results::Results;
use crate::svg::{Anchor, Svg, Theme};

const HEIGHT: f64 = 384.0;

/// The lease of the row `stopped5`, in seconds.
const LEASE: f64 = 10.0;

pub(crate) fn draw(results: &Results, theme: &'static Theme) -> String {
    let of = |measure: &str| results.one("stopped5", measure).ours();
    let (lease, left) = (LEASE, of("of a lease of 10 s, for the holder"));
    let round = of("a lock alone, without the unlock");
    let about = format!(
        "A lock on five servers, one of which is stopped. Four of five grant it, three are needed, so it is held. Of \
         the lease of {lease:.0} s, {left:.3} s are left to the holder: the rest is the time of the round and an allowance \
         for clocks that differ."
    );
    let mut svg = Svg::new(theme, HEIGHT, &about);
    svg.title("Five servers, one of them stopped: a majority grants the lock");
    let middle = 149.0;
    svg.bar((20.0, middle - 30.0), (130.0, 60.0), theme.blue);
    svg.word((85.0, middle - 4.0), Anchor::Middle, theme.on_bar, "process");
    svg.word((85.0, middle + 15.0), Anchor::Middle, theme.on_bar, "lock()");
    for (i, name) in ["server 1", "server 2", "server 3", "server 4", "server 5"].into_iter().enumerate() {
        let y = 52.0 + 41.0 * f64::from(u8::try_from(i).expect("five servers"));
        let is_stopped = i == 4;
        let colour = if is_stopped { theme.red } else { theme.green };
        svg.arrow((152.0, middle), (318.0, y + 15.0), if is_stopped { theme.dim } else { theme.blue });
        if is_stopped {
            svg.hollow((320.0, y), (110.0, 30.0), theme.red);
            svg.text((375.0, y + 20.0), Anchor::Middle, theme.red, name);
            svg.cross((450.0, y + 15.0), theme.red);
        } else {
            svg.bar((320.0, y), (110.0, 30.0), theme.pale);
            svg.word((375.0, y + 20.0), Anchor::Middle, theme.ink, name);
        }
        let word = if is_stopped { "stopped: no answer" } else { "yes" };
        svg.text((if is_stopped { 464.0 } else { 442.0 }, y + 20.0), Anchor::Start, colour, word);
    }
    svg.text((586.0, middle - 22.0), Anchor::Start, theme.ink, "4 of 5 said yes.");
    svg.text((586.0, middle), Anchor::Start, theme.ink, "3 are needed, so it is held.");
    svg.text((586.0, middle + 22.0), Anchor::Start, theme.dim, "One more server may fail.");

    let (y, start, width) = (296.0, 20.0, 760.0);
    svg.heading((20.0, y - 14.0), &format!("How long it is valid: a lease of {lease:.0} s"));
    let until = start + width * left / lease;
    svg.bar((start, y), (until - start, 28.0), theme.green);
    svg.word((start + 10.0, y + 19.0), Anchor::Start, theme.on_bar, &format!("{left:.3} s for the holder"));
    svg.bar((until + 1.0, y), (start + width - until - 1.0, 28.0), theme.red);
    let rest = format!(
        "{:.0} ms less: 1 % of the lease and 2 ms, since clocks differ, and {round:.0} µs to ask the servers",
        (lease - left) * 1e3
    );
    svg.text((start + width, y + 46.0), Anchor::End, theme.red, &rest);
    svg.text(
        (20.0, HEIGHT - 12.0),
        Anchor::Start,
        theme.dim,
        "The median of five rounds, each with another server stopped. All servers are on one machine.",
    );
    svg.end()
}
