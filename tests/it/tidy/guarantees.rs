//! Each numbered heading of the crate's guarantees has a test, and each numbered test has a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use super::source::{blank, read, tracked};

const PAGE: &str = "redlock-sync/src/guarantees.md";
/// The headings of the guarantees, and the prefix of the test names for each heading.
const PARTS: [(&str, &str); 6] = [
    ("# Faults", "fault"),
    ("# Other kinds of lock", "kind"),
    ("# Closures, once, leaders, and cancelled waits", "built"),
    ("# Bad input", "input"),
    ("# Queues of tasks", "queue_fault"),
    ("# Tasks by name and time", "queue_use"),
];
/// One paragraph says what the user sees, and one says what to do.
const MOST_PARAGRAPHS: usize = 2;

/// The cases under a heading: number, title, and paragraphs.
fn cases(text: &str, heading: &str) -> Vec<(u32, String, Vec<String>)> {
    let below = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let part = below.split("\n# ").next().unwrap();
    let cases = part.split("\n### ").skip(1).map(|case| {
        let (title, body) = case.split_once('\n').unwrap_or((case, ""));
        let (number, what) = title.split_once(". ").unwrap_or_else(|| panic!("no number: {title}"));
        let paragraphs = body.split("\n\n").map(|text| text.trim().replace('\n', " "));
        (
            number.parse().unwrap_or_else(|_| panic!("no number: {title}")),
            what.to_owned(),
            paragraphs.filter(|text| !text.is_empty()).collect(),
        )
    });
    cases.collect()
}

/// The tests with this prefix, by number. A test that is generic over the kinds counts once.
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

/// The code of the files that have such tests. To blank all files takes seconds.
static CODE: LazyLock<String> = LazyLock::new(|| {
    let starts = PARTS.map(|(_, prefix)| format!("fn {prefix}_"));
    let has_one = |text: &str| starts.iter().any(|start| text.contains(start));
    let rust = tracked().into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    let texts = rust.map(|path| read(&path).unwrap()).filter(|text| has_one(text));
    texts.map(|text| blank(&text)).collect::<Vec<_>>().join("\n")
});

/// All tests of the workspace with this prefix.
fn numbered(prefix: &str) -> BTreeMap<u32, Vec<String>> {
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (number, name) in tests(&CODE, prefix) {
        found.entry(number).or_default().push(name);
    }
    found
}

#[test]
fn each_case_has_a_test_and_each_numbered_test_a_case() {
    let text = read(Path::new(PAGE)).unwrap();
    for (heading, prefix) in PARTS {
        let cases = cases(&text, heading);
        let numbers: Vec<u32> = cases.iter().map(|(number, ..)| *number).collect();
        let in_order: Vec<u32> = (1..).take(numbers.len()).collect();
        assert!(!numbers.is_empty() && numbers == in_order, "the numbers under `{heading}`: {numbers:?}");
        let tests = numbered(prefix);
        for (number, what, paragraphs) in &cases {
            let is_short = (1..=MOST_PARAGRAPHS).contains(&paragraphs.len());
            let says_something = !what.is_empty() && paragraphs.iter().all(|text| text.ends_with('.'));
            assert!(is_short && says_something, "case {number} under `{heading}`: {paragraphs:#?}");
            let is_tested = tests.contains_key(number);
            assert!(is_tested, "case {number} under `{heading}` has no test `{prefix}_{number:02}_…`");
        }
        let strangers: Vec<_> = tests.iter().filter(|(number, _)| !numbers.contains(number)).collect();
        assert!(strangers.is_empty(), "no case under `{heading}` for {strangers:?}");
    }
}

/// The compiler checks that each test runs, because a generic test that no list of kinds names is dead code.
#[test]
fn numbered_tests_have_names_of_their_own() {
    for (_, prefix) in PARTS {
        let all: Vec<String> = numbered(prefix).into_values().flatten().collect();
        let names: BTreeSet<&String> = all.iter().collect();
        assert_eq!(names.len(), all.len(), "a name is used twice: {all:#?}");
    }
}

#[test]
fn cases_and_tests_are_read() {
    let text = "x\n# A\n\ny.\n\n### 1. d `e`\n\nf\ng.\n\nh.\n\n### 2. i. j\n\nk.\n\n# B\n\n### 3. l\n\nm.\n";
    let case = |number, what: &str, paragraphs: &[&str]| {
        (number, what.to_owned(), paragraphs.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(cases(text, "# A"), [case(1, "d `e`", &["f g.", "h."]), case(2, "i. j", &["k."])]);
    assert_eq!(cases(text, "# B"), [case(3, "l", &["m."])]);
    let code = "fn fault_07_a<K: Kind>() {}\nfn fault_12_b() {}\nfn input_07_c() {}\neach_kind!(fault_07_a);";
    assert_eq!(tests(code, "fault"), [(7, "fault_07_a".to_owned()), (12, "fault_12_b".to_owned())]);
}
