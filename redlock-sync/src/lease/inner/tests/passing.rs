//! Tests of the hand-over to the next thread of the process.

use super::*;
use crate::handover::rules::MOST_LOCAL_HANDOVERS;

/// The number of holders of the run after one more; `None` if the run ends.
fn local(rig: &Rig, inner: &LeaseInner) -> (Option<u32>, usize) {
    let before = rig.extensions();
    let mut rounds = inner.rounds.lock();
    (inner.next_local_handover(&mut rounds).map(|local| local.count), rig.extensions() - before)
}

#[test]
fn threads_hand_on_without_a_look_until_they_did_so_for_long() {
    let rig = Rig::start(1);
    let mut inner = Arc::into_inner(rig.lease(options())).unwrap();
    let renewed = |rig: &Rig| LocalHandover { since: rig.quorum.now().after(SECOND), count: 0 };
    inner.local = renewed(&rig);
    assert_eq!(local(&rig, &inner), (Some(1), 0));
    inner.local.count = MOST_LOCAL_HANDOVERS;
    assert_eq!(local(&rig, &inner), (Some(0), 1), "so many: it looks, and no other process waits");
    inner.local = LocalHandover { since: Tick::ZERO, ..renewed(&rig) };
    rig.clock.sleep_through(LEASE / 2);
    assert_eq!(local(&rig, &inner), (Some(0), 1), "for so long");
    assert!(is_about(inner.remaining(), LEASE), "the look extends the lease");
    rig.servers[0].ask::<()>(redis::cmd("ZADD").arg(inner.key.queue()).arg(1).arg("redlock-sync:1/1"));
    assert_eq!(local(&rig, &inner), (None, 1), "another process waits");
    rig.servers[0].ask::<()>(redis::cmd("DEL").arg(inner.key.queue()));
    rig.servers[0].ask::<()>(redis::cmd("ZADD").arg(inner.key.queue()).arg(-1).arg("*2 1 0"));
    assert_eq!(local(&rig, &inner), (None, 1), "a pause for other programs is due");
}

#[test]
fn what_is_in_doubt_or_nearly_over_is_not_passed_on() {
    let rig = Rig::start(1);
    let queues = ThreadQueues::new(Arc::clone(&rig.clock) as Arc<dyn Clock>);
    let name: Arc<str> = KEY.into();
    let mut inner = Arc::into_inner(rig.lease(options())).unwrap();
    let kind = inner.protocol().kind();
    std::thread::scope(|scope| {
        let Some(QueueOutcome::Head(head)) = queues.try_enqueue(&name, kind, &LockOptions::default()) else { panic!() };
        inner.keep_head(head);
        scope.spawn(|| {
            assert!(matches!(queues.enqueue(&name, Tick::NEVER, kind, &options()), QueueOutcome::Closed));
        });
        redlock_tests::eventually("a thread waits", SOON, || {
            inner.state.lock().head.as_ref().unwrap().has_successor(kind, &options())
        });
        rig.proxies[0].refuse();
        inner.tick();
        assert!(inner.pass_on().is_none(), "{:?}", inner.state());
        rig.proxies[0].heal();
        redlock_tests::eventually("it is held again", SOON, || {
            inner.tick();
            inner.state() == LeaseState::Held
        });
        rig.clock.sleep_through(LEASE - SECOND * 3);
        inner.state.lock().now = LeaseState::Held;
        // Otherwise, the lease would ask for the number of waits and extend itself.
        inner.local.since = rig.quorum.now();
        assert!(inner.pass_on().is_none(), "{:?} are left", inner.remaining());
        queues.close();
    });
}
