//! Fencing tokens rise strictly from each holder to the next, in every process, even if a minority of the nodes loses
//! its data in between.

use std::thread;
use std::time::Duration;

use redlock_sync::{Mutex, Redlock};
use redlock_tests::{Server, servers};

use super::rig::{SOON, builder, ms, open, patient};
use crate::kinds::{Kind, each_kind};
use crate::place::{Place, each_kind_and_place};
use crate::rig::until_older;

/// Holds the lock once and returns its fencing token. An extension must not change the token.
fn token<K: Kind>(locks: &Redlock) -> u64 {
    let guard = K::new(locks, "fenced").try_lock_for(SOON).unwrap();
    let token = guard.fencing_token().unwrap();
    guard.extend(Duration::from_secs(20)).unwrap();
    assert_eq!(guard.fencing_token().unwrap(), token);
    K::unlock(guard).unwrap();
    token
}

fn rise(tokens: &[u64]) {
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    assert!(tokens.iter().all(|token| *token < 1 << 53));
}

/// Holds the lock `rounds` times, by the clients in turn, and calls `between` before each hold. Returns the fencing
/// tokens.
fn tokens<K: Kind>(locks: &[Redlock], rounds: usize, between: impl Fn(usize)) -> Vec<u64> {
    let hold = |(round, locks): (usize, &Redlock)| {
        between(round);
        token::<K>(locks)
    };
    locks.iter().cycle().take(rounds).enumerate().map(hold).collect()
}

fn three(client: impl Fn() -> Redlock) -> Vec<Redlock> {
    (0..3).map(|_| client()).collect()
}

fn tokens_rise<K: Kind, P: Place>() {
    for nodes in [1, 3, 5] {
        let servers = P::start(nodes);
        // The restart guard is off. Otherwise the first server older than the longest lease would make the other nodes
        // lose their votes.
        let unguarded = || P::client(&servers, patient().restart_guard(false));
        rise(&tokens::<K>(&three(unguarded), 60, |_| ()));
    }
}

fn tokens_rise_from_thread_to_thread<K: Kind, P: Place>() {
    let servers = P::start(5);
    // The restart guard is off as in `tokens_rise`, because the servers do not start at the same moment.
    let locks = P::client(&servers, patient().restart_guard(false));
    let seen = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let guard = K::new(&locks, "fenced").try_lock_for(SOON).unwrap();
                    seen.lock().unwrap().push(guard.fencing_token().unwrap());
                    K::unlock(guard).unwrap();
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 80);
    rise(&seen);
}

/// If the only node loses its data, its counter starts again at the current time, which is later than every earlier
/// token.
fn tokens_rise_though_the_only_node_forgets<K: Kind>() {
    let server = Server::start();
    let one = std::slice::from_ref(&server);
    let forget = |round| if round % 4 == 3 { server.restart() } else { _ = server.del("{fenced}:fence") };
    rise(&tokens::<K>(&three(|| open(one)), 16, forget));
}

/// Two of the five nodes lose their data before each hold, and each time two other nodes.
#[test]
fn tokens_rise_though_a_minority_forgets() {
    let servers = servers(5);
    let unguarded = || builder(&servers).restart_guard(false).build().unwrap();
    let forget = |round: usize| {
        servers[2 * round % 5].restart();
        servers[(2 * round + 1) % 5].restart();
    };
    rise(&tokens::<Mutex>(&three(unguarded), 10, forget));
}

/// With the restart guard, the two restarted nodes have no votes for the length of a lease, so the other three decide.
#[test]
fn tokens_rise_while_the_restarted_may_not_vote() {
    let servers = servers(5);
    until_older(&servers, ms(2000));
    let locks = three(|| builder(&servers).node_timeout(ms(300)).lease(ms(1500)).build().unwrap());
    let mut last = 0;
    for round in 0..8 {
        if round % 2 == 1 {
            // If all nodes had just restarted, the first one older than the lease would make the others lose their
            // votes. So the test waits for one old node.
            until_older(&servers[(round + 3) % 5..][..1], ms(2000));
            servers[round % 5].restart();
            servers[(round + 1) % 5].restart();
        }
        let guard = locks[round % 3].mutex("fenced").try_lock_for(SOON).unwrap();
        let token = guard.fencing_token().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.unlock().unwrap();
    }
}

/// Each holder gets the votes of another majority. Counters that are stored on a few nodes only would fail this test.
fn tokens_rise_though_each_holder_has_another_majority<K: Kind, P: Place>() {
    let servers = P::start(5);
    let mut last = 0;
    for round in 0..10 {
        let blocked = [round % 5, (round + 2) % 5];
        let token = token_without::<K, P>(&open(&servers), &servers, blocked);
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

/// One node's counter is far ahead, as after a jump of its clock. A holder with this node's vote gets its token from
/// there. The next holder, without this node's vote, must get a larger one. So the library stores each token on a
/// majority.
fn tokens_rise_though_one_node_is_ahead<K: Kind, P: Place>() {
    let servers = P::start(5);
    let locks = open(&servers);
    let first = token::<K>(&locks);
    let ahead = first + 1_000_000_000_000;
    servers[0].set("{fenced}:fence", &ahead.to_string());
    let with = token_without::<K, P>(&locks, &servers, [3, 4]);
    let without = token_without::<K, P>(&locks, &servers, [0, 3]);
    let others = token_without::<K, P>(&locks, &servers, [0, 1]);
    assert!(with > ahead);
    rise(&[first, with, without, others]);
}

/// The fencing token of a holder without the votes of two nodes.
fn token_without<K: Kind, P: Place>(locks: &Redlock, servers: &[P], blocked: [usize; 2]) -> u64 {
    for i in blocked {
        K::give(&servers[i], "fenced", "foreign");
    }
    let token = token::<K>(locks);
    for i in blocked {
        servers[i].del("fenced");
    }
    token
}

each_kind_and_place!(every:
    tokens_rise,
    tokens_rise_though_one_node_is_ahead,
    tokens_rise_from_thread_to_thread,
    tokens_rise_though_each_holder_has_another_majority,
);

each_kind!(tokens_rise_though_the_only_node_forgets);
