//! The end of a job and the next claim, which travel together.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use redlock_sync::{Queue, Verdict};
use redlock_tests::{Act, Proxy, Server, eventually};

use super::rig::{SOON, assert_empty, ms, queue, task};

fn claim(mails: &Queue) -> redlock_sync::Job {
    mails.try_claim_for(SOON).unwrap().unwrap()
}

#[test]
fn the_end_of_a_job_comes_first_and_the_next_claim_behind_it() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    mails.push_all(["a", "b", "c"].map(task)).unwrap();
    // The server knows both scripts from here on.
    let job = claim(&mails).ack_and_claim().unwrap().unwrap();
    proxy.clear_log();
    let job = job.ack_and_claim().unwrap().unwrap();
    assert_eq!((job.id(), job.attempt(), job.body()), ("c", 1, &b"body of c"[..]));
    let seen: Vec<_> = proxy.seen().into_iter().map(|seen| (seen.name, seen.connection)).collect();
    let [(first, on), (second, on_too)] = &seen[..] else { panic!("{seen:?}") };
    assert!(first == "finish" && second == "claim" && on == on_too, "{seen:?}");
    assert!(job.ack_and_claim().unwrap().is_none());
    assert_empty(&server);
}

#[test]
fn a_worker_needs_one_round_trip_for_each_job() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    mails.push_all((0..100).map(|n| task(&n.to_string()))).unwrap();
    let worker = mails.worker(1, |_| ()).unwrap();
    eventually("all are handled", SOON, || mails.is_empty().unwrap());
    assert_eq!(worker.stop(SOON), 0);
    // All but the first claim follow an end at once. The last one finds nothing, and the worker begins to wait.
    let seen = proxy.seen();
    let of_worker: Vec<_> = seen.iter().filter(|seen| ["finish", "claim"].contains(&seen.name.as_str())).collect();
    let follow = of_worker.windows(2).filter(|pair| pair[0].name == "finish" && pair[1].name == "claim");
    assert_eq!(follow.count(), 100);
    let alone = of_worker.iter().filter(|seen| seen.name == "claim").count() - 100;
    assert!(alone <= 8, "{alone} claims did not follow an end");
}

/// The time for the pair begins when the renewal is over.
#[test]
fn a_pair_waits_for_a_renewal_under_way() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    mails.push_all(["a", "b", "c"].map(task)).unwrap();
    let job = claim(&mails).ack_and_claim().unwrap().unwrap();
    let renewal = proxy.on("extend", Act::HoldReply);
    renewal.wait_hit(SOON);
    // Together they take longer than one node timeout.
    let slow = proxy.on("finish", Act::Delay(ms(1000)));
    thread::scope(|scope| {
        let next = scope.spawn(|| job.ack_and_claim());
        thread::sleep(ms(2500));
        renewal.release();
        assert_eq!(next.join().unwrap().unwrap().unwrap().id(), "c");
    });
    assert_eq!(slow.hits(), 1);
}

/// The next task must not be held by a caller who does not know of it.
#[test]
fn queue_fault_22_the_end_is_refused_and_the_next_claim_is_won() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["a", "b"].map(task)).unwrap();
    let first = claim(&queue(&server.url()).lease(ms(4000)).renew(false));
    eventually("the claim expires", SOON, || mails.peek_due(2).unwrap().iter().any(|entry| entry.id() == "a"));
    let b = claim(&mails);
    let a = claim(&mails);
    assert_eq!((b.id(), a.id(), a.attempt()), ("b", "a", 2));
    b.retry_after(Duration::ZERO, "later").unwrap();
    let error = first.ack_and_claim().unwrap_err();
    assert!(error.is_lost(), "{error}");
    a.check().unwrap();
    let due = || mails.peek_due(1).unwrap().first().map(|entry| (entry.id().to_owned(), entry.attempts()));
    eventually("the next task is given back, uncounted", SOON, || due() == Some(("b".to_owned(), 1)));
    a.ack().unwrap();
}

/// A worker runs the next task, since it has not claimed that one in vain.
#[test]
fn queue_fault_22_a_worker_goes_on_behind_an_end_that_is_refused() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["a", "b"].map(task)).unwrap();
    let (tell, handled) = mpsc::channel();
    let (go_on, gate) = mpsc::channel();
    let gate = std::sync::Mutex::new(gate);
    let short = queue(&server.url()).lease(ms(4000)).renew(false);
    let worker = short
        .worker(1, move |job| {
            tell.send((job.id().to_owned(), job.attempt())).unwrap();
            if job.id() == "a" {
                gate.lock().unwrap().recv_timeout(SOON).unwrap();
            }
        })
        .unwrap();
    assert_eq!(handled.recv_timeout(SOON).unwrap(), ("a".to_owned(), 1));
    // Another claimant takes the task over. The other task waits meanwhile.
    let b = claim(&mails);
    let a = claim(&mails);
    assert_eq!((b.id(), a.id(), a.attempt()), ("b", "a", 2));
    b.retry_after(Duration::ZERO, "later").unwrap();
    go_on.send(()).unwrap();
    assert_eq!(handled.recv_timeout(SOON).unwrap(), ("b".to_owned(), 2));
    a.ack().unwrap();
    eventually("both are done", SOON, || mails.is_empty().unwrap());
    assert_eq!(worker.stop(SOON), 0);
}

