//! The number of votes that a lock needs. Foreign tokens stand on some of the nodes beforehand, in each combination.

use redlock_tests::Stopwatch;
use std::time::Duration;

use redlock_sync::Redlock;

use super::rig::{locks_on, open};
use crate::kinds::Kind;
use crate::place::{Place, each_kind_and_place};

const KEY: &str = "mask";
/// A time shorter than the node timeout, so that the test notices an attempt that waits.
const AT_ONCE: Duration = Duration::from_secs(4);

/// Sets foreign tokens on exactly the nodes in the mask.
fn take<K: Kind, P: Place>(servers: &[P], mask: u32) -> Vec<bool> {
    let taken: Vec<bool> = (0..servers.len()).map(|i| mask & (1 << i) != 0).collect();
    for (server, &taken) in servers.iter().zip(&taken) {
        if taken { K::give(server, KEY, "foreign") } else { _ = server.del(KEY) }
    }
    taken
}

/// Asserts that exactly the foreign tokens are on the nodes.
fn only_foreign<K: Kind, P: Place>(servers: &[P], taken: &[bool]) {
    for (server, &taken) in servers.iter().zip(taken) {
        assert_eq!(K::token(server, KEY).as_deref(), taken.then_some("foreign"));
        assert_eq!(locks_on(server).len(), usize::from(taken));
    }
}

/// Makes one attempt, which must be decided at once. It must succeed if and only if a majority of the nodes is free.
fn try_mask<K: Kind, P: Place>(locks: &Redlock, servers: &[P], mask: u32) {
    let taken = take::<K, P>(servers, mask);
    let free = taken.iter().filter(|taken| !**taken).count();
    let start = Stopwatch::start();
    let result = K::new(locks, KEY).try_lock();
    let took = start.elapsed();
    assert!(took < AT_ONCE, "mask {mask:#b} took {took:?}and did not end at once");
    if free > servers.len() / 2 {
        let guard = result.unwrap_or_else(|error| panic!("mask {mask:#b}: {error}"));
        for (server, &taken) in servers.iter().zip(&taken) {
            let expected = if taken { "foreign" } else { guard.id().as_str() };
            assert_eq!(K::token(server, KEY).as_deref(), Some(expected), "mask {mask:#b}");
        }
        K::unlock(guard).unwrap();
    } else {
        let error = result.err().unwrap_or_else(|| panic!("mask {mask:#b}: won without a majority"));
        assert!(error.is_busy(), "mask {mask:#b}: {error}");
    }
    only_foreign::<K, P>(servers, &taken);
}

fn every_mask<K: Kind, P: Place>(nodes: usize) {
    let servers = P::start(nodes);
    let locks = open(&servers);
    K::unlock(K::new(&locks, "warm").lock().unwrap()).unwrap();
    (0..1 << nodes).for_each(|mask| try_mask::<K, P>(&locks, &servers, mask));
}

fn each_mask_of_four<K: Kind, P: Place>() {
    every_mask::<K, P>(4);
}

fn each_mask_of_three<K: Kind, P: Place>() {
    every_mask::<K, P>(3);
}

fn each_mask_of_two<K: Kind, P: Place>() {
    every_mask::<K, P>(2);
}

each_kind_and_place!(every: each_mask_of_four, each_mask_of_three, each_mask_of_two);
