//! Faults 23 to 49: keys, holders and waiters.
//!
//! 1. `keys`: the key is replaced or deleted (faults 23, 38; see `losses` too).
//! 2. `renewal`: renewals fail, hang, or race with a release (24, 25, 26, 27).
//! 3. `processes`: processes that fork, exit, or are killed (28, 30, 39, 41).
//! 4. `guards`: guards that panic, move, nest, or are forgotten (29, 31, 32, 33).
//! 5. `waiters`: many threads that want the lock at the same time, and deadlines (34, 36, 37, 40).
//! 6. `grants`: a grant that no waiter reads (35).
//! 7. `drops`: a drop of a guard does not wait for the servers (42 to 49).
//! 8. `releases`: releases that a partition lost, and releases of many locks at once. `signals`: calls that a signal
//!    interrupts.

mod drops;
mod grants;
mod guards;
mod keys;
mod processes;
mod releases;
mod renewal;
mod signals;
mod waiters;
