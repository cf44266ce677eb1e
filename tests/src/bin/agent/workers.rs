//! Workers that are forked from one process which has drawn random numbers before, as an application does: `workers
//! ORDER URL`.
//!
//! `ORDER` is `fork-open` if each child opens a client of its own, and `open-fork` if the parent has opened one before,
//! which is not used. Each child tells a token of an acquire, the id under which it waits, and a token that it is
//! granted.

use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::poll;

use crate::holders::in_a_child;

/// The longest wait.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn main(args: &[String]) {
    let [order, url] = args else { panic!("an order and a URL are wanted, not {args:?}") };
    // Feature `fast-rng` is on in this build, so these come from a generator in this process, which the children
    // inherit as it is.
    for _ in 0..3 {
        assert_ne!(uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    }
    let opened_before = (order == "open-fork").then(|| Redlock::open(url).unwrap());
    for worker in 0..3 {
        in_a_child(|| work(url, &format!("worker:{worker}")));
    }
    drop(opened_before);
}

fn work(url: &str, key: &str) {
    let (holder, waiter) = (Redlock::open(url).unwrap(), Redlock::open(url).unwrap());
    let held = holder.mutex(key).lock().unwrap();
    println!("taken {}", held.id().as_str());
    let mut server = redis::Client::open(url).unwrap().get_connection().unwrap();
    thread::scope(|scope| {
        let granted = scope.spawn(|| waiter.mutex(key).lock().unwrap().id().clone());
        let mut waiting = || -> Option<String> {
            let all: Vec<String> =
                redis::cmd("ZRANGE").arg(format!("{{{key}}}:queue")).arg(0).arg(-1).query(&mut server).unwrap();
            all.into_iter().next()
        };
        println!("waits {}", poll(SOON, &mut waiting).expect("no child waits"));
        held.unlock().unwrap();
        println!("granted {}", granted.join().unwrap().as_str());
    });
}
