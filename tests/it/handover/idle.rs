//! The number of commands that waits cost the server while nothing happens.

use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use redlock_tests::bench::counts::{calls_of, commands};
use redlock_tests::{Server, eventually};

use super::rig::SOON;

/// The number of waits of each kind. Each wait is for a different lock.
const WAITS: usize = 60;
const WATCHED: Duration = Duration::from_secs(3);
/// The most commands, including those within scripts. One command per wait every five seconds would be several times as
/// many.
const MOST: u64 = 150;

#[test]
fn a_client_looks_after_all_of_its_waits_in_one_call() {
    let server = Server::start();
    let holder = redlock_tests::patient().node(server.url()).lease(Duration::from_secs(120)).build().unwrap();
    let locks = Redlock::builder().node(server.url()).node_timeout(Duration::from_secs(2)).build().unwrap();
    let name = |kind: &str, i: usize| format!("{kind}:{i}");
    let _mutexes: Vec<_> = (0..WAITS).map(|i| holder.mutex(name("mutex", i)).lock().unwrap()).collect();
    let _writers: Vec<_> = (0..WAITS).map(|i| holder.rw_lock(name("rw", i)).write().unwrap()).collect();
    let _permits: Vec<_> =
        (0..2 * WAITS).map(|i| holder.semaphore(name("permit", i / 2), 2).acquire().unwrap()).collect();
    thread::scope(|scope| {
        for i in 0..WAITS {
            let locks = &locks;
            scope.spawn(move || assert_eq!(locks.mutex(name("mutex", i)).lock().map(drop), Err(Error::Closed)));
            scope.spawn(move || assert_eq!(locks.rw_lock(name("rw", i)).write().map(drop), Err(Error::Closed)));
            scope.spawn(move || {
                assert_eq!(locks.semaphore(name("permit", i), 2).acquire().map(drop), Err(Error::Closed));
            });
            scope.spawn(move || assert_eq!(locks.count_down_latch(name("latch", i), 1).wait(), Err(Error::Closed)));
            // All threads at one latch wait at the same key.
            scope.spawn(move || assert_eq!(locks.count_down_latch("latch", 1).wait(), Err(Error::Closed)));
        }
        let wait_in = |key: &String| {
            [":waits", ":permit_queue", ":readers", ":writers", ":latch_waits"].iter().any(|end| key.ends_with(end))
        };
        let at_latch = || server.ask::<usize>(redis::cmd("ZCARD").arg("{latch}:latch_waits"));
        eventually("all wait", SOON, || {
            server.keys().iter().filter(|key| wait_in(key)).count() > 4 * WAITS && at_latch() == WAITS
        });
        // The holder looks after its locks. For each sorted set that is one command, which no wait needs.
        let of_waits = || commands(&server) - calls_of(&server, "zscore");
        let before = of_waits();
        thread::sleep(WATCHED);
        let sent = of_waits() - before;
        locks.shutdown(Duration::ZERO).unwrap();
        assert!(sent <= MOST, "{sent} commands of {} waits in {WATCHED:?}", 5 * WAITS);
    });
}
