//! A batch in rayon that handles one order of a customer at a time.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run --example rayon
//! ```

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use redlock_sync::{Error, distributed_lock};

/// `kind = mutex` is necessary. While a thread of rayon waits for a part of its task, it may start another task. A
/// reentrant lock would admit that task.
#[distributed_lock("customer:{customer}", kind = mutex, wait = "30s")]
fn ship(customer: u32, order: u32) -> Result<u32, Error> {
    // Do not call `par_iter`, `join` or `scope` in this function. docs/faq.md says what to do if you need them.
    Ok(order % 10 + customer)
}

fn main() -> Result<(), Error> {
    // The first order that fails ends the batch. To keep the results of the others, `collect` into a `Vec` of results.
    let parcels = (0..200).into_par_iter().map(|order| ship(order % 8, order)).try_reduce(|| 0, |a, b| Ok(a + b))?;
    println!("{parcels} parcels in 200 orders");
    Ok(())
}
