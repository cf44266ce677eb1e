//! The public locks: a handle and a guard for each kind.
//!
//! 1. [`handle`]: the part that all handles share. [`settings`]: the settings of locks, each written once.
//! 2. [`mutex`]: a thread that locks twice gets an error.
//! 3. [`reentrant`]: a thread that locks twice holds the lock twice.
//! 4. [`semaphore`]: a limited number of holders at a time; [`permit`]: its guard.
//! 5. [`rw_lock`]: many readers, or one writer; [`rw_guard`]: its guards.
//! 6. [`multi`]: several mutexes at once.
//! 7. [`count_down_latch`]: a count-down latch, which has waiters but no holder.
//! 8. [`reentry`]: the locks that this thread holds. [`nested_hold`]: one of several guards of a thread that share a
//!    lease.
//! 9. [`holder`]: the holder of a lock, as other clients see it.
//! 10. [`with`]: methods that hold a lock while a closure runs.

pub(crate) mod count_down_latch;
pub(crate) mod handle;
pub(crate) mod holder;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod nested_hold;
pub(crate) mod permit;
pub(crate) mod reentrant;
pub(crate) mod reentry;
pub(crate) mod rw_guard;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
pub(crate) mod settings;
pub(crate) mod with;
