//! Processes that use the default client. The environment of the process configures it.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock, distributed_lock};
use redlock_tests::{ended, fork};
use rustix::process::{Signal, kill_process};

#[distributed_lock("shop", guard = lock)]
fn shop() -> Result<String, Error> {
    Ok(lock.key().to_owned())
}

/// Prints the key that an annotated function locks, and its client. If there is no client, prints the error. A client
/// that the environment has made stays the default client. The process prints log messages too.
pub(crate) fn main() {
    crate::holders::listen(log::LevelFilter::Warn);
    match shop() {
        Ok(key) => println!("{key} with {:?}", Redlock::default_client().unwrap()),
        Err(error) => println!("{error}"),
    }
    let other = Redlock::builder().node("redis://127.0.0.1:1/").unavailable_after(Duration::ZERO).build().unwrap();
    let was_set = Redlock::set_default(other).is_ok();
    assert_eq!(was_set, shop().is_err());
}

/// Closes the client that the environment has made, and replaces it by a client of another server.
pub(crate) fn replaced() {
    let closed = Redlock::default_client().unwrap();
    assert!(shop().is_ok());
    closed.shutdown(Duration::ZERO).unwrap();
    assert_eq!(shop(), Err(Error::Closed));
    println!("closed");

    let other = std::env::var("REDLOCK_TEST_OTHER").unwrap();
    Redlock::set_default(Redlock::open(other).unwrap()).unwrap();
    main();
}

/// Forks children while other threads use the default client all the time. No child has a default client.
pub(crate) fn forked_beside_users() {
    let client = || Redlock::open("redis://127.0.0.1:1/").unwrap();
    Redlock::set_default(client()).unwrap();
    for _ in 0..4 {
        thread::spawn(|| {
            loop {
                drop(Redlock::default_client().unwrap());
            }
        });
    }
    for number in 0..200 {
        let child = fork(|| {
            assert!(matches!(Redlock::default_client(), Err(Error::Closed)));
            assert_eq!(Redlock::set_default(client()), Err(Error::Closed));
        });
        let began = Instant::now();
        loop {
            match ended(child) {
                Some(status) => break assert!(status.success(), "child {number}: {status}"),
                None if began.elapsed() < Duration::from_secs(20) => thread::yield_now(),
                None => {
                    kill_process(child, Signal::KILL).unwrap();
                    panic!("child {number} hangs");
                }
            }
        }
    }
    println!("all ended");
}
