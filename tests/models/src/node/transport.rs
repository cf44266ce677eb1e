//! The connections that all threads share.

#[path = "../../../../redlock-sync/src/node/transport/call_queue.rs"]
pub(crate) mod call_queue;
#[path = "../../../../redlock-sync/src/node/transport/connection.rs"]
pub(crate) mod connection;
#[path = "../../../../redlock-sync/src/node/transport/drain.rs"]
pub(crate) mod drain;
#[path = "../../../../redlock-sync/src/node/transport/framer.rs"]
pub(crate) mod framer;
#[path = "../../../../redlock-sync/src/node/transport/halves.rs"]
pub(crate) mod halves;
#[path = "../../../../redlock-sync/src/node/transport/reading.rs"]
mod reading;
#[path = "../../../../redlock-sync/src/node/transport/round.rs"]
pub(crate) mod round;
#[path = "../../../../redlock-sync/src/node/transport/unattended.rs"]
mod unattended;
#[path = "../../../../redlock-sync/src/node/transport/waiting.rs"]
pub(crate) mod waiting;
