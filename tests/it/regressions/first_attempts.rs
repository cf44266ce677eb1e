use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::Redlock;
use redlock_tests::{Act, Proxy, Server, eventually, open, patient, servers};

const KEY: &str = "order:42";
const SOON: Duration = Duration::from_secs(60);

/// A key of this client for which no process waits, so its next attempt can be a plain `SET NX`.
fn uncontended(locks: &Redlock, key: &str) {
    locks.mutex(key).lock().unwrap().unlock().unwrap();
}

/// The user may write the keys of locks whose names have a hash tag, and no helper keys of other names.
#[test]
fn no_lock_is_taken_that_the_user_may_not_release() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        for server in &servers {
            let rules = ["on", ">secret", "~order:*", "&redlock-sync:*", "+@all"];
            server.ask::<()>(cmd("ACL").arg("SETUSER").arg("ann").arg(&rules));
        }
        let urls = servers.iter().map(|server| format!("redis://ann:secret@{}/", server.addr()));
        let locks = patient().nodes(urls).build().unwrap();
        uncontended(&locks, "order:{7}:cart");
        let refused = locks.mutex(KEY).try_lock().unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains("NOPERM"), "{refused}");
        assert!(servers.iter().all(|server| server.get(KEY).is_none()));
    }
}

/// The release grants the lock on the server. So the next attempt of this client, a plain `SET NX`, finds it taken.
#[test]
fn a_wait_comes_before_the_next_attempt_of_a_client_that_knew_of_no_wait() {
    let server = Server::start();
    let (locks, other) = (open(server.url()), open(server.url()));
    uncontended(&locks, KEY);
    let guard = locks.mutex(KEY).lock().unwrap();
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            let guard = other.mutex(KEY).lock().unwrap();
            assert!(ended.recv().is_err());
            guard.unlock().unwrap();
        });
        let queue = format!("{{{KEY}}}:waits");
        eventually("a wait is in the queue", SOON, || {
            server.ask::<usize>(cmd("ZCOUNT").arg(&queue).arg(1).arg("+inf")) == 1
        });
        drop(guard);
        let refused = locks.mutex(KEY).try_lock().unwrap_err();
        assert!(refused.is_busy(), "{refused}");
        drop(end);
    });
}

/// A release within the minimum hold offers the lock to no wait, so it does not tell whether one is there.
#[test]
fn a_lock_with_a_minimum_hold_is_not_taken_ahead_of_a_wait() {
    let server = Server::start();
    let locks = open(server.url());
    uncontended(&locks, KEY);
    let guard = locks.mutex(KEY).min_hold(Duration::from_secs(3)).lock().unwrap();
    server.ask::<()>(cmd("ZADD").arg(format!("{{{KEY}}}:waits")).arg(1).arg("-another 1f"));
    guard.unlock().unwrap();
    eventually("the minimum hold is over", SOON, || server.get(KEY).is_none());
    let refused = locks.mutex(KEY).try_lock().unwrap_err();
    assert!(refused.is_busy(), "{refused}");
}

/// A round trip takes more than half of the node timeout, so there is no time for a second one.
#[test]
fn a_held_lock_far_away_is_busy() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(10)).build().unwrap();
    uncontended(&locks, KEY);
    let _held = open(server.url()).mutex(KEY).lock().unwrap();
    for name in ["acquire", "set"] {
        proxy.on_each(name, Act::Delay(Duration::from_secs(6)));
    }
    let refused = locks.mutex(KEY).try_lock().unwrap_err();
    assert!(refused.is_busy(), "{refused}");
}

/// The wait has slept until the end of the holder's lease, and found the lease renewed. From then on it relies on
/// notifications and on the checks of its client. A server that hangs sends neither.
#[test]
fn a_wait_that_relies_on_notifications_notices_that_the_server_hangs() {
    let server = Server::start();
    let lease = Duration::from_secs(5);
    let holder = Redlock::builder().node(server.url()).node_timeout(lease / 3).build().unwrap();
    let guard = holder.mutex(KEY).lease(lease).lock().unwrap();
    let settings = patient().node(server.url()).unavailable_after(Duration::from_secs(1));
    let locks = settings.build().unwrap();
    let waiter = thread::spawn(move || locks.mutex(KEY).lock().map(drop));
    let relies = std::time::Instant::now() + 2 * lease;
    eventually("the wait relies on notifications", SOON, || std::time::Instant::now() > relies);
    guard.check().unwrap();
    server.stop();
    eventually("the waiter returns", SOON, || waiter.is_finished());
    let error = waiter.join().unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    server.cont();
}
