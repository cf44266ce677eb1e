//! The pauses in which a contended lock is left to programs of other libraries, and the number of the queue's layout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, Mutex};
use redlock_tests::{Server, Stopwatch, eventually};

use super::rig::{KEY, Rig, SOON, ms};

const QUEUE: &str = "{order:42}:waits";
/// A record of the contention, and its score: a pause has been due for long.
const IS_DUE: (&str, i64) = ("*2 1 0", -1);

/// Replaces the record of the contention.
fn record(server: &Server, (record, score): (&str, i64)) {
    for member in server.ask::<Vec<String>>(cmd("ZRANGE").arg(QUEUE).arg(0).arg(-1)) {
        if member.starts_with('*') {
            server.ask::<()>(cmd("ZREM").arg(QUEUE).arg(member));
        }
    }
    server.ask::<()>(cmd("ZADD").arg(QUEUE).arg(score).arg(record));
}

/// Takes the lock as programs of other libraries do. Their tokens have another form.
fn take(server: &Server) -> bool {
    server.ask::<Option<String>>(cmd("SET").arg(KEY).arg("another program").arg("NX").arg("PX").arg(60_000)).is_some()
}

/// Holds the lock again and again, until the test is over. A test that fails does not say so, and ends later.
fn contend(lock: &Mutex, hold: Duration, is_over: &AtomicBool) {
    let began = Stopwatch::start();
    while !is_over.load(Ordering::SeqCst) && began.elapsed() < SOON * 4 {
        let guard = lock.lock().unwrap();
        thread::sleep(hold);
        guard.unlock().unwrap();
    }
}

#[test]
fn a_release_that_is_due_leaves_the_lock_to_other_programs_and_then_to_the_first_waiter() {
    let rig = Rig::start(1);
    let server = &rig.servers[0];
    let held = rig.client().mutex(KEY).lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.client().mutex(KEY).try_lock_for(SOON).unwrap().unlock());
        rig.until_blocked(0, 1);
        record(server, IS_DUE);
        held.unlock().unwrap();
        let due: i64 = server.ask(cmd("ZSCORE").arg(QUEUE).arg(IS_DUE.0));
        assert!(due < IS_DUE.1, "the release has begun no pause");
        waiter.join().unwrap().unwrap();
    });
}

/// The lock is contended no more, so a thread that does not wait must find it free.
#[test]
fn a_lock_for_which_nobody_waits_is_left_to_nobody() {
    let rig = Rig::start(1);
    let locks = rig.client();
    for _ in 0..3 {
        let held = locks.mutex(KEY).lock().unwrap();
        record(&rig.servers[0], IS_DUE);
        held.unlock().unwrap();
        locks.mutex(KEY).try_lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn a_polling_program_gets_a_turn_among_the_threads_of_one_process_and_of_two() {
    for clients in [1, 2] {
        let rig = Rig::start(1);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..clients {
                let lock = rig.client().mutex(KEY);
                for _ in 0..2 + client {
                    let (lock, is_over) = (lock.clone(), &is_over);
                    scope.spawn(move || contend(&lock, ms(0), is_over));
                }
            }
            for turn in 0..3 {
                eventually(&format!("turn {turn} of the other program"), SOON, || take(&rig.servers[0]));
                thread::sleep(ms(20));
                assert!(rig.servers[0].del(KEY), "its lock was taken away");
            }
            is_over.store(true, Ordering::SeqCst);
        });
    }
}

/// Between two hand-overs, the record must last as long as a hold.
#[test]
fn a_polling_program_gets_a_turn_among_threads_that_hold_for_longer_than_a_second() {
    let rig = Rig::start(1);
    let lock = rig.client().mutex(KEY);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            let (lock, is_over) = (lock.clone(), &is_over);
            scope.spawn(move || contend(&lock, ms(1200), is_over));
        }
        eventually("a thread has the lock", SOON, || rig.holding(KEY) == 1);
        eventually("the other program has the lock", SOON, || take(&rig.servers[0]));
        is_over.store(true, Ordering::SeqCst);
        assert!(rig.servers[0].del(KEY), "its lock was taken away");
    });
}

#[test]
fn a_waiter_that_meets_another_program_records_it() {
    let rig = Rig::start(1);
    assert!(take(&rig.servers[0]));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.client().mutex(KEY).try_lock_for(SOON).unwrap().unlock());
        rig.until_blocked(0, 1);
        let first: Vec<String> = rig.servers[0].ask(cmd("ZRANGE").arg(QUEUE).arg(0).arg(0));
        assert!(first[0].starts_with("*2 0 ") && first[0] != "*2 0 0", "{first:?}");
        assert!(rig.servers[0].del(KEY));
        waiter.join().unwrap().unwrap();
    });
}

/// While others are busy, the lock may never be free when the client looks.
#[test]
fn a_wait_comes_back_that_its_queue_has_lost() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.client().mutex(KEY).try_lock_for(SOON).unwrap().unlock());
        rig.until_blocked(0, 1);
        assert!(rig.servers[0].del(QUEUE));
        rig.until_blocked(0, 1);
        held.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_newer_layout_of_the_queue_is_refused_and_hinders_no_holder() {
    let rig = Rig::start(1);
    let held = rig.client().mutex(KEY).lock().unwrap();
    record(&rig.servers[0], ("*3 something new", 0));
    let error = rig.client().mutex(KEY).try_lock_for(SOON).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Config { .. }), "{text}");
    for part in ["acquire", KEY, "layout 3", "knows 2", "use one version"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    held.extend(ms(30_000)).unwrap();
    held.unlock().unwrap();
    assert_eq!(rig.holding(KEY), 0);
    let left: Vec<String> = rig.servers[0].ask(cmd("ZRANGE").arg(QUEUE).arg(0).arg(-1));
    assert_eq!(left, ["*3 something new"], "what the newer version has entered stays");
}
