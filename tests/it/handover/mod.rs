//! How a lock changes hands: grants between processes, and hand-overs between threads.
//!
//! Each client has its own queues, so several clients in one process act like several processes. Tests that kill a
//! process start real ones.
//!
//! 1. `grants`: each release grants the lock to one wait, in order.
//! 2. `crowd`: a hundred thousand hand-overs, with waiters that give up.
//! 3. `processes`: holders and waiters that are killed or stopped.
//! 4. `nodes`: several nodes, some of them down or stopped; clients that cannot listen.
//! 5. `closing`: `shutdown` while threads wait.
//! 6. `local`: threads of one client: order, settings, losses.
//! 7. `fences`: fencing tokens rise however the lock changes hands.
//! 8. `idle`: the cost of waits while nothing happens.
//! 9. `dead_waits`: waits of processes that are gone and had no notification connection. `first_attempts`: attempts of
//!    a client that knows of no wait. `granted_settings`: settings of the waiter. `names`: locks with similar names.
//! 10. `stopping`: processes that a signal stops.
//! 11. `pauses`: pauses for programs of other libraries, and the layout of the queue.
//! 12. `rig`: helpers.
//!
//! The test target `alone` checks whether each waiter gets its turn beside many others. It runs without other tests.

mod closing;
mod crowd;
mod dead_waits;
mod fences;
mod first_attempts;
mod granted_settings;
mod grants;
mod idle;
mod local;
mod names;
mod nodes;
mod pauses;
mod processes;
pub(crate) mod rig;
mod stopping;
