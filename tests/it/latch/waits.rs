//! What a server stores of the waits for a latch, and how a wait with a deadline ends.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Error, Redlock};
use redlock_tests::{Act, Proxy, Server, eventually, servers};

use super::{KEY, SOON, WAITS, open, store_on};

/// The number of waits that a server has stored.
fn remembered(server: &Server) -> usize {
    server.ask(cmd("ZCARD").arg(WAITS))
}

/// The client is already subscribed, so the first check of a wait also stores the wait.
#[test]
fn a_wait_that_is_shorter_than_the_round_trip_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(5)).build().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| locks.count_down_latch("other", 1).wait_for(SOON));
        eventually("the client listens", SOON, || server.keys().contains(&"{other}:latch_waits".to_owned()));
        let slow = proxy.on_each("wait for", Act::Delay(Duration::from_millis(60)));
        for _ in 0..5 {
            assert!(locks.count_down_latch(KEY, 1).wait_for(Duration::from_millis(20)).unwrap_err().is_busy());
            assert_eq!(remembered(&server), 0);
        }
        assert!(slow.hits() >= 5);
        slow.release();
        let _: i64 = server.ask(cmd("HSET").arg("hash").arg("a").arg("b"));
        assert!(matches!(locks.count_down_latch("hash", 1).wait(), Err(Error::WrongType { .. })));
        assert!(!server.keys().contains(&"{hash}:latch_waits".to_owned()));
        locks.count_down_latch("other", 1).count_down().unwrap();
        other.join().unwrap().unwrap();
    });
}

/// A killed process cannot remove its wait, so the server must not store the wait for long.
#[test]
fn a_bounded_wait_is_remembered_to_its_deadline_at_most() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    thread::scope(|scope| {
        let long = scope.spawn(|| locks.count_down_latch(KEY, 1).wait());
        eventually("the unlimited wait is stored", SOON, || remembered(&server) == 1);
        let bounded = scope.spawn(|| locks.count_down_latch(KEY, 1).wait_for(Duration::from_secs(20)));
        eventually("the bounded wait is stored", SOON, || remembered(&server) == 2);
        let ends: Vec<(String, f64)> = server.ask(cmd("ZRANGE").arg(WAITS).arg(0).arg(-1).arg("WITHSCORES"));
        let kept = server.pttl(WAITS).unwrap();
        locks.count_down_latch(KEY, 1).count_down().unwrap();
        bounded.join().unwrap().unwrap();
        long.join().unwrap().unwrap();
        let apart = ends[1].1 - ends[0].1;
        assert!(apart > 3_000_000.0, "the bounded wait is stored as long as the other one: {apart} ms");
        assert!(kept > Duration::from_secs(3000), "the unlimited wait is stored for too short a time: {kept:?}");
    });
}

#[test]
fn a_latch_that_opens_tells_each_client_once_and_no_wait_that_has_ended() {
    let server = Server::start();
    let clients = [0, 1].map(|_| open(std::slice::from_ref(&server)));
    for ended in 0..50 {
        let wait = format!("redlock-sync:gone{ended}/1");
        let _: i64 = server.ask(cmd("ZADD").arg("{import}:latch_waits").arg(1000 + ended).arg(wait));
    }
    let mut ear = server.client();
    ear.set_read_timeout(Some(SOON)).unwrap();
    let mut ear = ear.as_pubsub();
    ear.psubscribe("redlock-sync:*").unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..10)
            .map(|i| {
                scope.spawn({
                    let locks = &clients[i % 2];
                    move || locks.count_down_latch(KEY, 1).wait()
                })
            })
            .collect();
        let entered = || -> i64 { server.ask(cmd("ZCOUNT").arg(WAITS).arg(1_000_000).arg("inf")) };
        eventually("all waits are stored", SOON, || entered() == 10);
        clients[0].count_down_latch(KEY, 1).count_down().unwrap();
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
    let _: i64 = server.ask(cmd("PUBLISH").arg("redlock-sync:end").arg("end"));
    let mut told = Vec::new();
    loop {
        let message = ear.get_message().unwrap().get_payload::<String>().unwrap();
        if message == "end" {
            break;
        }
        // Messages without a slash are tests of the connections.
        told.extend(message.contains('/').then_some(message));
    }
    assert_eq!(told.len(), 2, "{told:?}");
}

/// The last check begins just before the deadline and needs three rounds. The first one is brief, the second one is
/// full because the numbers differ, and the third one repairs a node.
#[test]
fn a_bounded_wait_is_late_by_two_node_timeouts_at_most() {
    let timeout = Duration::from_secs(2);
    let late = || {
        let servers = servers(3);
        let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
        let locks = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).node_timeout(timeout).build().unwrap();
        let latch = locks.count_down_latch(KEY, 9);
        latch.arrived().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| locks.count_down_latch("other", 1).wait_for(Duration::from_secs(20)));
            eventually("the client listens", SOON, || {
                servers.iter().all(|server| server.keys().contains(&"{other}:latch_waits".to_owned()))
            });
            for proxy in &proxies {
                proxy.on_each("wait for", Act::Delay(timeout * 4 / 5));
                proxy.on_each("count down", Act::Delay(timeout * 4 / 5));
            }
            let began = Instant::now();
            let latch = &latch;
            let wait = scope.spawn(move || {
                // The time covers the first check, a second of sleep, and the beginning of the second check.
                let wait = timeout * 4 / 5 + Duration::from_millis(1200);
                assert!(latch.wait_for(wait).unwrap_err().is_busy());
                began.elapsed().saturating_sub(wait)
            });
            thread::sleep(timeout * 4 / 5 + Duration::from_millis(500));
            store_on(&servers[0], "=a");
            let late = wait.join().unwrap();
            for server in &servers {
                let _: i64 = server.ask(cmd("ZADD").arg("other").arg("9000000000000002").arg("=a"));
            }
            late
        })
    };
    // The time that a busy machine adds.
    let slack = Duration::from_millis(200);
    let best = (0..3).map(|_| late()).find(|late| *late < 2 * timeout + slack);
    assert!(best.is_some(), "the wait was too late in all three runs");
}
