//! Checks whether the tools of a language are installed.

use std::env;
use std::io::{Write, stderr};

/// True if all tools are on `PATH`. Otherwise it panics in CI, and prints a line to stderr elsewhere.
pub(super) fn has(library: &str, tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !is_on_path(tool)).collect();
    if missing.is_empty() {
        return true;
    }
    let said = format!("{library} is skipped: {} not on PATH", missing.join(" and "));
    assert!(env::var_os("CI").is_none(), "{said}; in CI nothing is skipped");
    // The test harness hides the output of `eprintln!` if a test passes.
    _ = writeln!(stderr(), "{said}");
    false
}

fn is_on_path(tool: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(tool).is_file())
}
