//! Threads of one process that want the same lock share one wait on the server, and get the lock in order.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redlock_sync::Retry;
use redlock_tests::eventually;

use super::rig::{SOON, ms, open, through, watched};
use crate::kinds::{Kind, each_kind};
use crate::place::Place;
use crate::rig::{this_thread, until_asleep};

/// Starts a thread that waits for the lock and then records its number. Returns once the thread waits in the queue.
fn waiter<K: Kind>(lock: K, number: usize, order: &Arc<Mutex<Vec<usize>>>) -> JoinHandle<()> {
    let order = Arc::clone(order);
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(this_thread()).unwrap();
        let guard = lock.lock().unwrap();
        order.lock().unwrap().push(number);
        K::unlock(guard).unwrap();
    });
    until_asleep(&told.recv().unwrap());
    thread
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn threads_are_served_in_the_order_of_arrival<K: Kind>() {
    let (server, proxy) = watched();
    let held = K::new(&open(std::slice::from_ref(&server)), "order:42").lock().unwrap();
    let locks = through(&proxy);
    let order = Arc::new(Mutex::new(Vec::new()));
    let lock = K::new(&locks, "order:42").retry(Retry::every(ms(5)));
    let mut threads = vec![waiter(lock.clone(), 0, &order)];
    proxy.wait_count("acquire", 1, SOON);
    threads.extend((1..12).map(|i| waiter(lock.clone(), i, &order)));
    K::unlock(held).unwrap();
    join(threads);
    assert_eq!(*order.lock().unwrap(), (0..12).collect::<Vec<_>>());
}

/// The holder's token is foreign, so the client polls. A single poller with a pause of 20 ms, less up to half as
/// jitter, needs at least 290 ms for 30 attempts. A hundred pollers would need 3 ms.
fn a_hundred_threads_are_one_waiter<K: Kind>() {
    let (server, proxy) = watched();
    server.set("order:42", "stranger");
    let locks = through(&proxy);
    let lock = K::new(&locks, "order:42").retry(Retry::every(ms(20)));
    let (tell, told) = mpsc::channel();
    let wait = |_| {
        let (lock, tell) = (lock.clone(), tell.clone());
        thread::spawn(move || {
            tell.send(()).unwrap();
            K::unlock(lock.lock().unwrap()).unwrap();
        })
    };
    let threads: Vec<_> = (0..100).map(wait).collect();
    told.iter().take(100).for_each(drop);
    proxy.clear_log();
    let start = Instant::now();
    proxy.wait_count("acquire", 30, SOON);
    let took = start.elapsed();
    assert!(took >= ms(280), "30 attempts within {took:?} mean that several threads poll");
    let used: HashSet<u64> =
        proxy.seen().iter().filter(|seen| seen.name == "acquire").map(|seen| seen.connection).collect();
    assert!(used.len() <= 2, "{} connections for one waiter", used.len());
    server.del("order:42");
    join(threads);
}

/// A thread in the queue that gives up does not block the threads behind it.
fn a_wait_that_is_given_up_leaves_no_gap<K: Kind>() {
    let (server, proxy) = watched();
    let held = K::new(&open(std::slice::from_ref(&server)), "order:42").lock().unwrap();
    let locks = through(&proxy);
    let lock = K::new(&locks, "order:42").retry(Retry::every(ms(5)));
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = waiter(lock.clone(), 1, &order);
    let impatient = {
        let lock = lock.clone();
        thread::spawn(move || lock.try_lock_for(ms(100)).err().unwrap())
    };
    let last = waiter(lock, 3, &order);
    assert!(impatient.join().unwrap().is_busy());
    K::unlock(held).unwrap();
    first.join().unwrap();
    last.join().unwrap();
    assert_eq!(*order.lock().unwrap(), [1, 3]);
}

/// A waiting thread holds no connection. Other locks of the client work even with a single connection.
fn waiting_threads_keep_no_connection<K: Kind>() {
    let (server, proxy) = watched();
    let held = K::new(&open(std::slice::from_ref(&server)), "order:42").lock().unwrap();
    let builder = redlock_sync::Redlock::builder().node(proxy.url()).connections(1);
    let locks = builder.node_timeout(Duration::from_secs(2)).build().unwrap();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let lock = K::new(&locks, "order:42");
            thread::spawn(move || K::unlock(lock.lock().unwrap()).unwrap())
        })
        .collect();
    // The first attempt only takes a free lock. The second one enters the queue.
    proxy.wait_count("acquire", 2, SOON);
    for i in 0..20 {
        K::unlock(K::new(&locks, &format!("other:{i}")).try_lock_for(SOON).unwrap()).unwrap();
    }
    K::unlock(held).unwrap();
    join(waiters);
}

each_kind!(
    threads_are_served_in_the_order_of_arrival,
    a_hundred_threads_are_one_waiter,
    a_wait_that_is_given_up_leaves_no_gap,
    waiting_threads_keep_no_connection,
);

/// A waiting client gets the lock by a grant, and does not poll.
fn a_waiting_client_is_told<K: Kind, P: Place>() {
    let server = P::one();
    let [held, lock] = [(); 2].map(|()| K::new(&open(std::slice::from_ref(&server)), "order:42"));
    let held = held.lock().unwrap();
    let waiter = thread::spawn(move || {
        let guard = lock.lock().unwrap();
        let holder_name = guard.id().holder_name().to_owned();
        K::unlock(guard).unwrap();
        holder_name
    });
    eventually("the other client waits", SOON, || server.waits() == 1);
    K::unlock(held).unwrap();
    let holder_name = waiter.join().unwrap();
    assert!(holder_name.starts_with("granted:"), "`{holder_name}` is not the name of a grant");
    let process = format!(":{}:", std::process::id());
    assert!(holder_name.contains(&process), "`{holder_name}` does not name the process");
}

/// Only a single node can grant a lock without an attempt.
mod string {
    mod on_servers {
        crate::place::each_kind_at!(string, crate::place::Database, a_waiting_client_is_told);
    }
    mod in_memory {
        crate::place::each_kind_at!(string, crate::place::InMemory, a_waiting_client_is_told);
    }
}
