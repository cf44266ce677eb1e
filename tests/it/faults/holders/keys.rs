//! The key has another type, or was deleted by hand.

use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, LostReason, Redlock};
use redlock_tests::{Server, eventually};

use crate::faults::rig::{KEY, LEASE, MORE_SLACK, Rig, SOON, err, exists, for_sizes, lost, ms, timed};
use crate::kinds::{Kind, each_kind};

/// A node timeout so long that the test would notice a wait for it.
const PATIENT: Duration = Duration::from_secs(3);

fn put_list(server: &Server) {
    server.del(KEY);
    server.ask::<()>(cmd("RPUSH").arg(KEY).arg("foreign"));
}

fn is_untouched(server: &Server) -> bool {
    let list: Vec<String> = server.ask(cmd("LRANGE").arg(KEY).arg(0).arg(-1));
    list == ["foreign"] && server.pttl(KEY).is_none()
}

/// A client with such a long node timeout that the tests notice each wait for it.
fn patient(rig: &Rig) -> Redlock {
    rig.builder().node_timeout(PATIENT).lease(Duration::from_secs(30)).build().unwrap()
}

#[track_caller]
fn expect_wrong_type<T>(rig: &Rig, op: &str, outcome: impl FnOnce() -> Result<T, Error>) {
    let (outcome, took) = timed(outcome);
    let error = err(outcome);
    let Error::WrongType { op: named, key, node } = &error else { panic!("{op}: {error:?}") };
    assert_eq!((*named, key.as_str()), (op, KEY));
    let text = error.to_string();
    assert!(text.contains(op) && text.contains(KEY) && text.contains(&node.address), "{text}");
    assert!(rig.proxies.iter().any(|proxy| node.address == proxy.addr().to_string()), "{text}");
    assert!(took < ms(2500), "{op} took {took:?}");
}

fn fault_23_a_foreign_key_is_refused_at_once<K: Kind>() {
    for_sizes(&[1, 3, 5], |rig| {
        rig.majority().iter().for_each(put_list);
        let lock = K::new(&patient(rig), KEY);
        expect_wrong_type(rig, "acquire", || lock.lock());
        expect_wrong_type(rig, "acquire", || lock.try_lock());
        expect_wrong_type(rig, "acquire", || lock.try_lock_for(SOON));
        expect_wrong_type(rig, "inspect", || lock.is_locked());
        expect_wrong_type(rig, "inspect", || lock.inspect());
        assert!(rig.majority().iter().all(is_untouched));
        let left = rig.servers.iter().filter(|server| server.get_if_string(KEY)).count();
        assert_eq!(left, 0, "a failed round left its token on a node");
    });
}

fn fault_23_a_key_replaced_while_held_is_found_by_every_operation<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let locks = patient(rig);
        let hold = || {
            rig.servers.iter().for_each(|server| _ = server.del(KEY));
            let guard = K::new(&locks, KEY).renew(false).lock().unwrap();
            rig.majority().iter().for_each(put_list);
            guard
        };
        let guard = hold();
        expect_wrong_type(rig, "extend", || guard.extend(Duration::from_secs(40)));
        assert_eq!(err(guard.check()).lost_reason(), Some(LostReason::Taken));
        assert_eq!(err(K::unlock(guard)).lost_reason(), Some(LostReason::Taken));
        if rig.servers.len() > 1 {
            let guard = hold(); // With one node, the acquire already returned the fencing token.
            expect_wrong_type(rig, "fence", || guard.fencing_token());
            _ = err(K::unlock(guard));
        }
        let guard = hold();
        expect_wrong_type(rig, "release", || K::unlock(guard));
        assert!(rig.majority().iter().all(is_untouched));
    });
}

