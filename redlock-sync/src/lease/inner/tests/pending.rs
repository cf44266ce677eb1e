//! Tests of many releases at once, and of releases that are repeated.

use std::cell::RefCell;

use super::*;
use crate::lease::PendingRelease;

/// Revokes the held lock, as `unlock_all` does.
fn revoke(rig: &Rig, inner: &Arc<LeaseInner>) -> Result<usize, Error> {
    revoke_all(rig, vec![Arc::clone(inner)])
}

fn revoke_all(rig: &Rig, leases: Vec<Arc<LeaseInner>>) -> Result<usize, Error> {
    let mut given_up = crate::lease::revoke(&rig.pending, leases);
    given_up.unconfirmed.pop().map_or(Ok(given_up.keys.len()), Err)
}

#[test]
fn a_lease_is_revoked_once() {
    let rig = Rig::start(1);
    let inner = rig.lease(options());
    assert_eq!(revoke(&rig, &inner), Ok(1));
    assert_eq!(rig.servers[0].get(KEY), None);
    assert_eq!(revoke(&rig, &inner), Ok(0));
    assert_eq!(reason(&inner), Some(LostReason::Revoked));
    let released = rig.lease(options());
    assert_eq!(rig.release(&released), Ok(()));
    assert_eq!(revoke(&rig, &released), Ok(0));
    let unreachable = rig.lease(options());
    rig.proxies[0].refuse();
    assert!(matches!(revoke(&rig, &unreachable), Err(Error::Unconfirmed { confirmed: 0, of: 1, .. })));
    assert_eq!(reason(&unreachable), Some(LostReason::Revoked), "its guard may not go on");
}

#[test]
fn all_that_is_revoked_is_released_at_once() {
    let rig = Rig::start(3);
    let lease = |name: &str, min_hold| {
        let start = rig.start_for(name, LockOptions { min_hold, ..options() });
        rig.acquire(start)
    };
    let leases = vec![lease("a", Duration::ZERO), lease("b", LEASE / 2), lease("c", Duration::ZERO)];
    assert!(rig.servers.iter().all(|server| server.del("c")));
    let before = rig.proxies[0].count("release");
    assert_eq!(revoke_all(&rig, leases.clone()), Ok(3));
    assert_eq!(rig.proxies[0].count("release"), before + 3);
    assert!(rig.servers.iter().all(|server| server.keys() == ["b"]), "a minimum hold is kept");
    assert!(leases.iter().all(|inner| reason(inner) == Some(LostReason::Revoked)));
}

#[test]
fn a_release_that_is_not_confirmed_is_repeated_until_it_is() {
    let rig = Rig::start(3);
    let inner = rig.lease(options());
    rig.proxies.iter().for_each(Proxy::refuse);
    assert!(rig.release(&inner).is_err());
    rig.proxies.iter().for_each(Proxy::heal);
    redlock_tests::eventually("it is released", SOON, || rig.servers.iter().all(|server| server.get(KEY).is_none()));
}

/// If a node is left out at that moment, it does not keep the token until the token expires.
#[test]
fn a_release_that_a_majority_confirmed_is_repeated_for_a_node_that_may_have_the_token() {
    let rig = Rig::start(3);
    let inner = rig.lease(options());
    rig.proxies[2].refuse();
    // The failed extension makes the client leave the node out, so nothing is written to it.
    inner.extend(LEASE).unwrap();
    assert!(rig.release(&inner).is_ok() && rig.servers[2].get(KEY).is_some());
    rig.proxies[2].heal();
    redlock_tests::eventually("it is released there", SOON, || rig.servers[2].get(KEY).is_none());
}

/// A copy of the acquire broke off. It comes after a later copy, to which the node has answered "no".
#[test]
fn a_release_is_repeated_for_a_node_to_which_a_late_copy_of_the_acquire_came() {
    let rig = Rig::start(3);
    rig.servers[2].set(KEY, "another's");
    let start = rig.start_for(KEY, options());
    let mut ballot = rig.attempt(&start);
    assert!(matches!(&ballot.votes[..], [Vote::Yes(_), Vote::Yes(_), Vote::Taken { .. }]), "{ballot:?}");
    ballot.duplicate = true;
    let token = start.id.as_str().to_owned();
    let inner = Arc::new(LeaseInner::won(start, &ballot));
    rig.servers[2].set(KEY, &token);
    rig.proxies[2].refuse();
    assert!(rig.release(&inner).is_ok());
    rig.proxies[2].heal();
    redlock_tests::eventually("it is released there", SOON, || rig.servers[2].get(KEY).is_none());
}

