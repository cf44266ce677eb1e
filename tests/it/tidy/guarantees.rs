//! The table of faults and bad input in the crate's docs, and the tests of its rows: neither has what the other has not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::{blank, read, tracked};

const TABLE: &str = "redlock-sync/src/guarantees.md";
/// How many rows there are under each heading, and how the tests of a row begin.
const PARTS: [(&str, &str, u32); 6] = [
    ("# Faults", "fault", 49),
    ("# Other kinds of lock", "kind", 18),
    ("# Closures, once, leaders, and cancelled waits", "built", 21),
    ("# Bad input", "input", 14),
    ("# Queues of tasks", "queue_fault", 21),
    ("# Tasks by name and time", "queue_use", 7),
];

/// The rows of the table under a heading: number, what happens, and the outcome.
fn rows(text: &str, heading: &str) -> Vec<(u32, String, String)> {
    let below = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let part = below.split("\n# ").next().unwrap();
    let lines = part.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| # |"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [number, what, outcome] = cells[..] else { panic!("not three cells: {line}") };
            (number.parse().unwrap_or_else(|_| panic!("no number: {line}")), what.to_owned(), outcome.to_owned())
        })
        .collect()
}

/// The tests named for a row, by its number. A test that is generic over the kinds counts once.
fn tests(code: &str, prefix: &str) -> Vec<(u32, String)> {
    let start = format!("fn {prefix}_");
    let names = code.split(&start).skip(1).map(|after| {
        let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        let (number, rest) = name.split_once('_').unwrap_or((name, ""));
        let is_named = number.len() == 2 && !rest.is_empty();
        assert!(is_named, "`{prefix}_{name}` has no number of two digits and a name behind it");
        (number.parse().unwrap(), format!("{prefix}_{name}"))
    });
    names.collect()
}

/// All tests of the workspace that are named for a row.
fn numbered(prefix: &str) -> BTreeMap<u32, Vec<String>> {
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for path in tracked().into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
        for (number, name) in tests(&blank(&read(&path).unwrap()), prefix) {
            found.entry(number).or_default().push(name);
        }
    }
    found
}

#[test]
fn each_row_has_a_test_and_each_numbered_test_a_row() {
    let text = read(Path::new(TABLE)).unwrap();
    for (heading, prefix, count) in PARTS {
        let rows = rows(&text, heading);
        let numbers: Vec<u32> = rows.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "the rows under `{heading}`");
        let tests = numbered(prefix);
        for (number, what, outcome) in &rows {
            assert!(
                !what.is_empty() && outcome.ends_with('.'),
                "row {number} under `{heading}` says nothing: {outcome}"
            );
            let is_tested = tests.contains_key(number);
            assert!(is_tested, "row {number} under `{heading}` has no test `{prefix}_{number:02}_…`");
        }
        let strangers: Vec<_> = tests.iter().filter(|(number, _)| !numbers.contains(number)).collect();
        assert!(strangers.is_empty(), "no row under `{heading}` for {strangers:?}");
    }
}

/// That each of them is run is the compiler's to say: a generic test that no list of kinds names is dead code.
#[test]
fn numbered_tests_have_names_of_their_own() {
    for (_, prefix, _) in PARTS {
        let all: Vec<String> = numbered(prefix).into_values().flatten().collect();
        let names: BTreeSet<&String> = all.iter().collect();
        assert_eq!(names.len(), all.len(), "a name is used twice: {all:#?}");
    }
}

#[test]
fn rows_and_tests_are_read() {
    let text = "x\n# A\n\n| # | b | c |\n|---|---|---|\n| 1 | d | e `f`. |\n| 2 | g | h. |\n\n# B\n\n| 3 | i | j. |\n";
    let row = |number, what: &str, outcome: &str| (number, what.to_owned(), outcome.to_owned());
    assert_eq!(rows(text, "# A"), [row(1, "d", "e `f`."), row(2, "g", "h.")]);
    assert_eq!(rows(text, "# B"), [row(3, "i", "j.")]);
    let code = "fn fault_07_a<K: Kind>() {}\nfn fault_12_b() {}\nfn input_07_c() {}\neach_kind!(fault_07_a);";
    assert_eq!(tests(code, "fault"), [(7, "fault_07_a".to_owned()), (12, "fault_12_b".to_owned())]);
}
