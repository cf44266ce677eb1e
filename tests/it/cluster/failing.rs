//! Servers are killed, stopped and restarted under load.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redlock_sync::{Event, MutexGuard, Observer, Redlock};
use redlock_tests::{Cluster, Server, Stopwatch, Took, eventually, poll};

use super::load::{Load, mutexes};
use super::{SOON, SPREAD, builder};

const MS: Duration = Duration::from_millis(1);

/// The time that a busy machine may add.
const ROOM: Duration = Duration::from_secs(4);

fn crowd(clients: &[Redlock], threads: usize) -> Load {
    let key = |i: usize| format!("{{{}}}:{}", SPREAD[i % 3], i % 4);
    Load::start((0..threads).map(|i| mutexes(&clients[i % clients.len()], &key(i), None)).collect())
}

/// Asserts that all errors are documented. The calls waited for as long as a failover takes.
fn all_documented(errors: &[Vec<String>]) {
    let odd: Vec<_> = errors.iter().flatten().filter(|error| error.contains("UNDOCUMENTED")).collect();
    assert!(odd.is_empty(), "{odd:#?}");
}

fn pair(locks: &Redlock, key: &str) -> bool {
    locks.mutex(key).try_lock().is_ok_and(|guard| guard.unlock().is_ok())
}

#[test]
fn a_master_is_killed_while_fifty_threads_lock_hold_and_wait() {
    let cluster = Cluster::start();
    let clients: Vec<_> = (0..3).map(|_| builder(&cluster).lease(Duration::from_secs(6)).build().unwrap()).collect();
    let load = crowd(&clients, 50);
    load.goes_on(50, 2);
    let victim = cluster.master_of(SPREAD[0]);
    victim.kill();
    let serves = || {
        let all = cluster.servers().iter().filter(|server| server.port() != victim.port());
        all.map(|server| server.try_ask::<bool>(redis::cmd("SET").arg(format!("{{{}}}:x", SPREAD[0])).arg(1)))
            .any(|said| said.is_ok())
    };
    eventually("the replica takes over", SOON, serves);
    let over = Stopwatch::start();
    let key = format!("{{{}}}:new", SPREAD[0]);
    eventually("the lock can be taken", SOON, || pair(&clients[0], &key));
    let took = over.elapsed();
    load.goes_on(50, 2);
    let errors = load.end();
    eprintln!("took a lock {took:?} after the failover; errors: {errors:#?}");
    all_documented(&errors);
    assert!(took < Duration::from_secs(1) + ROOM, "{took:?}");
}

#[test]
fn a_stopped_master_costs_one_timeout_and_the_other_slots_go_on() {
    let cluster = Cluster::start();
    let timeout = 600 * MS;
    let locks = Redlock::builder().node(cluster.url()).node_timeout(timeout).build().unwrap();
    eventually("the client reaches all masters", SOON, || SPREAD.iter().all(|key| pair(&locks, key)));
    let victim = cluster.master_of(SPREAD[0]);
    victim.stop();
    let stopped = Stopwatch::start();
    assert!(!pair(&locks, SPREAD[0]));
    let first = stopped.elapsed();
    let (mut slowest, mut refused) = (Took::default(), Took::default());
    for _ in 0..20 {
        let at = Stopwatch::start();
        if pair(&locks, SPREAD[0]) {
            break; // The replica has taken over already.
        }
        refused = refused.max(at.elapsed());
        for key in &SPREAD[1..] {
            let at = Stopwatch::start();
            let guard = locks.mutex(key).try_lock_for(SOON).expect("the other masters serve their slots");
            slowest = slowest.max(at.elapsed());
            drop(guard);
        }
    }
    eprintln!("first {first:?}, then refused in {refused:?}; the others {slowest:?}");
    assert!(refused < timeout && slowest < timeout, "{refused:?} {slowest:?}");
    // The replica takes over, and the client finds it.
    eventually("the lock can be taken", SOON, || pair(&locks, SPREAD[0]));
    victim.cont();
    cluster.until_well();
    eventually("the lock can be taken", SOON, || pair(&locks, SPREAD[0]));
}

/// Kills the connections that have called scripts. It spares connections that are just being made, because their
/// failure would make the client leave the server out.
fn kill_lines(server: &Server) {
    let list: String = server.ask(redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal"));
    let lines: Vec<&str> = list.lines().filter(|line| line.contains(" cmd=eval")).collect();
    assert!(!lines.is_empty(), "{list}");
    for line in lines {
        let id = line.strip_prefix("id=").and_then(|line| line.split(' ').next()).expect("each line starts with an id");
        server.ask::<usize>(redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id));
    }
}

/// The probes of the hanging servers must not keep the client from connecting to the others.
#[test]
fn a_master_is_reached_anew_while_two_others_hang() {
    let cluster = Cluster::without_replicas();
    let locks = redlock_tests::open(cluster.url());
    assert!(SPREAD.iter().all(|key| pair(&locks, key)));
    let well = cluster.master_of(SPREAD[2]);
    for key in &SPREAD[..2] {
        cluster.master_of(key).stop();
        assert!(!pair(&locks, key));
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        kill_lines(well);
        let at = Instant::now();
        locks.mutex(SPREAD[2]).try_lock().and_then(MutexGuard::unlock).expect("the server is reached");
        slowest = slowest.max(at.elapsed());
        // The pause makes the attempts fall between the probes of the others and during them.
        std::thread::sleep(100 * MS);
    }
    eprintln!("reconnected within {slowest:?}");
}

