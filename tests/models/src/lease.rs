//! The library's `lease`, as far as the renewal threads need it.

pub(crate) mod core;
#[path = "../../../redlock-sync/src/lease/renewal.rs"]
pub(crate) mod renewal;
