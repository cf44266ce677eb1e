//! Which thread gets a released permit, and how soon.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{GuardSend, Redlock, SemaphorePermit};
use redlock_tests::{Stopwatch, eventually, servers};

use super::{KEY, QUEUE, SOON, ms, open, until_queued};
use crate::rig::settings;

/// A time much shorter than the lease of 30 s, and than the time after which a sleeping wait makes an attempt.
const PROMPT: Duration = Duration::from_secs(5);

/// If several permits are given up in one step, then as many waiters get one.
#[test]
fn all_that_can_have_a_permit_get_one() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = open(&servers);
        let semaphore = locks.semaphore(KEY, 4);
        let held: Vec<_> = (0..4).map(|_| semaphore.acquire().unwrap()).collect();
        let clients: Vec<_> = (0..4).map(|_| open(&servers).semaphore(KEY, 4)).collect();
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (go, gone) = crossed(4);
            for (waiter, gone) in clients.iter().zip(gone) {
                let tell = tell.clone();
                scope.spawn(move || {
                    let permit = waiter.acquire().unwrap();
                    tell.send(()).unwrap();
                    gone.recv().unwrap();
                    permit.release().unwrap();
                });
            }
            until_queued(&servers[0], 4);
            assert_eq!(locks.unlock_all().unwrap().given_up.len(), 4);
            for _ in 0..4 {
                told.recv_timeout(PROMPT).expect("each waiter gets a permit");
            }
            for go in go {
                go.send(()).unwrap();
            }
        });
        drop(held);
    }
}

fn crossed(n: usize) -> (Vec<mpsc::Sender<()>>, Vec<mpsc::Receiver<()>>) {
    (0..n).map(|_| mpsc::channel()).unzip()
}

#[test]
fn on_one_node_permits_are_given_in_the_order_of_arrival() {
    const WAITERS: usize = 6;
    let servers = servers(1);
    let holder = open(&servers).semaphore(KEY, 2);
    let mut held = vec![holder.acquire().unwrap(), holder.acquire().unwrap()];
    // Some waiters are threads of one client, which share its notification connection.
    let clients = [open(&servers), open(&servers), open(&servers)];
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for i in 0..WAITERS {
            let (waiter, tell) = (clients[i % 3].semaphore(KEY, 2), tell.clone());
            scope.spawn(move || {
                let permit = waiter.acquire().unwrap().into_send();
                tell.send((i, permit)).unwrap();
            });
            until_queued(&servers[0], i + 1);
        }
        let mut order = Vec::new();
        let mut next: Option<SemaphorePermit<GuardSend>> = None;
        for _ in 0..WAITERS {
            match next.take() {
                None => held.pop().unwrap().release().unwrap(),
                Some(permit) => permit.release().unwrap(),
            }
            // The release has already granted the permit to the first wait.
            assert!(holder.try_acquire().unwrap_err().is_busy(), "a later attempt got the permit");
            let (i, permit) = told.recv_timeout(SOON).unwrap();
            order.push(i);
            next = Some(permit);
        }
        assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    });
}

/// The first wait's client listens, but its thread does not take the permit.
#[test]
fn a_waiter_that_is_stopped_holds_up_the_others_for_its_reservation_only() {
    let servers = servers(1);
    let mut stopped = servers[0].client();
    cmd("SUBSCRIBE").arg("redlock-sync:stopped").exec(&mut stopped).unwrap();
    let holder = settings_for_short_reservations(&servers).semaphore(KEY, 1);
    let permit = holder.acquire().unwrap();
    let _: i64 = servers[0].ask(cmd("ZADD").arg(QUEUE).arg(0).arg("redlock-sync:stopped/1"));
    // The wait of a client that is gone is skipped.
    let _: i64 = servers[0].ask(cmd("ZADD").arg(QUEUE).arg(1).arg("redlock-sync:gone/1"));
    let waiter = settings_for_short_reservations(&servers).semaphore(KEY, 1);
    let waiting = thread::spawn(move || {
        let permit = waiter.acquire().unwrap();
        let at = Instant::now();
        permit.release().unwrap();
        at
    });
    until_queued(&servers[0], 3);
    let released = Instant::now();
    permit.release().unwrap();
    assert_eq!(holder.available().unwrap(), 0, "the permit is not reserved");
    assert_eq!(holder.inspect().unwrap(), vec![], "the reserved permit counts as held");
    let took = waiting.join().unwrap() - released;
    assert!(took >= ms(450) && took < PROMPT, "{took:?}");
}

