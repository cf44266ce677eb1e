//! The guard contract: what each kind of lock must do. One generic test runs for all kinds.
//!
//! A test is a function `fn name<K: Kind>()`. `each_kind!(name, …)` makes one `#[test]` for each kind of mutex, for
//! tests that need their own server. `each_kind!(all: name, …)` also makes tests for the other kinds, with the feature
//! `kinds`. `every_kind!(GROUP: name, …)` makes one test for all kinds of a group. A new kind needs an `impl Kind` and
//! a line in `kinds_of!`.
//!
//! A lock with one holder at a time counts as a mutex: a semaphore of one permit, a writer, and a multi-lock of one
//! key.

use std::ops::Deref;
use std::thread;
use std::time::Duration;

use redlock_sync::{
    Cancel, Error, HoldMode, Holder, Lease, MultiLock, MultiLockGuard, Mutex, MutexGuard, Redlock, ReentrantMutex,
    ReentrantMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit,
};

use crate::place::Place;

/// The operations that all kinds of lock have.
pub(crate) trait Kind: Clone + Send + Sync + 'static {
    type Guard: Deref<Target = Lease>;

    /// The numbers of servers with which the tests of features run.
    const NODES: &'static [usize] = &[1, 3];

    /// A handle with this name.
    fn new(locks: &Redlock, key: &str) -> Self;
    /// The settings of a handle, as builder methods.
    fn lease(self, lease: Duration) -> Self;
    fn renew(self, renew: bool) -> Self;
    fn min_hold(self, hold: Duration) -> Self;
    fn max_hold(self, hold: Duration) -> Self;
    fn max_renewals(self, times: u32) -> Self;
    fn fenced(self, fenced: bool) -> Self;
    fn retry(self, retry: redlock_sync::Retry) -> Self;
    fn holder_name(self, holder_name: &str) -> Self;
    fn cancel(self, cancel: &Cancel) -> Self;

    fn lock(&self) -> Result<Self::Guard, Error>;
    fn try_lock(&self) -> Result<Self::Guard, Error>;
    fn try_lock_for(&self, wait: Duration) -> Result<Self::Guard, Error>;
    fn is_locked(&self) -> Result<bool, Error>;
    fn inspect(&self) -> Result<Option<Holder>, Error>;
    fn unlock(guard: Self::Guard) -> Result<(), Error>;

    /// The token that a node has under the key.
    fn token(node: &impl Place, key: &str) -> Option<String>;
    /// Makes a node give the lock to another token, without expiry.
    fn give(node: &impl Place, key: &str, token: &str);
}

/// The settings of a handle whose methods have the names of the trait.
macro_rules! settings {
    ($handle:ty) => {
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
        fn holder_name(self, holder_name: &str) -> Self {
            <$handle>::holder_name(self, holder_name)
        }
        fn cancel(self, cancel: &Cancel) -> Self {
            <$handle>::cancel(self, cancel)
        }
    };
}

/// The methods for a lock whose key is a string.
macro_rules! string {
    () => {
        fn token(node: &impl Place, key: &str) -> Option<String> {
            node.get(key)
        }
        fn give(node: &impl Place, key: &str, token: &str) {
            node.set(key, token);
        }
    };
}

/// The methods for a lock whose key is a sorted set. Each holder has a member with this prefix and the token.
macro_rules! member {
    ($before:literal) => {
        fn token(node: &impl Place, key: &str) -> Option<String> {
            let [member] = &node.members(key)[..] else { return None };
            Some(member.strip_prefix($before).expect("a member of that kind").to_owned())
        }
        fn give(node: &impl Place, key: &str, token: &str) {
            node.del(key);
            node.ask(&["ZADD", key, "9000000000000000", &format!("{}{token}", $before)]);
        }
    };
}

macro_rules! mutex {
    ($handle:ty, $guard:ty, $open:ident) => {
        impl Kind for $handle {
            type Guard = $guard;

            fn new(locks: &Redlock, key: &str) -> Self {
                locks.$open(key)
            }
            settings!($handle);
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
                Ok(<$handle>::inspect(self)?.pop())
            }
            fn unlock(guard: $guard) -> Result<(), Error> {
                guard.unlock().map(drop)
            }
            string!();
        }
    };
}

mutex!(Mutex, MutexGuard, mutex);
mutex!(ReentrantMutex, ReentrantMutexGuard, reentrant_mutex);

/// A semaphore of one permit, which has one holder at a time.
impl Kind for Semaphore {
    type Guard = SemaphorePermit;

