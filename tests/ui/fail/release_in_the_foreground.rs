use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}", release = foreground)]
fn ship(id: u64) -> Result<(), redlock_sync::Error> {
    Ok(())
}

#[distributed_lock("report", once, release = background)]
fn report() -> Result<(), redlock_sync::Error> {
    Ok(())
}

fn main() {}
