//! Each kind of lock, on one cluster and on several.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock};
use redlock_tests::{Cluster, Server, eventually};

use super::{SOON, SPREAD, builder};

#[test]
fn a_cluster_is_one_node_for_every_kind_of_lock() {
    let cluster = Cluster::start();
    let masters: Vec<u16> = SPREAD.iter().map(|key| cluster.master_of(key).port()).collect();
    assert!(masters[0] != masters[1] && masters[1] != masters[2] && masters[2] != masters[0], "{masters:?}");
    let (mine, other) = (builder(&cluster).build().unwrap(), builder(&cluster).build().unwrap());
    kinds(&mine, &other);
    for key in SPREAD {
        a_waiter_is_told(&mine, &other, key);
    }
    jobs(&mine, &other);
    given_up_together(&mine, &other);
    let health = mine.health().unwrap();
    assert!(health.is_ready(), "{health}");
    settings(&cluster);
}

fn kinds(mine: &Redlock, other: &Redlock) {
    for key in SPREAD {
        let guard = mine.mutex(key).fenced(true).lock().unwrap();
        let fence = guard.fencing_token().unwrap();
        assert!(other.mutex(key).try_lock().unwrap_err().is_busy());
        guard.extend(Duration::from_secs(60)).unwrap();
        guard.unlock().unwrap();
        let next = other.mutex(key).fenced(true).lock().unwrap();
        assert!(next.fencing_token().unwrap() > fence);
        next.unlock().unwrap();

        let again = mine.reentrant_mutex(format!("{key}:again"));
        let (outer, inner) = (again.lock().unwrap(), again.lock().unwrap());
        inner.unlock().and(outer.unlock()).unwrap();

        let (lock, theirs) = (mine.rw_lock(format!("{key}:rw")), other.rw_lock(format!("{key}:rw")));
        let readers = (lock.read().unwrap(), theirs.read().unwrap());
        assert!(theirs.try_write().unwrap_err().is_busy());
        readers.0.unlock().and(readers.1.unlock()).unwrap();
        lock.write().unwrap().unlock().unwrap();

        let permits = mine.semaphore(format!("{key}:permits"), 2);
        let both = (permits.acquire().unwrap(), other.semaphore(format!("{key}:permits"), 2).acquire().unwrap());
        assert!(permits.try_acquire().unwrap_err().is_busy());
        both.1.release().unwrap();
        both.0.release().unwrap();

        let latch = mine.count_down_latch(format!("{key}:latch"), 1);
        other.count_down_latch(format!("{key}:latch"), 1).count_down().unwrap();
        latch.wait().unwrap();
    }
    let all = mine.multi_lock(SPREAD).lock().unwrap();
    assert!(other.mutex(SPREAD[2]).is_locked().unwrap());
    all.unlock().unwrap();
}

/// A waiter gets a notification from whichever master has its key. Without it, the waiter would need about a second
/// until its next attempt.
fn a_waiter_is_told(mine: &Redlock, other: &Redlock, key: &str) {
    let took = || {
        let guard = mine.mutex(key).lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = other.mutex(key).lock().unwrap();
                let had = Instant::now();
                guard.unlock().unwrap();
                had
            });
            // This time suffices for the wait to enter the queue, and for the client to subscribe.
            thread::sleep(Duration::from_millis(400));
            let freed = Instant::now();
            guard.unlock().unwrap();
            waiter.join().unwrap().duration_since(freed)
        })
    };
    eventually("a waiter is notified", SOON, || took() < Duration::from_millis(100));
}

fn jobs(mine: &Redlock, other: &Redlock) {
    let task = redlock_sync::Task::new("body");
    mine.queue("mails").push(task).unwrap();
    let job = other.queue("mails").try_claim_for(SOON).unwrap().unwrap();
    job.ack().unwrap();
}

/// Locks in many slots are given up together.
fn given_up_together(mine: &Redlock, other: &Redlock) {
    let keys: Vec<String> = (0..100).map(|i| format!("many:{i}")).collect();
    let held: Vec<_> = keys.iter().map(|key| mine.mutex(key).lock().unwrap()).collect();
    assert_eq!(mine.unlock_all().unwrap().given_up.len(), keys.len());
    drop(held);
    for key in &keys {
        assert!(!other.mutex(key).is_locked().unwrap(), "{key}");
    }
}

fn settings(cluster: &Cluster) {
    let told = |url: &str| match Redlock::builder().node(url).build().map(|locks| locks.mutex("a").lock().map(drop)) {
        Ok(Err(error)) | Err(error) => {
            assert!(matches!(error, Error::Config { .. }), "{error}");
            error.to_string()
        }
        Ok(Ok(())) => panic!("{url}"),
    };
    assert!(told(&format!("{}/1", cluster.url())).contains("a cluster has database 0 only"));
    assert!(told(&cluster.servers()[0].url()).contains("redis+cluster://"));
    let guarded = Redlock::builder().node(cluster.url()).failover_guard(true).build().unwrap_err();
    assert!(guarded.to_string().contains("failover_guard cannot be used with a Redis Cluster"), "{guarded}");
    let alone = Server::start();
    assert!(told(&format!("redis+cluster://{}", alone.addr())).contains("is not a member of a Redis Cluster"));
    // Two URLs of one cluster lead to the same node.
    let [first, second] = [0, 1].map(|i| format!("redis+cluster://{}", cluster.servers()[i].addr()));
    let twice = Redlock::builder().nodes([first, second]).build().unwrap();
    eventually("the conflict is found", SOON, || matches!(twice.mutex("a").try_lock(), Err(Error::Config { .. })));
    // A replica also knows the slot map.
    let replica = Redlock::open(format!("redis+cluster://{}", cluster.servers()[5].addr())).unwrap();
    for key in SPREAD {
        replica.mutex(key).lock().unwrap().unlock().unwrap();
    }
}

#[test]
#[cfg(feature = "cluster")]
fn a_quorum_of_clusters() {
    let clusters: Vec<Cluster> = thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(Cluster::start)).collect();
        starting.into_iter().map(|cluster| cluster.join().unwrap()).collect()
    });
    let open = || redlock_tests::patient().nodes(clusters.iter().map(Cluster::url)).build().unwrap();
    let (mine, other) = (open(), open());
    kinds(&mine, &other);
    a_waiter_is_told(&mine, &other, "foo");
    // One cluster, a minority of the nodes, is down.
    clusters[1].servers().iter().for_each(Server::kill);
    kinds(&mine, &other);
    a_waiter_is_told(&mine, &other, "bar");
}
