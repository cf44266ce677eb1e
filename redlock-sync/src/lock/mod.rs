//! The kinds of lock, one file each: its calls on one node, its handle, its guard.
//!
//! 1. [`handle`]: what every handle carries, and the settings they share.
//! 2. [`plain`]: the exclusive lock on a string key; the primitive under both kinds of mutex.
//! 3. [`mutex`]: a thread that locks twice gets an error.
//! 4. [`reentrant`]: a thread that locks twice holds the lock twice.

pub(crate) mod handle;
pub(crate) mod mutex;
pub(crate) mod plain;
pub(crate) mod reentrant;
