//! The notification connection, and the waits for which it exists.

#[path = "../../../../redlock-sync/src/handover/listener/connection_state.rs"]
pub(crate) mod connection_state;
#[path = "../../../../redlock-sync/src/handover/listener/notification.rs"]
pub(crate) mod notification;
#[path = "../../../../redlock-sync/src/handover/listener/waiter_table.rs"]
pub(crate) mod waiter_table;
#[path = "../../../../redlock-sync/src/handover/listener/waiters.rs"]
pub(crate) mod waiters;
#[path = "../../../../redlock-sync/src/handover/listener/watching.rs"]
pub(crate) mod watching;

pub(crate) use self::notification::Notification;
