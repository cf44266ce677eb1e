//! `is_locked` and `inspect` show the holder of a lock, be it this client, another client, or a foreign program.

use std::time::Duration;

use redlock_sync::{Error, HoldMode, LockId, LockKind, Redlock, SnapshotOptions};

use super::rig::{locks_on, open};
use crate::kinds::Kind;
use crate::place::{Place, each_kind_and_place};

/// Inspects the lock by a client that holds nothing.
fn look<K: Kind, P: Place>(servers: &[P]) -> Option<redlock_sync::Holder> {
    let lock = K::new(&open(servers), "order:42");
    let holder = lock.inspect().unwrap();
    assert_eq!(lock.is_locked().unwrap(), holder.is_some());
    holder
}

fn our_own_holder_is_seen<K: Kind, P: Place>() {
    for nodes in [1, 3] {
        let servers = P::start(nodes);
        assert_eq!(look::<K, P>(&servers), None);
        let guard = K::new(&open(&servers), "order:42").holder_name("worker-7").lock().unwrap();
        let holder = look::<K, P>(&servers).unwrap();
        assert_eq!((&holder.id, holder.id.holder_name()), (guard.id(), "worker-7"));
        let left = holder.remaining.unwrap();
        assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(30), "{left:?}");
        is_listed::<P>(&open(&servers), nodes, guard.id());
        K::unlock(guard).unwrap();
        assert_eq!(look::<K, P>(&servers), None);
    }
}

/// Asserts that the lock is listed by its name and by patterns.
fn is_listed<P: Place>(locks: &Redlock, nodes: usize, id: &LockId) {
    let named = locks.snapshot(&SnapshotOptions::default().name("order:42")).unwrap().locks;
    let of = |pattern| locks.snapshot(&SnapshotOptions::default().pattern(pattern)).unwrap().locks;
    assert!(named.len() == 1 && named[0].holder.id == *id, "{named:?}");
    let is_exclusive = matches!(named[0].kind, LockKind::Mutex | LockKind::Write);
    assert_eq!(named[0].holder.mode == HoldMode::Exclusive, is_exclusive, "{named:?}");
    let listed = of("or?er:*");
    let [held] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&*held.name, &held.holder.id), ("order:42", id));
    assert!(held.nodes > held.of / 2 && held.of >= nodes, "{held:?}");
    assert_eq!((held.waiting, held.lease, held.seen_for), (0, held.holder.remaining, Duration::ZERO));
    assert_eq!(of("order"), []);
    assert_eq!(of("[o]rder:*"), [], "a bracket stands for itself");
}

/// The default holder name has the host, the process and the thread.
fn a_holder_without_a_name_is_known_by_its_process<K: Kind, P: Place>() {
    let server = P::one();
    let guard = K::new(&open(std::slice::from_ref(&server)), "order:42").lock().unwrap();
    let holder_name = guard.id().holder_name().to_owned();
    assert!(holder_name.contains(&format!(":{}:", std::process::id())), "{holder_name}");
    assert_eq!(look::<K, P>(&[server]).unwrap().id.holder_name(), holder_name);
}

/// Values of foreign programs, with and without a colon, under a key that never expires.
fn foreign_tokens_are_shown_as_they_are<K: Kind, P: Place>() {
    let server = P::one();
    let one = std::slice::from_ref(&server);
    for (value, holder_name) in [("5f0c", ""), ("5f0c:redis-py", "redis-py"), ("", "")] {
        server.set("order:42", value);
        let holder = look::<K, P>(one).unwrap();
        assert_eq!((holder.id.as_str(), holder.id.holder_name(), holder.remaining), (value, holder_name, None));
        let error = K::new(&open(one), "order:42").try_lock().err().unwrap();
        assert!(matches!(error, Error::Busy { expires_in: None, .. }), "{error:?}");
        assert_eq!(server.get("order:42").as_deref(), Some(value));
    }
}

/// With several nodes, only a token on a majority is a holder.
fn a_minority_holds_nothing<K: Kind, P: Place>() {
    let servers = P::start(3);
    K::give(&servers[0], "order:42", "one");
    assert_eq!(look::<K, P>(&servers), None);
    K::give(&servers[1], "order:42", "two");
    assert_eq!(look::<K, P>(&servers), None);
    K::give(&servers[2], "order:42", "two");
    assert_eq!(look::<K, P>(&servers).unwrap().id.as_str(), "two");
}

fn the_end_of_a_majority_is_told<K: Kind, P: Place>() {
    let servers = P::start(3);
    servers[1..].iter().for_each(|server| K::give(server, "order:42", "two"));
    servers[1].expire("order:42", Duration::from_secs(100));
    let left = look::<K, P>(&servers).unwrap().remaining.unwrap();
    assert!(left <= Duration::from_secs(100) && left > Duration::from_secs(50));
}

fn looking_changes_nothing<K: Kind, P: Place>() {
    let server = P::one();
    let locks: Redlock = open(std::slice::from_ref(&server));
    for _ in 0..3 {
        assert!(!K::new(&locks, "order:42").is_locked().unwrap());
    }
    assert!(locks_on(&server).is_empty() && server.keys().is_empty());
}

each_kind_and_place!(every:
    our_own_holder_is_seen,
    a_holder_without_a_name_is_known_by_its_process,
    a_minority_holds_nothing,
    looking_changes_nothing,
);

each_kind_and_place!(string: foreign_tokens_are_shown_as_they_are, the_end_of_a_majority_is_told);
