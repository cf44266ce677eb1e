//! Multi-locks are all or nothing and cannot deadlock. If one key is lost, then all are lost.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::testing::Memory;
use redlock_sync::{Builder, Error, LostReason, Redlock};
use redlock_tests::bench::delay::Delay;
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, servers};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn builder(servers: &[Server]) -> Builder {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    Redlock::builder().nodes(urls).node_timeout(Duration::from_secs(1))
}

fn open(servers: &[Server]) -> Redlock {
    builder(servers).build().unwrap()
}

fn locked<const N: usize>(locks: &Redlock, keys: [&str; N]) -> [bool; N] {
    keys.map(|key| locks.mutex(key).is_locked().unwrap())
}

const ACCOUNTS: usize = 6;

/// The money, and the number of transfers at work on each account.
struct Bank {
    accounts: [AtomicI64; ACCOUNTS],
    inside: [AtomicUsize; ACCOUNTS],
}

impl Bank {
    /// Reads the accounts, and writes them later. If two transfers overlap, then money is lost.
    fn transfer(&self, chosen: &[usize]) {
        assert!(chosen.iter().all(|&account| self.inside[account].fetch_add(1, Ordering::SeqCst) == 0));
        let (from, to) = (chosen[0], chosen[1]);
        let (had, has) = (self.accounts[from].load(Ordering::SeqCst), self.accounts[to].load(Ordering::SeqCst));
        thread::yield_now();
        self.accounts[from].store(had - 1, Ordering::SeqCst);
        self.accounts[to].store(has + 1, Ordering::SeqCst);
        for &account in chosen {
            self.inside[account].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Eight threads in each of three clients make transfers.
fn transfers(nodes: usize, each: usize) {
    let servers = servers(nodes);
    let clients: Vec<Redlock> = (0..3).map(|_| open(&servers)).collect();
    let bank = Bank { accounts: [const { AtomicI64::new(100) }; ACCOUNTS], inside: Default::default() };
    let began = Instant::now();
    thread::scope(|scope| {
        for thread in 0..24 {
            let (locks, bank) = (&clients[thread % 3], &bank);
            scope.spawn(move || {
                for _ in 0..each {
                    // Each thread names its accounts in a random order.
                    let mut chosen: Vec<usize> = (0..ACCOUNTS).collect();
                    fastrand::shuffle(&mut chosen);
                    chosen.truncate(fastrand::usize(2..=3));
                    let names = chosen.iter().map(|account| format!("account:{account}"));
                    let guard = locks.multi_lock(names).try_lock_for(SOON).expect("the lock is acquired");
                    bank.transfer(&chosen);
                    guard.check().unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
    println!("{} transfers on {nodes} node(s) in {:?}", 24 * each, began.elapsed());
    assert_eq!(bank.accounts.iter().map(|account| account.load(Ordering::SeqCst)).sum::<i64>(), 600);
    let is_held = |key: &String| key.starts_with("account:");
    assert!(servers.iter().all(|server| !server.keys().iter().any(is_held)));
}

#[test]
fn transfers_keep_the_sum_and_end() {
    transfers(1, 20);
}

#[test]
fn transfers_keep_the_sum_and_end_on_several_nodes() {
    transfers(3, 4);
}

#[test]
fn an_attempt_takes_all_or_nothing() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (here, there) = (open(&servers), open(&servers));
        for held in ["a", "b", "c"] {
            let mutex = there.mutex(held).lock().unwrap();
            let lock = here.multi_lock(["c", "a", "b"]);
            for outcome in [lock.try_lock(), lock.try_lock_for(Duration::from_millis(50))] {
                let error = outcome.unwrap_err();
                assert!(matches!(&error, Error::Busy { key, .. } if key == held), "{error}");
            }
            assert_eq!(locked(&here, ["a", "b", "c"]), ["a", "b", "c"].map(|key| key == held));
            mutex.unlock().unwrap();
        }
        let guard = here.multi_lock(["c", "a", "b", "a"]).try_lock().unwrap();
        assert_eq!(guard.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(locked(&there, ["a", "b", "c"]), [true; 3]);
        assert!(guard.remaining() > Duration::from_secs(20));
        guard.unlock().unwrap();
        assert_eq!(locked(&there, ["a", "b", "c"]), [false; 3]);
    }
}

#[test]
fn a_deadline_in_the_past_leaves_one_attempt() {
    let server = Server::start();
    let lock = open(std::slice::from_ref(&server)).multi_lock(["a", "b"]);
    let past = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
    lock.try_lock_until(past).unwrap().unlock().unwrap();
}

/// The calls end within their bounds, however many keys are locked by then.
#[test]
fn a_server_that_falls_silent_does_not_hold_up_an_attempt_that_failed() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(TIMEOUT).build().unwrap();
    let keys: Vec<String> = (0..8).map(|key| format!("account:{key}")).collect();
    let once = || {
        locks.multi_lock(&keys).try_lock().unwrap().unlock().unwrap();
        // The rule counts all acquires on all connections, so the keys before the sixth one are locked.
        let fault = proxy.on_nth("acquire", 6, Act::Hold);
        let began = thread::scope(|scope| {
            scope.spawn(|| {
                fault.wait_hit(SOON);
                proxy.black_hole();
            });
            let began = Instant::now();
            assert!(locks.multi_lock(&keys).try_lock().unwrap_err().is_unavailable());
            began
        });
        let took = began.elapsed();
        proxy.heal();
        eventually("all are released", SOON, || keys.iter().all(|key| locks.mutex(key).is_locked() == Ok(false)));
        took
    };
    let best = (0..3).map(|_| once()).min().unwrap();
    assert!(best < TIMEOUT * 13 / 4, "{best:?}");
}

#[test]
fn mutexes_of_its_keys_and_it_exclude_each_other() {
    let server = Server::start();
    let servers = std::slice::from_ref(&server);
    let (here, there) = (open(servers), open(servers));
    let guard = here.multi_lock(["a", "b"]).lock().unwrap();
    assert!(there.mutex("b").try_lock().unwrap_err().is_busy());
    assert!(there.reentrant_mutex("a").try_lock().unwrap_err().is_busy());
    assert!(there.multi_lock(["b", "c"]).try_lock().unwrap_err().is_busy());
    let other = there.multi_lock(["c", "d"]).try_lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.mutex("b").try_lock_for(SOON).map(drop));
        eventually("the wait is queued", SOON, || server.keys().contains(&"{b}:waits".to_owned()));
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    drop(other);
}

#[test]
fn kind_07_one_key_lost_is_all_lost() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = builder(&servers).lease(Duration::from_secs(3)).build().unwrap();
        let guard = locks.multi_lock(["a", "b", "c"]).lock().unwrap();
        let (tell, told) = mpsc::channel();
        let again = tell.clone();
        guard.on_lost(|_| panic!("on purpose: the other handlers are called"));
        guard.on_lost(move |error| tell.send(error).unwrap());
        assert!(servers.iter().all(|server| server.del("b")));
        let error = told.recv_timeout(SOON).unwrap();
        assert!(matches!(&error, Error::Lost { key, reason: LostReason::Deleted } if key == "b"), "{error}");
        assert_eq!(guard.check().unwrap_err(), error);
        assert!(guard.remaining().is_zero());
        eventually("the others are released", SOON, || locked(&locks, ["a", "b", "c"]) == [false; 3]);
        guard.on_lost(move |error| again.send(error).unwrap());
        assert_eq!(told.recv_timeout(SOON).unwrap(), error, "the late handler got another error");
        // The release must not delete keys that another holder has by now.
        let other = open(&servers).multi_lock(["a", "b", "c"]).try_lock_for(SOON).unwrap();
        assert_eq!(guard.unlock().unwrap_err(), error);
        other.check().unwrap();
        other.unlock().unwrap();
    }
}

#[test]
fn a_normal_release_is_no_loss() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let (tell, told) = mpsc::channel();
    let guard = locks.multi_lock(["a", "b"]).lock().unwrap();
    guard.on_lost(move |error| tell.send(error).unwrap());
    guard.unlock().unwrap();
    assert_eq!(told.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected), "the handler was called");
    assert!(server.keys().is_empty());
}

#[test]
fn a_guard_may_change_threads() {
    let locks = Redlock::in_memory();
    let guard = locks.multi_lock(["a", "b"]).lock().unwrap().into_send();
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |error| tell.send(error).unwrap());
    assert!(locks.multi_lock(["b", "c"]).try_lock_for(Duration::from_millis(20)).unwrap_err().is_busy());
    let other = locks.clone();
    thread::spawn(move || {
        guard.check().unwrap();
        guard.unlock().unwrap();
        other.multi_lock(["a", "b"]).lock().unwrap().unlock().unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(told.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected), "the handler was called");
    locks.multi_lock(["b", "c"]).try_lock().unwrap().unlock().unwrap();
}

#[test]
fn a_thread_does_not_wait_for_itself() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let outer = locks.multi_lock(["b", "c"]).lock().unwrap();
    let inner = locks.multi_lock(["a", "c"]);
    assert!(matches!(inner.lock(), Err(Error::WouldDeadlock { key }) if key == "c"));
    assert!(matches!(inner.try_lock(), Err(Error::Busy { key, by_this_thread: true, .. }) if key == "c"));
    assert!(matches!(inner.try_lock_for(SOON), Err(Error::Busy { by_this_thread: true, .. })));
    assert!(matches!(locks.mutex("b").lock(), Err(Error::WouldDeadlock { .. })));
    assert!(matches!(locks.reentrant_mutex("b").lock(), Err(Error::WouldDeadlock { .. })));
    outer.check().unwrap();
    assert_eq!(locked(&locks, ["a", "b", "c"]), [false, true, true]);
    outer.unlock().unwrap();
    inner.lock().unwrap().unlock().unwrap();
    let nested = locks.reentrant_mutex("a").lock().unwrap();
    assert!(matches!(inner.lock(), Err(Error::WouldDeadlock { key }) if key == "a"));
    drop(nested);
}

#[test]
fn each_key_has_a_fence_that_rises() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let fences = || -> Vec<u64> {
        let guard = locks.multi_lock(["a", "b"]).fenced(true).lock().unwrap();
        let fences = guard.leases().map(|lease| lease.fencing_token().unwrap()).collect();
        guard.unlock().unwrap();
        fences
    };
    let first = fences();
    let guard = locks.mutex("b").lock().unwrap();
    let between = guard.fencing_token().unwrap();
    guard.unlock().unwrap();
    let second = fences();
    assert!(first[0] < second[0] && first[1] < between && between < second[1]);
}

