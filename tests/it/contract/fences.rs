//! Fencing tokens rise strictly from each holder to the next, in whatever process, whatever a minority of the nodes forgets in between.

use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::{Server, eventually, servers};

use super::rig::{SOON, builder, ms, open, patient};
use crate::kinds::{Kind, each_kind};
use crate::place::{Place, each_kind_and_place};

/// One hold; its token, which stays the same through an extension and when it is asked for again.
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

/// `rounds` holds, by three clients in turn, with something done between any two.
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
        // The first server to be older than the longest lease would take away the votes of the others.
        let unguarded = || P::client(&servers, patient().restart_guard(false));
        rise(&tokens::<K>(&three(unguarded), 60, |_| ()));
    }
}

fn tokens_rise_from_thread_to_thread<K: Kind, P: Place>() {
    let servers = P::start(5);
    // As in `tokens_rise`: the servers of a run that lasts as long as a lease have not all started at one moment.
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

/// One node that forgets everything starts again from the time of day, which is later.
fn tokens_rise_though_the_only_node_forgets<K: Kind>() {
    let server = Server::start();
    let one = std::slice::from_ref(&server);
    let forget = |round| if round % 4 == 3 { server.restart() } else { _ = server.del("{fenced}:fence") };
    rise(&tokens::<K>(&three(|| open(one)), 16, forget));
}

/// Two of five forget everything between holds, each time two others.
fn tokens_rise_though_a_minority_forgets<K: Kind>() {
    let servers = servers(5);
    let unguarded = || builder(&servers).restart_guard(false).build().unwrap();
    let forget = |round: usize| {
        servers[2 * round % 5].restart();
        servers[(2 * round + 1) % 5].restart();
    };
    rise(&tokens::<K>(&three(unguarded), 10, forget));
}

/// The same with the restart guard, by which the two cast no vote for a lease and the other three decide.
fn tokens_rise_while_the_restarted_may_not_vote<K: Kind>() {
    let servers = servers(5);
    eventually("the servers are older than the lease", SOON, || servers.iter().all(|server| uptime(server) >= 3));
    let locks = three(|| builder(&servers).node_timeout(ms(300)).lease(ms(1500)).build().unwrap());
    let mut last = 0;
    for round in 0..8 {
        if round % 2 == 1 {
            // Where all have just restarted, the first of them to be older than the lease takes away the votes of the others.
            eventually("one has not restarted lately", SOON, || uptime(&servers[(round + 3) % 5]) >= 3);
            servers[round % 5].restart();
            servers[(round + 1) % 5].restart();
        }
        let guard = K::new(&locks[round % 3], "fenced").try_lock_for(SOON).unwrap();
        let token = guard.fencing_token().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        K::unlock(guard).unwrap();
    }
}

/// Whole seconds.
fn uptime(server: &Server) -> u64 {
    server.info("uptime_in_seconds").unwrap().parse().unwrap()
}

/// Every holder has another majority: counters of which each stands on some nodes only would break this.
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

/// One node's counter is far ahead, as after a jump of its clock. A holder with its vote gets a token from there; the next one, without it, must
/// get a larger one all the same: that is what storing the token on a majority is for.
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

/// The token of a holder that two of the nodes do not vote for.
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

mod mutex_only {
    use redlock_sync::Mutex;

    #[test]
    fn tokens_rise_though_a_minority_forgets() {
        super::tokens_rise_though_a_minority_forgets::<Mutex>();
    }

    #[test]
    fn tokens_rise_while_the_restarted_may_not_vote() {
        super::tokens_rise_while_the_restarted_may_not_vote::<Mutex>();
    }
}
