//! Copies the pages whose Rust code is compiled and run as doctests (`src/samples.rs`), with two changes: a URL of a server there stands for a private
//! server, by a call of `stand_in`, and a `#[test]` function is the sample's `main`. So a page has the code as people write it, and nothing in it is hidden.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// The folders with pages.
const FOLDERS: [&str; 2] = ["..", "../docs"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let mut modules = String::new();
    println!("cargo::rerun-if-changed=../docs");
    for folder in FOLDERS {
        let mut pages: Vec<PathBuf> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
        pages.retain(|path| path.extension().is_some_and(|ext| ext == "md"));
        pages.sort();
        for page in pages {
            println!("cargo::rerun-if-changed={}", page.display());
            let text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
            if has_rust(&text).map_err(|kind| format!("{}: a block of code of the kind `{kind}`", page.display()))? {
                let name = page.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
                let copy = format!("{out}/{name}.md");
                fs::write(&copy, with_stand_ins(&with_tests_run(&text)))?;
                writeln!(modules, "#[cfg(doctest)] #[doc = include_str!({copy:?})] mod page_{name} {{}}")?;
            }
        }
    }
    fs::write(format!("{out}/pages.rs"), modules)?;
    Ok(())
}

/// Whether a page has Rust code. All other blocks are text or settings.
fn has_rust(page: &str) -> Result<bool, String> {
    let kinds = page.lines().filter_map(|line| line.trim_start().strip_prefix("```")).step_by(2);
    let mut has = false;
    for kind in kinds {
        match kind {
            "rust" => has = true,
            "text" | "toml" => {}
            other => return Err(other.to_owned()),
        }
    }
    Ok(has)
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
