//! The push connection, and the waits that it is for.

#[path = "../../../../redlock-sync/src/handover/listener/awaits.rs"]
pub(crate) mod awaits;
#[path = "../../../../redlock-sync/src/handover/listener/connection.rs"]
pub(crate) mod connection;
#[path = "../../../../redlock-sync/src/handover/listener/desk.rs"]
pub(crate) mod desk;
#[path = "../../../../redlock-sync/src/handover/listener/ended.rs"]
pub(crate) mod ended;
#[path = "../../../../redlock-sync/src/handover/listener/pushed.rs"]
pub(crate) mod pushed;
#[path = "../../../../redlock-sync/src/handover/listener/turns.rs"]
pub(crate) mod turns;
#[path = "../../../../redlock-sync/src/handover/listener/watching.rs"]
pub(crate) mod watching;
