//! Code that the library must not have, and the longest allowed file.

use super::source::{blank, package, read, tracked};

const PACKAGES: [&str; 3] = ["redlock-sync", "redlock-macros", "redlock-cli"];
/// Files that panic on request: `assert_locked!`, and the policy `panic` of the attribute.
const PANIC_ON_PURPOSE: [&str; 2] = ["__private/assert.rs", "__private/policy.rs"];
/// A longer file has more than one topic.
const MOST_LINES: usize = 500;

#[test]
fn the_library_does_not_panic() {
    let patterns = [
        ".unwrap()",
        ".expect(",
        ".unwrap_err()",
        ".expect_err(",
        "panic!(",
        "todo!(",
        "unimplemented!(",
        "unreachable!(",
    ];
    let sources =
        PACKAGES.into_iter().flat_map(package).filter(|source| !PANIC_ON_PURPOSE.contains(&source.name.as_str()));
    let found: Vec<String> =
        sources.flat_map(|source| patterns.iter().flat_map(|p| source.uses(p)).collect::<Vec<_>>()).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_library_is_safe_and_quiet() {
    let patterns = ["unsafe ", "println!(", "eprintln!(", "print!(", "eprint!(", "dbg!("];
    let sources = PACKAGES.into_iter().flat_map(package);
    let found: Vec<String> =
        sources.flat_map(|source| patterns.iter().flat_map(|p| source.uses(p)).collect::<Vec<_>>()).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The Rust files of the workspace.
fn rust_files() -> impl Iterator<Item = (String, String)> {
    let rust = tracked().into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    rust.map(|path| (path.display().to_string(), read(&path).unwrap()))
}

#[test]
fn no_test_is_ignored() {
    let in_code = |text: &str| blank(text).replace(' ', "").contains("#[ignore");
    let in_docs = |text: &str| text.lines().any(|line| is_ignored_example(line.trim_start()));
    let found: Vec<String> =
        rust_files().filter(|(_, text)| in_code(text) || in_docs(text)).map(|(name, _)| name).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Whether the line starts a code block with the word `ignore`, alone or among other words.
fn is_ignored_example(line: &str) -> bool {
    let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let words = doc.and_then(|doc| doc.trim_start().strip_prefix("```"));
    words.is_some_and(|words| words.split(',').any(|word| word.trim() == "ignore"))
}

#[test]
fn no_file_is_too_long() {
    // The cases in `tests/ui` list what the macros accept and refuse.
    let long: Vec<String> = rust_files()
        .filter(|(name, _)| !name.starts_with("tests/ui/"))
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(name, lines)| format!("{name} has {lines} lines, more than {MOST_LINES}"))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// A file of tests without a `mod` line is not compiled. So each file must have a `mod` line in a file beside it or
/// above it.
#[test]
fn no_file_is_forgotten() {
    let files: Vec<(String, String)> = rust_files().collect();
    let forgotten: Vec<&String> = files.iter().map(|(name, _)| name).filter(|name| !is_named(name, &files)).collect();
    assert!(forgotten.is_empty(), "no `mod` line names {forgotten:#?}");
}

fn is_target(path: &std::path::Path) -> bool {
    let manifest = read(std::path::Path::new("fuzz/Cargo.toml")).unwrap();
    path.strip_prefix("fuzz").is_ok_and(|path| manifest.contains(&format!("path = \"{}\"\n", path.display())))
}

fn is_named(name: &str, files: &[(String, String)]) -> bool {
    let path = std::path::Path::new(name);
    let (stem, folder) = (path.file_stem().unwrap().to_str().unwrap(), path.parent().unwrap());
    // A Cargo.toml names the root files: main.rs, lib.rs, build.rs, binaries, examples, and files directly in a
    // package. It names each fuzz target separately.
    let is_root = ["main", "lib", "build"].contains(&stem)
        || folder.ends_with("bin")
        || folder.ends_with("fuzz_targets") && is_target(path)
        || folder.parent().is_none_or(|p| p.as_os_str().is_empty());
    let is_case = folder.ends_with("ui") || folder.iter().any(|part| part == "ui");
    let (module, above) = if stem == "mod" {
        (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap())
    } else {
        (stem, folder)
    };
    let by_mod = format!("mod {module};");
    let by_path = format!("/{stem}.rs\"]");
    // `#[path = "../simulation/mod.rs"]` names a file in this way.
    let beside = format!("../{module}/mod.rs\"]");
    is_root
        || is_case
        || files.iter().any(|(other, text)| {
            let other = std::path::Path::new(other);
            let near = other.parent() == Some(above) || other.with_extension("") == above;
            other != path
                && (near && text.contains(&by_mod)
                    || above.starts_with(other.parent().unwrap()) && text.contains(&by_path)
                    || other.parent().unwrap().parent() == Some(above) && text.contains(&beside))
        })
}
