//! `workers ORDER URL`: workers that are forked from one process. The process has drawn random numbers before, as an
//! application does.
//!
//! With the order `fork-open`, each child opens a client of its own. With `open-fork`, the parent has also opened a
//! client before, which is not used.
//!
//! Each child prints the token of an acquire, the id of its wait, and the token of its grant.

use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::poll;

use crate::holders::in_a_child;

/// The time limit of a wait.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn main(args: &[String]) {
    let [order, url] = args else { panic!("an order and a URL are wanted, not {args:?}") };
    // The feature `fast-rng` is on in this build. So the numbers come from a generator in this process, and the
    // children inherit its state.
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
                redis::cmd("ZRANGE").arg(format!("{{{key}}}:waits")).arg(0).arg(-1).query(&mut server).unwrap();
            all.into_iter().find(|member| !member.starts_with('*'))
        };
        println!("waits {}", poll(SOON, &mut waiting).expect("no child waits"));
        held.unlock().unwrap();
        println!("granted {}", granted.join().unwrap().as_str());
    });
}
