//! Several permits are acquired at once, on one server.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::testing::Memory;
use redlock_sync::{Error, LostReason, Redlock, Semaphore};
use redlock_tests::{Proxy, Server, Stopwatch, eventually, servers};

use super::{KEY, QUEUE, SOON, brisk, ms, open, until_queued};

/// The slots that the threads hold.
struct Room(Mutex<Vec<u32>>);

impl Room {
    fn visit(&self, semaphore: &Semaphore, many: u32) {
        let permit = semaphore.acquire_many(many).unwrap();
        assert_eq!(permit.slots().len(), usize::try_from(many).unwrap());
        let mut held = self.0.lock().unwrap();
        assert!(permit.slots().iter().all(|slot| *slot < 4 && !held.contains(slot)), "{permit:?} beside {held:?}");
        held.extend(permit.slots());
        drop(held);
        thread::yield_now();
        permit.check().unwrap();
        self.0.lock().unwrap().retain(|slot| !permit.slots().contains(slot));
        permit.release().unwrap();
    }
}

#[test]
fn never_more_permits_than_there_are() {
    let (servers, room) = (servers(1), Room(Mutex::default()));
    thread::scope(|scope| {
        for many in 1..=4 {
            let semaphore = open(&servers).semaphore(KEY, 4);
            for _ in 0..2 {
                let (semaphore, room) = (semaphore.clone(), &room);
                scope.spawn(move || (0..40).for_each(|_| room.visit(&semaphore, many)));
            }
        }
    });
    assert_eq!(open(&servers).semaphore(KEY, 4).available().unwrap(), 4);
}

#[test]
fn input_15_with_several_servers_permits_are_acquired_one_at_a_time() {
    let (servers, memory) = (servers(3), Memory::new(5));
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let over_proxies = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).build().unwrap();
    for (locks, nodes) in [(over_proxies, 3), (memory.client(), 5)] {
        let semaphore = locks.semaphore(KEY, 4);
        let refused = [
            semaphore.acquire_many(2),
            semaphore.try_acquire_many(2),
            semaphore.try_acquire_many_for(2, SOON),
            semaphore.try_acquire_many_until(2, Instant::now() + SOON),
        ];
        for error in refused.map(Result::unwrap_err) {
            let parts = [KEY, "2 permits", &format!("{nodes} servers"), "one permit at a time", "one server"];
            assert!(matches!(error, Error::Config { .. }), "{error}");
            assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
        }
        let sent = |proxy: &Proxy| proxy.seen().iter().any(|seen| seen.args.iter().any(|word| word.contains(KEY)));
        assert!(!proxies.iter().any(sent), "a refused call was sent");
        semaphore.acquire_many(1).unwrap().release().unwrap();
        proxies.iter().for_each(Proxy::clear_log);
    }
}

/// A waiter for two permits gets them when the minimum hold of one ends, not only when its lease ends. The release must
/// notify the waiter again for this.
#[test]
fn several_come_as_soon_as_a_minimum_hold_is_over() {
    let servers = servers(1);
    let (holder, waiter) = (open(&servers).semaphore(KEY, 2), open(&servers).semaphore(KEY, 2));
    let one = holder.min_hold(ms(1000)).acquire().unwrap();
    let waiting = thread::spawn(move || waiter.acquire_many(2).unwrap().release().unwrap());
    until_queued(&servers[0], 1);
    let released = Stopwatch::start();
    one.release().unwrap();
    waiting.join().unwrap();
    let took = released.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}, where the lease is 30 s");
}

/// Ends the other threads, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `f` while threads of other clients take this many permits again and again.
fn beside(servers: &[Server], threads: usize, many: u32, f: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (semaphore, is_over) = (open(servers).semaphore(KEY, 3), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let permit = semaphore.acquire_many(many).unwrap();
                    thread::sleep(ms(3));
                    permit.release().unwrap();
                }
            });
        }
        let _ends = Ends(&is_over);
        let semaphore = open(servers).semaphore(KEY, 3);
        eventually("the permits are in use", SOON, || semaphore.available().unwrap() < many);
        f();
    });
}

#[test]
fn neither_those_that_want_one_nor_those_that_want_many_starve() {
    let servers = servers(1);
    for (others, many, wanted) in [(5, 1, 3), (3, 3, 1), (3, 2, 3)] {
        beside(&servers, others, many, || {
            let semaphore = open(&servers).semaphore(KEY, 3);
            for turn in 0..3 {
                let permit = semaphore.try_acquire_many_for(wanted, SOON);
                let permit =
                    permit.unwrap_or_else(|error| panic!("{wanted} beside {others} x {many}, turn {turn}: {error}"));
                permit.release().unwrap();
            }
        });
    }
}

#[test]
fn threads_that_come_later_wait_though_some_are_free() {
    let servers = servers(1);
    let [holder, many, late] = [(); 3].map(|()| open(&servers).semaphore(KEY, 2));
    let held = holder.acquire().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let permit = many.acquire_many(2).unwrap();
            let at = Instant::now();
            permit.release().unwrap();
            at
        });
        until_queued(&servers[0], 1);
        assert!(late.try_acquire().unwrap_err().is_busy());
        assert_eq!(late.available().unwrap(), 1);
        let second = scope.spawn(|| {
            let permit = late.acquire().unwrap();
            let at = Instant::now();
            permit.release().unwrap();
            at
        });
        until_queued(&servers[0], 2);
        held.release().unwrap();
        assert!(first.join().unwrap() < second.join().unwrap());
    });
    let given_up = holder.acquire().unwrap();
    assert!(many.try_acquire_many_for(2, ms(50)).unwrap_err().is_busy());
    late.try_acquire().expect("an ended wait reserves no permit").release().unwrap();
    given_up.release().unwrap();
}

