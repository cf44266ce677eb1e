//! Slots move from one server to another while their locks are in use.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Mutex, Redlock, ReentrantMutex, RwLock, Semaphore};
use redlock_tests::{Act, Cluster, Proxy, Server, eventually};

use super::load::{Load, Room, cycles_of, mutexes, permits, readers, several, writers};
use super::{SOON, SPREAD, builder};
use crate::kinds::{Kind, OfOneKey, Pair, Reader};

/// All keys with this hash tag are in one slot.
const SLOT: &str = "{moves}";
/// The number of threads with mutexes, which continue while a slot is open.
const MUTEXES: usize = 8;

fn load(clients: &[Redlock]) -> Load {
    let rooms: Vec<_> = (0..3).map(|_| Arc::new(Room::default())).collect();
    let mutex = |i: usize| mutexes(&clients[i % clients.len()], &format!("{SLOT}{}", i % 3), Some(&rooms[i % 3]));
    let mut cycles: Vec<_> = (0..MUTEXES).map(mutex).collect();
    for locks in clients {
        cycles.push(permits(locks, &format!("{SLOT}permits")));
        cycles.push(writers(locks, &format!("{SLOT}rw")));
        cycles.push(readers(locks, &format!("{SLOT}rw")));
        cycles.push(several(locks, &[format!("{SLOT}0"), "foo".to_owned(), "bar".to_owned()]));
    }
    Load::start(cycles)
}

#[test]
fn no_unlock_fails_and_no_redirect_is_seen_while_a_slot_moves() {
    let cluster = Cluster::start();
    // The lease is so long that no thread waits for its end.
    let clients: Vec<_> = (0..2).map(|_| builder(&cluster).lease(2 * SOON).build().unwrap()).collect();
    let load = load(&clients);
    load.goes_on(load.threads(), 2);
    let slot = cluster.slot(SLOT);
    for _ in 0..2 {
        let from = cluster.master_of(SLOT);
        let to = cluster.masters().into_iter().find(|master| master.port() != from.port()).unwrap();
        let held = clients[0].mutex(format!("{SLOT}held")).lock().unwrap();
        cluster.open_slot(slot, from, to);
        // A held lock is renewed and released while its slot's keys are on two servers. The test takes no new lock
        // meanwhile.
        held.extend(3 * SOON).unwrap();
        cluster.move_keys(slot, from, to);
        held.extend(4 * SOON).unwrap();
        held.unlock().unwrap();
        cluster.move_keys(slot, from, to);
        cluster.close_slot(slot, to);
        clients[1].mutex(format!("{SLOT}held")).try_lock_for(SOON).unwrap().unlock().unwrap();
        load.goes_on(load.threads(), 2);
    }
    let from = cluster.master_of(SLOT);
    let to = cluster.masters().into_iter().find(|master| master.port() != from.port()).unwrap();
    if cluster.migrate_at_once(slot, from, to) {
        load.goes_on(load.threads(), 2);
    }
    let [locks, unlocks] = load.end();
    assert!(unlocks.is_empty(), "{locks:#?} {unlocks:#?}");
}

/// A guard of any kind.
trait Held {
    fn extend(&self);
    fn unlock(self: Box<Self>);
}

impl<K: Kind> Held for (PhantomData<K>, K::Guard) {
    fn extend(&self) {
        self.1.extend(3 * SOON).unwrap();
    }
    fn unlock(self: Box<Self>) {
        K::unlock(self.1).unwrap();
    }
}

fn held<K: Kind>(locks: &Redlock, name: &str) -> Box<dyn Held> {
    Box::new((PhantomData::<K>, K::new(locks, &format!("{SLOT}{name}")).fenced(true).try_lock_for(SOON).unwrap()))
}

