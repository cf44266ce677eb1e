//! The guard contract: what every kind of lock must do, so that one test runs for all of them.
//!
//! A test is a function `fn name<K: Kind>()`; `each_kind!(name, …)` makes one `#[test]` of it per kind. A new kind joins all of them by an
//! `impl Kind` and one line in the macro.

use std::ops::Deref;
use std::time::Duration;

use redlock_sync::{Error, Holder, Lease, Mutex, MutexGuard, Redlock, ReentrantMutex, ReentrantMutexGuard};

/// A kind of lock, as far as all kinds are alike.
pub(crate) trait Kind: Clone + Send + Sync + 'static {
    type Guard: Deref<Target = Lease>;

    /// The handle of that name.
    fn new(locks: &Redlock, key: &str) -> Self;
    /// Its settings, as builder methods.
    fn lease(self, lease: Duration) -> Self;
    fn renew(self, renew: bool) -> Self;
    fn min_hold(self, hold: Duration) -> Self;
    fn max_hold(self, hold: Duration) -> Self;
    fn max_renewals(self, times: u32) -> Self;
    fn fenced(self, fenced: bool) -> Self;
    fn retry(self, retry: redlock_sync::Retry) -> Self;
    fn owner(self, owner: &str) -> Self;

    fn lock(&self) -> Result<Self::Guard, Error>;
    fn try_lock(&self) -> Result<Self::Guard, Error>;
    fn try_lock_for(&self, wait: Duration) -> Result<Self::Guard, Error>;
    fn is_locked(&self) -> Result<bool, Error>;
    fn inspect(&self) -> Result<Option<Holder>, Error>;
    fn unlock(guard: Self::Guard) -> Result<(), Error>;
}

macro_rules! kind {
    ($handle:ty, $guard:ty, $open:ident) => {
        impl Kind for $handle {
            type Guard = $guard;

            fn new(locks: &Redlock, key: &str) -> Self {
                locks.$open(key)
            }
            fn lease(self, lease: Duration) -> Self {
                <$handle>::lease(self, lease)
            }
            fn renew(self, renew: bool) -> Self {
                <$handle>::renew(self, renew)
            }
            fn min_hold(self, hold: Duration) -> Self {
                <$handle>::min_hold(self, hold)
            }
            fn max_hold(self, hold: Duration) -> Self {
                <$handle>::max_hold(self, hold)
            }
            fn max_renewals(self, times: u32) -> Self {
                <$handle>::max_renewals(self, times)
            }
            fn fenced(self, fenced: bool) -> Self {
                <$handle>::fenced(self, fenced)
            }
            fn retry(self, retry: redlock_sync::Retry) -> Self {
                <$handle>::retry(self, retry)
            }
            fn owner(self, owner: &str) -> Self {
                <$handle>::owner(self, owner)
            }
            fn lock(&self) -> Result<$guard, Error> {
                <$handle>::lock(self)
            }
            fn try_lock(&self) -> Result<$guard, Error> {
                <$handle>::try_lock(self)
            }
            fn try_lock_for(&self, wait: Duration) -> Result<$guard, Error> {
                <$handle>::try_lock_for(self, wait)
            }
            fn is_locked(&self) -> Result<bool, Error> {
                <$handle>::is_locked(self)
            }
            fn inspect(&self) -> Result<Option<Holder>, Error> {
                <$handle>::inspect(self)
            }
            fn unlock(guard: $guard) -> Result<(), Error> {
                guard.unlock().map(drop)
            }
        }
    };
}

kind!(Mutex, MutexGuard, mutex);
kind!(ReentrantMutex, ReentrantMutexGuard, reentrant_mutex);

/// One `#[test]` per kind for each generic test named.
macro_rules! each_kind {
    ($($test:ident),+ $(,)?) => {
        mod mutex {
            $(#[test] fn $test() { super::$test::<redlock_sync::Mutex>() })+
        }
        mod reentrant_mutex {
            $(#[test] fn $test() { super::$test::<redlock_sync::ReentrantMutex>() })+
        }
    };
}

pub(crate) use each_kind;