#[test]
fn nothing_is_repeated_after_the_lease_or_the_client_has_ended() {
    let rig = Rig::start(1);
    let pending = &rig.pending;
    let release = |ends| {
        let id = rig.tokens.fresh(None).unwrap();
        let inner = rig.lease(options());
        assert!(rig.servers[0].del(KEY));
        PendingRelease::of_token(Arc::clone(inner.protocol()), inner.key.name(), id, ends, Vec::new())
    };
    let later = rig.quorum.now().after(LEASE);
    pending.add(release(rig.quorum.now()));
    pending.add(release(later));
    rig.proxies[0].wait_count("release", 1, SOON);
    redlock_tests::eventually("no more is planned", SOON, || pending.is_idle());
    assert_eq!(rig.proxies[0].count("release"), 1, "both in one call, and one of them was over");
    assert_eq!(pending.close().len(), 0);
    pending.add(release(later));
    assert!(pending.is_idle());
}

#[test]
fn no_more_than_so_many_are_remembered_and_what_ends_first_goes() {
    let rig = Rig::start(1);
    rig.proxies[0].refuse();
    let pending = &rig.pending;
    let LeaseStart { protocol, key, .. } = rig.start_for("many", options());
    let later = rig.quorum.now().after(LEASE);
    for i in 0..4106_u64 {
        let id = LockId::from_server(&format!("{i}"));
        let ends = later.after(Duration::from_millis(i));
        pending.add(PendingRelease::of_token(Arc::clone(&protocol), key.name(), id, ends, Vec::new()));
    }
    let kept = pending.close();
    assert_eq!(kept.len(), 4096);
    assert!(kept.iter().all(|one| one.ends >= later.after(Duration::from_millis(10))));
}

#[test]
fn only_the_release_of_the_named_token_of_its_key_is_sent_again() {
    let rig = Rig::start(1);
    rig.proxies[0].refuse();
    let later = rig.quorum.now().after(LEASE);
    let add = |key: &str, id: &str, ends| {
        let LeaseStart { protocol, key, .. } = rig.start_for(key, options());
        rig.pending.add(PendingRelease::of_token(protocol, key.name(), LockId::from_server(id), ends, vec![true]));
    };
    let again = |id: &str| rig.pending.release_again(&KEY.into(), |other| other.as_str() == id, Vec::new());
    assert!(!again("here"));
    add(KEY, "here", later);
    add("other", "of another key", later);
    add(KEY, "over", rig.quorum.now());
    assert!(again("here") && again("here") && !again("of another key") && !again("over") && !again("unknown"));
}

/// After the release was confirmed, a late copy of the acquire may set the token again.
#[test]
fn a_released_token_is_released_again_if_it_comes_back() {
    let rig = Rig::start(1);
    let LeaseStart { protocol, key, id, .. } = rig.start_for(KEY, options());
    let ends = rig.quorum.now().after(LEASE);
    rig.pending.add(PendingRelease::of_token(protocol, key.name(), id.clone(), ends, vec![true]));
    redlock_tests::eventually("no more is planned", SOON, || rig.pending.is_idle());
    rig.servers[0].set(KEY, id.as_str());
    assert!(rig.release_again());
    redlock_tests::eventually("it is released", SOON, || rig.servers[0].get(KEY).is_none());
}

/// The next thread of this process would otherwise be refused by a token of its own process.
#[test]
fn a_token_is_pending_before_the_next_thread_goes_on() {
    let rig = Rig::start(1);
    let queues = ThreadQueues::new(Arc::clone(&rig.clock) as Arc<dyn Clock>);
    let (name, inner): (Arc<str>, _) = (KEY.into(), rig.lease(options()));
    let kind = inner.protocol().kind();
    let Some(QueueOutcome::Head(head)) = queues.try_enqueue(&name, kind, &options()) else { panic!() };
    inner.keep_head(head);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let next = queues.enqueue(&name, Tick::NEVER, kind, &options());
            matches!(next, QueueOutcome::Head(_)) && rig.release_again()
        });
        redlock_tests::eventually("a thread waits", SOON, || {
            inner.state.lock().head.as_ref().unwrap().has_successor(kind, &options())
        });
        rig.proxies[0].refuse();
        assert!(rig.release(&inner).is_err());
        assert!(next.join().unwrap());
    });
}

