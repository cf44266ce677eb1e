//! Locks with similar names.

use std::sync::mpsc;
use std::thread;

use redlock_sync::Error;

use super::rig::{Rig, SOON, ms};

/// A holds one lock, and B waits for it. C releases another lock, for which D waits. The release must not grant
/// anything to B.
fn a_release_of_the_one_grants_nothing_of_the_other(held: &str, other: &str) {
    let rig = Rig::start(1);
    let a = rig.client().mutex(held).lock().unwrap();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let tell_b = tell.clone();
        let b = rig.client().mutex(held);
        scope.spawn(move || {
            let guard = b.lock().unwrap();
            tell_b.send(("B", guard.check())).unwrap();
        });
        rig.until_blocked(0, 1);
        let c = rig.client().mutex(other).lock().unwrap();
        let d = rig.client().mutex(other);
        scope.spawn(move || {
            let guard = d.lock().unwrap();
            tell.send(("D", guard.check())).unwrap();
        });
        rig.until_blocked(0, 2);
        c.unlock().unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(("D", Ok(()))), "`{held}` and `{other}`");
        assert_eq!(told.recv_timeout(ms(200)), Err(mpsc::RecvTimeoutError::Timeout), "`{held}` and `{other}`");
        a.check().unwrap();
        a.unlock().unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(("B", Ok(()))), "`{held}` and `{other}`");
    });
}

#[test]
fn names_with_and_without_braces_are_different_locks() {
    let pairs = [("order", "{order}"), ("{order}", "order"), ("{order}", "{order}:"), ("a:{b}", "{b}"), ("{", "{{")];
    thread::scope(|scope| {
        for (held, other) in pairs {
            scope.spawn(move || a_release_of_the_one_grants_nothing_of_the_other(held, other));
        }
    });
}

#[test]
fn names_that_cannot_have_their_keys_in_one_slot_are_refused() {
    let rig = Rig::start(1);
    for name in ["a}b", "}a", "{}", "{}a"] {
        let error = rig.client().mutex(name).try_lock().map(drop).unwrap_err();
        assert!(matches!(&error, Error::Config { message, .. } if message.contains("hash tag")), "{name}: {error}");
        assert!(rig.servers[0].keys().is_empty());
    }
}
