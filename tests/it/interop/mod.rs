//! Other programs on the same keys: `Lock` of Python's `redis` package, which has the layout of the Redis documentation.
//!
//! With feature `interop`, as pip fetches the package, once, into the target directory.
//! `turns.rs`: programs of this and other libraries that poll a lock which clients of ours pass on.

mod python;
mod turns;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use redlock_tests::Server;

use crate::kinds::{Kind, each_kind};
use python::Peer;

const KEY: &str = "order:42";

/// A server, our client, and a Python process with a lock of 30 seconds on the same key.
fn trio() -> (Server, Redlock, Peer) {
    let server = Server::start();
    let builder = Redlock::builder().node(server.url()).node_timeout(Duration::from_secs(2));
    let peer = Peer::start(&server.url(), KEY);
    (server, builder.build().unwrap(), peer)
}

fn our_lock_is_respected_by_python<K: Kind>() {
    let (server, locks, mut peer) = trio();
    let guard = K::new(&locks, KEY).lock().unwrap();
    assert_eq!(peer.ask("acquire"), "False");
    assert_eq!(peer.ask("locked"), "True");
    assert_eq!(peer.ask("owned"), "False");
    guard.check().unwrap();
    assert_eq!(server.get(KEY).as_deref(), Some(guard.id().as_str()));
    K::unlock(guard).unwrap();
    assert_eq!(peer.ask("locked"), "False");
    assert_eq!(peer.ask("acquire"), "True");
    assert_eq!(peer.ask("release"), "None");
}

/// Python held the lock once, and still thinks so: what it does then must leave ours alone.
fn python_cannot_release_or_extend_our_lock<K: Kind>() {
    let (server, locks, mut peer) = trio();
    assert_eq!(peer.ask("acquire"), "True");
    server.del(KEY);
    let guard = K::new(&locks, KEY).lock().unwrap();
    for refused in ["extend", "reacquire", "release"] {
        assert_eq!(peer.ask(refused), "LockNotOwnedError");
    }
    guard.check().unwrap();
    assert_eq!(server.get(KEY).as_deref(), Some(guard.id().as_str()));
    K::unlock(guard).unwrap();
}

fn a_lock_of_python_is_respected_by_us<K: Kind>() {
    let (server, locks, mut peer) = trio();
    assert_eq!(peer.ask("acquire"), "True");
    let lock = K::new(&locks, KEY);
    let Some(Error::Busy { expires_in: Some(left), .. }) = lock.try_lock().err() else { panic!("not busy") };
    assert!(left <= Duration::from_secs(30) && left > Duration::from_secs(10), "{left:?}");
    let holder = lock.inspect().unwrap().unwrap();
    assert_eq!(holder.id.as_str(), peer.ask("token"));
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(30)));
    assert!(lock.try_lock_for(Duration::from_millis(50)).err().unwrap().is_busy());
    assert_eq!(peer.ask("owned"), "True");
    assert_eq!(peer.ask("release"), "None");
    assert!(!lock.is_locked().unwrap());
    let guard = lock.try_lock().unwrap();
    assert_eq!(server.get(KEY).as_deref(), Some(guard.id().as_str()));
    K::unlock(guard).unwrap();
}

/// The other way round: we held it once, Python holds it now, and our release is refused.
fn we_cannot_release_a_lock_of_python<K: Kind>() {
    let (server, locks, mut peer) = trio();
    let guard = K::new(&locks, KEY).lock().unwrap();
    server.del(KEY);
    assert_eq!(peer.ask("acquire"), "True");
    assert!(K::unlock(guard).unwrap_err().is_lost());
    assert_eq!(peer.ask("owned"), "True");
    assert_eq!(peer.ask("release"), "None");
}

/// Two processes of ours and two of Python count in one file.
#[test]
fn mixed_processes_lose_no_update() {
    const ROUNDS: u64 = 250;
    let server = Server::start();
    let file = server.dir().join("counter");
    fs::write(&file, [0; 40]).unwrap();
    let ours = || {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_agent"));
        // With two threads the lock would stay in the process for most of the time.
        agent.arg("contend").arg(&file).args([&ROUNDS.to_string(), "1", "yes", "1000", &server.url()]);
        agent.stdin(Stdio::null()).spawn().unwrap()
    };
    let theirs = || python::counter(&file, ROUNDS, &server.url());
    let all = [ours(), theirs(), ours(), theirs()];
    for mut process in all {
        assert!(process.wait().unwrap().success());
    }
    let record = fs::read(&file).unwrap();
    let number = |i: usize| u64::from_le_bytes(record[8 * i..8 * i + 8].try_into().unwrap());
    println!("counted {}, process changed {} times", number(0), number(2));
    assert_eq!(number(0), 4 * ROUNDS);
    assert!(number(2) >= 20, "they hardly met: the process changed {} times", number(2));
    assert_eq!(number(4), 0, "two were inside at once");
}

each_kind!(
    our_lock_is_respected_by_python,
    python_cannot_release_or_extend_our_lock,
    a_lock_of_python_is_respected_by_us,
    we_cannot_release_a_lock_of_python,
);
