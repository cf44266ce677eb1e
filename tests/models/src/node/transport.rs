//! The connections that all threads share.

#[path = "../../../../redlock-sync/src/node/transport/connection.rs"]
pub(crate) mod connection;
#[path = "../../../../redlock-sync/src/node/transport/drain.rs"]
pub(crate) mod drain;
#[path = "../../../../redlock-sync/src/node/transport/framer.rs"]
pub(crate) mod framer;
#[path = "../../../../redlock-sync/src/node/transport/halves.rs"]
pub(crate) mod halves;
#[path = "../../../../redlock-sync/src/node/transport/round.rs"]
pub(crate) mod round;
