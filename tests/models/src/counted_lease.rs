//! The library's renewal threads, with leases that only count their rounds.

pub(crate) mod inner;
#[path = "../../../redlock-sync/src/lease/renewal.rs"]
pub(crate) mod renewal;
