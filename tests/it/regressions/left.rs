//! A wait ends while its own calls get no replies, and just then it is granted the lock.

use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually};

const KEY: &str = "order:42";
const SOON: Duration = Duration::from_secs(20);

/// No other thread of the client waits, so none reads the notification. When the server answers again, the client
/// removes the wait and gives the grant back.
#[test]
fn what_a_wait_was_granted_when_it_ended_is_given_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let held = redlock_tests::open(server.url()).mutex(KEY).lock().unwrap();
    let locks = redlock_tests::open(proxy.url());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.mutex(KEY).try_lock_for(Duration::from_secs(3)).map(drop));
        let queued = || server.ask::<i64>(cmd("ZCOUNT").arg("{order:42}:waits").arg(1).arg("+inf")) == 1;
        eventually("the wait is in the queue", SOON, queued);
        let last = proxy.on_each("acquire", Act::BlackHole);
        let leave = proxy.on_each("release", Act::BlackHole);
        eventually("the last attempt is sent", SOON, || last.hits() > 0);
        held.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap_err().is_unavailable());
        // The client removes the wait in the background.
        eventually("the call that removes the wait is sent", SOON, || leave.hits() > 0);
        let holder = server.get(KEY);
        assert!(holder.as_ref().is_some_and(|token| token.contains(":granted:")), "{holder:?}");
        // The calls that the proxy swallowed are never delivered.
        proxy.drop_connections();
        proxy.heal();
    });
    let start = Stopwatch::start();
    let guard = redlock_tests::open(server.url()).mutex(KEY).try_lock_for(SOON).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "after {:?}", start.elapsed());
    guard.unlock().unwrap();
}
