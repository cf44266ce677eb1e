//! Changelog, versions, licences, and texts that no file may have.

use std::fs;
use std::path::Path;

use super::source::{read, root, tracked};

/// The packages that are published.
const PUBLISHED: [&str; 3] = ["redlock-sync", "redlock-macros", "redlock-cli"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The value of a line `name = "value"` below `[table]`.
fn setting(toml: &str, table: &str, name: &str) -> Option<String> {
    let below = toml.split(&format!("[{table}]\n")).nth(1)?;
    let lines = below.lines().take_while(|line| !line.starts_with('['));
    let value = lines.filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == name)?.1;
    Some(value.trim().trim_matches('"').to_owned())
}

/// The version of the workspace.
fn version() -> String {
    setting(&text("Cargo.toml"), "workspace.package", "version").expect("the workspace has a version")
}

/// The package's own version, or that of the workspace.
fn version_of(package: &str) -> String {
    let toml = text(&format!("{package}/Cargo.toml"));
    match setting(&toml, "package", "version") {
        Some(own) => own,
        None => setting(&toml, "package", "version.workspace").map(|_| version()).expect("the package has a version"),
    }
}

#[test]
fn the_published_packages_have_one_version() {
    let exact = format!("version = \"={}\"", version());
    for package in PUBLISHED {
        assert_eq!(version_of(package), version(), "{package}");
        let toml = text(&format!("{package}/Cargo.toml"));
        let pins = toml.lines().filter(|line| line.starts_with("redlock-") && line.contains("version"));
        for pin in pins {
            assert!(pin.contains(&exact), "`{pin}` does not say {exact}: the packages use each other's private items");
        }
    }
}

/// The first heading of the changelog is this version, with its date or marked as unreleased.
#[test]
fn the_changelog_knows_this_version() {
    let changelog = text("CHANGELOG.md");
    let heads: Vec<&str> = changelog.lines().filter(|line| line.starts_with("## ")).collect();
    let head = format!("## [{}] - ", version());
    let when = heads.first().and_then(|first| first.strip_prefix(&head)).unwrap_or_else(|| panic!("{heads:?}"));
    let is_date = when.len() == 10 && when.split('-').all(|part| part.parse::<u16>().is_ok());
    assert!(is_date || when == "unreleased", "{when}");
}

#[test]
fn each_published_package_has_its_licences() {
    for licence in LICENCES {
        let original = text(licence);
        for package in PUBLISHED {
            assert_eq!(text(&format!("{package}/{licence}")), original, "{package}/{licence} is another text");
        }
    }
    assert_eq!(setting(&text("Cargo.toml"), "workspace.package", "license").unwrap(), "MIT OR Apache-2.0");
}

#[test]
fn the_other_packages_are_not_published() {
    for package in [
        "tests",
        "tests/models",
        "tests/proof",
        "tests/foreign/bullmq",
        "tests/foreign/crates",
        "tests/foreign/rslock",
        "examples",
        "fuzz",
    ] {
        assert_eq!(
            setting(&text(&format!("{package}/Cargo.toml")), "package", "publish").unwrap(),
            "false",
            "{package}"
        );
    }
}

/// Paths of a single machine: home folders, and the folder of this checkout. The code joins their parts, so that this
/// file contains no such path.
fn machine_paths() -> Vec<String> {
    let homes = ["root", "home", "Users", "work"].map(|folder| format!("/{folder}/"));
    let here = root().to_str().map(str::to_owned);
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 5);
    homes.into_iter().chain(here).chain(home).collect()
}

/// Whether the text contains the path at the start of a path. Within a URL or another path, it does not count.
fn tells(text: &str, path: &str) -> bool {
    let starts = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-/~*".contains(c));
    text.match_indices(path).any(|(at, _)| starts(at))
}

#[test]
fn no_file_names_a_machine() {
    let paths = machine_paths();
    let mut found = Vec::new();
    for file in tracked() {
        let Some(text) = read(&file) else { continue };
        found.extend(paths.iter().filter(|path| tells(&text, path)).map(|path| format!("{}: {path}", file.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Settings by which a file can name a package registry other than the public one.
const REGISTRY_SETTINGS: [&str; 6] =
    ["index-url", "index_url", "PIP_INDEX", "UV_INDEX", "CARGO_REGISTRIES", "replace-with"];

#[test]
fn no_file_names_a_registry() {
    let locks = ["Cargo.lock", "fuzz/Cargo.lock", "tests/foreign/bullmq/Cargo.lock", "tests/foreign/rslock/Cargo.lock"];
    let locks = locks.map(text).concat();
    let sources = locks.lines().filter(|line| line.starts_with("source = "));
    let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let strange: Vec<&str> = sources.filter(|line| *line != public).collect();
    assert!(strange.is_empty(), "{strange:#?}");
    let this = Path::new(file!()).file_name();
    for file in tracked().into_iter().filter(|file| file.file_name() != this) {
        let Some(text) = read(&file) else { continue };
        for word in REGISTRY_SETTINGS {
            assert!(!text.contains(word), "{} names a registry by `{word}`", file.display());
        }
    }
}

/// Whether a file is the first one of a target, which `Cargo.toml` names, or a case of `tests/ui`.
fn is_first(path: &Path) -> bool {
    let folder = path.parent().unwrap();
    ["main.rs", "lib.rs", "build.rs"].iter().any(|name| path.ends_with(name))
        || ["bin", "fuzz_targets"].iter().any(|name| folder.ends_with(name))
        || folder.iter().any(|part| part == "ui")
        || folder.iter().count() < 2
}

/// A file of tests that no other file declares is not compiled.
#[test]
fn each_file_is_declared() {
    let rust: Vec<_> = tracked().into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")).collect();
    let files: Vec<_> = rust.iter().map(|path| (path.parent().unwrap(), read(path).unwrap())).collect();
    let is_declared = |path: &Path| {
        let module = if path.ends_with("mod.rs") { path.parent().unwrap() } else { path };
        let (name, above) = (module.file_stem().unwrap().to_str().unwrap(), module.parent().unwrap());
        let by_mod = format!("mod {name};");
        let by_path = [format!("/{name}.rs\"]"), format!("/{name}/mod.rs\"]")];
        files.iter().any(|(folder, text)| {
            let is_above = *folder == above || Some(*folder) == above.parent();
            let is_beside = above.starts_with(folder) || folder.parent() == Some(above);
            is_above && text.contains(&by_mod) || is_beside && by_path.iter().any(|words| text.contains(words))
        })
    };
    let forgotten: Vec<_> = rust.iter().filter(|path| !is_first(path) && !is_declared(path)).collect();
    assert!(forgotten.is_empty(), "no other file declares {forgotten:#?}");
}

#[test]
fn a_machine_path_is_found() {
    let path = format!("/{}/", "home");
    assert!(tells(&format!("in {path}ann/x"), &path) && tells(&format!("\"{path}ann\""), &path));
    assert!(!tells(&format!("https://a.example{path}x"), &path) && !tells(&format!("target{path}x"), &path));
}