fn settings_for_short_reservations(servers: &[redlock_tests::Server]) -> redlock_sync::Redlock {
    settings(servers.iter().map(redlock_tests::Server::url)).node_timeout(ms(250)).build().unwrap()
}

#[test]
fn a_wait_that_ends_leaves_nothing() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (holder, waiter) = (open(&servers).semaphore(KEY, 1), open(&servers).semaphore(KEY, 1));
        let permit = holder.acquire().unwrap();
        let began = Instant::now();
        assert!(waiter.try_acquire_for(ms(300)).unwrap_err().is_busy());
        assert!(began.elapsed() >= ms(300));
        assert!(waiter.try_acquire_until(Instant::now() + ms(50)).unwrap_err().is_busy());
        for server in &servers {
            until_queued(server, 0);
        }
        permit.release().unwrap();
        eventually("nothing is left", SOON, || servers.iter().all(|server| server.keys().is_empty()));
        waiter.try_acquire().unwrap().release().unwrap();
    }
}

/// An operator can delete the queue, and a server can evict it.
#[test]
fn waiters_get_by_when_their_queue_is_deleted() {
    let servers = servers(1);
    let lease = ms(1500);
    let (holder, waiter) =
        (super::brisk(&servers, lease).semaphore(KEY, 1), super::brisk(&servers, lease).semaphore(KEY, 1));
    let permit = holder.acquire().unwrap();
    let waiting = thread::spawn(move || waiter.acquire().unwrap().release());
    until_queued(&servers[0], 1);
    assert!(servers[0].del(QUEUE));
    permit.release().unwrap();
    waiting.join().unwrap().unwrap();
}

/// A client looks after a wait for a permit as often as after a wait for a mutex.
#[test]
fn kind_01_a_permit_whose_message_was_lost_is_found() {
    let servers = servers(1);
    let ask = |cmd: &redis::Cmd| servers[0].ask::<Vec<String>>(cmd).remove(0);
    let permit = open(&servers).semaphore(KEY, 1).lease(4 * SOON).acquire().unwrap();
    let waiter = open(&servers).semaphore(KEY, 1);
    let waiting = thread::spawn(move || waiter.try_acquire_for(SOON).map(drop));
    until_queued(&servers[0], 1);
    // These commands do what a release does, without the notification.
    let (held, wait) = (ask(cmd("ZRANGE").arg(KEY).arg(0).arg(0)), ask(cmd("ZRANGE").arg(QUEUE).arg(0).arg(0)));
    let now: u64 = ask(&cmd("TIME")).parse().unwrap();
    let place = format!("0 {:032}:granted:{wait}", 0);
    servers[0].ask::<()>(cmd("ZADD").arg(KEY).arg(now * 1000 + 1500).arg(place));
    let removed: i64 = servers[0].ask(cmd("ZREM").arg(KEY).arg(held));
    assert!(removed == 1 && servers[0].del(QUEUE));
    let lost = Stopwatch::start();
    waiting.join().unwrap().unwrap();
    assert!(lost.elapsed() < ms(7500), "{:?}", lost.elapsed());
    assert!(permit.release().unwrap_err().is_lost());
}

/// The user may not subscribe, so each waiter polls, and still gets its turn.
#[test]
fn waiters_that_cannot_be_told_get_permits_in_their_order() {
    let servers = servers(1);
    let rules = ["poor", "on", ">secret", "~*", "resetchannels", "+@all", "-publish", "-subscribe"];
    let _: () = servers[0].ask(cmd("ACL").arg("SETUSER").arg(&rules));
    let url = format!("redis://poor:secret@{}/", servers[0].addr());
    let open = || Redlock::builder().node(&url).node_timeout(ms(2000)).build().unwrap().semaphore(KEY, 1);
    let permit = open().acquire().unwrap();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for i in 0..3 {
            let (waiter, tell) = (open(), tell.clone());
            scope.spawn(move || {
                let permit = waiter.acquire().unwrap();
                tell.send(i).unwrap();
                permit.release().unwrap();
            });
            until_queued(&servers[0], i + 1);
        }
        permit.release().unwrap();
        let order: Vec<usize> = (0..3).map(|_| told.recv_timeout(PROMPT).expect("a waiter gets its turn")).collect();
        assert_eq!(order, [0, 1, 2]);
    });
}
