//! What the local line and the renewal threads wait with. They name it here, so that `tests/models` can run the same files under a scheduler of
//! its own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::thread;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