/// The worker stops while the pair is on its way.
#[test]
fn queue_fault_23_a_claim_that_reaches_a_stopping_worker_is_given_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mails = queue(&proxy.url());
    let direct = queue(&server.url());
    let (tell, handled) = mpsc::channel();
    let worker = mails.worker(1, move |job| tell.send(job.id().to_owned()).unwrap()).unwrap();
    direct.push(task("first")).unwrap();
    assert_eq!(handled.recv_timeout(SOON).unwrap(), "first");
    eventually("the first is done", SOON, || direct.is_empty().unwrap());
    let held = proxy.on("finish", Act::HoldReply);
    direct.push_all(["a", "b"].map(task)).unwrap();
    held.wait_hit(SOON);
    assert_eq!(handled.recv_timeout(SOON).unwrap(), "a");
    eventually("the server has executed the claim", SOON, || direct.peek(1).unwrap()[0].is_claimed());
    drop(worker);
    held.release();
    let is_back = |entry: &redlock_sync::TaskInfo| entry.id() == "b" && entry.attempts() == 0 && !entry.is_claimed();
    eventually("the next task is given back, uncounted", SOON, || direct.peek(1).unwrap().first().is_some_and(is_back));
    assert!(handled.try_recv().is_err(), "the handler of a stopped worker ran");
}

#[test]
fn a_handler_that_panics_is_followed_by_the_next_task() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["bad", "good"].map(task)).unwrap();
    let worker = mails
        .worker(1, |job| {
            assert!(job.id() == "good" || job.attempt() == 3, "not yet");
            Verdict::Done
        })
        .unwrap();
    eventually("both are done", SOON, || mails.is_empty().unwrap());
    assert_eq!((worker.stop(SOON), mails.dead_len().unwrap()), (0, 0));
}

/// A relay that breaks its connection after a number of bytes of one direction.
struct Relay {
    url: String,
    /// How many bytes still pass from the client, and from the server. Negative: all.
    left: Arc<[AtomicI64; 2]>,
    cuts: Arc<AtomicI64>,
}

impl Relay {
    fn start(server: &Server) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://127.0.0.1:{}/", listener.local_addr().unwrap().port());
        let left = Arc::new([AtomicI64::new(-1), AtomicI64::new(-1)]);
        let cuts = Arc::new(AtomicI64::new(0));
        let (to, budget, count) = (server.addr(), Arc::clone(&left), Arc::clone(&cuts));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else { return };
                let copies = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
                for (direction, (from, to)) in copies.into_iter().enumerate() {
                    let (Ok(from), Ok(to)) = (from, to) else { return };
                    let (budget, count) = (Arc::clone(&budget), Arc::clone(&count));
                    thread::spawn(move || copy(from, to, &budget[direction], &count));
                }
            }
        });
        Relay { url, left, cuts }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, left: &AtomicI64, cuts: &AtomicI64) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let limit = left.load(Ordering::SeqCst);
        let passed = usize::try_from(limit).map_or(count, |limit| count.min(limit));
        if to.write_all(&bytes[..passed]).is_err() {
            break;
        }
        if limit >= 0 {
            left.store(limit - i64::try_from(passed).unwrap(), Ordering::SeqCst);
            if passed < count || limit == i64::try_from(passed).unwrap() {
                // The cut is over.
                left.store(-1, Ordering::SeqCst);
                cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
    }
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}

/// The client sends both calls again, by the same tokens. So the end is recorded once, and the next task has one
/// attempt.
#[test]
fn queue_fault_24_the_connection_breaks_within_the_pair() {
    let server = Server::start();
    let direct = queue(&server.url());
    let step = if cfg!(debug_assertions) { 4 } else { 1 };
    // The requests of a pair have some 570 bytes, the replies some 110.
    for (direction, longest) in [(0, 560), (1, 100)] {
        let relay = Relay::start(&server);
        let mails = queue(&relay.url);
        direct.push(task("start")).unwrap();
        let mut job = claim(&mails);
        for bytes in (1..longest).step_by(step) {
            let id = format!("{direction} {bytes}");
            direct.push(task(&id)).unwrap();
            relay.left[direction].store(bytes, Ordering::SeqCst);
            let next = job.ack_and_claim();
            relay.left[direction].store(-1, Ordering::SeqCst);
            job = next.unwrap().unwrap_or_else(|| panic!("nothing is claimed after {id}"));
            assert_eq!((job.id(), job.attempt()), (&*id, 1));
            assert_eq!(direct.len().unwrap(), 1, "the end is not recorded: {id}");
        }
        job.ack().unwrap();
        assert_eq!(relay.cuts.load(Ordering::SeqCst), i64::try_from((1..longest).step_by(step).count()).unwrap());
    }
    assert_empty(&server);
}

/// Clients that are paused, and those that claim in pairs, share one queue.
#[test]
fn a_paused_queue_gives_no_next_task() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push_all(["a", "b"].map(task)).unwrap();
    let job = claim(&mails);
    assert!(mails.pause().unwrap());
    assert!(job.ack_and_claim().unwrap().is_none());
    assert!(mails.resume().unwrap());
    assert_eq!(claim(&mails).id(), "b");
}
