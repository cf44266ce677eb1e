//! The Lua files. Each states its parameters and replies, and a server loads it under the digest that the library
//! computed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redlock_tests::Server;

use super::source::{read, tracked};

/// The files by name: scripts, and what they include.
fn scripts() -> BTreeMap<String, String> {
    // One unit test of the library has its own script.
    let lua = tracked()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "lua") && !path.iter().any(|part| part == "tests"));
    let scripts: BTreeMap<String, String> =
        lua.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), read(&path).unwrap())).collect();
    assert!(scripts.len() >= 5, "{:?}", scripts.keys());
    scripts
}

/// The files that a script includes.
fn included(script: &str) -> impl Iterator<Item = &str> {
    script.lines().filter_map(|line| line.strip_prefix("-- include ")).flat_map(|names| names.split(", "))
}

/// The comment that a script starts with.
fn header(script: &str) -> String {
    let is_of_header = |line: &&str| line.starts_with("--") && !line.starts_with("-- include ");
    script.lines().take_while(is_of_header).collect::<Vec<_>>().join("\n")
}

/// The `KEYS[n]` and `ARGV[n]` in a text, with n a number; `ARGV[n..]` counts as `ARGV[n]`.
fn parameters<'a>(text: &'a str, table: &'a str) -> Vec<u32> {
    let inside = text.split(table).skip(1).filter_map(|after| after.split(']').next());
    let mut numbers: Vec<u32> = inside.filter_map(|inside| inside.trim_end_matches('.').parse().ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[test]
fn each_script_says_what_it_takes_and_gives() {
    let scripts = scripts();
    let all_included: BTreeSet<&str> = scripts.values().flat_map(|script| included(script)).collect();
    for (name, script) in &scripts {
        let header = header(script);
        let body = &script[header.len()..];
        assert!(header.lines().count() >= 3, "{name}.lua does not start with a description");
        // Functions have neither, and a script that only publishes needs no key.
        let words: &[&str] = match name.as_str() {
            name if all_included.contains(name) => &[],
            "health" => &["replies "],
            _ => &["KEYS[1]", "replies "],
        };
        for word in words {
            assert!(header.contains(word), "the first lines of {name}.lua do not state {word}");
        }
        for table in ["KEYS[", "ARGV["] {
            let (stated, used) = (parameters(&header, table), parameters(body, table));
            let missing: Vec<&u32> = used.iter().filter(|n| !stated.contains(n)).collect();
            assert!(
                missing.is_empty(),
                "{name}.lua uses {table}n] for {missing:?}, which its first lines do not state"
            );
            let gapless = stated.iter().zip(1..).all(|(stated, n)| *stated == n);
            assert!(gapless, "{name}.lua states {table}n] for {stated:?}, with a gap");
        }
        assert!(!body.contains("tostring("), "{name}.lua: `tostring` of a large number loses digits, take '%.0f'");
    }
}

#[test]
fn each_script_loads_under_the_digest_that_the_library_computed() {
    let server = Server::start();
    let (files, mut known) = (scripts(), BTreeSet::new());
    for script in redlock_sync::__private::scripts() {
        let loaded: String = server.ask(redis::cmd("SCRIPT").arg("LOAD").arg(&script.source));
        assert_eq!(loaded, script.sha, "{}", script.file);
        known.insert(script.file);
        known.extend(included(&files[script.file]));
    }
    assert_eq!(files.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
}

/// The place at which a text first calls a function, other than one of a table.
fn first_call(text: &str, function: &str) -> Option<usize> {
    let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let is_call = |at: &usize| !text[..*at].ends_with("local function ") && !text[..*at].ends_with(is_part_of_name);
    text.match_indices(&format!("{function}(")).map(|(at, _)| at).find(is_call)
}

/// A server would notice only when it runs that line.
#[test]
fn each_function_is_made_before_it_is_called() {
    let files = scripts();
    let functions: BTreeSet<&str> =
        files.values().flat_map(|text| words_between(text, "local function ", '(')).collect();
    for script in redlock_sync::__private::scripts() {
        let lines = script.source.split_inclusive('\n');
        let code: String = lines.filter(|line| !line.trim_start().starts_with("--")).collect();
        for function in &functions {
            let made = code.find(&format!("local function {function}("));
            let Some(called) = first_call(&code, function) else { continue };
            assert!(made.is_some_and(|made| made < called), "{}.lua calls {function} before it is made", script.file);
        }
    }
}

/// The words between `start` and `end`, sorted.
fn words_between<'a>(text: &'a str, start: &str, end: char) -> BTreeSet<&'a str> {
    text.split(start).skip(1).filter_map(|after| after.split(end).next()).collect()
}