/// A large slot is open for long. Holders extend and release its locks throughout, whichever server has their keys.
#[test]
fn holders_of_each_kind_renew_and_release_while_a_large_slot_moves() {
    const KEYS: usize = 200_000;
    let cluster = Cluster::without_replicas();
    let (slot, from) = (cluster.slot(SLOT), cluster.master_of(SLOT));
    let to = cluster.servers().iter().find(|server| server.port() != from.port()).unwrap();
    let fill = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', KEYS[1] .. i, 'x') end";
    from.ask::<()>(cmd("EVAL").arg(fill).arg(1).arg(format!("{SLOT}filler")).arg(KEYS));
    let [locks, other] = [0, 1].map(|_| builder(&cluster).lease(2 * SOON).build().unwrap());
    let hold = |round: usize| {
        [
            held::<Mutex>(&locks, &format!("mutex{round}")),
            held::<ReentrantMutex>(&locks, &format!("again{round}")),
            held::<Semaphore>(&locks, &format!("permit{round}")),
            held::<Pair>(&locks, &format!("permits{round}")),
            held::<Reader>(&locks, &format!("reader{round}")),
            held::<RwLock>(&locks, &format!("writer{round}")),
            held::<OfOneKey>(&locks, &format!("several{round}")),
        ]
    };
    let mut rounds: Vec<_> = (0..4).map(hold).collect();
    let extend = |rounds: &[[Box<dyn Held>; 7]]| rounds.iter().flatten().for_each(|guard| guard.extend());
    let unlock = |round: Option<[Box<dyn Held>; 7]>| round.unwrap().into_iter().for_each(Held::unlock);
    cluster.open_slot(slot, from, to);
    extend(&rounds);
    unlock(rounds.pop());
    let mut moved = 0;
    while moved < KEYS / 2 {
        moved += cluster.move_keys_at_once(slot, from, to, 500);
        if moved.is_multiple_of(10_000) {
            extend(&rounds);
        }
    }
    unlock(rounds.pop());
    while cluster.move_keys_at_once(slot, from, to, 500) > 0 {}
    extend(&rounds);
    unlock(rounds.pop());
    cluster.close_slot(slot, to);
    extend(&rounds);
    unlock(rounds.pop());
    for round in 0..4 {
        for name in ["reader", "writer"] {
            held::<RwLock>(&other, &format!("{name}{round}")).unlock();
        }
        for name in ["mutex", "again", "several"] {
            held::<Mutex>(&other, &format!("{name}{round}")).unlock();
        }
        held::<Semaphore>(&other, &format!("permit{round}")).unlock();
        held::<Pair>(&other, &format!("permits{round}")).unlock();
    }
}

/// While the slot is open, the server refuses to read a key that is gone, as after the release of the last holder.
#[test]
fn the_last_permit_and_the_last_reader_are_released_while_their_slot_is_open() {
    let cluster = Cluster::start();
    let (from, slot, key) = (cluster.master_of(SLOT), cluster.slot(SLOT), format!("{SLOT}last"));
    let to = cluster.masters().into_iter().find(|master| master.port() != from.port()).unwrap();
    let scripts = redlock_sync::__private::scripts();
    let source = |file| &scripts.iter().find(|script| script.file == file).unwrap().source;
    let (permits, readers) = (source("semaphore_release"), source("rw_release"));
    // The second and the fourth call are not for the fast path.
    for (source, member, args) in [
        (permits, "0 token", ["token", "0", "2", "0", "0"].as_slice()),
        (permits, "0 token", ["token", "", "2", "0", "0"].as_slice()),
        (readers, "rtoken", ["token", "r"].as_slice()),
        (readers, "rtoken", ["token", "r", "", "wait"].as_slice()),
    ] {
        let lent: u64 = from.ask(cmd("ZADD").arg(&key).arg("9000000000000000").arg(member));
        assert_eq!(lent, 1);
        cluster.open_slot(slot, from, to);
        let reply: i64 = from.ask(cmd("EVAL").arg(source).arg(1).arg(&key).arg(args));
        assert_eq!(reply, 5, "{member} {args:?}");
        cluster.close_slot(slot, from);
    }
}

