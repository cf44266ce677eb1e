//! A client with TLS in a process of its own. The environment names the trusted certificates.

use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Builder, Error};

/// `tls URL`: acquires the lock `a`, uses it, and hands it over to a second client that waits. It prints how many ms
/// that took, and the outcome.
pub(crate) fn main(args: &[String]) {
    let [url] = args else { panic!("tls URL") };
    let start = Instant::now();
    let end = match use_all(url) {
        Ok(()) => "ok".to_owned(),
        Err(Error::Config { message, .. }) => format!("config {message}"),
        Err(other) => format!("other {other}"),
    };
    println!("{} {end}", start.elapsed().as_millis());
}

fn use_all(url: &str) -> Result<(), Error> {
    let open = || Builder::from_env()?.node(url).node_timeout(Duration::from_secs(1)).build();
    let (locks, others) = (open()?, open()?);
    let guard = locks.mutex("a").lock()?;
    guard.extend(Duration::from_secs(60))?;
    guard.fencing_token()?;
    thread::scope(|scope| {
        let other = scope.spawn(|| others.mutex("a").lock()?.unlock());
        guard.unlock()?;
        other.join().unwrap()
    })
}
