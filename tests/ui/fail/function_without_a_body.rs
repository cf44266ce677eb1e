#![allow(unused)]

use redlock_sync::{Error, distributed_lock};

trait Ship {
    #[distributed_lock("order:{id}")]
    fn ship(&self, id: u64) -> Result<(), Error>;
}

fn main() {}
