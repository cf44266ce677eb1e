//! The library's calls of scripts.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../redlock-sync/src/protocol/script.rs"]
pub(crate) mod script;
