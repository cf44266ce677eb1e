//! A server sends its replies one byte at a time, each byte within the node timeout. The client treats it like a server
//! that does not answer.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::{Act, Fault, Stopwatch, eventually};

use crate::faults::rig::{MORE_SLACK, Rig, SOON, ms};

const NODE_TIMEOUT: Duration = ms(1200);
/// The pause is shorter than the client waits for a reply, so that no single byte is too late.
const PAUSE: Duration = ms(1000);
/// The longest that a call may take. The call does not wait for the release of a key that it may have set.
const BOUND: Duration = NODE_TIMEOUT;

/// Runs `call` and returns its result. Panics if that takes longer than [`BOUND`], and does not wait for a call that
/// hangs.
fn within<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(call()));
    let began = Stopwatch::start();
    while began.elapsed() < BOUND + MORE_SLACK {
        if let Ok(returned) = told.recv_timeout(ms(20)) {
            return returned;
        }
    }
    panic!("{what} took more than {BOUND:?}: {:?}", began.elapsed());
}

/// Starts N servers and a client with connections to all of them. Then the first server sends its replies byte by byte.
fn trickling(n: usize) -> (Rig, Redlock, Fault) {
    let rig = Rig::start(n);
    let locks = client(&rig);
    locks.mutex("warm").fenced(true).lock().unwrap().unlock().unwrap();
    let fault = rig.proxies[0].on_each("*", Act::Trickle(PAUSE));
    (rig, locks, fault)
}

fn client(rig: &Rig) -> Redlock {
    rig.builder().node_timeout(NODE_TIMEOUT).build().unwrap()
}

#[test]
fn the_only_server_trickles() {
    let (rig, locks, fault) = trickling(1);
    for _ in 0..3 {
        let lock = locks.mutex("a").fenced(true);
        let error = within("try_lock", move || lock.try_lock().map(drop).unwrap_err());
        assert!(error.is_unavailable(), "{error}");
    }
    let newcomer = client(&rig);
    assert!(!within("is_ready of a new client", move || newcomer.is_ready()));
    let again = locks.clone();
    assert!(!within("is_ready", move || again.is_ready()));
    let tasks = locks.queue("tasks");
    let error = within("peek", move || tasks.peek(10).map(drop).unwrap_err());
    assert!(error.is_unavailable(), "{error}");
    fault.release();
    eventually("the server is used again", SOON, || locks.is_ready() && locks.mutex("a").try_lock().is_ok());
}

#[test]
fn the_only_server_begins_to_trickle_while_a_lock_is_held() {
    let rig = Rig::start(1);
    let locks = client(&rig);
    let guard = locks.mutex("a").lock().unwrap().into_send();
    let fault = rig.proxies[0].on_each("*", Act::Trickle(PAUSE));
    let error = within("unlock", move || guard.unlock().unwrap_err());
    assert!(matches!(error, redlock_sync::Error::Unconfirmed { .. }), "{error}");
    fault.release();
    eventually("the release is repeated", SOON, || rig.servers[0].get("a").is_none());
}

#[test]
fn one_server_of_three_trickles() {
    let (rig, locks, _fault) = trickling(3);
    for _ in 0..3 {
        let lock = locks.mutex("a").fenced(true);
        within("try_lock and unlock", move || lock.try_lock().unwrap().unlock().unwrap());
    }
    let newcomer = client(&rig);
    assert!(within("is_ready of a new client", move || newcomer.is_ready()));
    let again = locks.clone();
    assert!(within("is_ready", move || again.is_ready()));
    // Calls do not wait for the server, because the client leaves it out.
    let began = Stopwatch::start();
    eventually("the server is left out", SOON, || {
        let began = Stopwatch::start();
        locks.mutex("a").lock().unwrap().unlock().unwrap();
        began.elapsed() < PAUSE
    });
    assert!(began.elapsed() < BOUND + MORE_SLACK, "too many calls waited for the server");
}

/// A busy machine can lose such a short lease at times. If each renewal waited for the slow server, then the lease
/// would be lost every time.
#[test]
fn a_short_lease_outlasts_one_server_of_three_that_trickles() {
    let rig = Rig::start(3);
    let settings = rig.builder().node_timeout(ms(250));
    let locks = settings.build().unwrap();
    let outlasts = |_| {
        let guard = locks.mutex("a").lease(ms(1000)).lock().unwrap();
        let fault = rig.proxies[0].on_each("*", Act::Trickle(ms(200)));
        let began = Instant::now();
        while began.elapsed() < ms(4000) && guard.check().is_ok() {
            thread::sleep(ms(5));
        }
        fault.release();
        guard.unlock().is_ok()
    };
    assert!((0..5).any(outlasts), "the lease was lost each time");
}
