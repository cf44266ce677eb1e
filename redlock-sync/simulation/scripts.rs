//! The library's scripts on the store of a simulated node.

use crate::node::memory::{self, Source, Store};
use crate::node::{Failure, Value};
use crate::protocol::script::{ACQUIRE, EXTEND, FENCE, INSPECT, PUBLISH, RELEASE, RELEASE_ALL, Script, UNRESERVE};
use crate::protocol::script::{RW_ACQUIRE, RW_EXTEND, RW_FENCE, RW_INSPECT, RW_RELEASE};

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
        (&RW_ACQUIRE, "rw_acquire"),
        (&RW_EXTEND, "rw_extend"),
        (&RW_FENCE, "rw_fence"),
        (&RW_INSPECT, "rw_inspect"),
        (&RW_RELEASE, "rw_release"),
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
