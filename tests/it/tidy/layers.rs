//! The layers of ARCHITECTURE.md: which module may import which other module, and which code only some modules may
//! have.

use std::collections::BTreeSet;

use super::source::{Source, library, package};

/// The layer of each module. Imports go to lower layers, except the edges below.
const LAYERS: [(&str, u8); 34] = [
    ("lib", 12),
    ("__private", 12),
    ("default_client", 12),
    ("facades", 12),
    ("testing", 12),
    ("client", 11),
    ("leader", 11),
    ("once", 11),
    ("lock", 10),
    ("queue", 10),
    ("latch", 9),
    ("acquire", 8),
    ("health", 8),
    ("inner", 7),
    ("lease", 6),
    ("handover", 5),
    ("quorum", 4),
    ("node", 3),
    ("protocol", 2),
    ("options", 1),
    ("key", 0),
    ("token", 0),
    ("error", 0),
    ("names", 0),
    ("serial", 0),
    ("observer", 0),
    ("fork", 0),
    ("clock", 0),
    ("cancel", 0),
    ("handler", 0),
    ("parker", 0),
    // These modules belong to the unit tests.
    ("simulation", 0),
    ("sync", 0),
    ("tests", 12),
];

/// The allowed imports within a layer.
const EDGES: [(&str, &str); 20] = [
    ("__private", "testing"),
    ("client", "leader"),
    ("client", "once"),
    ("cancel", "error"),
    ("cancel", "fork"),
    ("cancel", "sync"),
    ("clock", "sync"),
    ("facades", "testing"),
    ("error", "names"),
    ("key", "error"),
    ("key", "names"),
    ("observer", "error"),
    ("observer", "handler"),
    ("parker", "cancel"),
    ("parker", "clock"),
    ("parker", "sync"),
    ("sync", "simulation"),
    ("token", "error"),
    ("token", "names"),
    ("token", "simulation"),
];

fn layer(module: &str) -> u8 {
    let found = LAYERS.iter().find(|(name, _)| *name == module);
    found.unwrap_or_else(|| panic!("module `{module}` has no layer yet: give it one in the table of this test")).1
}

/// The modules that a file names by `crate::`, alone or in braces, as in `crate::{a, b::c}`.
fn imports(source: &Source) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    source
        .code
        .split("crate::")
        .skip(1)
        .flat_map(|after| match after.strip_prefix('{') {
            Some(list) => top_level(list).map(|part| name(part.trim())).collect::<Vec<_>>(),
            None => vec![name(after)],
        })
        .filter(|name| name.starts_with(|c: char| c.is_lowercase() || c == '_'))
        .collect()
}

/// The parts of a `{…}` list. Commas in inner braces do not separate parts.
pub(super) fn top_level(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let end = list.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth < 0
    });
    let mut inner = 0;
    list[..end.map_or(list.len(), |(at, _)| at)].split(move |c: char| {
        inner += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && inner == 0
    })
}

fn may_import(from: &str, to: &str) -> bool {
    from == to || layer(to) < layer(from) || EDGES.contains(&(from, to))
}

