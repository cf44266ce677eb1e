//! The library's renewal threads, with leases that only count their rounds.

pub(crate) mod inner;
#[allow(dead_code)]
#[path = "../../../redlock-sync/src/lease/renewal.rs"]
pub(crate) mod renewal;
