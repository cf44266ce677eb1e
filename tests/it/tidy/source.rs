//! The files of the repository, and Rust code without comments, strings and tests.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// The workspace's folder.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All files that git tracks, or all files if there is no git. Paths are relative to the workspace.
pub(super) fn tracked() -> Vec<PathBuf> {
    let git = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    match git {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let names = String::from_utf8(output.stdout).unwrap();
            let there = |name: &&str| root().join(name).is_file();
            names.split_terminator('\0').filter(there).map(PathBuf::from).collect()
        }
        _ => files_below(root()),
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
    files.sort();
    files
}

/// The text of a file of the workspace, or `None` if it is no text.
pub(super) fn read(path: &Path) -> Option<String> {
    String::from_utf8(fs::read(root().join(path)).unwrap()).ok()
}

/// One Rust file.
#[derive(Clone)]
pub(super) struct Source {
    /// The path below the crate's `src`, as `quorum/ballot.rs`.
    pub(super) name: String,
    pub(super) text: String,
    /// The same lines, with spaces for comments, strings, and code that is compiled only for tests.
    pub(super) code: String,
}

impl Source {
    /// The module: `node` for all files in `node/`, `clock` for `clock.rs`.
    pub(super) fn module(&self) -> &str {
        self.name.split('/').next().unwrap().trim_end_matches(".rs")
    }

    /// The places of `pattern` in the code, as `file:line`.
    pub(super) fn uses(&self, pattern: &str) -> Vec<String> {
        let lines = (1..).zip(self.code.lines());
        lines.filter(|(_, line)| mentions(line, pattern)).map(|(n, _)| format!("{}:{n} {pattern}", self.name)).collect()
    }
}

/// Whether the line contains the pattern, but not as the end of a longer word.
fn mentions(line: &str, pattern: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let starts_inside = |at: usize| pattern.starts_with(word) && line[..at].ends_with(word);
    line.match_indices(pattern).any(|(at, _)| !starts_inside(at))
}

/// The code of one package, without files that hold only tests.
pub(super) fn package(name: &str) -> Vec<Source> {
    // Several tests read each package, and to blank it takes a while.
    static READ: LazyLock<Mutex<HashMap<String, Vec<Source>>>> = LazyLock::new(Mutex::default);
    let read = || folder(&Path::new(name).join("src"));
    READ.lock().unwrap().entry(name.to_owned()).or_insert_with(read).clone()
}

/// The code below a folder of the workspace, without files that hold only tests.
pub(super) fn folder(folder: &Path) -> Vec<Source> {
    let sources: Vec<Source> = files_below(&root().join(folder))
        .iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .filter(|path| !path.iter().any(|part| ["tests", "tests.rs"].iter().any(|only| part == *only)))
        .map(|path| {
            let text = read(path).unwrap();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            Source { name, code: without_tests(&blank(&text)), text }
        })
        .collect();
    assert!(!sources.is_empty(), "no code in {}", folder.display());
    sources
}

/// The code of the library.
pub(super) fn library() -> Vec<Source> {
    package("redlock-sync")
}

/// The code, with spaces for comments and quoted text. The line numbers stay the same.
pub(super) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (length, is_code) = token(&chars, at);
        let blanked = |&c: &char| if is_code || c == '\n' { c } else { ' ' };
        out.extend(chars[at..at + length].iter().map(blanked));
        at += length;
    }
    out
}

/// The length of the token at this place, and whether it is code.
fn token(chars: &[char], at: usize) -> (usize, bool) {
    let rest = &chars[at..];
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let length = match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest),
        ['r', '"' | '#', ..] if !in_word => raw_quoted(rest),
        ['\'', '\\', ..] => rest.iter().skip(3).position(|&c| c == '\'').map_or(rest.len(), |end| end + 4),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    };
    if length == 0 { (1, true) } else { (length, false) }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0;
    for (i, pair) in rest.windows(2).enumerate() {
        match pair {
            ['/', '*'] => depth += 1,
            ['*', '/'] if depth == 1 => return i + 2,
            ['*', '/'] => depth -= 1,
            _ => {}
        }
    }
    rest.len()
}

fn quoted(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a raw string, or zero for a raw identifier.
fn raw_quoted(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = hashes + 2;
    let found = rest[body..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |at| body + at + end.len())
}

/// Blanked code without the items under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut rest = code;
    let mut out = String::new();
    while let Some(at) = rest.find("#[cfg(test)]") {
        let (before, item) = rest.split_at(at);
        let length = item_length(item);
        out.push_str(before);
        out.extend(item[..length].chars().filter(|&c| c == '\n'));
        rest = &item[length..];
    }
    out + rest
}

/// The length up to the `;` or the closing brace that ends the item.
fn item_length(item: &str) -> usize {
    let mut depth = 0;
    for (at, c) in item.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    item.len()
}

#[test]
fn blanking_leaves_code_and_lines() {
    let text = "a // b\n\"c \\\" d\" e 'x' '\\n' '\"' 'f: /* g /* h */ i */ j r\"k\\\" l r#\"m \" n\"# o\nr#type";
    let code = blank(text);
    let words: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(words, ["a", "e", "'f:", "j", "l", "o", "r#type"]);
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn tests_are_left_out() {
    let code = "a\n#[cfg(test)]\nuse b;\nc\n#[cfg(test)]\nmod d {\n fn e() { f }\n}\ng\n";
    assert_eq!(without_tests(code).split_whitespace().collect::<Vec<_>>(), ["a", "c", "g"]);
    assert_eq!(without_tests(code).lines().count(), code.lines().count());
}

#[test]
fn a_word_is_not_a_part_of_a_longer_one() {
    assert!(mentions("use redis::Value", "redis::") && mentions("a.unwrap()", ".unwrap()"));
    assert!(!mentions("use notredis::Value", "redis::") && !mentions("dont_panic!()", "panic!("));
}
