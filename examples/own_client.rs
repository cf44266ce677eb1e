//! Locks on the server of an existing client: `cargo run --example own_client`, with a server as for `hello`.

use std::env;
use std::error::Error;

use redlock_sync::Redlock;

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // The library uses the address, TLS, database, user and password of this client.
    let client = redis::Client::open(url)?;
    let locks = Redlock::builder().client(&client).build()?;
    let guard = locks.mutex("visits").lock()?;
    let mut connection = client.get_connection()?;
    let visits: u64 = redis::cmd("INCR").arg("visits:count").query(&mut connection)?;
    println!("visit {visits}");
    guard.unlock()?;
    Ok(())
}
