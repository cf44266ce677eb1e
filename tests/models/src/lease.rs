//! The part of the library's `lease` that the renewal threads need.

pub(crate) mod core;
#[path = "../../../redlock-sync/src/lease/renewal.rs"]
pub(crate) mod renewal;
