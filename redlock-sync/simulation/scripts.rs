//! The library's scripts, run on the store of a simulated node.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::clock::Tick;
use crate::node::memory::{self, MemoryReply, Store};
use crate::protocol::script::{self, Script};

/// A call of a script.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<String>,
    /// The time by the client's clock at which it was written.
    pub(super) sent: Tick,
}

/// The first attempt of a client, by `SET NX` without a script.
pub(super) static NATIVE_SET: LazyLock<Script> =
    LazyLock::new(|| foreign("native_set", "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"));

/// A message that a client publishes.
pub(super) static NATIVE_PUBLISH: LazyLock<Script> =
    LazyLock::new(|| foreign("publish", "return redis.call('PUBLISH', ARGV[1], ARGV[2])"));

/// The scripts of programs in other languages.
pub(super) static FOREIGN_SET: LazyLock<Script> = LazyLock::new(|| {
    foreign(
        "foreign_set",
        "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return {0, redis.call('PTTL', KEYS[1]), 'x', 0}",
    )
});
pub(super) static FOREIGN_DELETE: LazyLock<Script> = LazyLock::new(|| {
    foreign(
        "foreign_delete",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    )
});

fn foreign(operation: &'static str, source: &'static str) -> Script {
    Script::new(operation, source)
}

fn known() -> impl Iterator<Item = &'static Script> {
    static KNOWN: LazyLock<Vec<&'static Script>> =
        LazyLock::new(|| script::all().into_iter().chain([&*FOREIGN_SET, &*FOREIGN_DELETE]).collect());
    KNOWN.iter().copied()
}

/// The script with this digest or source.
pub(super) fn find(text: &[u8]) -> &'static Script {
    let is_it = |script: &&Script| script.sha.as_bytes() == text || script.source.as_bytes() == text;
    known().find(is_it).unwrap_or_else(|| panic!("no script is {}", String::from_utf8_lossy(text)))
}

/// The name of a script's file. For a script of a foreign client, the name of its operation.
pub(super) fn name(script: &Script) -> &'static str {
    if script.file.is_empty() { script.operation } else { script.file }
}

/// The token in the arguments of a call.
pub(super) fn token(call: &Execution) -> &str {
    call.args.first().map_or("", String::as_str)
}

/// Runs a script as EVAL does.
pub(super) fn reply(store: &mut Store, script: &Script, keys: &[String], args: &[String]) -> MemoryReply {
    fn words(texts: &[String]) -> Vec<&[u8]> {
        texts.iter().map(String::as_bytes).collect()
    }
    let changed = CHANGED.as_ref().and_then(|all| all.get(script.sha.as_str()));
    let text = changed.map_or(script.source.as_str(), String::as_str);
    memory::run(store, &script.sha, text, &words(keys), &words(args))
}

/// The scripts, by digest. Files of the folder `REDLOCK_SIM_SCRIPTS` replace those of the same name in `protocol/lua`.
/// This lets the controls break a script without a build.
static CHANGED: LazyLock<Option<HashMap<&str, String>>> = LazyLock::new(|| {
    let folder = std::env::var_os("REDLOCK_SIM_SCRIPTS")?;
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/lua");
    let text = |file: &str| {
        let name = format!("{file}.lua");
        fs::read_to_string(Path::new(&folder).join(&name)).or_else(|_| fs::read_to_string(own.join(&name))).unwrap()
    };
    let with_files = |script: &'static Script| (script.sha.as_str(), script::assembled(&text(script.file), text));
    Some(script::all().into_iter().map(with_files).collect())
});
