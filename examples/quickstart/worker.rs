//! A worker process.

use std::error::Error;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;

use crate::feed::{self, Line};
use crate::shop::{Shop, Stage};
use crate::store::{ShopError, Store};

pub(crate) const THREADS: usize = 2;
/// How long to wait before another look at the lines that other workers were at.
const LATER: Duration = Duration::from_millis(50);

/// `args`: name, file, where in the feed to begin in per cent, at which sale to hold still, and, with locks, the Redis and a prefix for keys.
pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [name, file, begin, hold_at, locks @ ..] = args else { return Err("arguments are missing".into()) };
    println!("ready");
    io::stdin().read_line(&mut String::new())?; // until the director nods
    if let [url, prefix] = locks {
        // The client of all annotated functions that name none. A program whose Redis is in `REDIS_URL` needs not even this.
        Redlock::set_default(Redlock::builder().node(url).key_prefix(prefix.as_str()).build()?)?;
    }
    let shop = Shop {
        store: Store::open(Path::new(file), name)?,
        with_locks: !locks.is_empty(),
        stage: Stage { hold_at: hold_at.parse()?, ..Stage::default() },
    };
    let (lines, _) = feed::read()?;
    let (begin, shop, lines): (usize, _, _) = (begin.parse()?, &shop, &lines[..]);
    thread::scope(|scope| {
        let begins = (0..THREADS).map(|i| lines.len() * (begin + i * 100 / (THREADS * 4)) / 100);
        let threads: Vec<_> = begins.map(|begin| scope.spawn(move || work(shop, lines, begin))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(())
}

/// Goes through the feed, from somewhere in its middle to its end and on from its beginning, until all lines are settled, by us or by others.
fn work(shop: &Shop, lines: &[Line], begin: usize) -> Result<(), String> {
    let (before, after) = lines.split_at_checked(begin).unwrap_or((lines, &[]));
    let mut open: Vec<&Line> = after.iter().chain(before).collect();
    loop {
        let mut next = Vec::new();
        for line in open {
            if !is_done(shop, line)? {
                next.push(line);
            }
        }
        if next.is_empty() {
            return Ok(());
        }
        open = next;
        thread::sleep(LATER);
    }
}

fn is_done(shop: &Shop, line: &Line) -> Result<bool, String> {
    let handled = match shop.store.is_settled(line) {
        Ok(false) => shop.handle(line),
        Ok(true) => return Ok(true),
        Err(error) => Err(error),
    };
    match handled {
        Ok(outcome) => Ok(outcome.is_some()),
        // Nothing was written, or it was and cannot be undone: another look will tell.
        Err(ShopError::Stale(what)) => {
            println!("stale {what}");
            Ok(false)
        }
        Err(ShopError::Lock(error)) => {
            println!("{error}");
            Ok(false)
        }
        Err(error @ ShopError::File(_)) => Err(error.to_string()),
    }
}
