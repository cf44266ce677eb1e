//! Words that no comment, page or message may have. Texts name threads, processes, holders, waiters or servers instead.

use std::path::Path;

use super::source::{prose, read, tracked};

const WORDS: [&str; 16] = [
    "who",
    "whom",
    "whoever",
    "he",
    "him",
    "his",
    "himself",
    "she",
    "her",
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
];

/// The extensions of files that are text as a whole. In Rust files, only comments and strings count.
const TEXT: [&str; 6] = ["md", "lua", "toml", "yml", "sh", "py"];

/// The words in a text, each with its line. `{name}` in a message is a variable, and `a_name` is one word.
fn found(text: &str) -> Vec<(usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || "_{".contains(c);
    let words = |(line, text)| str::split(text, move |c| !is_part(c)).map(move |word| (line, word));
    let is_one = |(_, word): &(usize, &str)| WORDS.iter().any(|other| other.eq_ignore_ascii_case(word));
    (1..).zip(text.lines()).flat_map(words).filter(is_one).collect()
}

fn text_of(path: &Path) -> Option<String> {
    let extension = path.extension()?.to_str()?;
    match extension {
        "rs" => Some(prose(&read(path)?)),
        _ if TEXT.contains(&extension) => read(path),
        _ => None,
    }
}

#[test]
fn the_subjects_are_threads_and_processes() {
    // This file has to contain the words.
    let others = tracked().into_iter().filter(|path| path.file_name() != Path::new(file!()).file_name());
    let mut wrong = Vec::new();
    for path in others {
        let Some(text) = text_of(&path) else { continue };
        wrong.extend(found(&text).iter().map(|(line, word)| format!("{}:{line} {word}", path.display())));
    }
    assert!(wrong.is_empty(), "name the subject: a thread, a process, a holder, a waiter, a server: {wrong:#?}");
}

#[test]
fn words_are_found_in_prose_only() {
    let text = "// Who waits\nlet who = he; // the he_said\nprintln!(\"{who} tells {}: nobody-knows\");";
    assert_eq!(found(&prose(text)), [(1, "Who"), (3, "nobody")]);
}
