//! Nodes in memory: what a test can do with them. `contract` covers what they have in common with servers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::rig::ms;
use redlock_sync::testing::Memory;
use redlock_sync::{Error, LeaseState, LostReason, Redlock, distributed_lock};

use redlock_tests::{Stopwatch, eventually};

use crate::kinds::{Kind, every_kind};
use crate::place::{InMemory, Place};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(30);
const KEY: &str = "order:42";

static MEMORY: LazyLock<Memory> = LazyLock::new(|| Memory::new(1));
static LOCKS: LazyLock<Redlock> = LazyLock::new(|| MEMORY.client());

#[distributed_lock("stock:<item>", client = LOCKS, wait = "20ms")]
fn take_from_stock(item: &str, stock: &AtomicU64) -> Result<u64, Error> {
    let left = stock.load(Ordering::SeqCst);
    thread::yield_now();
    stock.store(left - 1, Ordering::SeqCst);
    Ok(left - 1)
}

#[test]
fn an_annotated_function_needs_no_server() {
    let stock = AtomicU64::new(3);
    assert_eq!(take_from_stock("tea", &stock), Ok(2));
    let guard = MEMORY.client().mutex("stock:tea").lock().unwrap();
    assert!(take_from_stock("tea", &stock).unwrap_err().is_busy());
    assert_eq!(take_from_stock("coffee", &stock), Ok(1));
    guard.unlock().unwrap();
    MEMORY.take_away(1);
    assert!(take_from_stock("tea", &stock).unwrap_err().is_unavailable());
    MEMORY.bring_back(1);
    assert_eq!(take_from_stock("tea", &stock), Ok(0));
}

fn a_client_of_its_own_shares_nothing<K: Kind>() {
    let _held = K::new(&Redlock::in_memory(), KEY).lock().unwrap();
    K::unlock(K::new(&Redlock::in_memory(), KEY).try_lock().unwrap()).unwrap();
}

/// When `advance` returns, the renewals that were due have been made. So this test does not wait.
fn time_brings_renewals<K: Kind>() {
    let memory = Memory::new(3);
    // The rounds of ten threads share two connections, and a busy machine can be slow.
    let locks = memory.build(Redlock::builder().node_timeout(Duration::from_secs(5))).unwrap();
    let guards: Vec<_> = (0..10).map(|i| K::new(&locks, &format!("order:{i}")).lock().unwrap()).collect();
    for step in 0..50 {
        memory.advance(LEASE / 2);
        for guard in &guards {
            guard.check().unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert!(guard.remaining() > LEASE / 2, "step {step}: {:?}", guard.remaining());
        }
    }
    memory.advance(LEASE);
    assert!(guards.iter().all(|guard| guard.check().unwrap_err().lost_reason() == Some(LostReason::Expired)));
}

/// One thread waits behind a thread of its own client, and two wait for another client.
fn time_ends_waits<K: Kind>() {
    const HOUR: Duration = Duration::from_secs(3600);
    let memory = Memory::new(1);
    let (holder, other) = (memory.client(), memory.client());
    let _held = K::new(&holder, KEY).lease(24 * HOUR).lock().unwrap();
    let start = Stopwatch::start();
    thread::scope(|scope| {
        let waiters: Vec<_> = [&holder, &other, &other]
            .map(|locks| scope.spawn(|| K::new(locks, KEY).try_lock_for(HOUR).err().unwrap()))
            .into();
        // Each wait must begin before an hour of its own can end.
        while !waiters.iter().all(thread::ScopedJoinHandle::is_finished) {
            memory.advance(HOUR / 2);
            assert!(start.elapsed() < SOON);
            thread::sleep(ms(10));
        }
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap().is_busy()));
    });
}

/// No thread releases the lock, as if its holder had died. It stays taken until its lease ends.
fn time_ends_the_lease_of_a_holder_that_is_waited_for<K: Kind>() {
    let memory = Memory::new(1);
    let holder = memory.client();
    std::mem::forget(K::new(&holder, KEY).renew(false).lock().unwrap());
    let waiter = K::new(&memory.client(), KEY);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        K::unlock(waiter.lock().unwrap()).unwrap();
        tell.send(()).unwrap();
    });
    assert!(told.recv_timeout(ms(100)).is_err());
    let start = Stopwatch::start();
    // The time advances in small steps, so that a round of the waiting thread cannot exceed one step.
    while told.recv_timeout(ms(10)).is_err() {
        memory.advance(ms(1000));
        assert!(start.elapsed() < SOON);
    }
}

fn a_lost_key_is_noticed_at_the_next_renewal<K: Kind>() {
    let memory = Memory::new(3);
    let locks = memory.build(Redlock::builder().key_prefix("shop:")).unwrap();
    let (guard, other) = (K::new(&locks, KEY).lock().unwrap(), K::new(&locks, "other").lock().unwrap());
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |error| tell.send(error).unwrap());
    memory.lose("shop:order:42");
    guard.check().unwrap();
    memory.advance(LEASE / 2);
    assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Deleted));
    assert!(told.try_recv().unwrap().is_lost());
    other.check().unwrap();
}

