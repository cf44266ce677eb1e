//! A process that acquires locks and holds them until it is killed.

use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::bench::Outcome;
use redlock_tests::bench::worker::answer_orders;

/// The name of the nth lock.
pub(crate) fn key(nth: usize) -> String {
    format!("held:{nth}")
}

/// The main function of the holder: `COUNT LEASE URL…`. The order makes it acquire all locks.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [count, lease, urls @ ..] = args else { return Err("a holder needs a number and a lease".into()) };
    let (count, lease): (usize, _) = (count.parse()?, Duration::from_nanos(lease.parse()?));
    let locks = Redlock::builder().nodes(urls).lease(lease).build()?;
    let mut guards = Vec::new();
    answer_orders(|_| {
        for nth in 0..count {
            guards.push(locks.mutex(key(nth)).lock()?);
        }
        Ok(vec![guards.len() as u64])
    })
}
