//! Locks and unlocks by another Rust crate, as fast as it can. The arguments are the URL of a server, the name of the
//! crate, `tasks` or `threads`, their number, and seconds. Each task or thread has a key of its own. Prints pairs per
//! second.
//!
//! Threads that use an async crate call `Handle::block_on`, as a program without an async runtime of its own does. One
//! more thread runs the runtime. With two worker threads, the async crates are slower here.

use std::env;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use distkit::lock::{LockOptions, Mutex};
use distributed_lock_core::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::RedisLockProvider;
use redlock::RedLock;
use rslock::LockManager;
use tokio::runtime::{Builder, Handle};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TTL: Duration = Duration::from_secs(10);
/// Each task or thread runs for this time before its pairs count.
const WARM_UP: Duration = Duration::from_millis(100);

fn main() -> Outcome<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [url, name, kind, count, seconds] = &args[..] else { return Err("URL CRATE KIND COUNT SECONDS".into()) };
    let (count, span) = (count.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let run = Run { url: url.clone(), are_threads: kind == "threads", count, span };
    let pairs = match &**name {
        "rslock" => run.asynchronous::<Rslock>(),
        "distkit" => run.asynchronous::<Distkit>(),
        "distributed-lock" => run.asynchronous::<DistributedLocks>(),
        "redis-lock" => run.blocking(redis_lock),
        "redlock" => run.blocking(red_lock),
        _ => Err("no such crate".into()),
    }?;
    println!("{}", pairs as f64 / span.as_secs_f64());
    Ok(())
}

struct Run {
    url: String,
    are_threads: bool,
    count: usize,
    span: Duration,
}

/// Counts the pairs between the end of the warm-up and the end of the run.
struct Count {
    begin: Instant,
    end: Instant,
    pairs: u64,
}

impl Count {
    fn new(span: Duration) -> Self {
        let begin = Instant::now() + WARM_UP;
        Self { begin, end: begin + span, pairs: 0 }
    }

    /// Counts a pair that has just ended. Returns false at the end of the run.
    fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        self.pairs += u64::from((self.begin..self.end).contains(&now));
        now < self.end
    }
}

/// A lock of an async crate.
trait AsyncLock: Sized + Send + Sync + 'static {
    /// What all locks of a program share.
    type Shared: Clone + Send + Sync + 'static;

    fn connect(url: &str) -> impl Future<Output = Outcome<Self::Shared>> + Send;

    fn new(shared: &Self::Shared, key: String) -> Outcome<Self>;

    fn pair(&self) -> impl Future<Output = Outcome<()>> + Send;
}

async fn pairs<L: AsyncLock>(shared: L::Shared, key: String, span: Duration) -> Outcome<u64> {
    let lock = L::new(&shared, key)?;
    let mut count = Count::new(span);
    lock.pair().await?;
    while count.goes_on() {
        lock.pair().await?;
    }
    Ok(count.pairs)
}

impl Run {
    fn asynchronous<L: AsyncLock>(&self) -> Outcome<u64> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let shared = L::connect(&self.url).await?;
            let mut running = Vec::new();
            for n in 0..self.count {
                let (work, (done, end)) =
                    (pairs::<L>(shared.clone(), key(n), self.span), tokio::sync::oneshot::channel());
                if self.are_threads {
                    let handle = Handle::current();
                    thread::spawn(move || done.send(handle.block_on(work)));
                } else {
                    tokio::spawn(async { done.send(work.await) });
                }
                running.push(end);
            }
            let mut sum = 0;
            for end in running {
                sum += end.await??;
            }
            Ok(sum)
        })
    }

    fn blocking(&self, pairs: fn(&str, String, Count) -> Outcome<u64>) -> Outcome<u64> {
        let work = |n| {
            let (url, span) = (self.url.clone(), self.span);
            thread::spawn(move || pairs(&url, key(n), Count::new(span)))
        };
        let running: Vec<_> = (0..self.count).map(work).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    }
}

fn key(n: usize) -> String {
    format!("crates{n}")
}

struct Rslock(LockManager, String);

impl AsyncLock for Rslock {
    type Shared = LockManager;

    async fn connect(url: &str) -> Outcome<LockManager> {
        Ok(LockManager::new(vec![url]))
    }

    fn new(shared: &LockManager, key: String) -> Outcome<Self> {
        Ok(Self(shared.clone(), key))
    }

    async fn pair(&self) -> Outcome<()> {
        let lock = self.0.lock(self.1.as_bytes(), TTL).await.map_err(|error| format!("{error:?}"))?;
        self.0.unlock(&lock).await;
        Ok(())
    }
}

struct Distkit(Arc<Mutex>);

impl AsyncLock for Distkit {
    type Shared = redis::aio::ConnectionManager;

    async fn connect(url: &str) -> Outcome<Self::Shared> {
        Ok(redis::Client::open(url)?.get_connection_manager().await?)
    }

    fn new(shared: &Self::Shared, key: String) -> Outcome<Self> {
        Ok(Self(Mutex::new(LockOptions::new(key.try_into()?, shared.clone()))))
    }

    async fn pair(&self) -> Outcome<()> {
        self.0.lock().await?.release().await?;
        Ok(())
    }
}

struct DistributedLocks(<RedisLockProvider as LockProvider>::Lock);

impl AsyncLock for DistributedLocks {
    type Shared = Arc<RedisLockProvider>;

    async fn connect(url: &str) -> Outcome<Self::Shared> {
        Ok(Arc::new(RedisLockProvider::new(url).await?))
    }

    fn new(shared: &Self::Shared, key: String) -> Outcome<Self> {
        Ok(Self(shared.create_lock(&key)))
    }

    async fn pair(&self) -> Outcome<()> {
        Ok(self.0.acquire(None).await?.release().await?)
    }
}

/// Each thread has a connection, since a lock of this crate needs one for itself.
fn redis_lock(url: &str, key: String, mut count: Count) -> Outcome<u64> {
    let client = redis_of_redis_lock::Client::open(url)?;
    redis_lock::sync::setup(&client).map_err(|error| error.to_string())?;
    let (mut locks, keys) = (redis_lock::sync::MultiResourceLock::new(&client)?, [key]);
    loop {
        drop(locks.lock_default(&keys)?);
        if !count.goes_on() {
            return Ok(count.pairs);
        }
    }
}

/// The crate opens a connection for each command.
fn red_lock(url: &str, key: String, mut count: Count) -> Outcome<u64> {
    let locks = RedLock::new(vec![url]);
    loop {
        drop(locks.acquire(key.as_bytes(), 10_000)?);
        if !count.goes_on() {
            return Ok(count.pairs);
        }
    }
}