/// The kind's name in permissions.lua, the beginning of its row in the documentation, and its scripts. A name that ends
/// with `_` is a prefix.
const KINDS: [(&str, &str, &[&str]); 4] = [
    ("mutex", "mutexes", &["acquire", "adopt", "extend", "fence", "release", "unreserve", "inspect", "check_locks"]),
    ("semaphore", "semaphores", &["semaphore_", "check_locks"]),
    // `held` reads each kind. For mutexes it needs nothing more, and for semaphores it does without ZSCORE.
    ("rw", "read-write locks", &["rw_", "check_locks", "held"]),
    ("queue", "queues of tasks", &["q_"]),
];

fn commands(script: &str) -> BTreeSet<&str> {
    let mut used = words_between(script, "redis.call('", '\'');
    used.extend(words_between(script, "redis.pcall('", '\''));
    // PUBLISH is optional: without it, waits poll.
    used.remove("PUBLISH");
    // INFO is optional: without it, `health` knows less.
    used.remove("INFO");
    // Only the listing of locks needs SCAN and GETRANGE.
    used.remove("SCAN");
    used.remove("GETRANGE");
    // Only the numbers of queues need these commands.
    used.remove("ZCOUNT");
    used.remove("HLEN");
    used
}

#[test]
fn each_command_of_a_kind_is_checked_and_documented() {
    let checked = &scripts()["permissions"];
    let scripts = redlock_sync::__private::scripts();
    let docs = read(Path::new("docs/operations.md")).unwrap();
    let line = docs.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
    let mut of_all = BTreeSet::new();
    for (kind, title, starts) in KINDS {
        let is_of_kind = |name: &str| {
            starts.iter().any(|start| if start.ends_with('_') { name.starts_with(start) } else { name == *start })
        };
        let mut used: BTreeSet<&str> = scripts
            .iter()
            .filter(|script| is_of_kind(script.file))
            .flat_map(|script| commands(&script.source).into_iter().map(|command| (script.file, command)))
            // Without ZSCORE, a wait that its queue has lost learns of it later.
            .filter(|used| *used != ("check_locks", "ZSCORE"))
            .map(|(_, command)| command)
            .collect();
        // Clients call scripts by EVALSHA, and by EVAL if the server may not know the script.
        used.extend(["EVALSHA", "EVAL"]);
        let start = format!("    {kind} = '");
        let words = words_between(checked, &start, '\'').into_iter().next().unwrap();
        assert_eq!(words.split(' ').collect::<BTreeSet<_>>(), used, "of {kind} in permissions.lua");
        let row = docs.lines().find(|line| line.starts_with(&format!("| {title}"))).unwrap();
        let documented: BTreeSet<String> =
            row.split(['`', ' ']).filter_map(|word| word.strip_prefix('+')).map(str::to_uppercase).collect();
        assert_eq!(documented.iter().map(String::as_str).collect::<BTreeSet<_>>(), used, "of {kind} in the docs");
        of_all.extend(used);
    }
    let all = scripts.iter().flat_map(|script| commands(&script.source));
    let missing: Vec<_> = all.filter(|name| !of_all.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are of no kind");
    let missing: Vec<_> = of_all.iter().filter(|name| !line.contains(&format!("+{} ", name.to_lowercase()))).collect();
    assert!(missing.is_empty(), "{missing:?} are not in `{line}`");
}

#[test]
fn parameters_are_found() {
    assert_eq!(parameters("ARGV[1] token, ARGV[5..] orphans, ARGV[i], KEYS[2]", "ARGV["), [1, 5]);
}