#[test]
fn a_key_that_is_lost_while_it_waits_for_another_is_taken_again() {
    let server = Server::start();
    let servers = std::slice::from_ref(&server);
    let lease = Duration::from_secs(3);
    let (here, there) = (builder(servers).lease(lease).build().unwrap(), open(servers));
    let held = there.mutex("z").lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = here.multi_lock(["a", "z"]).lock().unwrap();
            guard.check().unwrap();
            assert_eq!(locked(&there, ["a", "z"]), [true; 2]);
            guard.unlock().unwrap();
        });
        eventually("the last key has a wait", SOON, || server.keys().contains(&"{z}:waits".to_owned()));
        assert!(server.del("a"));
        let stranger = there.mutex("a").lock().unwrap();
        let since = Instant::now();
        eventually("a lease has passed", SOON, || since.elapsed() > lease);
        held.unlock().unwrap();
        eventually("the waiter notices the loss", SOON, || server.keys().contains(&"{a}:waits".to_owned()));
        stranger.unlock().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_server_that_hangs_does_not_hold_a_call_for_long() {
    let server = Server::start();
    let settings = redlock_tests::patient().node(server.url());
    let locks = settings.node_timeout(Duration::from_secs(1)).build().unwrap();
    let names: Vec<String> = (0..64).map(|i| format!("key:{i:02}")).collect();
    let guard = locks.multi_lock(&names).lock().unwrap();
    server.stop();
    let began = Stopwatch::start();
    assert!(guard.unlock().is_err());
    assert!(locks.multi_lock(["x", "y"]).try_lock().unwrap_err().is_unavailable());
    let took = began.elapsed();
    println!("the end of 64 keys on a server that hangs took {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    server.cont();
    eventually("the keys are released", SOON, || locks.multi_lock(&names).try_lock().is_ok());
}

#[test]
fn input_12_the_number_of_keys_is_checked() {
    let locks = Redlock::open("redis://127.0.0.1:1/").unwrap();
    let many: Vec<String> = (0..65).map(|i| format!("key:{i}")).collect();
    for keys in [Vec::new(), many, vec!["a".to_owned(), String::new()]] {
        assert!(matches!(locks.multi_lock(&keys).try_lock(), Err(Error::Config { .. })), "{keys:?}");
    }
}

#[test]
fn kind_07_in_memory_too_one_key_lost_is_all_lost() {
    for nodes in [1, 3] {
        let memory = Memory::new(nodes);
        let (locks, others) = (memory.client(), memory.client());
        let guard = locks.multi_lock(["a", "b", "c"]).lock().unwrap();
        assert!(others.multi_lock(["c", "d"]).try_lock().unwrap_err().is_busy());
        assert!(!others.mutex("d").is_locked().unwrap());
        memory.lose("b");
        memory.advance(Duration::from_secs(15));
        let error = guard.check().unwrap_err();
        assert!(matches!(&error, Error::Lost { key, reason: LostReason::Deleted } if key == "b"), "{error}");
        eventually("the others are released", SOON, || locked(&others, ["a", "b", "c"]) == [false; 3]);
        let other = others.multi_lock(["c", "b", "a"]).lock().unwrap();
        assert_eq!(guard.unlock().unwrap_err(), error);
        other.unlock().unwrap();
        let ends = locks.multi_lock(["a", "b"]).max_hold(Duration::from_secs(60)).lock().unwrap();
        for _ in 0..5 {
            memory.advance(Duration::from_secs(11));
            ends.check().unwrap();
        }
        memory.advance(Duration::from_secs(11));
        assert_eq!(ends.check().unwrap_err().lost_reason(), Some(LostReason::MaxHold));
    }
}

/// The shortest of several times counts, because the machine is busy. One round trip takes the delay, and one per key
/// would take eight times as long.
#[test]
fn keys_that_are_free_are_taken_in_one_round_trip_and_given_up_in_one() {
    const DELAY: Duration = Duration::from_millis(60);
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
        let delay = Delay::start(&addrs, DELAY).unwrap();
        let locks = redlock_tests::patient().nodes(delay.urls()).restart_guard(false).build().unwrap();
        let keys = locks.multi_lock((0..8).map(|key| format!("key:{key}")));
        // This cycle makes the connections.
        keys.lock().unwrap().unlock().unwrap();
        let is_one = |took: Duration| took >= DELAY && took < 4 * DELAY;
        for fenced in [false, true] {
            let keys = keys.clone().fenced(fenced);
            let take = |()| {
                let began = Instant::now();
                let guard = keys.lock().unwrap();
                let took = began.elapsed();
                guard.unlock().unwrap();
                (took, began.elapsed().saturating_sub(took))
            };
            let all: Vec<_> = [(); 5].map(take).to_vec();
            let (took, gave_up) =
                (all.iter().map(|pair| pair.0).min().unwrap(), all.iter().map(|pair| pair.1).min().unwrap());
            assert!(is_one(took) && is_one(gave_up), "{nodes} nodes, fenced {fenced}: {took:?}, {gave_up:?}");
        }
        // `unlock_all` also releases holds of other kinds in one round trip.
        let end = |_| {
            let permits: Vec<_> = (0..8).map(|_| locks.semaphore("permits", 8).acquire().unwrap()).collect();
            let readers: Vec<_> = (0..8).map(|i| locks.rw_lock(format!("read:{i}")).read().unwrap()).collect();
            let began = Instant::now();
            assert_eq!(locks.unlock_all().unwrap().given_up.len(), 16);
            let took = began.elapsed();
            drop((permits, readers));
            took
        };
        let best = (0..2).map(end).min().unwrap();
        assert!(best < 6 * DELAY, "{nodes} nodes: {best:?}");
        // If another holder has a key, then the attempt releases all other keys at once.
        let held = open(&servers);
        let held = held.mutex("key:4").lock().unwrap();
        assert!(keys.try_lock().unwrap_err().is_busy());
        assert_eq!(locked(&open(&servers), ["key:3", "key:4", "key:5"]), [false, true, false]);
        drop(held);
    }
}

/// The attempts for all keys are sent together. If the server is silent, they take the whole node timeout.
#[test]
fn a_multi_lock_says_why_the_servers_gave_it_no_key() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(Duration::from_millis(500)).build().unwrap();
    let accounts = locks.multi_lock(["account:3", "account:7"]);
    accounts.lock().unwrap().unlock().unwrap();
    proxy.black_hole();
    let error = accounts.try_lock().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("timed out"), "{error}");
}
