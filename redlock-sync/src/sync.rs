//! The mutexes, condition variables and atomics of the files that `tests/models` runs under a scheduler. The models
//! have their own version of this file.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::thread;

pub(crate) use parking_lot::MutexGuard;
#[cfg(not(test))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(test)]
pub(crate) use crate::simulation::{Condvar, Mutex};
