//! A picture of the life of a lock on a time axis. One holder is killed. Another holder is stopped and writes too late.

use redlock_tests::pictures::Data;

use crate::svg::{Anchor, Svg, Theme, WIDTH};

const LEFT: f64 = 110.0;
const RIGHT: f64 = 20.0;
const SECONDS: f64 = 7.0;
const BAR: f64 = 24.0;
const HEIGHT: f64 = 528.0;

fn x(second: f64) -> f64 {
    LEFT + second / SECONDS * (WIDTH - LEFT - RIGHT)
}

pub(crate) fn draw(data: &Data, theme: &'static Theme) -> String {
    let about = "The life of a lock, from a real run with a lease of 3 s. Process A holds it, renews it each second, and \
                 is killed. When the lease has ended, process B has the lock. Below: process C is stopped, process D gets \
                 the lock, and the database refuses the late write of C because its fence is smaller.";
    let mut svg = Svg::new(theme, HEIGHT, about);
    killed(&mut svg, data);
    stopped(&mut svg, data);
    svg.end()
}

fn lane(svg: &mut Svg, y: f64, name: &str) {
    svg.text((20.0, y + 17.0), Anchor::Start, svg.theme.ink, name);
}

/// Draws a process that waits.
fn waits(svg: &mut Svg, y: f64, from: f64, to: f64) {
    let dim = svg.theme.dim;
    svg.dashes((x(from), y + BAR / 2.0), (x(to), y + BAR / 2.0), dim);
    svg.text((f64::midpoint(x(from), x(to)), y + 6.0), Anchor::Middle, dim, "waits");
}

fn holds(svg: &mut Svg, y: f64, from: f64, to: f64, colour: &str) {
    svg.bar((x(from), y), (x(to) - x(from), BAR), colour);
}

fn word_on_bar(svg: &mut Svg, y: f64, from: f64, word: &str) {
    svg.word((x(from) + 8.0, y + 17.0), Anchor::Start, svg.theme.on_bar, word);
}

fn renewals(svg: &mut Svg, y: f64, moments: &[f64]) {
    for moment in moments {
        svg.bar((x(*moment) - 1.5, y - 4.0), (3.0, BAR + 8.0), svg.theme.ink);
    }
}

fn axis(svg: &mut Svg, top: f64, bottom: f64) {
    for second in 0..=7 {
        let at = x(f64::from(second));
        svg.line((at, top), (at, bottom), svg.theme.grid);
        svg.text((at, bottom + 17.0), Anchor::Middle, svg.theme.dim, &format!("{second} s"));
    }
}

fn killed(svg: &mut Svg, data: &Data) {
    let theme = svg.theme;
    svg.title("The holder is killed: the lock ends with its lease (3 s)");
    axis(svg, 44.0, 202.0);
    let (killed, ends) = (data.one("killed"), data.one("ends"));
    let (a, b) = (80.0, 144.0);

    lane(svg, a, "process A");
    holds(svg, a, 0.0, killed, theme.blue);
    word_on_bar(svg, a, 0.0, "holds");
    renewals(svg, a, data.all("a-renewed"));
    svg.text((x(data.all("a-renewed")[0]), a - 12.0), Anchor::Middle, theme.dim, "renewal");
    svg.hollow((x(killed), a), (x(ends) - x(killed), BAR), theme.dim);
    svg.text((f64::midpoint(x(killed), x(ends)) + 8.0, a + 17.0), Anchor::Middle, theme.dim, "rest of the lease");
    svg.cross((x(killed), a + BAR / 2.0), theme.red);
    svg.text((x(killed) + 4.0, a - 12.0), Anchor::Start, theme.red, "killed");
    svg.text((x(ends) + 5.0, a - 12.0), Anchor::Start, theme.dim, "lease ends");

    lane(svg, b, "process B");
    let takes = data.one("b-takes");
    waits(svg, b, data.one("b-wants"), takes);
    holds(svg, b, takes, data.one("b-releases"), theme.green);
    word_on_bar(svg, b, takes, "holds");
    renewals(svg, b, data.all("b-renewed"));
    let after = format!("{:.0} ms after its end", (takes - ends) * 1e3);
    svg.text((x(takes) + 5.0, b + BAR + 18.0), Anchor::Start, theme.green, &after);
    svg.text((x(data.one("b-releases")) + 8.0, b + 17.0), Anchor::Start, theme.dim, "releases");
}

fn stopped(svg: &mut Svg, data: &Data) {
    let theme = svg.theme;
    let (c, d, store) = (306.0, 370.0, 434.0);
    let at = (20.0, 256.0);
    svg.heading(at, "The holder is paused: the database compares fences, and refuses its late write");
    axis(svg, 270.0, 474.0);
    let (stopped, continued, expires) = (data.one("stopped"), data.one("continued"), data.one("expires"));

    lane(svg, c, "process C");
    holds(svg, c, 0.0, stopped, theme.blue);
    word_on_bar(svg, c, 0.0, "holds");
    renewals(svg, c, &data.all("c-renewed")[..1]);
    svg.hollow((x(stopped), c), (x(continued) - x(stopped), BAR), theme.red);
    let middle = f64::midpoint(x(stopped), x(expires));
    svg.text((middle, c + 17.0), Anchor::Middle, theme.red, "paused: does not notice the end");
    svg.text((x(data.all("c-renewed")[0]), c - 12.0), Anchor::Middle, theme.dim, "renewal");
    svg.dashes((x(expires), c - 6.0), (x(expires), c + BAR + 6.0), theme.dim);
    svg.text((x(expires) + 5.0, c - 12.0), Anchor::Start, theme.dim, "lease ends");
    let lost = data.one("c-lost");
    svg.text((x(lost) + 8.0, c + 17.0), Anchor::Start, theme.red, "wakes, writes: too late");

    lane(svg, d, "process D");
    let takes = data.one("d-takes");
    // This arrow passes behind the bar of D, which has no part in this write.
    let refused = data.one("refused");
    svg.arrow((x(refused), c + BAR), (x(refused), store + 4.0), theme.red);
    waits(svg, d, data.one("d-wants"), takes);
    holds(svg, d, takes, data.one("d-releases"), theme.green);
    word_on_bar(svg, d, takes, "holds");
    renewals(svg, d, data.all("d-renewed"));
    svg.text((x(data.one("d-releases")) + 8.0, d + 17.0), Anchor::Start, theme.dim, "releases");

    lane(svg, store, "database");
    svg.line((x(0.0), store + 12.0), (x(SECONDS), store + 12.0), theme.dim);
    let accepted = data.all("accepted");
    for (moment, from) in accepted.iter().zip([c, d]) {
        svg.arrow((x(*moment) + 2.0, from + BAR), (x(*moment) + 2.0, store + 6.0), theme.dim);
    }
    svg.dot((x(accepted[0]) + 2.0, store + 12.0), 5.0, theme.blue);
    svg.text((x(accepted[0]) + 12.0, store + 31.0), Anchor::Start, theme.blue, "write with fence 1");
    svg.dot((x(accepted[1]) + 2.0, store + 12.0), 5.0, theme.green);
    svg.text((x(accepted[1]) + 6.0, store + 31.0), Anchor::End, theme.green, "write with fence 2");
    svg.cross((x(refused), store + 12.0), theme.red);
    svg.text((x(refused) - 4.0, store + 31.0), Anchor::Start, theme.red, "fence 1 < 2: refused");
    svg.text(
        (20.0, HEIGHT - 10.0),
        Anchor::Start,
        theme.dim,
        "Times of a real run. A mark across a bar is a renewal. Real fences are large numbers.",
    );
}