#[test]
fn no_module_imports_from_a_higher_layer() {
    let mut wrong = Vec::new();
    for source in library() {
        let from = source.module();
        // `lib.rs` declares and re-exports all modules.
        for to in imports(&source).iter().filter(|to| from != "lib" && !may_import(from, to)) {
            wrong.push(format!("{} imports from {to}", source.name));
        }
        layer(from);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Asserts that only the allowed files contain the patterns, and that at least one of them does.
fn only_in(allowed: impl Fn(&Source) -> bool, patterns: &[&str]) {
    let strangers = library().into_iter().filter(|source| !allowed(source));
    let found: Vec<String> =
        strangers.flat_map(|source| patterns.iter().flat_map(|p| source.uses(p)).collect::<Vec<_>>()).collect();
    assert!(found.is_empty(), "{found:#?}");
    let used =
        library().into_iter().any(|source| allowed(&source) && patterns.iter().any(|p| !source.uses(p).is_empty()));
    assert!(used, "none of {patterns:?} is found anywhere: the search is broken, or the rule has no object");
}

#[test]
fn only_the_node_layer_names_the_redis_crates() {
    only_in(
        |source| source.module() == "node",
        &["redis::", "r2d2::", "scheduled_thread_pool", "use redis;", "use r2d2;"],
    );
}

#[test]
fn only_the_node_layer_opens_sockets() {
    let sockets =
        ["TcpStream", "UnixStream", "UdpSocket", "std::net", "std::os::unix::net", "connect(", "connect_timeout("];
    only_in(|source| source.module() == "node", &sockets);
}

#[test]
fn only_the_clock_reads_a_clock_or_sleeps() {
    let clocks =
        ["Instant::now", "SystemTime::now", "thread::sleep", "clock_gettime", "sleep_ms", "nanosleep", ".elapsed("];
    only_in(|source| source.name == "clock.rs", &clocks);
}

/// Names that read the wall clock or count by it. If no code uses them, then a jump of the wall clock cannot affect a
/// client.
const WALL_CLOCKS: [&str; 9] = [
    "SystemTime::now",
    "UNIX_EPOCH.elapsed",
    "Realtime",
    "RealtimeCoarse",
    "CLOCK_REALTIME",
    "Tai",
    "gettimeofday",
    "chrono::",
    "OffsetDateTime",
];

#[test]
fn fault_14_nothing_reads_the_wall_clock() {
    let all = ["redlock-sync", "redlock-macros"].into_iter().flat_map(package);
    let found: Vec<String> =
        all.flat_map(|source| WALL_CLOCKS.iter().flat_map(|clock| source.uses(clock)).collect::<Vec<_>>()).collect();
    assert!(found.is_empty(), "{found:#?}");
    // The times of day that servers return or get are of type `SystemTime`. These files neither read a clock nor count
    // by one.
    let of_servers = ["queue/task.rs", "health.rs", "health/judge.rs", "health/judge/tests.rs"];
    only_in(|source| of_servers.contains(&source.name.as_str()), &["SystemTime", "UNIX_EPOCH"]);
    // The clocks that the library reads are found, so the search works.
    let clock = library().into_iter().find(|source| source.name == "clock.rs").unwrap();
    let read = ["Boottime", "Monotonic", "Instant::now"].map(|clock_id| clock.uses(clock_id).len());
    assert!(read.iter().all(|uses| *uses > 0), "{read:?}");
}

#[test]
fn only_renewal_and_nodes_start_threads() {
    let threads = ["thread::Builder", "thread::spawn", "thread::scope"];
    // A scan has a thread for each node, and ends with them.
    let others = ["clock.rs", "client/listing.rs"];
    only_in(|source| others.contains(&source.name.as_str()) || source.module() == "node", &threads);
    // The user asks for the threads of a worker or a leader. One thread reads what nobody waits for.
    let start = ["lease/renewal.rs", "queue/worker.rs", "node/transport/drain.rs"];
    only_in(|source| start.contains(&source.name.as_str()), &["clock.start("]);
    let by_the_system = ["leader.rs", "testing/test_clock.rs"];
    only_in(|source| by_the_system.contains(&source.name.as_str()), &["SystemClock.start("]);
}

/// No kind of lock waits, starts threads or counts votes itself.
#[test]
fn kinds_leave_waiting_and_counting_to_others() {
    let may = |source: &Source| {
        // A worker waits until its own threads have ended.
        source.name == "queue/worker.rs" || !["lock", "queue", "protocol"].contains(&source.module())
    };
    only_in(may, &["votes_needed", ".sleep(", "Condvar", "Parker"]);
}

#[test]
fn imports_are_found_in_every_form() {
    let code =
        "use crate::a::B;\nuse crate::{c::{D, E}, f, g::H};\nfn i(_: crate::j::K, _: crate::Retry) {}".to_owned();
    let source = Source { name: "x.rs".into(), text: String::new(), code };
    assert_eq!(imports(&source).into_iter().collect::<Vec<_>>(), ["a", "c", "f", "g", "j"]);
}

#[test]
fn the_table_knows_up_from_down() {
    assert!(may_import("lock", "acquire") && may_import("node", "protocol") && may_import("lock", "lock"));
    assert!(!may_import("acquire", "lock") && !may_import("handover", "lease") && !may_import("protocol", "node"));
}
