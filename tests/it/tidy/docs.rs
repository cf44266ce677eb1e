//! Each public item of the library has an example.

use super::source::{Source, library};

/// How a public item starts. The example of a type also covers its fields and variants. A `pub use` item has its
/// example at its definition.
const STARTS: [&str; 10] = [
    "pub fn ",
    "pub const fn ",
    "pub struct ",
    "pub enum ",
    "pub union ",
    "pub trait ",
    "pub type ",
    "pub const ",
    "pub static ",
    "pub macro ",
];

/// This module is public only for macros, and hidden from the docs.
const HIDDEN: &str = "__private";

#[derive(Debug, PartialEq, Eq)]
struct Item {
    line: usize,
    start: String,
    has_example: bool,
}

/// The public items of a file, including the functions of public traits.
fn items(source: &Source) -> Vec<Item> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut trait_indent = None;
    let mut found = Vec::new();
    for (i, code) in source.code.lines().enumerate() {
        let start = code.trim_start();
        let indent = code.len() - start.len();
        if trait_indent == Some(indent) && start.starts_with('}') {
            trait_indent = None;
        }
        let of_trait = trait_indent.is_some_and(|of| indent == of + 4) && start.starts_with("fn ");
        if of_trait || STARTS.iter().any(|known| start.starts_with(known)) {
            found.push(Item { line: i + 1, start: start.to_owned(), has_example: has_example(&lines[..i]) });
        }
        if start.starts_with("pub trait ") && !start.contains('}') {
            trait_indent = Some(indent);
        }
    }
    found
}

/// Whether the doc comment at the end of these lines has a code block, or the item is hidden. Attributes may follow the
/// comment.
fn has_example(above: &[&str]) -> bool {
    let mut in_attribute = false;
    for line in above.iter().rev().map(|line| line.trim()) {
        if line == "#[doc(hidden)]" {
            return true;
        } else if line.starts_with("#[") {
            in_attribute = false;
        } else if line.ends_with(")]") {
            in_attribute = true;
        } else if line.starts_with("///") {
            if line.trim_start_matches('/').trim_start().starts_with("```") {
                return true;
            }
        } else if !in_attribute {
            return false;
        }
    }
    false
}

#[test]
fn every_public_item_has_an_example() {
    let mut count = 0;
    let mut without = Vec::new();
    for source in library().iter().filter(|source| !source.name.starts_with(HIDDEN)) {
        for item in items(source) {
            count += 1;
            if !item.has_example {
                without.push(format!("{}:{} {}", source.name, item.line, item.start));
            }
        }
    }
    assert!(count > 50, "only {count} public items were found: the search is broken");
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn examples_are_found() {
    let text = "/// A.\n/// ```\n/// a();\n/// ```\n#[allow(\n    b,\n)]\n#[must_use]\npub fn a() {}\n\n/// B.\npub struct B {\n    \
                pub c: u8,\n}\n/// T.\npub trait T {\n    fn d();\n}\n";
    let source = Source { name: "x.rs".into(), text: text.into(), code: super::source::blank(text) };
    let found: Vec<(String, bool)> = items(&source).into_iter().map(|item| (item.start, item.has_example)).collect();
    let expected = [("pub fn a() {}", true), ("pub struct B {", false), ("pub trait T {", false), ("fn d();", false)];
    assert_eq!(found, expected.map(|(start, has)| (start.to_owned(), has)));
}
