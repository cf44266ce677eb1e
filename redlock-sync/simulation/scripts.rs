//! The library's scripts on the store of a simulated node.

use crate::node::memory::{self, Source, Store};
use crate::node::{Failure, Value};
use crate::protocol::script::{ACQUIRE, EXTEND, FENCE, INSPECT, PUBLISH, RELEASE, RELEASE_ALL, Script, UNRESERVE};

/// The file of a script; of one that is not the library's what it does.
pub(super) fn name(script: &Script) -> &'static str {
    let files = [
        (&ACQUIRE, "acquire"),
        (&EXTEND, "extend"),
        (&FENCE, "fence"),
        (&INSPECT, "inspect"),
        (&RELEASE, "release"),
        (&RELEASE_ALL, "release_all"),
        (&PUBLISH, "publish"),
        (&UNRESERVE, "unreserve"),
    ];
    files.iter().find(|(known, _)| std::ptr::eq(&raw const ***known, script)).map_or(script.operation, |(_, file)| file)
}

/// Runs a script as EVAL does.
pub(super) fn run(store: &mut Store, script: &Script, keys: &[String], args: &[String]) -> Result<Value, Failure> {
    fn words(texts: &[String]) -> Vec<&[u8]> {
        texts.iter().map(String::as_bytes).collect()
    }
    let source = Source { digest: &script.sha, text: script.source };
    memory::outcome(memory::run(store, source, &words(keys), &words(args)))
}