    fn new(locks: &Redlock, key: &str) -> Self {
        locks.semaphore(key, 1)
    }
    settings!(Semaphore);
    fn lock(&self) -> Result<SemaphorePermit, Error> {
        self.acquire()
    }
    fn try_lock(&self) -> Result<SemaphorePermit, Error> {
        self.try_acquire()
    }
    fn try_lock_for(&self, wait: Duration) -> Result<SemaphorePermit, Error> {
        self.try_acquire_for(wait)
    }
    fn is_locked(&self) -> Result<bool, Error> {
        Semaphore::is_locked(self)
    }
    fn inspect(&self) -> Result<Option<Holder>, Error> {
        Ok(Semaphore::inspect(self)?.pop())
    }
    fn unlock(permit: SemaphorePermit) -> Result<(), Error> {
        permit.release()
    }
    member!("0 ");
}

/// The writer of a read-write lock.
impl Kind for RwLock {
    type Guard = RwLockWriteGuard;

    fn new(locks: &Redlock, key: &str) -> Self {
        locks.rw_lock(key)
    }
    settings!(RwLock);
    fn lock(&self) -> Result<RwLockWriteGuard, Error> {
        self.write()
    }
    fn try_lock(&self) -> Result<RwLockWriteGuard, Error> {
        self.try_write()
    }
    fn try_lock_for(&self, wait: Duration) -> Result<RwLockWriteGuard, Error> {
        self.try_write_for(wait)
    }
    fn is_locked(&self) -> Result<bool, Error> {
        self.is_locked_exclusive()
    }
    fn inspect(&self) -> Result<Option<Holder>, Error> {
        Ok(RwLock::inspect(self)?.into_iter().find(|holder| holder.mode == HoldMode::Exclusive))
    }
    fn unlock(guard: RwLockWriteGuard) -> Result<(), Error> {
        guard.unlock().map(drop)
    }
    member!("w");
}

/// The settings of a type that wraps a handle.
macro_rules! settings_within {
    ($wrapped:ident) => {
        fn lease(self, lease: Duration) -> Self {
            $wrapped(self.0.lease(lease))
        }
        fn renew(self, renew: bool) -> Self {
            $wrapped(self.0.renew(renew))
        }
        fn min_hold(self, hold: Duration) -> Self {
            $wrapped(self.0.min_hold(hold))
        }
        fn max_hold(self, hold: Duration) -> Self {
            $wrapped(self.0.max_hold(hold))
        }
        fn max_renewals(self, times: u32) -> Self {
            $wrapped(self.0.max_renewals(times))
        }
        fn fenced(self, fenced: bool) -> Self {
            $wrapped(self.0.fenced(fenced))
        }
        fn retry(self, retry: redlock_sync::Retry) -> Self {
            $wrapped(self.0.retry(retry))
        }
        fn holder_name(self, holder_name: &str) -> Self {
            $wrapped(self.0.holder_name(holder_name))
        }
        fn cancel(self, cancel: &Cancel) -> Self {
            $wrapped(self.0.cancel(cancel))
        }
    };
}

/// The reader of a read-write lock.
#[derive(Clone)]
pub(crate) struct Reader(RwLock);

impl Kind for Reader {
    type Guard = RwLockReadGuard;

    fn new(locks: &Redlock, key: &str) -> Self {
        Reader(locks.rw_lock(key))
    }
    settings_within!(Reader);
    fn lock(&self) -> Result<RwLockReadGuard, Error> {
        self.0.read()
    }
    fn try_lock(&self) -> Result<RwLockReadGuard, Error> {
        self.0.try_read()
    }
    fn try_lock_for(&self, wait: Duration) -> Result<RwLockReadGuard, Error> {
        self.0.try_read_for(wait)
    }
    fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked()
    }
    fn inspect(&self) -> Result<Option<Holder>, Error> {
        Ok(self.0.inspect()?.into_iter().rfind(|holder| holder.mode == HoldMode::Shared))
    }
    fn unlock(guard: RwLockReadGuard) -> Result<(), Error> {
        guard.unlock().map(drop)
    }
    member!("r");
}

/// Both permits of a semaphore of two, acquired together on one server.
#[derive(Clone)]
pub(crate) struct Pair(Semaphore);

impl Kind for Pair {
    type Guard = SemaphorePermit;

    const NODES: &'static [usize] = &[1];

