//! The mutexes, condition variables and atomics of the files that `tests/models` runs under a scheduler. The models
//! have their own version of this file.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::thread;

pub(crate) use parking_lot::MutexGuard;
#[cfg(not(test))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(test)]
pub(crate) use crate::simulation::{Condvar, Mutex};

/// How often a thread lets others run before it sleeps. To be woken costs some 5 us; letting others run costs less than
/// 1 us if none can. The models and the simulation choose the next thread at each step anyway.
pub(crate) const YIELDS: usize = if cfg!(test) { 1 } else { 10 };