fn fault_23_the_renewal_finds_a_replaced_key<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        // The lease is long enough that it cannot expire before a renewal. A lease that expires has another loss
        // reason.
        let guard = K::new(&rig.through(), KEY).lease(LEASE * 2).lock().unwrap();
        rig.majority().iter().for_each(put_list);
        let (reason, _) = lost(&guard);
        assert_eq!(reason, LostReason::Taken);
        assert!(err(K::unlock(guard)).is_lost());
        assert!(rig.majority().iter().all(is_untouched));
    });
}

fn fault_23_a_foreign_key_on_a_minority_is_one_vote_less<K: Kind>() {
    for_sizes(&[3, 5], |rig| {
        put_list(&rig.servers[1]);
        let guard = K::new(&rig.through(), KEY).lease(LEASE).lock().unwrap();
        guard.fencing_token().unwrap();
        guard.extend(LEASE + ms(100)).unwrap();
        assert_eq!(rig.holding(KEY), rig.servers.len());
        let (outcome, took) = timed(|| K::unlock(guard));
        outcome.unwrap();
        assert!(took < MORE_SLACK, "{took:?}");
        assert_eq!(rig.holding(KEY), 1);
        assert!(is_untouched(&rig.servers[1]));
    });
}

fn fault_38_a_key_deleted_on_a_minority_is_filled_again<K: Kind>() {
    for_sizes(&[3, 5], |rig| {
        let guard = K::new(&rig.through(), KEY).lease(LEASE).lock().unwrap();
        let fence = guard.fencing_token().unwrap();
        let minority = &rig.servers[rig.majority().len()..];
        for server in minority {
            assert!(server.del(KEY));
        }
        let is_filled = |server: &Server| server.holder(KEY).as_deref() == Some(guard.id().as_str());
        eventually("the nodes have the key again", SOON, || minority.iter().all(is_filled));
        guard.check().unwrap();
        assert_eq!(guard.fencing_token().unwrap(), fence);
        // The refilled nodes count as much as the nodes that never lost the key.
        let others = &rig.servers[..rig.servers.len() - minority.len() - 1];
        eventually("a renewal has counted them", SOON, || guard.state() == redlock_sync::LeaseState::Held);
        let renewed = rig.proxies[0].count("extend");
        rig.proxies[0].wait_count("extend", renewed + 1, SOON);
        for server in others {
            server.del(KEY);
        }
        let renewed = rig.proxies[0].count("extend");
        rig.proxies[0].wait_count("extend", renewed + 2, SOON);
        guard.check().unwrap();
        K::unlock(guard).unwrap();
        assert_eq!(rig.holding(KEY), 0);
    });
}

fn fault_38_without_renewal_a_deleted_key_is_found_by_extend_and_unlock<K: Kind>() {
    for_sizes(&[1, 3], |rig| {
        let lock = K::new(&rig.through(), KEY).renew(false);
        let delete = || rig.majority().iter().for_each(|server| _ = server.del(KEY));
        let guard = lock.lock().unwrap();
        delete();
        assert_eq!(err(guard.extend(Duration::from_secs(40))).lost_reason(), Some(LostReason::Deleted));
        assert!(err(K::unlock(guard)).is_lost());
        let guard = lock.lock().unwrap();
        delete();
        assert_eq!(err(K::unlock(guard)).lost_reason(), Some(LostReason::Deleted));
        assert!(rig.servers.iter().all(|server| !exists(server, KEY)));
    });
}

/// A check that the fixture `Server` does not have.
trait IsString {
    fn get_if_string(&self, key: &str) -> bool;
}

impl IsString for Server {
    fn get_if_string(&self, key: &str) -> bool {
        self.ask::<String>(cmd("TYPE").arg(key)) == "string"
    }
}

each_kind!(all:
    fault_23_a_foreign_key_is_refused_at_once,
    fault_23_a_key_replaced_while_held_is_found_by_every_operation,
    fault_23_the_renewal_finds_a_replaced_key,
    fault_23_a_foreign_key_on_a_minority_is_one_vote_less,
    fault_38_a_key_deleted_on_a_minority_is_filled_again,
    fault_38_without_renewal_a_deleted_key_is_found_by_extend_and_unlock,
);
