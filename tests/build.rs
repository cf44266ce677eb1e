//! Copies the pages whose Rust code is compiled and run as doctests (`src/samples.rs`), with one change: a URL of a server there stands for a private
//! server, by a call of `stand_in`. So a page has the code as people write it, and nothing in it is hidden.

#![allow(clippy::expect_used, clippy::panic, reason = "a build script fails by a panic")]

use std::path::Path;
use std::{env, fs};

/// The pages, as `src/samples.rs` names them too.
const PAGES: [&str; 3] = ["README.md", "docs/errors.md", "docs/operations.md"];

fn main() {
    let root = Path::new("..");
    let out = env::var("OUT_DIR").expect("cargo names a folder");
    for page in PAGES {
        let path = root.join(page);
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
        let copy = Path::new(&out).join(page.replace('/', "-"));
        fs::write(copy, with_stand_ins(&text)).expect("the copy is written");
    }
}

/// Each literal `"redis://…"` becomes `redlock_tests::stand_in("redis://…")`.
fn with_stand_ins(text: &str) -> String {
    let mut parts = text.split("\"redis://");
    let mut copy = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (url, rest) = part.split_once('"').expect("the literal ends");
        copy.extend(["redlock_tests::stand_in(\"redis://", url, "\")", rest]);
    }
    copy
}
