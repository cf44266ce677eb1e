//! A lock that the servers have lost is told as lost within a second, long before its renewal.

mod handlers;

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::testing::Memory;
use redlock_sync::{Error, Lease, LeaseState, LostReason, MutexGuard, Redlock};
use redlock_tests::{Proxy, Server, Stopwatch, eventually, patient, poll, servers};

use crate::kinds::{Kind, every_kind};
use crate::rig::{for_each, this_thread, until_asleep};

const KEY: &str = "order:42";
/// The first renewal is due when a third of this has passed.
const LEASE: Duration = Duration::from_secs(600);
/// It suffices on a busy machine, and is much shorter than a third of the lease.
const SOON: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
/// The name of the call, as a proxy counts it.
const CHECK: &str = "check";

fn client(urls: impl IntoIterator<Item = String>) -> Redlock {
    patient().nodes(urls).restart_guard(false).lease(LEASE).build().unwrap()
}

fn client_of(servers: &[Server]) -> Redlock {
    client(servers.iter().map(Server::url))
}

/// A majority of these servers.
fn majority(servers: &[Server]) -> &[Server] {
    &servers[..=servers.len() / 2]
}

fn delete(servers: &[Server]) {
    for server in servers {
        assert!(server.del(KEY));
    }
}

/// Gets the losses of a lease.
fn told_losses(lease: &Lease) -> Receiver<Error> {
    let (tell, told) = channel();
    lease.on_lost(move |error| _ = tell.send(error));
    told
}

/// The reason of the only loss that is told.
fn only_reason(told: &Receiver<Error>) -> Option<LostReason> {
    let reason = told.recv_timeout(SOON).expect("the loss is told").lost_reason();
    assert!(told.try_recv().is_err(), "it is told once");
    reason
}

/// No renewal comes in time. A look comes when the lock has been held for a second.
fn fault_38_a_key_deleted_by_hand_is_lost_by_the_next_look<K: Kind>() {
    for &count in K::NODES {
        let servers = servers(count);
        let locks = client_of(&servers);
        for renews in [true, false] {
            let guard = K::new(&locks, KEY).renew(renews).lock().unwrap();
            let told = told_losses(&guard);
            let deleted = Stopwatch::start();
            delete(majority(&servers));
            assert_eq!(only_reason(&told), Some(LostReason::Deleted), "renews: {renews}");
            assert!(deleted.elapsed() < 8 * SECOND, "{:?}", deleted.elapsed());
            assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Deleted));
            assert!(guard.fencing_token().unwrap_err().is_lost());
            assert_eq!(K::unlock(guard).unwrap_err().lost_reason(), Some(LostReason::Deleted));
            let is_there = |server: &Server| server.keys().iter().any(|key| key == KEY);
            let again = poll(Duration::from_millis(150), || majority(&servers).iter().any(is_there).then_some(()));
            assert!(again.is_none(), "the key was created again");
            // With several servers, a minority still has it.
            for server in &servers {
                server.del(KEY);
            }
        }
    }
}

/// No handler is needed: `check` and `state` know it.
fn the_loss_to_another_program_is_known<K: Kind>() {
    for &count in K::NODES {
        let servers = servers(count);
        let guard = K::new(&client_of(&servers), KEY).lock().unwrap();
        for server in majority(&servers) {
            server.del(KEY);
            server.set(KEY, "foreign");
        }
        eventually("the loss is known", SOON, || guard.check().is_err());
        assert_eq!(guard.state(), LeaseState::Lost(LostReason::Taken));
    }
}

every_kind!(held: fault_38_a_key_deleted_by_hand_is_lost_by_the_next_look, the_loss_to_another_program_is_known);

/// Only one permit of a semaphore is taken, and only one reader of several. The others are still held.
#[test]
fn others_that_share_the_key_are_still_held() {
    let servers = servers(1);
    let locks = [client_of(&servers), client_of(&servers)];
    let permits = locks.each_ref().map(|locks| locks.semaphore("permits", 2).acquire().unwrap());
    let readers = locks.each_ref().map(|locks| locks.rw_lock("prices").read().unwrap());
    let lose = |key: &str, member: String| assert!(servers[0].ask::<bool>(cmd("ZREM").arg(key).arg(member)));
    lose("permits", format!("0 {}", permits[0].id().as_str()));
    lose("prices", format!("r{}", readers[0].id().as_str()));
    eventually("the losses are known", SOON, || permits[0].check().is_err() && readers[0].check().is_err());
    assert!(permits[1].check().is_ok() && readers[1].check().is_ok());
}

/// The thread of a short lease wakes first, but has to renew it before a look would be answered.
#[test]
fn a_short_lease_far_away_keeps_no_loss_from_being_told() {
    let servers = servers(1);
    let proxy = Proxy::start(&servers[0]);
    let locks = patient().node(proxy.url()).node_timeout(SECOND).lease(LEASE).build().unwrap();
    let _short = locks.mutex("short").lease(Duration::from_millis(1100)).lock().unwrap();
    let guard = locks.mutex(KEY).lock().unwrap();
    // A round trip takes longer than a third of the short lease.
    proxy.distance(Duration::from_millis(400));
    let told = told_losses(&guard);
    delete(&servers);
    assert_eq!(only_reason(&told), Some(LostReason::Deleted));
}

