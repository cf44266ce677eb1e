//! The Lua files. Each states its parameters and replies, and a server loads it under the digest that the library
//! computed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redlock_tests::Server;

use super::source::{read, tracked};

/// The sources of the scripts by name.
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

/// The scripts as the library sends them: some files are preceded by others.
fn sent() -> Vec<String> {
    let mut scripts = scripts();
    let (check, push) = (scripts.remove("permissions").unwrap(), scripts.remove("push").unwrap());
    let (counter, grant) = (scripts.remove("fence_counter").unwrap(), scripts.remove("grant").unwrap());
    let slots = push.clone() + &scripts.remove("slots").unwrap();
    let rw = push.clone() + &scripts.remove("rw").unwrap();
    let fast = [
        "release",
        "rw_acquire",
        "rw_release",
        "semaphore_acquire",
        "semaphore_release",
        "q_push",
        "q_claim",
        "q_finish",
    ]
    .map(|name| (name, scripts.remove(&format!("{name}_fast")).unwrap()));
    let (task, wake) = (scripts.remove("q_task").unwrap(), push.clone() + &scripts.remove("q_wake").unwrap());
    for name in ["q_push", "q_claim", "q_extend", "q_finish", "q_pop", "q_peek", "q_remove", "q_revive"] {
        scripts.get_mut(name).unwrap().insert_str(0, &task);
    }
    for (name, script) in &mut scripts {
        match name.as_str() {
            "q_push" | "q_claim" | "q_finish" | "q_revive" | "q_leave" => script.insert_str(0, &wake),
            _ if name.starts_with("semaphore_") => script.insert_str(0, &slots),
            "rw_acquire" | "rw_extend" | "rw_fence" | "rw_release" => script.insert_str(0, &rw),
            "acquire" | "release" => script.insert_str(0, &(push.clone() + &grant)),
            "unreserve" | "latch_arrive" => script.insert_str(0, &push),
            _ => {}
        }
    }
    for name in
        ["acquire", "adopt", "release", "semaphore_acquire", "rw_acquire", "fence", "semaphore_fence", "rw_fence"]
    {
        scripts.get_mut(name).unwrap().insert_str(0, &counter);
    }
    let locks = ["acquire", "adopt", "semaphore_acquire", "rw_acquire", "latch_arrive", "probe"];
    for name in locks.into_iter().chain(["q_push", "q_claim", "q_pop", "q_remove", "q_revive", "q_purge"]) {
        scripts.get_mut(name).unwrap().insert_str(0, &check);
    }
    for (name, fast) in fast {
        scripts.get_mut(name).unwrap().insert_str(0, &fast);
    }
    let end = scripts.remove("end_with_last").unwrap();
    for name in ["rw_release", "semaphore_release"] {
        scripts.get_mut(name).unwrap().insert_str(0, &end);
    }
    scripts.into_values().collect()
}

/// The comment that a script starts with.
fn header(script: &str) -> String {
    script.lines().take_while(|line| line.starts_with("--")).collect::<Vec<_>>().join("\n")
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
    for (name, script) in scripts() {
        let header = header(&script);
        let body = &script[header.len()..];
        assert!(header.lines().count() >= 3, "{name}.lua does not start with a description");
        // Files that precede others need neither, and a script that only publishes needs no key.
        let words: &[&str] = match name.as_str() {
            "fence_counter" | "push" | "grant" | "slots" | "rw" | "q_task" | "q_wake" | "end_with_last" => &[],
            "publish" | "health" => &["replies "],
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
fn each_fast_path_and_its_twin_name_each_other() {
    let scripts = scripts();
    for (name, fast) in &scripts {
        let Some(twin) = name.strip_suffix("_fast") else { continue };
        let words = |script: &str| header(script).replace("\n-- ", " ");
        assert!(words(fast).contains(&format!("Its twin is {twin}.lua.")), "{name}.lua");
        assert!(words(&scripts[twin]).contains(&format!("Its twin, {name}.lua, runs first.")), "{twin}.lua");
    }
}

#[test]
fn each_script_loads_under_the_digest_that_the_library_computed() {
    let server = Server::start();
    let mut known: Vec<String> = redlock_sync::__private::scripts().into_iter().map(|(_, digest)| digest).collect();
    let load = |script: &String| -> String { server.ask(redis::cmd("SCRIPT").arg("LOAD").arg(script)) };
    let mut loaded: Vec<String> = sent().iter().map(load).collect();
    known.sort_unstable();
    loaded.sort_unstable();
    assert_eq!(known, loaded);
}

/// The quoted words after `start`, sorted.
fn quoted_behind<'a>(text: &'a str, start: &'a str) -> BTreeSet<&'a str> {
    text.split(start).skip(1).filter_map(|after| after.split('\'').next()).collect()
}

/// The kind's name in permissions.lua, the beginning of its row in the documentation, and its scripts. A name that ends
/// with `_` is a prefix.
const KINDS: [(&str, &str, &[&str]); 4] = [
    (
        "mutex",
        "mutexes",
        &["acquire", "adopt", "give_back", "extend", "fence", "release", "unreserve", "inspect", "push", "publish"],
    ),
    ("semaphore", "semaphores", &["semaphore_", "slots", "end_with_last", "push", "publish"]),
    // `held` reads each kind. For mutexes it needs nothing more, and for semaphores it does without ZSCORE.
    ("rw", "read-write locks", &["rw", "rw_", "end_with_last", "push", "publish", "held"]),
    ("queue", "queues of tasks", &["q_", "push"]),
];

fn commands(script: &str) -> BTreeSet<&str> {
    let mut used = quoted_behind(script, "redis.call('");
    used.extend(quoted_behind(script, "redis.pcall('"));
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
    let mut scripts = scripts();
    let checked = scripts.remove("permissions").unwrap();
    let docs = read(Path::new("docs/permissions.md")).unwrap();
    let line = docs.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
    let mut of_all = BTreeSet::new();
    for (kind, title, starts) in KINDS {
        let is_of_kind = |name: &str| {
            starts.iter().any(|start| if start.ends_with('_') { name.starts_with(start) } else { name == *start })
        };
        let mut used: BTreeSet<&str> =
            scripts.iter().filter(|(name, _)| is_of_kind(name)).flat_map(|(_, script)| commands(script)).collect();
        // Clients call scripts by EVALSHA, and by EVAL if the server may not know the script.
        used.extend(["EVALSHA", "EVAL"]);
        let start = format!("    {kind} = '");
        let words = quoted_behind(&checked, &start).into_iter().next().unwrap();
        assert_eq!(words.split(' ').collect::<BTreeSet<_>>(), used, "of {kind} in permissions.lua");
        let row = docs.lines().find(|line| line.starts_with(&format!("| {title}"))).unwrap();
        let documented: BTreeSet<String> =
            row.split(['`', ' ']).filter_map(|word| word.strip_prefix('+')).map(str::to_uppercase).collect();
        assert_eq!(documented.iter().map(String::as_str).collect::<BTreeSet<_>>(), used, "of {kind} in the docs");
        of_all.extend(used);
    }
    let all = scripts.values().flat_map(|script| commands(script));
    let missing: Vec<_> = all.filter(|name| !of_all.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are of no kind");
    let missing: Vec<_> = of_all.iter().filter(|name| !line.contains(&format!("+{} ", name.to_lowercase()))).collect();
    assert!(missing.is_empty(), "{missing:?} are not in `{line}`");
}

#[test]
fn parameters_are_found() {
    assert_eq!(parameters("ARGV[1] token, ARGV[5..] orphans, ARGV[i], KEYS[2]", "ARGV["), [1, 5]);
}
