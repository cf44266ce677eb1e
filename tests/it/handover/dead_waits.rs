//! Waits of processes that are gone and had no notification connection. The server does not notice their end, so each
//! attempt of such a process renews a mark on the server.

use std::thread;
use std::time::Duration;

use redlock_sync::{Cancel, Error, Redlock};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, servers};

use super::rig::{KEY, SOON};

/// A time longer than such a mark lasts. Without marks, this fault took longer: 40 waits were granted the lock for 300
/// ms each, or kept other clients out for an hour.
const MARKS_END: Duration = Duration::from_secs(8);

fn open(urls: Vec<String>) -> Redlock {
    let settings = Redlock::builder().nodes(urls).restart_guard(false).node_timeout(Duration::from_millis(500));
    settings.lease(Duration::from_secs(60)).build().unwrap()
}

type Take = fn(&Redlock, &Cancel) -> Result<(), Error>;

fn mutex(locks: &Redlock, cancel: &Cancel) -> Result<(), Error> {
    locks.mutex(KEY).cancel(cancel).try_lock_for(SOON)?.unlock()
}

fn read(locks: &Redlock, cancel: &Cancel) -> Result<(), Error> {
    locks.rw_lock(KEY).cancel(cancel).try_read_for(SOON)?.unlock().map(drop)
}

fn write(locks: &Redlock, cancel: &Cancel) -> Result<(), Error> {
    locks.rw_lock(KEY).cancel(cancel).try_write_for(SOON)?.unlock().map(drop)
}

fn permit(locks: &Redlock, cancel: &Cancel) -> Result<(), Error> {
    locks.semaphore(KEY, 3).cancel(cancel).try_acquire_for(SOON)?.release()
}

fn all_permits(locks: &Redlock, cancel: &Cancel) -> Result<(), Error> {
    locks.semaphore(KEY, 3).cancel(cancel).try_acquire_many_for(3, SOON)?.release()
}

/// The number of waits in a server's queues.
fn queued(server: &Server) -> usize {
    let keys = |pattern: &&str| server.ask::<Vec<String>>(redis::cmd("KEYS").arg(*pattern));
    let members = |key: String| server.ask::<Vec<String>>(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1));
    let all = ["*:waits", "*:permit_queue", "*:writers"].iter().flat_map(keys).flat_map(members);
    all.filter(|member| !member.starts_with('*')).count()
}

/// Makes `many` processes wait while the lock is held, and then cuts their connections. Then the lock is released, and
/// another process must get it within `MARKS_END`.
fn behind_dead_waits(
    nodes: usize,
    many: usize,
    hold: impl FnOnce(&Redlock) -> Box<dyn FnOnce()>,
    wait: Take,
    take: Take,
) {
    let servers = servers(nodes);
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    for proxy in &proxies {
        proxy.on_each("SUBSCRIBE", Act::Error("NOPERM no channels".into()));
    }
    let urls = || servers.iter().map(Server::url).collect();
    let release = hold(&open(urls()));
    let (dead, cancel) = (Cancel::new(), Cancel::new());
    thread::scope(|scope| {
        for _ in 0..many {
            let locks = open(proxies.iter().map(Proxy::url).collect());
            let dead = &dead;
            scope.spawn(move || assert!(wait(&locks, dead).is_err()));
        }
        eventually("all wait", SOON, || queued(&servers[0]) == many);
        for proxy in &proxies {
            for call in ["acquire", "release", "inspect"] {
                proxy.on_each(call, Act::BlackHole);
            }
        }
        release();
        let began = Stopwatch::start();
        let outcome = take(&open(urls()), &cancel);
        let took = began.elapsed();
        dead.cancel();
        outcome.unwrap();
        assert!(took < MARKS_END, "{took:?} behind {many} dead waits on {nodes} nodes");
    });
}

#[test]
fn a_mutex_is_not_granted_to_dead_waits_that_poll() {
    for nodes in [1, 3] {
        let hold = |locks: &Redlock| -> Box<dyn FnOnce()> {
            let guard = locks.mutex(KEY).lock().unwrap().into_send();
            Box::new(move || guard.unlock().unwrap())
        };
        behind_dead_waits(nodes, 40, hold, mutex, mutex);
    }
}

#[test]
fn a_reader_is_not_kept_out_by_dead_writers_that_poll() {
    // This reader keeps its lock, so that no writer gets its turn.
    let stays = |locks: &Redlock| -> Box<dyn FnOnce()> {
        let guard = locks.rw_lock(KEY).read().unwrap();
        Box::new(move || std::mem::forget(guard))
    };
    behind_dead_waits(1, 2, stays, write, read);
}

#[test]
fn a_permit_is_not_kept_for_dead_waits_that_poll() {
    // One permit stays taken, so the waits for all three never get them.
    let stays = |locks: &Redlock| -> Box<dyn FnOnce()> {
        std::mem::forget(locks.semaphore(KEY, 3).acquire().unwrap());
        std::mem::forget(locks.clone());
        Box::new(|| {})
    };
    behind_dead_waits(1, 2, stays, all_permits, permit);
}
