//! A worker process.

use std::error::Error;
use std::io;
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error as LockError, Redlock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::feed::{self, Line};
use crate::shop::{Shop, Stage};
use crate::store::{ShopError, Store};

pub(crate) const THREADS: usize = 2;
/// How long to wait before another look at the lines that other workers were at.
const LATER: Duration = Duration::from_millis(50);
/// How long the sales that are under way may take once this process is told to stop.
const GRACE: Duration = Duration::from_secs(5);

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
    // SIGTERM comes from whatever runs the service, SIGINT from Ctrl-C. Asked for before the first lock is taken.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (handle, with_locks) = (signals.handle(), shop.with_locks);
    let stopper = thread::spawn(move || signals.forever().next().map(|_signal| stop(with_locks)));
    let (lines, _) = feed::read()?;
    let (begin, shop, lines): (usize, _, _) = (begin.parse()?, &shop, &lines[..]);
    thread::scope(|scope| {
        let begins = (0..THREADS).map(|i| lines.len() * (begin + i * 100 / (THREADS * 4)) / 100);
        let threads: Vec<_> = begins.map(|begin| scope.spawn(move || work(shop, lines, begin))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    // Ends the wait for signals. After one, the process ends in `stop`: not before its locks are released.
    handle.close();
    stopper.join().map_err(|_| "the thread that waits for signals panicked")?;
    Ok(())
}

/// **Ends this process so that no other one waits for its locks**: sales that are under way are brought to an end, and no new ones begin.
fn stop(with_locks: bool) {
    if with_locks {
        match Redlock::default_client().and_then(|locks| locks.shutdown(GRACE)) {
            Ok(ended) if ended.given_up.is_empty() => println!("stopped: all locks are released"),
            Ok(ended) => println!("stopped in the middle of {}", ended.given_up.join(", ")),
            Err(error) => println!("stopped: {error}"),
        }
    }
    process::exit(0);
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
        // This process is about to end: the line is left to others.
        Err(ShopError::Lock(LockError::Closed)) => Ok(true),
        Err(ShopError::Lock(error)) => {
            println!("{error}");
            Ok(false)
        }
        Err(error @ ShopError::File(_)) => Err(error.to_string()),
    }
}
