//! The widths of pages and docs: narrow cells, and lines that fit.

use std::path::{Path, PathBuf};

use super::source::{package, read, tracked};

/// The pages that users read first. `SETTINGS` is a page of tables.
const FIRST: [&str; 4] = ["README.md", "docs/connect.md", "docs/faq.md", "docs/errors.md"];
const SETTINGS: &str = "docs/settings.md";
/// The widest cell of a table that fits one line on a laptop.
const WIDEST_CELL: usize = 90;
const LONGEST_LINE: usize = 120;

/// The pages for users: those in the repository's root and in `docs/`, and the pages of the packages.
fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        let folder = path.parent().unwrap();
        let is_for_users = ["", "docs", "examples", "redlock-cli", "redlock-macros/src/docs"];
        path.extension().is_some_and(|ext| ext == "md")
            && path != Path::new("CHANGELOG.md")
            && path != Path::new("ARCHITECTURE.md")
            && is_for_users.iter().any(|known| folder == Path::new(known))
    };
    tracked().into_iter().filter(is_page).collect()
}

/// The kind of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prose,
    Row,
    Other,
}

/// The lines of a page with their kinds. Code, headings and definitions of links are `Other`.
fn lines(page: &str) -> Vec<(usize, Kind, &str)> {
    let mut is_code = false;
    let mut kind = |line: &str| {
        let start = line.trim_start();
        let is_fence = start.starts_with("```");
        is_code ^= is_fence;
        let is_definition = line.starts_with('[') && line.contains("]: ");
        match start.chars().next() {
            _ if is_code || is_fence || is_definition => Kind::Other,
            None | Some('#' | '<') => Kind::Other,
            Some('|') => Kind::Row,
            Some(_) => Kind::Prose,
        }
    };
    (1..).zip(page.lines()).map(|(number, line)| (number, kind(line), line)).collect()
}

/// The text as a reader sees it, without markup and targets of links. A text in backticks counts as one word and keeps
/// its backticks.
fn seen(text: &str) -> String {
    let code_as_words = text.split('`').enumerate().map(|(i, part)| match i % 2 {
        0 => part.to_owned(),
        _ => part.replace(|c: char| !c.is_alphanumeric(), "_"),
    });
    let text = code_as_words.collect::<Vec<_>>().join("`");
    let mut shown = String::new();
    let mut rest = text.as_str();
    while let Some(at) = [rest.find("]("), rest.find("][")].into_iter().flatten().min() {
        let (before, target) = rest.split_at(at);
        shown.push_str(before);
        rest = target[2..].split_once([')', ']']).map_or("", |(_, rest)| rest);
    }
    (shown + rest).replace(['[', ']', '*'], "")
}

/// The comments of a Rust file, as a page with the same line numbers.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start();
        let comment = ["///", "//!", "//"].into_iter().find_map(|marks| line.strip_prefix(marks));
        comment.map_or_else(String::new, |comment| comment.strip_prefix(' ').unwrap_or(comment).to_owned())
    };
    text.lines().map(comment).collect::<Vec<_>>().join("\n")
}

/// Name, text and comments of each file of the library.
fn sources() -> impl Iterator<Item = (String, String, String)> {
    ["redlock-sync", "redlock-macros"].into_iter().flat_map(|name| {
        package(name).into_iter().map(move |source| {
            let comments = comments(&source.text);
            (format!("{name}/src/{}", source.name), source.text, comments)
        })
    })
}

#[test]
fn cells_are_narrow() {
    let mut wide = Vec::new();
    for page in FIRST.into_iter().chain([SETTINGS]) {
        let text = read(Path::new(page)).unwrap();
        for (line, _, row) in lines(&text).into_iter().filter(|(_, kind, _)| *kind == Kind::Row) {
            let cells = seen(row).replace('`', "").split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
            let too_wide = cells.into_iter().filter(|cell| cell.chars().count() > WIDEST_CELL);
            wide.extend(too_wide.map(|cell| format!("{page}:{line} {cell}")));
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn lines_fit() {
    let mut long = Vec::new();
    // `page` contains the prose of `text`, line by line.
    let mut check = |name: String, page: &str, text: &str| {
        for ((number, kind, _), line) in lines(page).into_iter().zip(text.lines()) {
            if kind == Kind::Prose && line.chars().count() > LONGEST_LINE {
                long.push(format!("{name}:{number}"));
            }
        }
    };
    for page in pages() {
        let text = read(&page).unwrap();
        check(page.display().to_string(), &text, &text);
    }
    sources().for_each(|(name, text, comments)| check(name, &comments, &text));
    assert!(long.is_empty(), "wrap them at {LONGEST_LINE} columns: {long:#?}");
}

#[test]
fn cells_and_comments_are_found() {
    assert_eq!(seen("| [a b][c] | **d** `e|f` |"), "| a b | d `e_f` |");
    assert_eq!(comments("/// a\ncode // b\n    //! c\n// d"), "a\n\nc\nd");
}