    fn new(locks: &Redlock, key: &str) -> Self {
        Pair(locks.semaphore(key, 2))
    }
    settings_within!(Pair);
    fn lock(&self) -> Result<SemaphorePermit, Error> {
        self.0.acquire_many(2)
    }
    fn try_lock(&self) -> Result<SemaphorePermit, Error> {
        self.0.try_acquire_many(2)
    }
    fn try_lock_for(&self, wait: Duration) -> Result<SemaphorePermit, Error> {
        self.0.try_acquire_many_for(2, wait)
    }
    fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked()
    }
    fn inspect(&self) -> Result<Option<Holder>, Error> {
        Ok(self.0.inspect()?.pop())
    }
    fn unlock(permit: SemaphorePermit) -> Result<(), Error> {
        permit.release()
    }
    member!("0 ");
}

/// A multi-lock of one key.
#[derive(Clone)]
pub(crate) struct OfOneKey {
    lock: MultiLock,
    /// Inspects the key.
    mutex: Mutex,
}

pub(crate) struct OfOneKeyGuard(MultiLockGuard);

impl Deref for OfOneKeyGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.0.leases().next().expect("it has a key")
    }
}

impl OfOneKey {
    fn set(mut self, set: impl FnOnce(MultiLock) -> MultiLock) -> Self {
        self.lock = set(self.lock);
        self
    }
}

impl Kind for OfOneKey {
    type Guard = OfOneKeyGuard;

    fn new(locks: &Redlock, key: &str) -> Self {
        OfOneKey { lock: locks.multi_lock([key]), mutex: locks.mutex(key) }
    }
    fn lease(self, lease: Duration) -> Self {
        self.set(|lock| lock.lease(lease))
    }
    fn renew(self, renew: bool) -> Self {
        self.set(|lock| lock.renew(renew))
    }
    fn min_hold(self, _: Duration) -> Self {
        panic!("a multi-lock has none: what it gives back before it has all keys would stay taken")
    }
    fn max_hold(self, hold: Duration) -> Self {
        self.set(|lock| lock.max_hold(hold))
    }
    fn max_renewals(self, times: u32) -> Self {
        self.set(|lock| lock.max_renewals(times))
    }
    fn fenced(self, fenced: bool) -> Self {
        self.set(|lock| lock.fenced(fenced))
    }
    fn retry(self, retry: redlock_sync::Retry) -> Self {
        self.set(|lock| lock.retry(retry))
    }
    fn holder_name(self, holder_name: &str) -> Self {
        self.set(|lock| lock.holder_name(holder_name))
    }
    fn cancel(self, cancel: &Cancel) -> Self {
        self.set(|lock| lock.cancel(cancel))
    }
    fn lock(&self) -> Result<OfOneKeyGuard, Error> {
        self.lock.lock().map(OfOneKeyGuard)
    }
    fn try_lock(&self) -> Result<OfOneKeyGuard, Error> {
        self.lock.try_lock().map(OfOneKeyGuard)
    }
    fn try_lock_for(&self, wait: Duration) -> Result<OfOneKeyGuard, Error> {
        self.lock.try_lock_for(wait).map(OfOneKeyGuard)
    }
    fn is_locked(&self) -> Result<bool, Error> {
        self.lock.is_locked()
    }
    fn inspect(&self) -> Result<Option<Holder>, Error> {
        Ok(self.mutex.inspect()?.pop())
    }
    fn unlock(guard: OfOneKeyGuard) -> Result<(), Error> {
        guard.0.unlock()
    }
    string!();
}

