use redlock_sync::distributed_lock;

#[distributed_lock("order:{id}", release = foreground)]
fn ship(id: u64) -> Result<u64, redlock_sync::Error> {
    Ok(id)
}

fn main() {
    drop(ship(7));
}
