//! The push connection, and the waits that it is for.

#[path = "../../../../redlock-sync/src/handover/listener/awaits.rs"]
pub(crate) mod awaits;
#[path = "../../../../redlock-sync/src/handover/listener/ended.rs"]
pub(crate) mod ended;
#[path = "../../../../redlock-sync/src/handover/listener/push_connection.rs"]
pub(crate) mod push_connection;
#[path = "../../../../redlock-sync/src/handover/listener/pushed.rs"]
pub(crate) mod pushed;
#[path = "../../../../redlock-sync/src/handover/listener/waiter_table.rs"]
pub(crate) mod waiter_table;
#[path = "../../../../redlock-sync/src/handover/listener/waiters.rs"]
pub(crate) mod waiters;
#[path = "../../../../redlock-sync/src/handover/listener/watching.rs"]
pub(crate) mod watching;