/// Runs a test for several kinds in parallel, each in a thread of its name, because the tests mostly wait.
pub(crate) fn at_once(tests: &[(&'static str, fn())]) {
    let start = |&(name, test): &(&str, fn())| thread::Builder::new().name(name.to_owned()).spawn(test).unwrap();
    let running: Vec<_> = tests.iter().map(start).collect();
    let ended = tests.iter().zip(running).map(|((name, _), thread)| (name, thread.join()));
    let failed: Vec<_> = ended.filter(|(_, end)| end.is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "it failed for {failed:?}");
}

/// The kind's name for the program `agent`.
pub(crate) fn name_of_kind<K: Kind>() -> &'static str {
    let name = std::any::type_name::<K>();
    let words = [("Reentrant", "reentrant"), ("Semaphore", "permit"), ("RwLock", "writer"), ("OfOneKey", "several")];
    words.iter().find(|(part, _)| name.contains(part)).map_or("mutex", |(_, word)| word)
}

/// The test `$test` for each kind of a group. `every`: kinds with one holder at a time. `held`: all kinds, and `held_on_several`
/// those that work with several servers. `single`:
/// kinds with one holder and a minimum hold, which a multi-lock lacks. `string`: kinds whose key is a string.
macro_rules! kinds_of {
    (held, $test:ident $(, $place:ty)?) => {
        [
            ("mutex", $test::<redlock_sync::Mutex $(, $place)?> as fn()),
            ("reentrant mutex", $test::<redlock_sync::ReentrantMutex $(, $place)?>),
            ("permit", $test::<redlock_sync::Semaphore $(, $place)?>),
            ("several permits", $test::<crate::kinds::Pair $(, $place)?>),
            ("reader", $test::<crate::kinds::Reader $(, $place)?>),
            ("writer", $test::<redlock_sync::RwLock $(, $place)?>),
            ("key of a multi-lock", $test::<crate::kinds::OfOneKey $(, $place)?>),
        ]
    };
    (held_on_several, $test:ident $(, $place:ty)?) => {
        [
            ("mutex", $test::<redlock_sync::Mutex $(, $place)?> as fn()),
            ("reentrant mutex", $test::<redlock_sync::ReentrantMutex $(, $place)?>),
            ("permit", $test::<redlock_sync::Semaphore $(, $place)?>),
            ("reader", $test::<crate::kinds::Reader $(, $place)?>),
            ("writer", $test::<redlock_sync::RwLock $(, $place)?>),
            ("key of a multi-lock", $test::<crate::kinds::OfOneKey $(, $place)?>),
        ]
    };
    (every, $test:ident $(, $place:ty)?) => {
        [
            ("mutex", $test::<redlock_sync::Mutex $(, $place)?> as fn()),
            ("reentrant mutex", $test::<redlock_sync::ReentrantMutex $(, $place)?>),
            ("semaphore of one", $test::<redlock_sync::Semaphore $(, $place)?>),
            ("write lock", $test::<redlock_sync::RwLock $(, $place)?>),
            ("multi-lock of one", $test::<crate::kinds::OfOneKey $(, $place)?>),
        ]
    };
    (single, $test:ident $(, $place:ty)?) => {
        [
            ("mutex", $test::<redlock_sync::Mutex $(, $place)?> as fn()),
            ("reentrant mutex", $test::<redlock_sync::ReentrantMutex $(, $place)?>),
            ("semaphore of one", $test::<redlock_sync::Semaphore $(, $place)?>),
            ("write lock", $test::<redlock_sync::RwLock $(, $place)?>),
        ]
    };
    (string, $test:ident $(, $place:ty)?) => {
        [
            ("mutex", $test::<redlock_sync::Mutex $(, $place)?> as fn()),
            ("reentrant mutex", $test::<redlock_sync::ReentrantMutex $(, $place)?>),
            ("multi-lock of one", $test::<crate::kinds::OfOneKey $(, $place)?>),
        ]
    };
}

/// Makes one `#[test]` for each generic test, which runs it for all kinds of the group.
macro_rules! every_kind {
    ($group:ident: $($test:ident),+ $(,)?) => {
        mod $group {
            $(#[test] fn $test() {
                use super::$test;
                crate::kinds::at_once(&crate::kinds::kinds_of!($group, $test));
            })+
        }
    };
}

/// Makes a `#[test]` of each generic test for each kind of mutex. The tests after `all:` hold for each kind with one
/// holder at a time. With the feature `kinds`, they run for the other kinds too.
macro_rules! each_kind {
    (all: $($test:ident),+ $(,)? $(; mutexes: $($mutex:ident),+ $(,)?)?) => {
        crate::kinds::each_kind!($($test,)+ $($($mutex,)+)?);
        #[cfg(feature = "kinds")]
        mod semaphore_of_one {
            $(#[test] fn $test() { super::$test::<redlock_sync::Semaphore>() })+
        }
        #[cfg(feature = "kinds")]
        mod write_lock {
            $(#[test] fn $test() { super::$test::<redlock_sync::RwLock>() })+
        }
        #[cfg(feature = "kinds")]
        mod multi_lock_of_one {
            $(#[test] fn $test() { super::$test::<crate::kinds::OfOneKey>() })+
        }
    };
    ($($test:ident),+ $(,)?) => {
        mod mutex {
            $(#[test] fn $test() { super::$test::<redlock_sync::Mutex>() })+
        }
        mod reentrant_mutex {
            $(#[test] fn $test() { super::$test::<redlock_sync::ReentrantMutex>() })+
        }
    };
}

pub(crate) use {each_kind, every_kind, kinds_of};
