//! A server whose address Sentinels know: the master of a group. They are asked for it at each connection, and twice a
//! second while the client makes calls or holds locks.
//!
//! 1. `master_reply.rs`: the answer of a Sentinel.
//! 2. `choice.rs`: which master counts, if Sentinels disagree.
//! 3. `answers.rs`: the latest answers of all Sentinels.
//! 4. `group.rs`: asks all Sentinels at the same time, in bounded time, and dials the master.

mod answers;
mod choice;
mod group;
mod master_reply;

pub(super) use self::group::Group;
