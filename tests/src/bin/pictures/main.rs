//! The pictures in `docs/images`. They are drawn from the data in `docs/images/data`, for light and for dark pages.
//!
//! ```text
//! cargo run --release -p redlock-tests --bin pictures             draws all pictures from the data
//! cargo run --release -p redlock-tests --bin pictures measure     measures on real servers first; takes a minute
//! cargo run --release -p redlock-tests --bin pictures import load.json     imports the numbers of a bench
//! cargo run --release -p redlock-tests --bin pictures chaos timeline.txt   imports the numbers of a chaos run
//! ```
//!
//! 1. `measure.rs`: the runs. `worker.rs`: the processes in them.
//! 2. `svg.rs`: shapes and colours.
//! 3. `life.rs`, `handover.rs`, `servers.rs`, `plots.rs`, `benches.rs`, `chaos.rs`: the pictures.
//!
//! Each picture contains a digest of these files and of its data. If the digest is out of date, `tidy::pictures` fails.
//! Then draw the pictures again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a program that cannot draw fails with a message, and waits by the real clock"
)]

mod benches;
mod chaos;
mod handover;
mod life;
mod measure;
mod plots;
mod servers;
mod svg;
mod worker;

use std::{env, fs};

use redlock_tests::pictures::{Data, IMAGES, digest};

use svg::{DARK, LIGHT, Theme};

/// The name of a picture, and the function that draws it from its data.
type Picture = (&'static str, fn(&Data, &'static Theme) -> String);

/// All pictures. A picture is drawn from the data of the same name.
const PICTURES: [Picture; 8] = [
    ("life", life::draw),
    ("handover", handover::draw),
    ("servers", servers::draw),
    ("gaps", plots::gaps),
    ("takeover", plots::takeover),
    ("threads", benches::threads),
    ("crates", benches::crates),
    ("chaos", chaos::draw),
];

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        None => draw(),
        Some("measure") => {
            measure::all(&args[1..]);
            draw();
        }
        Some("import") => {
            benches::import(&args[1]);
            draw();
        }
        Some("chaos") => {
            chaos::import(&args[1]);
            draw();
        }
        Some("worker") => worker::main(&args[1..]),
        Some(other) => panic!("`{other}` is nothing that this program does"),
    }
}

fn draw() {
    for (name, picture) in PICTURES {
        let Some(data) = Data::read(name) else {
            println!("{name}: no data");
            continue;
        };
        let made_from = digest(name);
        for (theme, suffix) in [(&LIGHT, "light"), (&DARK, "dark")] {
            let svg = picture(&data, theme);
            let path = redlock_tests::pictures::root().join(IMAGES).join(format!("{name}-{suffix}.svg"));
            fs::write(path, format!("{svg}<!-- made from {made_from} -->\n")).expect("docs/images can be written");
        }
    }
}
