//! How values are serialized by feature `serde`: lengths of time as whole milliseconds.
#![allow(clippy::ref_option, reason = "serde passes a reference")]

use std::time::Duration;

use serde::{Serialize, Serializer};

pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(ms(*time))
}

pub(crate) fn some_millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(ms).serialize(to)
}

pub(crate) fn all_millis<S: Serializer>(times: &[Option<Duration>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(times.iter().map(|time| time.map(ms)))
}