/// Grants, queues and notifications can be lost while the slot moves. Still, no thread may wait for the end of a lease
/// or of a grant.
#[test]
fn threads_with_mixed_settings_go_on_where_a_slot_has_moved() {
    let cluster = Cluster::without_replicas();
    let clients: Vec<_> = (0..4).map(|_| builder(&cluster).lease(10 * SOON).build().unwrap()).collect();
    let rooms: Vec<_> = (0..4).map(|_| Arc::new(Room::default())).collect();
    let mixed = |i: usize| {
        let mutex = clients[i % 4].mutex(format!("{SLOT}{}", i / 4 % 4));
        let mutex = match i / 16 {
            0 => mutex,
            1 if i.is_multiple_of(2) => mutex.fenced(true),
            1 => mutex.min_hold(Duration::from_millis(5)),
            _ if i.is_multiple_of(2) => mutex.renew(false).lease(5 * SOON),
            _ => mutex.lease(20 * SOON).fenced(i % 4 == 1),
        };
        cycles_of(mutex, Some(&rooms[i / 4 % 4]))
    };
    let mut cycles: Vec<_> = (0..48).map(mixed).collect();
    for locks in &clients {
        cycles.push(permits(locks, &format!("{SLOT}permits")));
        cycles.push(writers(locks, &format!("{SLOT}rw")));
        cycles.push(readers(locks, &format!("{SLOT}rw")));
        cycles.push(several(locks, &[format!("{SLOT}0"), format!("{SLOT}1"), "foo".to_owned()]));
    }
    let load = Load::start(cycles);
    load.goes_on(load.threads(), 2);
    let slot = cluster.slot(SLOT);
    for _ in 0..3 {
        let from = cluster.master_of(SLOT);
        let to = cluster.masters().into_iter().find(|master| master.port() != from.port()).unwrap();
        cluster.open_slot(slot, from, to);
        // The fence counter is on its way, so threads behind a waiter that wants a fencing token have to wait.
        std::thread::sleep(Duration::from_millis(500));
        cluster.move_keys(slot, from, to);
        cluster.close_slot(slot, to);
        // This time is shorter than any lease or grant.
        load.goes_on_within(Duration::from_secs(20), load.threads(), 2);
    }
    let [locks, unlocks] = load.end();
    assert!(unlocks.is_empty(), "{locks:#?} {unlocks:#?}");
}

#[test]
fn a_lock_is_handed_over_by_its_token_once_its_slot_has_moved() {
    let cluster = Cluster::without_replicas();
    let [here, there] = [0, 1].map(|_| builder(&cluster).build().unwrap());
    let (slot, from) = (cluster.slot(SLOT), cluster.master_of(SLOT));
    let to = cluster.servers().iter().find(|server| server.port() != from.port()).unwrap();
    let key = |name: &str| format!("{SLOT}{name}");
    let fenced = |locks: &Redlock| locks.mutex(key("fenced")).fenced(true);
    let tokens = ["stays", "goes"].map(|name| here.mutex(key(name)).lock().unwrap().into_token().unwrap());
    let fence = fenced(&here).lock().unwrap().into_token().unwrap();
    cluster.open_slot(slot, from, to);
    cluster.move_keys(slot, from, to);
    for (name, token) in ["stays", "goes"].iter().zip(&tokens) {
        let refused = there.mutex(key(name)).adopt(token).unwrap_err();
        assert!(refused.is_unavailable() && !refused.to_string().contains("TRYAGAIN"), "{refused}");
    }
    assert!(fenced(&there).adopt(&fence).unwrap_err().is_unavailable());
    cluster.close_slot(slot, to);
    // The tokens are still valid after the slot has moved.
    for (name, token) in ["stays", "goes"].iter().zip(&tokens) {
        there.mutex(key(name)).adopt(token).unwrap().unlock().unwrap();
    }
    fenced(&there).adopt(&fence).unwrap().unlock().unwrap();
}

