//! Exclusion with Sentinel. Each test covers a row of the table in docs/operations.md.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{RedisResult, cmd};
use redlock_sync::{Error, Redlock};
use redlock_tests::{Group, Server, eventually};

use super::{SOON, settings};

const LEASE: Duration = Duration::from_secs(4);

/// The rows "bare" and "failover guard". Clients with and without the guard meet the same loss.
#[test]
fn a_lock_that_was_not_replicated_is_taken_twice_unless_the_guard_waits() {
    let group = Group::start(2, 3);
    let bare = settings(&group).lease(Duration::from_secs(60)).build().unwrap();
    let brief = settings(&group).lease(LEASE).node_timeout(LEASE / 2).build().unwrap();
    let guarded = || settings(&group).lease(LEASE).node_timeout(LEASE / 2).failover_guard(true).build().unwrap();
    // One client exists before the failover, and the other one connects after it.
    let clients = [guarded(), guarded()];
    let guarded = &clients[0];
    eventually("the group is old enough", SOON, || {
        guarded.mutex("guarded").try_lock().is_ok_and(|guard| guard.unlock().is_ok())
    });
    let (twice, short, old) = group.apart(|master| {
        let twice = bare.mutex("bare").lock().unwrap();
        let short = brief.mutex("guarded").lock().unwrap();
        master.kill();
        (twice, short, master)
    });
    let new = group.moved_from(old);
    let other = settings(&group).build().unwrap();
    let again = other.mutex("bare").lock().unwrap();
    assert!(twice.check().is_ok() && again.check().is_ok(), "a holder noticed the loss");
    assert!(new.get("guarded").is_none());

    // Each wait of these clients ends after the lease that the failover lost.
    for client in &clients {
        // A client that found the old master down leaves the node out for a moment.
        eventually("the new master casts no vote", SOON, || {
            let early = client.mutex("guarded").try_lock().map(drop);
            let is_over = short.check().is_err();
            assert!(is_over || early.is_err(), "the lock had two holders");
            is_over || early.is_err_and(|error| error.is_unavailable() && error.to_string().contains("casts no vote"))
        });
        let health = client.health().unwrap();
        let is_early = short.check().is_ok();
        assert!(!is_early || !health.is_ready() && health.to_string().contains("casts no vote"), "{health}");
    }
    let waits: Vec<_> = (0..4)
        .map(|i| {
            let lock = clients[i % 2].mutex("guarded");
            thread::spawn(move || lock.lock().map(|guard| (Instant::now(), guard.unlock())))
        })
        .collect();
    eventually("the first lease ends", SOON, || short.check().is_err());
    let lost = Instant::now();
    for wait in waits {
        let (taken, unlocked) = wait.join().unwrap().unwrap();
        assert!(taken + Duration::from_millis(20) > lost, "taken {:?} before the other holder's end", lost - taken);
        unlocked.unwrap();
    }
}

/// The row "min-replicas-to-write 1".
#[test]
fn a_deposed_master_without_replicas_refuses_soon() {
    let group = Group::with(&Server::builder().arg("--min-replicas-to-write").arg("1"), 2, 3);
    let old = group.master();
    let alone = redlock_tests::patient().node(old.url()).unavailable_after(Duration::ZERO).build().unwrap();
    alone.mutex("before").lock().unwrap().unlock().unwrap();
    group.fail_over();
    let began = Instant::now();
    let write = || -> RedisResult<()> { old.try_ask(cmd("SET").arg("written").arg("1")) };
    eventually("writes are refused", SOON, || write().is_err());
    println!("a deposed master took writes for {:?}", began.elapsed());
    assert_eq!(old.info("role").as_deref(), Some("master"), "the old master already knows of the failover");
    let error = alone.mutex("after").lock().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("NOREPLICAS"), "{error}");
    // The new master still takes locks.
    let locks = settings(&group).build().unwrap();
    locks.mutex("after").lock().unwrap().unlock().unwrap();
}

/// The row "guard and acknowledgements of all replicas". Clients with separate queues increment a counter under the
/// lock.
#[test]
fn no_update_is_lost_with_the_guard_and_all_replicas() {
    const CLIENTS: usize = 10;
    let (group, counter) = (Group::start(1, 3), Server::start());
    counter.set("n", "0");
    let (done, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let open = || {
        settings(&group).lease(LEASE).node_timeout(LEASE / 2).failover_guard(true).min_replicas_ack(1).build().unwrap()
    };
    let work = |locks: &Redlock| {
        let mut counter = counter.client();
        while !is_over.load(Ordering::SeqCst) {
            if raise(locks, &mut counter).is_ok() {
                done.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let goes_on = || {
        let before = done.load(Ordering::SeqCst);
        eventually("a thread counts", SOON, || done.load(Ordering::SeqCst) > before + CLIENTS);
    };
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let locks = open();
            for _ in 0..5 {
                let locks = locks.clone();
                scope.spawn(move || work(&locks));
            }
        }
        let ends = Ends(&is_over);
        goes_on();
        let (old, began) = (group.master(), Instant::now());
        old.kill();
        let new = group.moved_from(old);
        let servers = began.elapsed();
        // With one replica and `min_replicas_ack(1)`, a lock needs both servers.
        old.restart();
        old.replica_of(new);
        goes_on();
        println!("a new master after {servers:?}, the first lock after {:?}", began.elapsed());
        assert!(began.elapsed() > LEASE, "the guard let a lock through too early");
        drop(ends);
    });
    assert_eq!(counter.get("n"), Some(done.load(Ordering::SeqCst).to_string()));
}

/// Ends the threads, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Increments the counter by a read and a later write, which loses an update if two threads do it at once. Returns an
/// error if nothing was written.
fn raise(locks: &Redlock, counter: &mut redis::Connection) -> Result<(), Error> {
    let guard = locks.mutex("counter").try_lock_for(Duration::from_secs(1))?;
    let n: u64 = cmd("GET").arg("n").query(counter).unwrap();
    thread::sleep(Duration::from_millis(1));
    guard.check()?;
    cmd("SET").arg("n").arg(n + 1).exec(counter).unwrap();
    _ = guard.unlock();
    Ok(())
}