/// A reader that has been a writer stands as a reader on the servers.
#[test]
fn a_downgraded_lock_is_looked_after() {
    for_each("nodes", &[1, 3], |count| {
        let servers = servers(count);
        let proxy = Proxy::start(&servers[0]);
        let urls = [proxy.url()].into_iter().chain(servers[1..].iter().map(Server::url));
        let guard = client(urls).rw_lock(KEY).write().unwrap().downgrade().unwrap();
        proxy.wait_count(CHECK, 2, SOON);
        let extended = proxy.count("extend");
        proxy.wait_count(CHECK, 5, SOON);
        assert_eq!((guard.state(), proxy.count("extend")), (LeaseState::Held, extended), "it was suspected");
        delete(majority(&servers));
        eventually("the loss is known", SOON, || guard.check().is_err());
    });
}

#[test]
fn all_locks_of_an_emptied_server_are_lost() {
    for count in [1, 3] {
        let servers = servers(count);
        let locks = client_of(&servers);
        let guards: Vec<MutexGuard> = (0..400).map(|i| locks.mutex(format!("order:{i}")).lock().unwrap()).collect();
        let told: Vec<_> = guards.iter().map(|guard| told_losses(guard)).collect();
        for server in &servers {
            server.ask::<()>(&cmd("FLUSHALL"));
        }
        assert!(told.iter().all(|told| only_reason(told) == Some(LostReason::Deleted)));
    }
}

/// One of three servers has lost the lock, or does not answer. That is no loss, and not even asked twice.
#[test]
fn the_loss_on_a_minority_is_no_loss() {
    let servers = servers(3);
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let guard = client(proxies.iter().map(Proxy::url)).mutex(KEY).lock().unwrap();
    servers[0].ask::<()>(&cmd("FLUSHALL"));
    proxies[1].wait_count(CHECK, 3, SOON);
    assert_eq!((guard.state(), proxies[1].count("extend")), (LeaseState::Held, 0));
    servers[1].ask::<()>(&cmd("FLUSHALL"));
    eventually("the loss on a majority is known", SOON, || guard.check().is_err());
}

/// A thread of the same client waits for the lock. It gets the lock once the loss is known.
#[test]
fn a_lost_lock_does_not_keep_waiting_threads_out() {
    let servers = servers(1);
    let locks = client_of(&servers);
    for renews in [false, true] {
        let lock = locks.mutex(KEY).renew(renews);
        let held = lock.lock().unwrap();
        let (tell, told) = channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                tell.send(this_thread()).unwrap();
                lock.try_lock_for(SOON / 2).and_then(MutexGuard::unlock)
            });
            until_asleep(&told.recv().unwrap());
            assert!(servers[0].del(KEY));
            waiter.join().unwrap().unwrap_or_else(|error| panic!("renews: {renews}: {error}"));
        });
        assert!(held.check().unwrap_err().is_lost());
    }
}

#[test]
fn the_servers_are_asked_once_a_second_for_all_locks() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = client([proxy.url()]);
    let guards: Vec<MutexGuard> = (0..100).map(|i| locks.mutex(format!("order:{i}")).lock().unwrap()).collect();
    // The first call is sent twice: the server does not know the script.
    proxy.wait_count(CHECK, 2, SOON);
    let (begin, before) = (Instant::now(), proxy.count(CHECK));
    proxy.wait_count(CHECK, before + 4, SOON);
    let (calls, seconds) = (proxy.count(CHECK) - before, begin.elapsed().as_secs());
    // The intervals are whole seconds. One call may come at the begin.
    assert!(u64::try_from(calls).unwrap() <= seconds + 1, "{calls} calls in {seconds} s");
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
}

#[test]
fn locks_that_are_held_for_less_than_a_second_are_not_asked_for() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let lock = client([proxy.url()]).mutex(KEY);
    let mut longest = Duration::ZERO;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        let hold = Instant::now();
        let guard = lock.lock().unwrap();
        thread::sleep(Duration::from_millis(300));
        guard.unlock().unwrap();
        longest = longest.max(hold.elapsed());
    }
    // On a busy machine, a hold can be longer.
    assert!(proxy.count(CHECK) == 0 || longest > SECOND, "{} calls", proxy.count(CHECK));
}

/// The user may not read the sorted set. That is no loss, and the log is not filled with it.
#[test]
fn a_permit_that_may_not_be_looked_at_is_held() {
    let server = Server::start();
    let user = "on >p ~* &* +@all -zscore".split(' ');
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(user.collect::<Vec<_>>()));
    let proxy = Proxy::start(&server);
    let url = proxy.url().replace("redis://", "redis://locks:p@");
    let permit = client([url]).semaphore("permits", 2).acquire().unwrap();
    proxy.wait_count(CHECK, 3, SOON);
    assert_eq!((permit.state(), proxy.count("extend")), (LeaseState::Held, 0));
    assert!(server.del("permits"));
    proxy.wait_count(CHECK, 5, SOON);
    permit.check().unwrap();
    assert!(permit.extend(LEASE).unwrap_err().is_lost());
}

/// When the time has been advanced, all that is due has been done.
#[test]
fn in_memory_the_next_second_shows_the_losses_of_all() {
    for nodes in [1, 3] {
        let memory = Memory::new(nodes);
        let locks = memory.client();
        for _ in 0..20 {
            let take = |i| locks.mutex(format!("order:{i}")).lock().unwrap();
            let guards: Vec<MutexGuard> = (0..20).map(take).collect();
            memory.advance(SECOND);
            for guard in &guards {
                memory.lose(guard.key());
            }
            memory.advance(SECOND);
            assert!(guards.iter().all(|guard| guard.check().is_err()));
        }
    }
}
