//! The size of the library. `cargo test -p redlock-tests --test it tidy::size -- --nocapture` prints it for each
//! folder.

use std::collections::BTreeMap;

use super::source::{Source, library};

/// The limits are a little above the sizes of 26 November 2026.
const MOST_LINES: usize = 19_300;
const MOST_TYPES: usize = 330;

#[derive(Default)]
struct Size {
    files: usize,
    /// Lines of code, without comments, docs and tests.
    lines: usize,
    /// Structs, enums, traits and unions.
    types: usize,
}

impl Size {
    fn add(&mut self, source: &Source) {
        self.files += 1;
        for line in source.code.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.lines += 1;
            let item = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, item)| item));
            self.types +=
                usize::from(["struct ", "enum ", "trait ", "union "].iter().any(|word| item.starts_with(word)));
        }
    }
}

#[test]
fn the_library_has_its_size() {
    let (mut all, mut folders) = (Size::default(), BTreeMap::<String, Size>::new());
    for source in library() {
        all.add(&source);
        folders.entry(source.module().to_owned()).or_default().add(&source);
    }
    println!("{:>6} {:>6} {:>6}", "files", "lines", "types");
    for (folder, Size { files, lines, types }) in &folders {
        println!("{files:>6} {lines:>6} {types:>6} {folder}");
    }
    println!("{:>6} {:>6} {:>6} in all", all.files, all.lines, all.types);
    let advice = "take something out, or say in ARCHITECTURE.md why it has to grow and change the number here";
    assert!(all.lines <= MOST_LINES, "{} lines of code: {advice}", all.lines);
    assert!(all.types <= MOST_TYPES, "{} types: {advice}", all.types);
}
