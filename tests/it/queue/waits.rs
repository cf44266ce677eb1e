//! Waits for tasks, and the waits that processes left which are gone.

use std::thread;

use redis::cmd;
use redlock_tests::{Server, eventually};

use super::rig::{SOON, plain};

/// The queue has more waits of killed processes before a live one than a script once tried.
#[test]
fn a_push_wakes_a_client_behind_many_that_are_gone() {
    let server = Server::start();
    let (mails, waits) = (plain(&server, "q"), "{q}:q2:waits");
    thread::scope(|scope| {
        let worker = scope.spawn(|| mails.try_claim_for(SOON).unwrap().unwrap().ack());
        let first = || server.ask::<Vec<(String, f64)>>(cmd("ZRANGE").arg(waits).arg(0).arg(0).arg("WITHSCORES"));
        eventually("the wait is in the queue", SOON, || !first().is_empty());
        let before = first()[0].1 - 1.0;
        for n in 0..1000 {
            server.ask::<()>(cmd("ZADD").arg(waits).arg(before).arg(format!("redlock-sync:gone/{n}")));
        }
        plain(&server, "q").push("welcome").unwrap();
        assert_eq!(server.ask::<usize>(cmd("ZCARD").arg(waits)), 0);
        worker.join().unwrap().unwrap();
    });
}

/// The wait of a process that is gone must end although other processes wait on.
#[test]
fn the_wait_of_a_process_that_is_gone_ends() {
    let server = Server::start();
    server.ask::<()>(cmd("ZADD").arg("{q}:q2:waits").arg(1).arg("redlock-sync:gone/1"));
    let mails = plain(&server, "q");
    thread::scope(|scope| {
        let worker = scope.spawn(|| mails.try_claim_for(SOON).unwrap().unwrap().ack());
        let all = || server.ask::<Vec<String>>(cmd("ZRANGE").arg("{q}:q2:waits").arg(0).arg(-1));
        eventually("only the live one waits", SOON, || matches!(&all()[..], [one] if !one.contains("gone")));
        plain(&server, "q").push("welcome").unwrap();
        worker.join().unwrap().unwrap();
    });
}
