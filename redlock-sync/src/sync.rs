//! What threads wait with in the files that `tests/models` runs under a scheduler of its own, which has another one of
//! this file.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::thread;

pub(crate) use parking_lot::MutexGuard;
#[cfg(not(test))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(test)]
pub(crate) use crate::simulation::{Condvar, Mutex};
