use redlock_sync::distributed_lock;

#[distributed_lock("report", once, busy = skip, release = background)]
fn report() -> Result<(), redlock_sync::Error> {
    Ok(())
}

fn main() {
    drop(report());
}
