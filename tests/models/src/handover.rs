//! The part of the library's `handover` that belongs to waiting threads, and what a release grants.

#[path = "../../../redlock-sync/src/handover/grant.rs"]
pub(crate) mod grant;
#[path = "../../../redlock-sync/src/handover/rules.rs"]
pub(crate) mod rules;
#[path = "../../../redlock-sync/src/handover/sharing.rs"]
pub(crate) mod sharing;
#[path = "../../../redlock-sync/src/handover/thread_queue.rs"]
pub(crate) mod thread_queue;

pub(crate) mod listener;
