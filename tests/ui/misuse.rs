//! The mistakes that the macros reject, and their messages. `fail` has a file for each mistake, and next to it the
//! output of rustc.
//!
//! After a change of a message, run `TRYBUILD=overwrite cargo test -p redlock-ui` and read the difference.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic"
)]

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The version of rustc whose messages `fail` has. Other versions word some of them differently.
const PINNED: &str = "rustc 1.95.";

fn rustc() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().expect("rustc runs");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns every file of `fail` with this extension.
fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fail");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn mistakes_are_refused_in_these_words() {
    let version = rustc();
    if version.starts_with(PINNED) {
        trybuild::TestCases::new().compile_fail("fail/*.rs");
    } else {
        println!("{version} is not {PINNED}x: only that nothing of `fail` compiles is checked, not the words");
        nothing_compiles();
    }
}

/// Checks that no file compiles. If a file has no expected output next to it, trybuild writes the output. At the end, it
/// reports that it has written all of them.
fn nothing_compiles() {
    let copies = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fail");
    fs::create_dir_all(&copies).unwrap();
    for file in files("rs") {
        fs::copy(&file, copies.join(file.file_name().unwrap())).unwrap();
    }
    let panic = catch_unwind(|| trybuild::TestCases::new().compile_fail(copies.join("*.rs"))).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert_eq!(*said, format!("successfully created new stderr files for {} test cases", files("rs").len()));
}

/// Rustc rejects the function that the expansion adds in this file. A second message says that the call does not find
/// it.
const TWO_MESSAGES: &str = "track_caller_in_an_impl_of_a_trait";

#[test]
fn each_mistake_makes_one_message() {
    for file in files("rs") {
        let words = fs::read_to_string(file.with_extension("stderr")).unwrap();
        let errors = words.lines().filter(|line| line.starts_with("error")).count();
        let expected = if file.file_stem().is_some_and(|name| name == TWO_MESSAGES) { 2 } else { 1 };
        assert_eq!(errors, expected, "{}", file.display());
        assert!(!words.contains("\nwarning"), "{}", file.display());
    }
}

/// Invalid templates, each with a part of its message.
const TEMPLATES: [(&str, &str); 8] = [
    ("hole_unknown_name", "no parameter `idd`"),
    ("hole_unknown_name_in_braces", "no parameter `idd`"),
    ("hole_never_closed", "opens a hole that no"),
    ("hole_never_opened", "closes a hole that no"),
    ("angle_never_closed", "opens a hole that no"),
    ("angle_never_opened", "closes a hole that no"),
    ("template_empty", "the key template is empty"),
    ("holes_adjacent", "put text between"),
];

/// The test above checks that these are the messages of rustc.
#[test]
fn input_13_templates_that_cannot_be_are_refused_at_the_attribute() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fail");
    for (name, said) in TEMPLATES {
        let code = fs::read_to_string(folder.join(name).with_extension("rs")).unwrap();
        let words = fs::read_to_string(folder.join(name).with_extension("stderr")).unwrap();
        let message = words.lines().next().unwrap();
        assert!(message.starts_with("error: ") && message.contains(said), "{name}: {message}");
        let place = words.lines().find_map(|line| line.trim_start().strip_prefix("--> ")).unwrap();
        let line: usize = place.split(':').nth(1).unwrap().parse().unwrap();
        let marked = code.lines().nth(line - 1).unwrap();
        assert!(marked.starts_with("#[distributed_lock("), "{name}: the message is at `{marked}`");
        assert_eq!(words.matches("error").count(), 1, "{name}");
    }
}
