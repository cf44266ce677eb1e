//! The library's calls of scripts, and its failures.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../redlock-sync/src/protocol/reply.rs"]
pub(crate) mod reply;

#[allow(dead_code, unreachable_pub)]
#[path = "../../../redlock-sync/src/protocol/script.rs"]
pub(crate) mod script;