/// The test deletes the queues, as a failover to a replica without them would. Clients keep handing the lock to each
/// other, so the wait never finds it free. Each wait must enter its queue again.
#[test]
fn a_wait_whose_entry_was_lost_enters_the_queue_again() {
    let cluster = Cluster::without_replicas();
    let [holder, waits] = [0, 1].map(|_| builder(&cluster).lease(Duration::from_secs(60)).build().unwrap());
    let key = SPREAD[0];
    let (guard, other) = (holder.rw_lock(key).write().unwrap(), holder.mutex(SPREAD[1]).lock().unwrap());
    let queues = [(key, format!("{{{key}}}:writers")), (SPREAD[1], format!("{{{}}}:waits", SPREAD[1]))];
    std::thread::scope(|scope| {
        scope.spawn(|| waits.rw_lock(key).write().unwrap().unlock().unwrap());
        scope.spawn(|| waits.mutex(SPREAD[1]).lock().unwrap().unlock().unwrap());
        for (key, queue) in &queues {
            let del = || cluster.master_of(key).ask::<usize>(redis::cmd("DEL").arg(queue)) == 1;
            eventually("the wait is in the queue", SOON, del);
        }
        let is_back = |(key, queue): &(&str, String)| {
            poll(Duration::from_secs(20), || {
                cluster.master_of(key).ask::<bool>(redis::cmd("EXISTS").arg(queue)).then_some(())
            })
        };
        let back: Vec<_> = queues.iter().map(is_back).collect();
        guard.unlock().unwrap();
        other.unlock().unwrap();
        assert_eq!(back, [Some(()), Some(())]);
    });
}

/// The master of the key has no listeners, so it frees the lock after the grant. The notification still arrives by
/// another server, but the lock must have one holder.
#[test]
fn a_lock_has_one_holder_while_a_master_misses_the_listeners() {
    let cluster = Cluster::without_replicas();
    let [holder, waits, third] = [0, 1, 2].map(|_| builder(&cluster).build().unwrap());
    for key in SPREAD {
        let guard = holder.mutex(key).lock().unwrap();
        let queue = format!("{{{key}}}:waits");
        let master = cluster.master_of(key);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = waits.mutex(key).lock().unwrap();
                let (is_locked, token) = (third.mutex(key).try_lock().is_err(), master.get(key));
                assert!(is_locked && token.as_deref() == Some(guard.id().as_str()), "{key}: {token:?}");
                guard.unlock().unwrap();
            });
            eventually("the wait is queued", SOON, || {
                master.ask::<usize>(redis::cmd("ZCOUNT").arg(&queue).arg(1).arg("+inf")) == 1
            });
            master.ask::<usize>(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"));
            guard.unlock().unwrap();
            waiter.join().unwrap();
        });
    }
}

#[test]
fn no_unlock_fails_in_a_rolling_restart() {
    let cluster = Cluster::start();
    let clients: Vec<_> = (0..2).map(|_| builder(&cluster).lease(Duration::from_secs(10)).build().unwrap()).collect();
    let load = crowd(&clients, 12);
    load.goes_on(12, 2);
    let masters: Vec<u16> = cluster.masters().iter().map(|master| master.port()).collect();
    for (master, replica) in cluster.servers().iter().take(3).zip(&cluster.servers()[3..]) {
        assert!(masters.contains(&master.port()));
        take_over(&cluster, replica);
        load.goes_on(12, 1);
        master.restart();
        cluster.until_well();
        replica.info("role");
    }
    load.goes_on(12, 2);
    let [locks, unlocks] = load.end();
    assert!(locks.is_empty() && unlocks.is_empty(), "{locks:#?} {unlocks:#?}");
}

/// Makes the replica take over with all data, as before a planned restart of its master.
fn take_over(cluster: &Cluster, replica: &Server) {
    let asked = poll(SOON, || {
        _ = replica.try_ask::<()>(redis::cmd("CLUSTER").arg("FAILOVER"));
        poll(5000 * MS, || (replica.info("role").as_deref() == Some("master")).then_some(()))
    });
    assert!(asked.is_some(), "the replica does not take over");
    cluster.until_well();
}

/// The servers in the `NodeDown` events.
#[derive(Default)]
struct Away(Mutex<Vec<String>>);

impl Away {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Observer for Away {
    fn event(&self, event: &Event<'_>) {
        if let Event::NodeDown { node, .. } = event {
            self.0.lock().unwrap().push((*node).to_owned());
        }
    }
}

#[test]
fn a_cluster_that_is_away_is_told_of_once_and_found_again() {
    let (cluster, away) = (Cluster::start(), Arc::new(Away::default()));
    let url = format!("{},127.0.0.1:1", cluster.url());
    let locks = redlock_tests::patient().node(url).observer(Arc::clone(&away)).build().unwrap();
    assert!(SPREAD.iter().all(|key| pair(&locks, key)));
    cluster.servers().iter().for_each(Server::kill);
    assert!(!pair(&locks, SPREAD[0]));
    let all = cluster.servers().len() + 1;
    eventually("all servers are reported", SOON, || away.count() >= all);
    let again = poll(Duration::from_secs(3), || (away.count() > all).then_some(()));
    assert!(again.is_none(), "{:?}", away.0.lock().unwrap());
    cluster.servers().iter().for_each(Server::restart);
    cluster.until_well();
    eventually("the locks can be taken", SOON, || SPREAD.iter().all(|key| pair(&locks, key)));
}
