//! Pictures from the bench `load`: the number of locks per second that 1 to 600 threads acquire, and that other Rust
//! crates acquire.

use redlock_tests::foreign::LockCrate;

use crate::results::Results;
use crate::svg::{Anchor, Svg, Theme, WIDTH};

/// The numbers of threads in the row `threads`.
pub(crate) const THREADS: [u16; 7] = [1, 2, 4, 8, 32, 128, 600];
/// The lines of that row, and their names in the picture.
pub(crate) const SERIES: [(&str, &str); 3] = [
    ("lock and drop", "redlock-sync, drop"),
    ("lock and unlock", "redlock-sync, unlock()"),
    ("rslock, async tasks", "rslock, async tasks"),
];
/// The numbers of threads in the row `crates`.
pub(crate) const CRATE_THREADS: [u16; 3] = [1, 8, 128];

pub(crate) fn threads(results: &Results, theme: &'static Theme) -> String {
    let (height, top, bottom, left, right) = (372.0, 52.0, 288.0, 60.0, 190.0);
    let about = "Pairs of lock and unlock, or lock and drop, per second over 1 to 600 threads, beside bare commands and \
                 rslock.";
    let mut svg = Svg::new(theme, height, about);
    svg.title("Locks per second over the number of threads, or of async tasks");
    let of = |threads: u16, line: &str| results.one("threads", &format!("{threads}: {line}"));
    let bare = THREADS.map(|threads| of(threads, SERIES[0].0).raw());
    let mut series: Vec<([f64; 7], &str, &str)> = SERIES
        .into_iter()
        .zip([theme.green, theme.blue, theme.red])
        .map(|((line, name), colour)| (THREADS.map(|threads| of(threads, line).ours()), name, colour))
        .chain([(bare, "bare SET + delete script", theme.dim)])
        .collect();
    // From the upper end to the lower one, so that the names do not overlap.
    series.sort_by(|(a, ..), (b, ..)| b.last().partial_cmp(&a.last()).expect("numbers"));
    let most = series.iter().flat_map(|(values, ..)| values).fold(1.0_f64, |most, value| most.max(*value));
    let step = [5e3, 1e4, 2e4, 5e4].into_iter().find(|step| most / step <= 7.0).unwrap_or(1e5);
    let y = |value: f64| bottom - value / (most / step).ceil() / step * (bottom - top);
    let mut tick = 0.0;
    while tick <= (most / step).ceil() * step {
        svg.line((left, y(tick)), (WIDTH - right, y(tick)), theme.grid);
        svg.text((left - 8.0, y(tick) + 5.0), Anchor::End, theme.dim, &format!("{:.0} k", tick / 1e3));
        tick += step;
    }
    let wide = (WIDTH - left - right - 30.0) / (f64::from(THREADS[THREADS.len() - 1])).log2();
    let x = |threads: u16| left + 20.0 + f64::from(threads).log2() * wide;
    for threads in THREADS {
        svg.text((x(threads), bottom + 20.0), Anchor::Middle, theme.dim, &threads.to_string());
    }
    let mut line = 0.0;
    for (values, name, colour) in series {
        for (pair, count) in values.windows(2).zip(THREADS.windows(2)) {
            svg.line((x(count[0]), y(pair[0])), (x(count[1]), y(pair[1])), colour);
        }
        line = (y(values[THREADS.len() - 1]) + 5.0).max(line + 16.0);
        svg.text((WIDTH - right + 4.0, line), Anchor::Start, colour, name);
        for (value, count) in values.into_iter().zip(THREADS) {
            svg.dot((x(count), y(value)), 4.0, colour);
        }
    }
    let words = format!(
        "Pairs per second, a key for each thread. Server and client share two cores. One bare pair takes {:.0} µs.",
        1e6 / bare[0]
    );
    svg.text((20.0, height - 32.0), Anchor::Start, theme.dim, &words);
    let words = "A drop waits for no reply, and bare commands do. A task needs no thread to be woken.";
    svg.text((20.0, height - 12.0), Anchor::Start, theme.dim, words);
    svg.end()
}

/// Bars of all crates, for each number of threads.
pub(crate) fn crates(results: &Results, theme: &'static Theme) -> String {
    let (left, top, row, panel) = (226.0, 78.0, 24.0, 184.0);
    let unlock = |threads: u16| results.one("crates", &format!("{threads}: lock and unlock")).ours();
    let mut rows = vec![
        ("redlock-sync, drop", CRATE_THREADS.map(|threads| results.dropped(threads))),
        ("redlock-sync, unlock()", CRATE_THREADS.map(unlock)),
    ];
    let of = |peer: LockCrate| (peer.name, CRATE_THREADS.map(|threads| results.of_crate(peer.name, threads)));
    rows.extend(LockCrate::ALL.map(of));
    let height = top + row * 10.0 + 56.0;
    let about = "Locks per second of ten ways to lock from Rust: redlock-sync from threads, the others as async tasks \
                 or from threads, for 1, 8 and 128 of them.";
    let mut svg = Svg::new(theme, height, about);
    svg.title("Locks per second, a key for each thread or async task");
    for (column, count) in CRATE_THREADS.into_iter().enumerate() {
        let x = left + panel * f64::from(u8::try_from(column).expect("three columns"));
        let words = if count == 1 { "1 thread or task".to_owned() } else { format!("{count} threads or tasks") };
        svg.text((x, top - 14.0), Anchor::Start, theme.dim, &words);
        let most = rows.iter().map(|(_, values)| values[column]).fold(1.0, f64::max);
        let mut y = top;
        for (name, values) in &rows {
            let colour = match name {
                name if name.starts_with("redlock-sync") => theme.green,
                name if name.ends_with("threads") => theme.blue,
                _ => theme.dim,
            };
            let wide = values[column] / most * (panel - 66.0);
            svg.bar((x, y), (wide, row - 7.0), colour);
            let words = format!("{:.1} k", values[column] / 1e3);
            svg.text((x + wide + 6.0, y + 13.0), Anchor::Start, theme.ink, &words);
            if column == 0 {
                svg.text((20.0, y + 13.0), Anchor::Start, theme.ink, name);
            }
            y += row;
        }
    }
    let words = "Each column has its own scale. Blue: threads, by `block_on` if the crate is async. Grey: async tasks.";
    svg.text((20.0, height - 32.0), Anchor::Start, theme.dim, words);
    let words = "Client and server share two cores.";
    svg.text((20.0, height - 12.0), Anchor::Start, theme.dim, words);
    svg.end()
}
