//! Links of pages and of the crates' documentation, and the files that they name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source::{package, read, tracked};

/// The URL prefix with which pages that are shown elsewhere name a file of the repository.
const REPOSITORY: &str = "https://github.com/redlock-sync/redlock-sync/";
/// The documentation of the library's public items.
const ITEMS: &str = "https://docs.rs/redlock-sync/latest/redlock_sync/";

/// All pages, and the crates' own documentation, by path.
fn pages() -> BTreeMap<PathBuf, String> {
    let markdown = tracked().into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    let mut pages: BTreeMap<PathBuf, String> = markdown.map(|path| (path.clone(), read(&path).unwrap())).collect();
    for name in ["redlock-sync", "redlock-macros"] {
        for source in package(name) {
            let doc = |line: &str| {
                let line = line.trim_start();
                let text = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
                text.map_or("", str::trim_start).to_owned()
            };
            let docs: Vec<String> = source.text.lines().map(doc).collect();
            pages.insert(Path::new(name).join("src").join(&source.name), docs.join("\n"));
        }
    }
    pages
}

/// The lines outside code blocks, without text in backticks.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    lines.join("\n")
}

/// The targets of a page's links: in the text, and in definitions.
fn targets(page: &str) -> Vec<String> {
    let prose = prose(page);
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', '\n']).next());
    inline.chain(definitions(&prose).map(|(_, target)| target)).map(str::to_owned).collect()
}

/// The lines `[name]: target`.
fn definitions(prose: &str) -> impl Iterator<Item = (&str, &str)> {
    prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
}

/// The anchor of each heading: its letters, digits, hyphens and underscores in lower case, with hyphens for spaces.
fn anchors(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some(title) = line.strip_prefix('#').filter(|_| !is_code) {
            let title = title.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            found.push(title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect());
        }
    }
    found
}

/// Why a page's link is broken, or `None` if its target exists.
fn is_broken(pages: &BTreeMap<PathBuf, String>, page: &Path, target: &str) -> Option<String> {
    let has = |path: &Path, anchor: &str| {
        let text = pages.get(path)?;
        Some(anchor.is_empty() || anchors(text).iter().any(|known| known == anchor))
    };
    let in_repository = |path: &Path, anchor: &str| match has(path, anchor) {
        Some(true) => None,
        Some(false) => Some(format!("{} has no heading `{anchor}`", path.display())),
        None if anchor.is_empty() && tracked().iter().any(|file| file.starts_with(path)) => None,
        None => Some(format!("no file {}", path.display())),
    };
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    if let Some(item) = path.strip_prefix(ITEMS) {
        return (!is_documented(pages, item, anchor)).then(|| format!("no such item: {item}#{anchor}"));
    }
    if let Some(file) = path.strip_prefix(REPOSITORY) {
        // Links to comparisons of versions and the like are not checked.
        let file = file.strip_prefix("blob/main/")?;
        return in_repository(Path::new(file), anchor);
    }
    // Rustdoc checks the paths of Rust items, except the headings of the crate's page.
    if path == "crate" {
        return in_repository(Path::new("redlock-sync/src/lib.rs"), anchor);
    }
    let is_of_rust =
        path.contains("::") || page.starts_with("redlock-sync/src") || page.starts_with("redlock-macros/src");
    if path.starts_with("https://") || is_of_rust && !path.is_empty() {
        return None;
    }
    in_repository(&beside(page, path), anchor)
}

/// The file that a relative `path` on this page means.
fn beside(page: &Path, path: &str) -> PathBuf {
    if path.is_empty() {
        return page.to_owned();
    }
    let mut found = page.parent().unwrap().to_owned();
    for part in path.split('/') {
        match part {
            ".." => assert!(found.pop(), "{path} leaves the repository"),
            _ => found.push(part),
        }
    }
    found
}