/// A wait of a killed process must not reserve permits.
#[test]
fn a_wait_of_a_client_that_is_gone_keeps_nothing() {
    let servers = servers(1);
    let semaphore = open(&servers).semaphore(KEY, 2);
    let held = semaphore.acquire().unwrap();
    let _: i64 = servers[0].ask(cmd("ZADD").arg(QUEUE).arg(1).arg("redlock-sync:0123456789abcdef/1 2"));
    semaphore.try_acquire().unwrap().release().unwrap();
    held.release().unwrap();
    assert_eq!(servers[0].keys(), Vec::<String>::new());
}

/// The first wait's process ends while the next wait is in the queue. No notification tells of its end, so the next
/// wait makes an attempt about once per lease.
#[test]
fn a_wait_that_goes_while_permits_are_kept_for_it_does_not_hold_up_the_next_for_long() {
    let servers = servers(1);
    let proxy = Proxy::start(&servers[0]);
    let held = open(&servers).semaphore(KEY, 2).lease(4 * SOON).acquire().unwrap();
    let gone = redlock_tests::open(proxy.url());
    thread::scope(|scope| {
        let first = scope.spawn(|| gone.semaphore(KEY, 2).acquire_many(2).map(drop));
        until_queued(&servers[0], 1);
        let next = scope.spawn(|| open(&servers).semaphore(KEY, 2).lease(ms(3000)).try_acquire_for(SOON).map(drop));
        until_queued(&servers[0], 2);
        proxy.refuse();
        proxy.drop_connections();
        let gone_at = Stopwatch::start();
        next.join().unwrap().unwrap();
        assert!(gone_at.elapsed() < SOON / 2, "after {:?}", gone_at.elapsed());
        gone.shutdown(Duration::ZERO).unwrap();
        first.join().unwrap().unwrap_err();
    });
    held.release().unwrap();
}

#[test]
fn they_are_renewed_and_released_together() {
    let servers = servers(1);
    let semaphore = brisk(&servers, ms(2100)).semaphore(KEY, 3);
    let permit = semaphore.clone().fenced(true).acquire_many(2).unwrap();
    let lent: Vec<String> = servers[0].ask(cmd("ZRANGE").arg(KEY).arg(0).arg(-1));
    assert_eq!(lent, [0, 1].map(|slot| format!("{slot} {}", permit.id().as_str())));
    thread::sleep(ms(2400));
    permit.check().unwrap();
    assert_eq!((semaphore.available().unwrap(), semaphore.inspect().unwrap().len()), (1, 2));
    assert!(permit.fencing_token().unwrap() > 0);
    // With a smaller number of permits, no slot is free beside these two, and no slot beyond the number is granted.
    let smaller = open(&servers).semaphore(KEY, 2);
    assert!(smaller.try_acquire_many(2).unwrap_err().is_busy());
    permit.release().unwrap();
    let taken = smaller.try_acquire_many_for(2, Duration::from_secs(10)).unwrap();
    assert_eq!(taken.slots(), [0, 1]);
    taken.release().unwrap();
}

#[test]
fn input_12_how_many_at_once_is_checked() {
    let servers = servers(1);
    let semaphore = open(&servers).semaphore(KEY, 3);
    for wrong in [0, 4] {
        let error = semaphore.try_acquire_many(wrong).unwrap_err();
        assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(KEY), "{error}");
    }
    semaphore.acquire_many(3).unwrap().release().unwrap();
}

/// The handle has the number of permits, not the servers. The handle that releases may have a smaller number than the
/// wait.
#[test]
fn a_release_by_a_handle_with_a_smaller_number_wakes_a_wait_for_several() {
    let servers = servers(1);
    let once = || {
        let [small, large, waits] = [1, 3, 3].map(|permits| open(&servers).semaphore(KEY, permits));
        let first = small.acquire().unwrap();
        let others = [(); 2].map(|()| large.acquire().unwrap());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let permit = waits.acquire_many(2).unwrap();
                let at = Instant::now();
                permit.release().unwrap();
                at
            });
            until_queued(&servers[0], 1);
            let [second, third] = others;
            second.release().unwrap();
            let released = Instant::now();
            first.release().unwrap();
            let woken = waiter.join().unwrap().saturating_duration_since(released);
            third.release().unwrap();
            woken
        })
    };
    let best = (0..4).map(|_| once()).min().unwrap();
    assert!(best < ms(500), "{best:?}");
}

/// Permits that were acquired together are held together. If one of them is gone, then all are lost.
#[test]
fn a_release_of_permits_of_which_one_is_gone_is_a_loss() {
    let server = Server::start();
    let semaphore = open(std::slice::from_ref(&server)).semaphore(KEY, 3).renew(false);
    for reason in [LostReason::Deleted, LostReason::Taken] {
        let permit = semaphore.acquire_many(2).unwrap();
        let slot = permit.slots()[0];
        let _: i64 = server.ask(cmd("ZREM").arg(KEY).arg(format!("{slot} {}", permit.id().as_str())));
        if reason == LostReason::Taken {
            let other = format!("{slot} {}:other", "f".repeat(32));
            let _: i64 = server.ask(cmd("ZADD").arg(KEY).arg(9_000_000_000_000_000_i64).arg(other));
        }
        let lost = permit.release().unwrap_err();
        assert!(matches!(lost, Error::Lost { reason: r, .. } if r == reason), "{lost}");
        assert_eq!(semaphore.available().unwrap(), if reason == LostReason::Taken { 2 } else { 3 });
    }
}
