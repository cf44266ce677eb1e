//! Processes that use the default client. The environment of the process configures it.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Redlock, distributed_lock};
use redlock_tests::{ended, fork, wait_for};
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
    let was_set = Redlock::set_default(Redlock::open("redis://other/").unwrap()).is_ok();
    assert_eq!(was_set, shop().is_err());
}

/// Closes the client that the environment has made, and replaces it by a client of another server.
pub(crate) fn replaced() {
    let closed = Redlock::default_client().unwrap();
    assert!(shop().is_ok());
    closed.close().unwrap();
    assert_eq!(shop(), Err(Error::Closed));
    println!("closed");

    let other = std::env::var("REDLOCK_TEST_OTHER").unwrap();
    Redlock::set_default(Redlock::open(other).unwrap()).unwrap();
    main();
}

/// Sets a default client with a prefix that the environment does not know. A forked child has no default client until
/// it sets one.
pub(crate) fn forked() {
    let with_prefix =
        || Redlock::builder().node(std::env::var("REDIS_URL").unwrap()).key_prefix("app:").build().unwrap();
    Redlock::set_default(with_prefix()).unwrap();
    let child = fork(|| {
        assert_eq!(shop(), Err(Error::Closed));
        Redlock::set_default(with_prefix()).unwrap();
        println!("{}", shop().unwrap());
    });
    assert!(wait_for(child).success());
    shop().unwrap();
}

/// Forks children while other threads use the default client all the time. Each child sets a default client of its own.
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
            Redlock::set_default(client()).unwrap();
            Redlock::default_client().unwrap();
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
