//! Faults 23 to 49: keys, holders and waiters.
//!
//! 1. `keys`: the key is replaced or deleted (faults 23, 38).
//! 2. `renewal`: renewals fail, hang, or race with a release (24, 25, 26, 27).
//! 3. `processes`: processes that fork, exit, or are killed (28, 30, 39, 41).
//! 4. `guards`: guards that panic, move, nest, or are forgotten (29, 31, 32, 33).
//! 5. `waiters`: many threads that want the lock at the same time, and deadlines (34, 36, 37, 40).
//! 6. `grants`: a grant that no waiter reads (35).
//! 7. `drops`: a drop of a guard does not wait for the servers (42 to 49).
//! 8. `rig`: servers behind proxies, which all of these files use.

mod drops;
mod grants;
mod guards;
mod keys;
mod processes;
mod renewal;
mod rig;
mod waiters;
