//! The connections that all threads share.

#[path = "../../../../redlock-sync/src/node/pipes/command.rs"]
pub(crate) mod command;
#[path = "../../../../redlock-sync/src/node/pipes/framer.rs"]
pub(crate) mod framer;
#[path = "../../../../redlock-sync/src/node/pipes/halves.rs"]
pub(crate) mod halves;
#[path = "../../../../redlock-sync/src/node/pipes/outbox.rs"]
mod outbox;
#[path = "../../../../redlock-sync/src/node/pipes/pipe.rs"]
pub(crate) mod pipe;
#[path = "../../../../redlock-sync/src/node/pipes/pump.rs"]
mod pump;
#[path = "../../../../redlock-sync/src/node/pipes/table.rs"]
pub(crate) mod table;
#[path = "../../../../redlock-sync/src/node/pipes/waiting.rs"]
pub(crate) mod waiting;
#[path = "../../../../redlock-sync/src/node/pipes/writing.rs"]
mod writing;