fn attempts_are_denied_as_often_as_was_asked<K: Kind>() {
    for nodes in [1, 3] {
        let memory = Memory::new(nodes);
        let locks = memory.client();
        memory.deny(KEY, 2);
        for _ in 0..2 {
            assert!(K::new(&locks, KEY).try_lock().err().unwrap().is_busy());
            K::unlock(K::new(&locks, "other").try_lock().unwrap()).unwrap();
        }
        K::unlock(K::new(&locks, KEY).try_lock().unwrap()).unwrap();
        memory.deny(KEY, 3);
        let start = Stopwatch::start();
        K::unlock(K::new(&locks, KEY).lock().unwrap()).unwrap();
        assert!(start.elapsed() >= ms(5) && start.elapsed() < SOON, "{:?}", start.elapsed());
        memory.deny(KEY, 3);
        memory.deny(KEY, 0);
        K::unlock(K::new(&locks, KEY).try_lock().unwrap()).unwrap();
    }
}

fn a_majority_is_needed<K: Kind>() {
    let memory = Memory::new(3);
    let locks = memory.client();
    let take = || K::new(&locks, KEY).try_lock().map(|guard| K::unlock(guard).unwrap());
    take().unwrap();
    memory.take_away(1);
    take().unwrap();
    memory.take_away(3);
    let error = take().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("node 3 (memory:3)"), "{error}");
    memory.bring_back(1);
    take().unwrap();
    memory.bring_back(3);
    take().unwrap();
}

fn a_node_that_was_away_has_kept_its_locks<K: Kind>() {
    let memory = Memory::new(1);
    let guard = K::new(&memory.client(), KEY).lock().unwrap();
    memory.take_away(1);
    memory.advance(LEASE / 2);
    assert_eq!(guard.state(), LeaseState::Suspended);
    memory.bring_back(1);
    assert!(K::new(&memory.client(), KEY).try_lock().err().unwrap().is_busy());
    memory.take_away(1);
    memory.advance(LEASE / 3);
    assert_eq!(guard.state(), LeaseState::Suspended);
    memory.advance(LEASE);
    assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Unreachable));
}

/// The waiting thread keeps waiting while the node is away.
fn a_wait_goes_on_once_the_node_is_back<K: Kind>() {
    let memory = Memory::new(1);
    let held = K::new(&memory.client(), KEY).lock().unwrap();
    let waiter = K::new(&memory.client(), KEY);
    let waiter = thread::spawn(move || K::unlock(waiter.lock().unwrap()).unwrap());
    let node = InMemory { memory: memory.clone(), number: 1 };
    eventually("the other client waits", SOON, || node.waits() == 1);
    memory.take_away(1);
    thread::sleep(ms(50));
    memory.bring_back(1);
    K::unlock(held).unwrap();
    waiter.join().unwrap();
}

every_kind!(every:
    a_client_of_its_own_shares_nothing,
    time_brings_renewals,
    time_ends_waits,
    time_ends_the_lease_of_a_holder_that_is_waited_for,
    a_lost_key_is_noticed_at_the_next_renewal,
    attempts_are_denied_as_often_as_was_asked,
    a_majority_is_needed,
    a_node_that_was_away_has_kept_its_locks,
    a_wait_goes_on_once_the_node_is_back,
);

#[test]
fn fences_start_alike_and_rise() {
    let fence = |memory: &Memory| {
        let guard = memory.client().mutex(KEY).lock().unwrap();
        let fence = guard.fencing_token().unwrap();
        guard.unlock().unwrap();
        fence
    };
    let memory = Memory::new(1);
    let first = fence(&memory);
    assert!(fence(&memory) > first);
    memory.advance(Duration::from_secs(60));
    assert!(fence(&memory) >= first + 60_000_000);
}

#[test]
fn what_cannot_be_is_refused() {
    let memory = Memory::new(3);
    let refused = |settings| matches!(memory.build(settings), Err(Error::Config { .. }));
    assert!(refused(Redlock::builder().node("redis://127.0.0.1/")));
    assert!(refused(Redlock::builder().connections(0)));
    assert!(refused(Redlock::builder().lease(ms(1))));
    assert!(catch_unwind(|| Memory::new(0)).is_err());
    for node in [0, 4] {
        assert!(catch_unwind(AssertUnwindSafe(|| memory.take_away(node))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| memory.bring_back(node))).is_err());
    }
}

#[test]
fn debug_names_the_nodes() {
    let memory = Memory::new(2);
    let client = format!("{:?}", memory.client());
    assert!(client.contains("memory:1") && client.contains("memory:2"), "{client}");
    assert_eq!(format!("{memory:?}"), "Memory([memory:1, memory:2])");
}

#[test]
fn the_time_can_be_advanced_by_any_length() {
    let memory = Memory::new(1);
    let locks = memory.client();
    let guard = locks.mutex("order:42").lock().unwrap();
    let began = Stopwatch::start();
    for _ in 0..2 {
        memory.advance(Duration::MAX);
    }
    // `advance` waits for busy threads for at most half a minute.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(guard.check().unwrap_err().is_lost());
    locks.mutex("order:42").lock().unwrap().unlock().unwrap();
}