/// Whether the library documents an item such as `struct.Mutex.html#method.lease`.
fn is_documented(pages: &BTreeMap<PathBuf, String>, item: &str, anchor: &str) -> bool {
    let has_heading = |path: &str| anchor.is_empty() || anchors(&pages[Path::new(path)]).iter().any(|a| a == anchor);
    let parts: Vec<&str> = item.split(['.', '/']).collect();
    match parts[..] {
        ["index", "html"] => has_heading("redlock-sync/src/lib.rs"),
        ["guarantees", "index", "html"] => has_heading("redlock-sync/src/guarantees.md"),
        ["testing", "index", "html"] => has_heading("redlock-sync/src/testing/mod.rs"),
        ["attr", name, "html"] => has_heading(&format!("redlock-macros/src/docs/{name}.md")),
        [kind, name, "html"] => {
            let library = package("redlock-sync");
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let is_in = |code: &str, words: &str| code.split(words).skip(1).any(ends);
            let has = |words: String| library.iter().any(|source| is_in(&source.code, &words));
            let method = anchor.strip_prefix("method.");
            has(format!("pub {kind} {name}")) && method.is_none_or(|method| has(format!("pub fn {method}")))
        }
        _ => false,
    }
}

#[test]
fn each_link_leads_to_something() {
    let pages = pages();
    let mut count = 0;
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for target in targets(text) {
            count += 1;
            let why = is_broken(&pages, page, &target);
            broken.extend(why.map(|why| format!("{}: {target}: {why}", page.display())));
        }
    }
    assert!(count > 200, "only {count} links were found: the search is broken");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn each_name_of_a_link_is_defined_and_used() {
    for (page, text) in pages().into_iter().filter(|(page, _)| page.extension().is_some_and(|ext| ext == "md")) {
        let prose = prose(&text);
        let defined: Vec<&str> = definitions(&prose).map(|(name, _)| name).collect();
        let used = |name: &str| prose.matches(&format!("[{name}]")).count() > 1;
        let unused: Vec<&&str> = defined.iter().filter(|name| !used(name)).collect();
        assert!(unused.is_empty(), "{}: no text has a link by {unused:?}", page.display());
        let names = prose.split("][").skip(1).filter_map(|rest| rest.split(']').next());
        let unknown: Vec<&str> = names.filter(|name| !defined.contains(name)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?} are not defined", page.display());
    }
}

/// Texts in backticks that are names of files: `node/link.rs`, but not `*.rs` or `protocol/<kind>.rs`.
fn files(page: &str) -> Vec<&str> {
    let is_name = |word: &&str| word.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
    let is_file = |word: &&str| {
        [".rs", ".lua", ".patch"].iter().any(|end| word.strip_suffix(end).is_some_and(|stem| !stem.is_empty()))
    };
    page.split('`').skip(1).step_by(2).filter(is_name).filter(is_file).collect()
}

/// Each file that a page or comment names must exist, except in the changelog.
#[test]
fn each_file_that_is_named_exists() {
    let all = tracked();
    let mut missing = Vec::new();
    for (page, text) in pages().iter().filter(|(page, _)| *page != Path::new("CHANGELOG.md")) {
        let gone = files(text).into_iter().filter(|name| !all.iter().any(|file| file.ends_with(name)));
        missing.extend(gone.map(|name| format!("{}: {name}", page.display())));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn links_and_headings_are_found() {
    let page = "# A `b`: c\n[d](e#f), [`g`](h.md) `[i](j)`\n```\n[k](l)\n# m\n```\n[n][o]\n\n[o]: https://p\n";
    assert_eq!(targets(page), ["e#f", "h.md", "https://p"]);
    assert_eq!(anchors(page), ["a-b-c"]);
    assert_eq!(files("`a/b.rs` `c.lua` `.rs` `*.rs`\n```rust\nd.rs `\n```\n`<e>.rs`, f.rs"), ["a/b.rs", "c.lua"]);
    assert_eq!(beside(Path::new("docs/a.md"), "../tests/b.md"), Path::new("tests/b.md"));
    let pages = BTreeMap::from([(PathBuf::from("docs/a.md"), page.to_owned())]);
    let broken = |target: &str| is_broken(&pages, Path::new("docs/a.md"), target).is_some();
    assert!(!broken("#a-b-c") && !broken("a.md#a-b-c") && !broken("https://crates.io/crates/redis"));
    assert!(broken("#m") && broken("b.md") && broken(&format!("{REPOSITORY}blob/main/docs/no.md")));
    assert!(!broken(&format!("{ITEMS}struct.Builder.html#method.lease")));
    assert!(broken(&format!("{ITEMS}struct.Builder.html#method.leash")) && broken(&format!("{ITEMS}struct.No.html")));
}
