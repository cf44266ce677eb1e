use redlock_sync::{Error, Redlock};

fn main() -> Result<(), Error> {
    let locks = Redlock::open("redis://127.0.0.1/")?;
    if let Some(_guard) = locks.mutex("order:42").try_lock()? {}
    Ok(())
}
