//! A batch in rayon, one order of a customer at a time: `REDIS_URL=redis://127.0.0.1/ cargo run --example rayon`.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use redlock_sync::{Error, distributed_lock};

/// `kind = mutex`: a thread of rayon may start another task while it waits for a part of this one, and a reentrant lock would let that task in.
#[distributed_lock("customer:{customer}", kind = mutex, wait = "30s")]
fn ship(customer: u32, order: u32) -> Result<u32, Error> {
    // No par_iter, join or scope in here: docs/faq.md has what to do where that is needed.
    Ok(order % 10 + customer)
}

fn main() -> Result<(), Error> {
    // The first order that fails ends the batch: `collect` into a `Vec` of results keeps the others.
    let parcels = (0..200).into_par_iter().map(|order| ship(order % 8, order)).try_reduce(|| 0, |a, b| Ok(a + b))?;
    println!("{parcels} parcels in 200 orders");
    Ok(())
}
