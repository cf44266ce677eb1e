#![deny(dead_code)]

use redlock_sync::{Error, distributed_lock};

struct Shop;

impl Shop {
    #[distributed_lock("order:{id}")]
    #[track_caller]
    fn ship(&self, id: u64) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {
    let _ = Shop;
}
