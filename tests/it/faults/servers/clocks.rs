//! A server's wall clock jumps: forward, and its keys end before their time; backward, and they end late or never.
//!
//! No clock is touched. `PEXPIRE` moves a key's end to where the jump would have put it, and `PERSIST` to the end of all days.

use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{LeaseState, LostReason};
use redlock_tests::{Server, eventually};

use crate::faults::support::{LEASE, LONG, ROOMY, Rig, SOON, for_each_n, lost_by_renewal};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_15_one_clock_of_several_jumps_forward,
    fault_15_a_clock_jumps_forward_without_a_spare_vote,
    fault_15_the_only_clock_jumps_forward,
    fault_15_clocks_jump_backward,
    fault_15_a_key_that_never_ends_gets_an_end_again,
);

const KEY: &str = "a";

/// The server's clock passes the key's end.
fn jump_forward(server: &Server) {
    server.ask::<()>(cmd("PEXPIRE").arg(KEY).arg(1));
    eventually("the key is gone", SOON, || server.holder(KEY).is_none());
}

/// Renewed as often as a short lease, and so long that no stutter of the machine ends it.
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
        // One after the other: what was filled again is as good as what never ended.
        for server in &rig.servers {
            jump_forward(server);
            assert!(other.try_lock().is_err());
            guard.check().unwrap();
            let is_ours = || server.holder(KEY).as_deref() == Some(guard.id().as_str());
            eventually("the node is filled again", SOON, is_ours);
            // Its vote counts from the next round on.
            eventually("a round is confirmed", SOON, || guard.extend(LONG).is_ok());
            assert_eq!(guard.state(), LeaseState::Held);
        }
        assert_eq!(guard.fencing_token().unwrap(), fence);
        K::unlock(guard).unwrap();
        is_left_by_all(&rig);
    });
}

/// As many nodes are away as can be missed: the jump takes the majority.
fn fault_15_a_clock_jumps_forward_without_a_spare_vote<K: Kind>() {
    for_each_n(&[3, 5], |n| {
        let rig = Rig::start(n);
        let guard = K::new(&rig.open(), KEY).lease(LEASE).lock().unwrap();
        rig.servers[rig.need()..].iter().for_each(Server::kill);
        jump_forward(&rig.servers[0]);
        let found = guard.extend(LEASE).unwrap_err();
        if !found.is_lost() {
            // Nodes that are silent may still have the token: so long as that is so it is lost at its end at the latest.
            assert!(found.is_unavailable(), "{found}");
            eventually("the loss is told", SOON, || guard.check().is_err());
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
    // Unknown before the next renewal; a fence tells the two holders apart.
    let other = K::new(&rig.open_direct(), KEY).lease(LONG).lock().unwrap();
    assert!(other.fencing_token().unwrap() > fence);
    assert_eq!(lost_by_renewal::<K>(&guard, ROOMY, jumped), LostReason::Taken);
    assert!(K::unlock(guard).unwrap_err().is_lost());
    other.check().unwrap();
    assert_eq!(rig.holding(KEY, other.id().as_str()), 1);
    K::unlock(other).unwrap();
    // The same without another holder.
    let guard = hold::<K>(&rig, ROOMY);
    jump_forward(&rig.servers[0]);
    lost_by_renewal::<K>(&guard, ROOMY, Instant::now());
    assert_eq!(K::unlock(guard).unwrap_err().lost_reason(), Some(LostReason::Deleted));
    assert!(rig.is_free(KEY), "nothing is created again");
}

/// The keys have longer to live by the servers' clocks than was asked for.
fn fault_15_clocks_jump_backward<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let guard = hold::<K>(&rig, LEASE);
        let fence = guard.fencing_token().unwrap();
        let hours = 3 * 3_600_000_u64;
        for server in &rig.servers {
            server.ask::<()>(cmd("PEXPIRE").arg(KEY).arg(hours));
            // The counter was raised by a clock that is ahead of the one from now on.
            server.ask::<()>(cmd("SET").arg("{a}:fence").arg(fence + hours * 1000).arg("PX").arg(2 * hours));
        }
        let renewed = rig.count("extend");
        eventually("it is renewed", SOON, || rig.count("extend") > renewed + n);
        guard.check().unwrap();
        assert!(guard.remaining() <= LONG, "what the servers' clocks did adds nothing");
        K::unlock(guard).unwrap();
        is_left_by_all(&rig); // which does not wait for the keys' end
        let next = K::new(&rig.open_direct(), KEY).lock().unwrap();
        assert!(next.fencing_token().unwrap() > fence + hours * 1000, "fences rise though the clocks fell back");
        K::unlock(next).unwrap();
    });
}

/// A renewal gives it an end again, so that a holder that dies then does not block the lock for ever.
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
        // Without renewal it is as endless as it was made by hand; the release takes it away all the same.
        let guard = K::new(&rig.open(), KEY).lease(LONG).renew(false).lock().unwrap();
        persist();
        assert!(rig.servers.iter().all(never_ends));
        guard.check().unwrap();
        assert!(guard.remaining() <= LONG);
        K::unlock(guard).unwrap();
        is_left_by_all(&rig);
    });
}
