//! All numbers and pictures of the documentation, from one run.
//!
//! ```text
//! cargo run --release -p redlock-tests --bin numbers              measures, writes pages and pictures: 12 minutes
//! cargo run --release -p redlock-tests --bin numbers -- --quick   the same with short blocks: to try it
//! cargo run --release -p redlock-tests --bin numbers -- --draw    writes pages and pictures from the kept data
//! ```
//!
//! A run needs two quiet cores, and what the benches need. If a line does not keep its gate, the data is kept, but no
//! page is written. The numbers of a quick run mean nothing.
//!
//! 1. `runs.rs`: the benches and the chaos run. `life_run.rs`, `worker.rs`: a run for the picture `life`.
//! 2. `results.rs`: the kept data, in `docs/images/data`.
//! 3. `pages.rs`, `tables.rs`, `amounts.rs`: the parts of pages between marks.
//! 4. `svg.rs`: shapes and colours. `life.rs`, `handover.rs`, `servers.rs`, `takeover.rs`, `locks.rs`, `chaos.rs`: the
//!    pictures, each for light and for dark pages.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a program that cannot draw fails with a message, and waits by the real clock"
)]

mod amounts;
mod chaos;
mod handover;
mod life;
mod life_run;
mod locks;
mod pages;
mod results;
mod runs;
mod servers;
mod svg;
mod tables;
mod takeover;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use redlock_tests::pictures::{Data, IMAGES, root};

use results::Results;
use svg::{DARK, LIGHT, Theme};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["worker", ..] => worker::main(&args[1..]),
        ["--draw"] => write(),
        [] | ["--quick"] => {
            life_run::run();
            let failed = runs::all(words == ["--quick"]);
            if !failed.is_empty() {
                eprintln!("no page is written, since these failed: {}", failed.join(", "));
                return ExitCode::FAILURE;
            }
            write();
        }
        _ => panic!("`--quick`, `--draw`, or nothing"),
    }
    ExitCode::SUCCESS
}

/// Draws a picture on a light or on a dark page.
type Drawing<'a> = Box<dyn Fn(&'static Theme) -> String + 'a>;

/// All pictures, with their names.
fn pictures(results: &Results) -> [(&'static str, Drawing<'_>); 7] {
    let (of_life, of_chaos) = (Data::read("life"), Data::read("chaos"));
    [
        ("life", Box::new(move |theme| life::draw(&of_life, theme))),
        ("handover", Box::new(|theme| handover::draw(results, theme))),
        ("servers", Box::new(|theme| servers::draw(results, theme))),
        ("takeover", Box::new(|theme| takeover::draw(results, theme))),
        ("threads", Box::new(|theme| locks::threads(results, theme))),
        ("crates", Box::new(|theme| locks::crates(results, theme))),
        ("chaos", Box::new(move |theme| chaos::draw(&of_chaos, theme))),
    ]
}

/// The paths and texts of all pages and pictures, made from the kept data.
fn made() -> Vec<(PathBuf, String)> {
    let results = Results::read();
    let mut files = Vec::new();
    for page in pages::PAGES {
        let path = root().join(page);
        let text = fs::read_to_string(&path).expect("the page is there");
        files.push((path, pages::fill(&text, &results)));
    }
    for (name, draw) in pictures(&results) {
        for (theme, suffix) in [(&LIGHT, "light"), (&DARK, "dark")] {
            files.push((root().join(IMAGES).join(format!("{name}-{suffix}.svg")), draw(theme)));
        }
    }
    files
}

fn write() {
    for (path, text) in made() {
        fs::write(path, text).expect("docs can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_pictures_are_made_from_the_kept_data() {
        for (path, text) in made() {
            let is_current = fs::read_to_string(&path).is_ok_and(|kept| kept == text);
            assert!(is_current, "{}: run `cargo run -p redlock-tests --bin numbers -- --draw`", path.display());
        }
    }

    /// A picture is shown by its two files, and described in words.
    #[test]
    fn each_picture_is_on_a_page_for_light_and_dark() {
        let folders = [".", "docs", "tests", "redlock-sync/src"].map(|folder| root().join(folder));
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
        let pages = files.filter(|path| path.extension().is_some_and(|ext| ext == "md"));
        let text: String = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
        let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("<picture>")).collect();
        let results = Results::read();
        let names = pictures(&results).map(|(name, _)| name);
        let has = |line: &str, name: &str| {
            ["-light.svg\"", "-dark.svg\""].iter().all(|end| line.contains(&format!("images/{name}{end}")))
                && line.contains(" alt=\"")
        };
        for name in names {
            assert!(shown.iter().any(|line| has(line, name)), "no page shows `{name}`");
        }
        for line in shown {
            assert!(names.iter().any(|name| has(line, name)), "no such picture: {line}");
        }
    }
}
