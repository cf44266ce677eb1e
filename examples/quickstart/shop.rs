//! The shop: what is done with a line of the feed. Two of these functions are annotated, and that is all the locking there is.

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
    /// One line of the feed, under the lock of its order: the next line with the same order has to wait for its turn, here or in any other
    /// process. No worker waits, though: `busy = skip` returns `Ok(None)` when another worker is at this order, and we come back later.
    #[distributed_lock("order:<line.order>", wait = "0s", busy = skip, lease = "1s", guard = lock)]
    fn settle(&self, line: &Line) -> Result<Option<Outcome>, ShopError> {
        self.decide(line, Some(lock.fencing_token()?))
    }

    /// Sells from the stock of one SKU, under its lock, for which it waits. The lease is short so that the example is: when a holder dies, the
    /// others wait that long. While the holder lives it is renewed, and its length does not matter.
    #[distributed_lock("stock:<line.sku>", lease = "1s", guard = lock)]
    fn sell(&self, line: &Line, order: Option<u64>) -> Result<Outcome, ShopError> {
        self.take_from_stock(line, Fences { order, stock: Some(lock.fencing_token()?) })
    }

    pub(crate) fn handle(&self, line: &Line) -> Result<Option<Outcome>, ShopError> {
        if self.with_locks { self.settle(line) } else { self.decide(line, None) }
    }

    /// Looks whether the order was there before: right only if no other worker settles it between the look and the deed.
    fn decide(&self, line: &Line, order: Option<u64>) -> Result<Option<Outcome>, ShopError> {
        // The worker has looked for this before it called us. But what was seen without the lock is a hint, and no more: another one may have
        // settled the line between that look and our lock.
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

    /// Reads, pauses, writes: right only if no other worker sells from this stock meanwhile.
    fn take_from_stock(&self, line: &Line, fences: Fences) -> Result<Outcome, ShopError> {
        let began = redlock_examples::now();
        let Some(stock) = self.store.stock(&line.sku)? else {
            return self.store.settle(line, Outcome::NoSuchGoods, fences);
        };
        thread::sleep(Duration::from_millis(fastrand::u64(2..12))); // asks the bank, prints the label
        if stock.units < stock.sold + line.quantity {
            return self.store.settle(line, Outcome::OutOfStock, fences);
        }
        self.stage.hold_still(&self.store, line);
        // The numbers of the units that are sold are what makes a race visible: workers that read the same stock sell the same units.
        self.store.sell(line, &Sale { first: stock.sold + 1, began }, fences)
    }
}

/// Where the director of this play wants a worker to hold still, to do something to it in just that moment.
#[derive(Default)]
pub(crate) struct Stage {
    /// At which sale; 0 for never.
    pub(crate) hold_at: u32,
    pub(crate) sales: AtomicU32,
}

impl Stage {
    fn hold_still(&self, store: &Store, line: &Line) {
        if self.sales.fetch_add(1, Ordering::Relaxed) + 1 != self.hold_at {
            return;
        }
        // Keeps the other thread of this process away from the file: a worker that is stopped within a transaction stops all.
        let _quiet = store.keep_quiet();
        println!("still {}", line.order);
        _ = io::stdin().read_line(&mut String::new()); // until the director nods
    }
}