/// Addresses can be given to new servers: a master ends, and a server of another cluster gets its address.
#[test]
fn an_address_that_another_cluster_has_by_now_is_left_out() {
    let (cluster, other) = (Cluster::without_replicas(), Cluster::without_replicas());
    let away = cluster.master_of(SPREAD[0]);
    let held = SPREAD.into_iter().find(|key| cluster.master_of(key).port() != away.port()).unwrap();
    let proxy = announced(&cluster, away);
    let [holder, locks] = [0, 1].map(|_| redlock_tests::open(cluster.url()));
    for key in SPREAD {
        locks.mutex(key).lock().unwrap().unlock().unwrap();
    }
    let guard = holder.mutex(held).lock().unwrap();
    proxy.target(&other.servers()[0]);
    proxy.drop_connections();
    let refused = || locks.mutex(SPREAD[0]).try_lock().unwrap_err();
    let is_told = || refused().to_string().contains("belongs to another Redis Cluster");
    eventually("the error names the reason", SOON, is_told);
    for _ in 0..20 {
        assert!(refused().is_unavailable());
        assert!(locks.mutex(held).try_lock().unwrap_err().is_busy(), "another cluster was asked");
    }
    guard.unlock().unwrap();
    proxy.target(away);
    proxy.drop_connections();
    eventually("the server is used again", SOON, || locks.mutex(SPREAD[0]).try_lock().is_ok());
}

/// Starts a proxy in front of the server, and makes the other servers send clients to the proxy.
fn announced(cluster: &Cluster, server: &Server) -> Proxy {
    let proxy = Proxy::start(server);
    server.config("cluster-announce-port", &proxy.port().to_string());
    let at = format!(":{}@", proxy.port());
    let tell = |one: &Server| one.ask::<String>(cmd("CLUSTER").arg("NODES")).contains(&at);
    eventually("all servers announce the proxy's port", SOON, || cluster.servers().iter().all(tell));
    proxy
}

/// A server that was added to the cluster has no slots until the first one has arrived. Until then the slot map does
/// not contain it.
#[test]
fn a_server_without_slots_is_connected_to_once() {
    let cluster = Cluster::without_replicas();
    let to = cluster.empty_last();
    let (slot, from) = (cluster.slot(SLOT), cluster.master_of(SLOT));
    let locks = builder(&cluster).build().unwrap();
    let held: Vec<_> = (0..100).map(|i| locks.mutex(format!("{SLOT}{i}")).lock().unwrap()).collect();
    cluster.open_slot(slot, from, to);
    cluster.move_keys(slot, from, to);
    let connections = || to.info("total_connections_received").unwrap().parse::<usize>().unwrap();
    let before = connections();
    for guard in held {
        guard.unlock().unwrap();
    }
    assert!(connections() < before + 20, "{} connections", connections() - before);
}

/// A former master can be cut off from the other servers, but not from its clients. It answers them that the cluster is
/// down.
#[test]
fn what_is_served_elsewhere_is_found_although_its_former_master_answers() {
    let cluster = Cluster::without_replicas();
    let (slot, from) = (cluster.slot(SLOT), cluster.master_of(SLOT));
    let to = cluster.servers().iter().find(|server| server.port() != from.port()).unwrap();
    let proxy = announced(&cluster, from);
    let lock = redlock_tests::open(format!("redis+cluster://{}", to.addr())).mutex(SLOT);
    lock.lock().unwrap().unlock().unwrap();
    proxy.on_each("acquire", Act::Error("CLUSTERDOWN The cluster is down".into()));
    assert!(lock.try_lock().unwrap_err().to_string().contains("CLUSTERDOWN"));
    cluster.open_slot(slot, from, to);
    cluster.close_slot(slot, to);
    eventually("the lock can be taken", SOON / 4, || lock.try_lock().is_ok_and(|guard| guard.unlock().is_ok()));
}
