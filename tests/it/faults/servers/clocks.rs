//! A server's wall clock jumps. After a jump forward, keys expire too early. After a jump backward, they expire late or
//! never.
//!
//! The tests change no clock. `PEXPIRE` moves a key's expiry to where the jump would have moved it. `PERSIST` removes
//! the expiry.

use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{LeaseState, LostReason};
use redlock_tests::{Server, eventually};

use crate::faults::rig::{LEASE, LONG, ROOMY, Rig, SOON, for_each_n, lost_by_renewal};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_15_one_clock_of_several_jumps_forward,
    fault_15_a_clock_jumps_forward_without_a_spare_vote,
    fault_15_the_only_clock_jumps_forward,
    fault_15_clocks_jump_backward,
    fault_15_a_key_that_never_ends_gets_an_end_again,
);

const KEY: &str = "a";

/// Lets the key expire, as if the server's clock had jumped past its expiry.
fn jump_forward(server: &Server) {
    server.ask::<()>(cmd("PEXPIRE").arg(KEY).arg(1));
    eventually("the key is gone", SOON, || server.holder(KEY).is_none());
}

/// Takes a lock whose renewal interval is that of the short lease. `extend` makes its first expiry so late that a stall
/// of the machine does not end it.
fn hold<K: Kind>(rig: &Rig, lease: Duration) -> K::Guard {
    let guard = K::new(&rig.open(), KEY).lease(lease).lock().unwrap();
    guard.extend(LONG).unwrap();
    guard
}

fn is_left_by_all(rig: &Rig) {
    eventually("no node has the key", SOON, || rig.is_free(KEY));
}

fn fault_15_one_clock_of_several_jumps_forward<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let guard = hold::<K>(&rig, LEASE);
        let fence = guard.fencing_token().unwrap();
        let other = K::new(&rig.open_direct(), KEY);
        // The clocks jump one after the other. A refilled key must count as much as a key that never expired.
        for server in &rig.servers {
            jump_forward(server);
            assert!(other.try_lock().is_err());
            guard.check().unwrap();
            let is_ours = || server.holder(KEY).as_deref() == Some(guard.id().as_str());
            eventually("the node has the key again", SOON, is_ours);
            // The refilled node's vote counts from the next round on.
            eventually("a round is confirmed", SOON, || guard.extend(LONG).is_ok());
            assert_eq!(guard.state(), LeaseState::Held);
        }
        assert_eq!(guard.fencing_token().unwrap(), fence);
        K::unlock(guard).unwrap();
        is_left_by_all(&rig);
    });
}

/// A minority of the nodes is down, so the jump of one more clock ends the majority.
fn fault_15_a_clock_jumps_forward_without_a_spare_vote<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let guard = K::new(&rig.open(), KEY).lease(LEASE).lock().unwrap();
        rig.servers[rig.need()..].iter().for_each(Server::kill);
        jump_forward(&rig.servers[0]);
        let found = guard.extend(LEASE).unwrap_err();
        if !found.is_lost() {
            // Silent nodes may still have the token. In this case the lock is lost at the end of its lease at the
            // latest.
            assert!(found.is_unavailable(), "{found}");
            eventually("check() reports the loss", SOON, || guard.check().is_err());
        }
        assert!(K::unlock(guard).unwrap_err().is_lost());
    });
}

fn fault_15_the_only_clock_jumps_forward<K: Kind>() {
    let rig = Rig::start(1);
    let guard = hold::<K>(&rig, ROOMY);
    let fence = guard.fencing_token().unwrap();
    jump_forward(&rig.servers[0]);
    let jumped = Instant::now();
    // The first holder does not know of the jump before its next renewal. Meanwhile fencing tokens distinguish the two
    // holders.
    let other = K::new(&rig.open_direct(), KEY).lease(LONG).lock().unwrap();
    assert!(other.fencing_token().unwrap() > fence);
    assert_eq!(lost_by_renewal::<K>(&guard, ROOMY, jumped), LostReason::Taken);
    assert!(K::unlock(guard).unwrap_err().is_lost());
    other.check().unwrap();
    assert_eq!(rig.having(KEY, other.id().as_str()), 1);
    K::unlock(other).unwrap();
    // The same fault occurs while no other client takes the lock.
    let guard = hold::<K>(&rig, ROOMY);
    jump_forward(&rig.servers[0]);
    lost_by_renewal::<K>(&guard, ROOMY, Instant::now());
    assert_eq!(K::unlock(guard).unwrap_err().lost_reason(), Some(LostReason::Deleted));
    assert!(rig.is_free(KEY), "nothing is created again");
}

/// The keys live longer by the servers' clocks than the client asked for.
fn fault_15_clocks_jump_backward<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let guard = hold::<K>(&rig, LEASE);
        let fence = guard.fencing_token().unwrap();
        let hours = 3 * 3_600_000_u64;
        for server in &rig.servers {
            server.ask::<()>(cmd("PEXPIRE").arg(KEY).arg(hours));
            // Before the jump backward, a clock that was ahead had raised the fence counter.
            server.ask::<()>(cmd("SET").arg("{a}:fence").arg(fence + hours * 1000).arg("PX").arg(2 * hours));
        }
        let renewed = rig.count("extend");
        eventually("the lock is renewed", SOON, || rig.count("extend") > renewed + n);
        guard.check().unwrap();
        assert!(guard.remaining() <= LONG, "the servers' clocks made the lease longer");
        K::unlock(guard).unwrap();
        is_left_by_all(&rig); // The release removes the keys before they expire.
        let next = K::new(&rig.open_direct(), KEY).lock().unwrap();
        assert!(next.fencing_token().unwrap() > fence + hours * 1000, "the next fencing token is not larger");
        K::unlock(next).unwrap();
    });
}

/// A renewal sets an expiry again, so that the key does not block the lock forever if the holder dies.
fn fault_15_a_key_that_never_ends_gets_an_end_again<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let persist = || rig.servers.iter().for_each(|server| server.ask::<()>(cmd("PERSIST").arg(KEY)));
        let never_ends = |server: &Server| server.holder(KEY).is_some() && server.pttl(KEY).is_none();
        let guard = K::new(&rig.open(), KEY).lease(LEASE).lock().unwrap();
        persist();
        eventually("the keys have an end", SOON, || !rig.servers.iter().any(never_ends));
        guard.check().unwrap();
        for server in &rig.servers {
            let left = server.pttl(KEY).unwrap();
            assert!(left <= LEASE && left > Duration::from_millis(1), "{left:?}");
        }
        K::unlock(guard).unwrap();
        // Without renewals the key keeps no expiry. The release removes it all the same.
        let guard = K::new(&rig.open(), KEY).lease(LONG).renew(false).lock().unwrap();
        persist();
        assert!(rig.servers.iter().all(never_ends));
        guard.check().unwrap();
        assert!(guard.remaining() <= LONG);
        K::unlock(guard).unwrap();
        is_left_by_all(&rig);
    });
}
