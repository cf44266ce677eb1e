//! The shop handles the lines of the feed. All of its locking is in the attributes of two functions.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::distributed_lock;

use crate::feed::Line;
use crate::store::{Fences, Outcome, Sale, ShopError, Store};

pub(crate) struct Shop {
    pub(crate) store: Store,
    pub(crate) with_locks: bool,
    pub(crate) stage: Stage,
}

impl Shop {
    /// Settles one line of the feed, under the lock of its order. The next line with the same order has to wait, here
    /// or in any other process. No worker is blocked by that. If another worker has this order, `busy = skip` returns
    /// `Ok(None)`, and this worker tries the line again later.
    #[distributed_lock("order:{line.order}", wait = "0s", busy = skip, lease = "1s", guard = lock)]
    fn settle(&self, line: &Line) -> Result<Option<Outcome>, ShopError> {
        self.decide(line, Some(lock.fencing_token()?))
    }

    /// Sells from the stock of one SKU, and waits for the lock of that SKU. The lease is short to keep the example
    /// short. If a holder dies, other workers wait that long. While the holder lives, the lease is renewed, so its
    /// length does not matter.
    #[distributed_lock("stock:{line.sku}", lease = "1s", guard = lock)]
    fn sell(&self, line: &Line, order: Option<u64>) -> Result<Outcome, ShopError> {
        self.take_from_stock(line, Fences { order, stock: Some(lock.fencing_token()?) })
    }

    pub(crate) fn handle(&self, line: &Line) -> Result<Option<Outcome>, ShopError> {
        if self.with_locks { self.settle(line) } else { self.decide(line, None) }
    }

    /// Checks whether the order was settled before. That is correct only if no other worker settles it between the
    /// check and the write.
    fn decide(&self, line: &Line, order: Option<u64>) -> Result<Option<Outcome>, ShopError> {
        // The worker has checked this before the call. A check without the lock is only a hint: another worker may have
        // settled the line before this lock was acquired.
        if self.store.is_settled(line)? {
            return Ok(None);
        }
        let fences = Fences { order, stock: None };
        let outcome = match self.store.order_on_file(line)? {
            Some(true) => self.store.settle(line, Outcome::Duplicate, fences)?,
            Some(false) => self.store.settle(line, Outcome::Clash, fences)?,
            None if self.with_locks => self.sell(line, order)?,
            None => self.take_from_stock(line, fences)?,
        };
        Ok(Some(outcome))
    }

    /// Reads the stock, sleeps, and writes it. That is correct only if no other worker sells from this stock meanwhile.
    fn take_from_stock(&self, line: &Line, fences: Fences) -> Result<Outcome, ShopError> {
        let began = redlock_examples::now();
        let Some(stock) = self.store.stock(&line.sku)? else {
            return self.store.settle(line, Outcome::NoSuchGoods, fences);
        };
        thread::sleep(Duration::from_millis(fastrand::u64(2..12))); // This sleep stands for a call to a bank.
        if stock.units < stock.sold + line.quantity {
            return self.store.settle(line, Outcome::OutOfStock, fences);
        }
        self.stage.hold_still(&self.store, line);
        // The numbers of the sold units make a race visible. Workers that read the same stock sell the same units.
        self.store.sell(line, &Sale { first: stock.sold + 1, began }, fences)
    }
}

/// The point at which the director wants a worker to hold still, so that it can kill, pause or stop the worker there.
#[derive(Default)]
pub(crate) struct Stage {
    /// The number of the sale at which the worker holds still; 0 for never.
    pub(crate) hold_at: u32,
    pub(crate) sales: AtomicU32,
}

impl Stage {
    fn hold_still(&self, store: &Store, line: &Line) {
        if self.sales.fetch_add(1, Ordering::Relaxed) + 1 != self.hold_at {
            return;
        }
        // Keeps the other thread of this process away from the file. A worker that is paused within a transaction would
        // block all workers.
        let _quiet = store.keep_quiet();
        println!("still {}", line.order);
        _ = io::stdin().read_line(&mut String::new()); // This waits for the director.
    }
}