/// Until then the key stays, and no other attempt may take the lock.
#[test]
fn a_token_under_a_minimum_hold_is_released_again_after_it() {
    let rig = Rig::start(1);
    let inner = rig.lease(LockOptions { min_hold: LEASE / 2, ..options() });
    rig.proxies[0].refuse();
    assert!(rig.release(&inner).is_err());
    assert!(!rig.release_again());
    rig.clock.sleep_through(LEASE / 2);
    assert!(rig.release_again());
}

thread_local! {
    /// What the logger uses, on the thread of its test only: other tests of this process log too.
    static LOGGING: RefCell<Option<Arc<Pending>>> = const { RefCell::new(None) };
}

struct UsingLogger;

impl log::Log for UsingLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let pending = LOGGING.with_borrow(Clone::clone);
        if let Some(pending) = pending.filter(|_| record.args().to_string().contains("releases are not confirmed")) {
            assert!(pending.release_again(&"many".into(), |id| id.as_str() == "4096", Vec::new()));
            LOGGING.set(None);
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_may_use_the_client_that_logs() {
    log::set_logger(&UsingLogger).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let rig = Rig::start(1);
    rig.proxies[0].refuse();
    let LeaseStart { protocol, key, .. } = rig.start_for("many", options());
    let (pending, ends) = (Arc::clone(&rig.pending), rig.quorum.now().after(LEASE));
    let adds = std::thread::spawn(move || {
        LOGGING.set(Some(Arc::clone(&pending)));
        for i in 0..4106 {
            let id = LockId::from_server(&format!("{i}"));
            pending.add(PendingRelease::of_token(Arc::clone(&protocol), key.name(), id, ends, Vec::new()));
        }
        LOGGING.with_borrow(Option::is_none)
    });
    redlock_tests::eventually("all are added", SOON, || adds.is_finished());
    assert!(adds.join().unwrap(), "no line was logged");
}

/// A holder's own wait leaves the queue with the lock. Otherwise, a later release would grant the lock to a wait that
/// has ended.
#[test]
fn the_wait_of_a_revoked_holder_is_queued_no_more() {
    let rig = Rig::start(1);
    rig.servers[0].ask::<()>(redis::cmd("ZADD").arg("{k}:waits").arg(1).arg("redlock-sync:1/1 1f"));
    let wait = Some("redlock-sync:1/1 1f".into());
    let inner = rig.acquire(LeaseStart { wait, ..rig.start_for(KEY, options()) });
    assert_eq!(revoke(&rig, &inner), Ok(1));
    assert!(rig.servers[0].keys().is_empty(), "{:?}", rig.servers[0].keys());
}

#[test]
fn a_key_that_holds_no_lock_any_more_does_not_hold_up_the_others() {
    let rig = Rig::start(1);
    let lease = |name: &str| {
        let wait = Some("redlock-sync:1/1 1f".into());
        rig.acquire(LeaseStart { wait, ..rig.start_for(name, options()) })
    };
    let leases = vec![lease("a"), lease("b")];
    assert!(rig.servers[0].del("a"));
    rig.servers[0].ask::<()>(redis::cmd("RPUSH").arg("a").arg("no lock"));
    assert_eq!(revoke_all(&rig, leases), Ok(2));
    assert_eq!(rig.servers[0].keys(), ["a"]);
}

/// If its connection breaks, it may come to the server after the release, which is sent on another one.
#[test]
fn a_refill_without_an_answer_may_still_be_executed() {
    let rig = Rig::start(3);
    let inner = rig.lease(options());
    assert!(rig.servers[2].del(KEY));
    let held = rig.proxies[2].on("acquire", Act::Hold);
    std::thread::scope(|scope| {
        let tick = scope.spawn(|| inner.tick());
        held.wait_hit(SOON);
        rig.clock.sleep_through(TIMEOUT);
        tick.join().unwrap();
    });
    assert!(inner.acquire_may_run());
    held.release();
    assert_eq!(rig.release(&inner), Ok(()));
}
