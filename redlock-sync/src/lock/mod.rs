//! What users hold: a handle and a guard for each kind of lock.
//!
//! 1. [`handle`]: what every handle carries, and the settings they share.
//! 2. [`mutex`]: a thread that locks twice gets an error.
//! 3. [`reentrant`]: a thread that locks twice holds the lock twice.
//! 4. [`semaphore`]: so many holders at a time; [`permit`]: its guard.
//! 5. [`rw_lock`]: many readers, or one writer; [`rw_guard`]: its guards.
//! 6. [`multi`]: several mutexes at once.
//! 7. [`latch`]: no lock, but waited for.
//! 8. [`reentry`]: what this thread holds; [`hold`]: one of several guards that it has of one lock.
//! 9. [`holder`]: the holder of a lock, as other clients see it.
//! 10. [`with`]: a lock for the time of a closure.

pub(crate) mod handle;
pub(crate) mod hold;
pub(crate) mod holder;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod permit;
pub(crate) mod reentrant;
pub(crate) mod reentry;
pub(crate) mod rw_guard;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
pub(crate) mod with;
