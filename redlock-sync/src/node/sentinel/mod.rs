//! A server whose address Sentinels know: the master of a group. They are asked for it at each connection, and once a
//! second while the client makes calls.
//!
//! 1. `master_reply.rs`: the answer of a Sentinel, and which of several answers counts.
//! 2. `group.rs`: asks all Sentinels at the same time, in bounded time, and dials the master.

mod group;
mod master_reply;

pub(super) use self::group::Group;
