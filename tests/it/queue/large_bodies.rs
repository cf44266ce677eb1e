//! Large bodies of tasks. One that takes longer than a node timeout to transfer does not count as an outage, and other
//! calls of the client work meanwhile. A reply has no more bodies than arrive in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Queue, Redlock, Retry, Task};
use redlock_tests::{Proxy, Server, eventually};

use super::rig::{SOON, ms, plain};

/// The largest body that a queue accepts by default.
const LARGEST: usize = 512 * 1024;
const NODE_TIMEOUT: Duration = ms(1000);
/// The bandwidth in bytes per second. At this rate, the largest body takes more than two node timeouts.
const RATE: u32 = 200_000;

/// Sets the flag in its drop, so that the other threads end even if the work panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `work` while another thread of the client uses one lock and holds another one. On a busy machine a few of its
/// calls may fail. If a body counted as an outage, then all of them would fail.
fn beside_locks(locks: &Redlock, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let held = locks.mutex("held").lease(ms(10_000)).lock().unwrap();
            let (mut good, mut failed) = (0, 0);
            while !is_over.load(Ordering::SeqCst) {
                match locks.mutex("used").try_lock().and_then(redlock_sync::MutexGuard::unlock) {
                    Ok(()) => good += 1,
                    Err(_) => failed += 1,
                }
                held.check().unwrap();
                thread::sleep(ms(5));
            }
            assert!(failed <= good / 4, "{failed} failed beside {good}");
            held.unlock().unwrap();
        });
        eventually("the lock is held", SOON, || {
            beside.is_finished() || locks.mutex("held").is_locked().unwrap_or(false)
        });
        let end = End(&is_over);
        work();
        drop(end);
        beside.join().unwrap();
    });
}

fn rig() -> (Server, Proxy, Redlock) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(NODE_TIMEOUT).build().unwrap();
    // The server loads the scripts here, because their texts are long too.
    locks.mutex("used").lock().unwrap().unlock().unwrap();
    (server, proxy, locks)
}

fn claimed(queue: &Queue) -> Vec<u8> {
    let job = queue.try_claim_for(SOON).unwrap().expect("a task is due");
    let body = job.body().to_vec();
    job.ack().unwrap();
    body
}

#[test]
fn the_largest_body_gets_through_a_slow_connection() {
    let (_server, proxy, locks) = rig();
    let queue = locks.queue("q");
    queue.push("warm").unwrap();
    assert_eq!(claimed(&queue), b"warm");
    proxy.bandwidth(RATE);
    let body = vec![7; LARGEST];
    beside_locks(&locks, || {
        queue.push(body.clone()).unwrap();
        eventually("peek returns the task", SOON, || queue.peek(1).is_ok_and(|shown| shown.len() == 1));
        assert!(claimed(&queue) == body);
    });
}

#[test]
fn several_threads_push_and_claim_large_bodies_at_a_time() {
    let (_server, proxy, locks) = rig();
    let queue = locks.queue("q");
    proxy.bandwidth(RATE);
    let bodies = [1, 2, 3].map(|byte| vec![byte; LARGEST / 4]);
    beside_locks(&locks, || {
        thread::scope(|scope| bodies.iter().for_each(|body| _ = scope.spawn(|| queue.push(body.clone()).unwrap())));
        let mut all = thread::scope(|scope| {
            let threads = bodies.each_ref().map(|_| scope.spawn(|| claimed(&queue)));
            threads.map(|thread| thread.join().unwrap())
        });
        all.sort_unstable();
        assert!(all == bodies);
    });
}

/// This rate is far below the lowest one at which a server counts as reachable.
#[test]
fn a_body_that_is_too_slow_is_no_outage() {
    let (_server, proxy, locks) = rig();
    let queue = locks.queue("q");
    queue.push(vec![7; LARGEST / 4]).unwrap();
    proxy.bandwidth(10_000);
    beside_locks(&locks, || {
        let error = queue.push(vec![8; LARGEST / 4]).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        // The last attempt can overtake the roll-back of the one before. Then it finds no due task.
        let claimed = queue.try_claim_for(3 * NODE_TIMEOUT);
        let is_none = matches!(claimed, Ok(None)) || claimed.as_ref().is_err_and(redlock_sync::Error::is_unavailable);
        assert!(is_none, "{claimed:?}");
    });
}

/// A lost reply loses its tasks, so a pop takes only a few large ones.
#[test]
fn a_pop_returns_no_more_bodies_than_arrive_in_time() {
    let server = Server::start();
    let mails = plain(&server, "q");
    for n in 0..5 {
        mails.push(Task::new(vec![n; 20_000])).unwrap();
    }
    mails.push(Task::new(vec![5; 200_000])).unwrap();
    let pop = || mails.pop_due(100).unwrap().len();
    assert_eq!([(); 4].map(|()| pop()), [3, 2, 1, 0]);
}

/// A client must read a whole reply within one node timeout, and the server handles no other call meanwhile.
#[test]
fn a_look_at_tasks_returns_no_more_bodies_than_arrive_in_time() {
    let server = Server::start();
    let mails = plain(&server, "q").retry(Retry::every(Duration::from_millis(1)).max_attempts(1));
    let sizes = [400_000, 400_000, 400_000];
    for size in sizes {
        mails.push(vec![b'x'; size]).unwrap();
    }
    assert_eq!((mails.peek(10).unwrap().len(), mails.peek_due(10).unwrap().len(), mails.len().unwrap()), (2, 2, 3));
    for _ in sizes {
        mails.try_claim().unwrap().unwrap().fail("boom").unwrap();
    }
    assert_eq!((mails.dead(10).unwrap().len(), mails.dead_len().unwrap()), (2, 3));
}
