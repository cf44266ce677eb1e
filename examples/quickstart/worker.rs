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
/// The pause before the next attempt at lines that other workers had.
const LATER: Duration = Duration::from_millis(50);
/// The time that sales under way may take after this process is told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// The arguments are: name, file, start position in the feed in per cent, and the sale at which to hold still. With
/// locks, the URL of the server and a prefix for keys follow.
pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [name, file, begin, hold_at, locks @ ..] = args else { return Err("arguments are missing".into()) };
    println!("ready");
    io::stdin().read_line(&mut String::new())?; // This waits for the director.
    if let [url, prefix] = locks {
        // This client serves all annotated functions that name none. If `REDIS_URL` names the server, a program does
        // not need this call.
        Redlock::set_default(Redlock::builder().node(url).key_prefix(prefix.as_str()).build()?)?;
    }
    let shop = Shop {
        store: Store::open(Path::new(file), name)?,
        with_locks: !locks.is_empty(),
        stage: Stage { hold_at: hold_at.parse()?, ..Stage::default() },
    };
    // A service manager sends SIGTERM, and Ctrl-C sends SIGINT. The handlers are installed before the first lock is
    // acquired.
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
    // Ends the wait for signals. After a signal, the process ends in `stop` once its locks are released.
    handle.close();
    stopper.join().map_err(|_| "the thread that waits for signals panicked")?;
    Ok(())
}

/// **Ends this process such that no other process has to wait for its locks.** Sales under way are completed, and no
/// new ones begin.
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

/// Goes through the feed from a position in the middle, until all lines are settled by this worker or by others.
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
        // Either nothing was written, or the write of another worker stands. The next attempt finds out.
        Err(ShopError::Stale(what)) => {
            println!("stale {what}");
            Ok(false)
        }
        // This process is about to end and leaves the line to other workers.
        Err(ShopError::Lock(LockError::Closed)) => Ok(true),
        Err(ShopError::Lock(error)) => {
            println!("{error}");
            Ok(false)
        }
        Err(error @ ShopError::File(_)) => Err(error.to_string()),
    }
}
