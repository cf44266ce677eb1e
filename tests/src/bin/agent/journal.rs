//! A client whose log is printed.

use std::io::stdin;
use std::time::Duration;

use log::LevelFilter;
use redlock_sync::{MutexGuard, Redlock};

use crate::holders::listen;

/// `journal URL…`: for each line on stdin, acquires the lock `a` ten times and prints how often that succeeded. The
/// process also prints what the library logs.
pub(crate) fn main(urls: &[String]) {
    listen(LevelFilter::Info);
    let builder = Redlock::builder().nodes(urls).restart_guard(false).node_timeout(Duration::from_secs(2));
    let locks = builder.unavailable_after(Duration::ZERO).build().unwrap();
    for _ in stdin().lines() {
        let taken = (0..10).filter(|_| locks.mutex("a").lock().and_then(MutexGuard::unlock).is_ok());
        println!("taken {}", taken.count());
    }
}
