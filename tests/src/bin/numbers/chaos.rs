//! A picture of ten seconds of a chaos run: faults of servers and processes, and the holders of each lock.

use redlock_tests::pictures::Data;

use crate::svg::{Anchor, Svg, Theme, WIDTH};

const LEFT: f64 = 86.0;
const RIGHT: f64 = 20.0;
const SECONDS: f64 = 10.0;
const TOP: f64 = 66.0;
const NODE: f64 = 24.0;
const TRACK: f64 = 8.0;
/// What happened to a server, in the order of `group` in the chaos run.
const FAULTS: [&str; 5] = ["killed", "stopped", "network", "changed", "slow"];

fn x(second: f64) -> f64 {
    LEFT + second / SECONDS * (WIDTH - LEFT - RIGHT)
}

pub(crate) fn draw(data: &Data, theme: &'static Theme) -> String {
    let (nodes, clients, locks) = (data.one("nodes"), data.one("clients"), data.one("locks"));
    let row = clients * TRACK + 10.0;
    let bottom = TOP + nodes * NODE + 8.0 + locks * row;
    let about = format!(
        "Ten seconds of a real run with faults: {nodes} servers are killed, stopped, cut off or slow, and {clients} \
         processes are killed or stopped. Beside them, the holders of {locks} locks: at no moment has a lock two \
         holders."
    );
    let mut svg = Svg::new(theme, bottom + 112.0, &about);
    svg.title(&format!("{nodes} servers and {clients} processes under faults: no lock has two holders at once"));
    for second in 0..=10_u8 {
        let at = x(f64::from(second));
        svg.line((at, TOP - 8.0), (at, bottom), theme.grid);
        svg.text((at, bottom + 17.0), Anchor::Middle, theme.dim, &format!("{second} s"));
    }
    let mut y = TOP;
    for node in 0..4_u8 {
        if f64::from(node) < nodes {
            svg.text((20.0, y + 16.0), Anchor::Start, theme.ink, &format!("server {}", node + 1));
            y += NODE;
        }
    }
    for fault in data.all("faults").chunks_exact(4) {
        let [node, group, from, until] = fault else { continue };
        let is_of_group = |at: u8| (f64::from(at) - group).abs() < 0.5;
        let word = FAULTS.into_iter().zip(0..).find(|(_, at)| is_of_group(*at)).map_or("", |(word, _)| word);
        let place = (x(*from), TOP + node * NODE + 2.0);
        let wide = (x(*until) - x(*from)).max(3.0);
        svg.bar(place, (wide, NODE - 6.0), if is_of_group(0) { theme.red } else { theme.dim });
        if wide > 52.0 {
            svg.small((place.0 + wide / 2.0, place.1 + 13.0), Anchor::Middle, theme.on_bar, word);
        }
    }
    let first = TOP + nodes * NODE + 8.0;
    for lock in 0..8_u8 {
        if f64::from(lock) < locks {
            let at = first + f64::from(lock) * row;
            svg.text((20.0, at + clients * TRACK / 2.0 + 4.0), Anchor::Start, theme.ink, &format!("lock {}", lock + 1));
            for away in data.all("away").chunks_exact(3) {
                let [client, from, until] = away else { continue };
                svg.bar((x(*from), at + client * TRACK), (x(*until) - x(*from), TRACK - 1.0), theme.away);
            }
        }
    }
    for hold in data.all("holds").chunks_exact(5) {
        let [lock, client, from, until, lost] = hold else { continue };
        let (at, end) = (first + lock * row + client * TRACK, x(*until));
        svg.bar((x(*from), at), (end - x(*from), TRACK - 1.0), theme.blue);
        if *lost > 0.0 {
            svg.bar((end - 4.0, at - 1.0), (4.0, TRACK + 1.0), theme.red);
        }
    }
    let first = format!(
        "{clients} lines for each lock, one for each process. Blue: it may act on the lock. Hairlines: holds \
         of a few ms."
    );
    let words = [
        &*first,
        "A red end: the lease ended or was lost before a release. Grey: the process is stopped or dead.",
        "Servers, red: killed, and some restart empty. Grey: other faults. Network: cut off or slow.",
        "Changed: the server is full or a replica, has another password or no scripts, or lost its data.",
    ];
    for (line, y) in words.into_iter().zip([40.0, 60.0, 80.0, 100.0]) {
        svg.text((20.0, bottom + y), Anchor::Start, theme.dim, line);
    }
    svg.end()
}
