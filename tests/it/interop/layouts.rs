//! Locks with different layouts under one name. Both sides never hold the lock at once, the later one gets an error,
//! and no key is changed.

use std::time::Duration;

use redlock_sync::Error;
use redlock_tests::foreign::Library;

use super::{KEY, field, urls};

/// Redisson's `RLock` is a hash.
#[test]
fn the_locks_of_redisson_are_another_layout() {
    if !Library::Redisson.is_here() {
        return;
    }
    let (servers, locks) = field(1);
    let mut program = Library::Redisson.start(&urls(&servers), KEY);
    let lock = locks.mutex(KEY);

    assert_eq!(program.ask("acquire-lock"), "yes");
    for tried in [lock.try_lock(), lock.lock(), lock.try_lock_for(Duration::from_secs(5))] {
        names_the_key(tried.err().as_ref());
    }
    names_the_key(lock.inspect().err().as_ref());
    assert_eq!(program.ask("release-lock"), "yes");

    let guard = lock.lock().unwrap();
    assert_eq!(program.ask("acquire-lock"), "wrong type");
    assert_eq!(program.ask("release-lock"), "wrong type");
    guard.check().unwrap();
    assert_eq!(servers[0].get(KEY).as_deref(), Some(guard.id().as_str()));
    guard.unlock().unwrap();
    assert_eq!(program.ask("acquire-lock"), "yes");
}

/// A read-write lock and a semaphore are sorted sets.
#[test]
fn our_other_kinds_are_another_layout() {
    if !Library::RedisPy.is_here() {
        return;
    }
    let (servers, locks) = field(1);
    let mut program = Library::RedisPy.start(&urls(&servers), KEY);
    let (rw_lock, semaphore) = (locks.rw_lock(KEY), locks.semaphore(KEY, 2));

    assert_eq!(program.ask("acquire"), "yes");
    names_the_key(rw_lock.try_read().err().as_ref());
    names_the_key(semaphore.try_acquire().err().as_ref());
    assert_eq!(program.ask("release"), "yes");

    let read = rw_lock.read().unwrap();
    assert_eq!(program.ask("acquire"), "no");
    read.unlock().unwrap();
    let permit = semaphore.acquire().unwrap();
    assert_eq!(program.ask("acquire"), "no");
    permit.release().unwrap();
    assert_eq!(program.ask("acquire"), "yes");
}

fn names_the_key(error: Option<&Error>) {
    assert!(matches!(error, Some(Error::WrongType { key, .. }) if key == KEY), "{error:?}");
}
