//! Copies the pages whose Rust code is compiled and run as doctests (`src/samples.rs`), with two changes: a URL of a server there stands for a private
//! server, by a call of `stand_in`, and a `#[test]` function is the sample's `main`. So a page has the code as people write it, and nothing in it is hidden.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

/// The pages, as `src/samples.rs` names them too.
const PAGES: [&str; 6] =
    ["README.md", "docs/attribute.md", "docs/compare.md", "docs/faq.md", "docs/guide.md", "docs/queue.md"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    for page in PAGES {
        let path = Path::new("..").join(page);
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| format!("{page}: {error}"))?;
        fs::write(Path::new(&out).join(page.replace('/', "-")), with_stand_ins(&with_tests_run(&text)))?;
    }
    Ok(())
}

/// Each literal `"redis://…"` becomes `redlock_tests::stand_in("redis://…")`.
fn with_stand_ins(text: &str) -> String {
    let mut parts = text.split("\"redis://");
    let mut copy = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (url, rest) = part.split_once('"').unwrap_or((part, ""));
        copy.extend(["redlock_tests::stand_in(\"redis://", url, "\")", rest]);
    }
    copy
}

/// Each `#[test]` function becomes `main`.
fn with_tests_run(text: &str) -> String {
    let mut parts = text.split("#[test]\nfn ");
    let mut copy = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        copy.extend(["fn main(", part.split_once('(').map_or(part, |(_, rest)| rest)]);
    }
    copy
}
