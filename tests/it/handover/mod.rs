//! How a lock goes from its holder to a waiter: grants between processes, hand-over between threads.
//!
//! Each client has queues of its own, so several clients in one process act as processes; where one has to die, it is a real one.
//!
//! 1. `grants`: one grant for each release, in order; what a granted lock is worth; when waiters poll.
//! 2. `crowd`: a hundred thousand hand-overs with waiters that give up.
//! 3. `processes`: holders and waiters that are killed or stopped.
//! 4. `nodes`: several nodes, some of them dead or stopped; no connection left for waiting.
//! 5. `closing`: `close()` while others wait.
//! 6. `local`: threads of one client: order, settings, losses.
//! 7. `fences`: fencing tokens rise whichever way the lock goes.
//! 8. `idle`: what waits cost while nothing happens.
//! 9. `rig`: what these share.
//!
//! Whether each gets its turn beside a crowd is tested in `alone`, which has the machine to itself.

mod closing;
mod crowd;
mod fences;
mod grants;
mod idle;
mod local;
mod nodes;
mod processes;
mod review;
pub(crate) mod rig;
mod stopping;
