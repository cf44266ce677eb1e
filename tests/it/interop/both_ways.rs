//! Each library refuses a lock that the other one holds, and neither releases nor extends it. The tests use one server,
//! and three if the library supports several.

use std::time::Duration;

use redlock_sync::{Error, Mutex, Redlock, ReentrantMutex};
use redlock_tests::Server;
use redlock_tests::foreign::{Library, Program};

use super::{KEY, each_library, field, urls};
use crate::kinds::Kind;

each_library!(exclude_each_other);

fn exclude_each_other(library: Library) {
    for nodes in if library.knows_several_servers() { &[1, 3][..] } else { &[1] } {
        let (servers, locks) = field(*nodes);
        let pair = &mut Pair { library, program: library.start(&urls(&servers), KEY), servers, locks };
        all_ways::<Mutex>(pair);
        all_ways::<ReentrantMutex>(pair);
    }
}

fn all_ways<K: Kind>(pair: &mut Pair) {
    our_lock_is_respected::<K>(pair);
    their_lock_is_respected::<K>(pair);
    they_cannot_extend_or_release_ours::<K>(pair);
    we_cannot_release_theirs::<K>(pair);
}

struct Pair {
    library: Library,
    servers: Vec<Server>,
    locks: Redlock,
    program: Program,
}

impl Pair {
    /// The value of the key, which must be the same on all servers.
    fn stored(&self) -> Option<String> {
        let each: Vec<Option<String>> = self.servers.iter().map(|server| server.get(KEY)).collect();
        assert!(each.iter().all(|value| *value == each[0]), "{each:?}");
        each[0].clone()
    }

    fn lose(&self) {
        assert!(self.servers.iter().all(|server| server.del(KEY)));
    }

    fn says(&mut self, word: &str, answer: &str) {
        assert_eq!(self.program.ask(word), answer, "{} to `{word}`", self.library.name());
    }
}

fn our_lock_is_respected<K: Kind>(pair: &mut Pair) {
    let guard = K::new(&pair.locks, KEY).lock().unwrap();
    pair.says("acquire", "no");
    guard.check().unwrap();
    assert_eq!(pair.stored().as_deref(), Some(guard.id().as_str()));
    K::unlock(guard).unwrap();
    pair.says("acquire", "yes");
    pair.says("release", "yes");
}

fn their_lock_is_respected<K: Kind>(pair: &mut Pair) {
    pair.says("acquire", "yes");
    let lock = K::new(&pair.locks, KEY);
    let Some(Error::Busy { expires_in: Some(left), .. }) = lock.try_lock().err() else { panic!("not busy") };
    assert!(left <= Duration::from_secs(10), "{left:?}");
    let holder = lock.inspect().unwrap().unwrap();
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(10)), "{holder:?}");
    assert!(lock.try_lock_for(Duration::from_millis(50)).err().unwrap().is_busy());
    pair.says("release", "yes");
    assert!(!lock.is_locked().unwrap());
    K::unlock(lock.try_lock().unwrap()).unwrap();
}

/// The other program held the lock before and still believes that it does.
fn they_cannot_extend_or_release_ours<K: Kind>(pair: &mut Pair) {
    pair.says("acquire", "yes");
    pair.lose();
    let guard = K::new(&pair.locks, KEY).lock().unwrap();
    if pair.library != Library::Redisson {
        pair.says("extend", "no");
    }
    let said = pair.program.ask("release");
    // rslock returns no result.
    assert!(said == "no" || pair.library == Library::Rslock, "{said}");
    guard.check().unwrap();
    assert_eq!(pair.stored().as_deref(), Some(guard.id().as_str()));
    K::unlock(guard).unwrap();
}

/// This library held the lock before, and the other program holds it now.
fn we_cannot_release_theirs<K: Kind>(pair: &mut Pair) {
    let guard = K::new(&pair.locks, KEY).lock().unwrap();
    pair.lose();
    pair.says("acquire", "yes");
    assert!(K::unlock(guard).unwrap_err().is_lost());
    if pair.library != Library::Redisson {
        pair.says("extend", "yes");
    }
    pair.says("release", "yes");
    assert_eq!(pair.stored(), None);
}
