//! The count-down latch: threads wait until a number of workers have arrived.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::cancel::{Cancel, Cancelling};
use crate::clock::tick_at;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::latch::{Latch, LatchTerms};
use crate::options::{LIFETIME, LockOptions, MAX_LIFETIME, MIN_LIFETIME, MOST_ARRIVALS, Retry, check_within};
use crate::protocol::latch_calls::LatchCalls;
use crate::token::random_part;

/// How error messages name the operations.
const TERMS: LatchTerms =
    LatchTerms { check: "wait for", arrive: "count down", reset: "reset", lifetime: "the lifetime" };
/// The longest id of an arrival, in bytes.
const LONGEST_ID: usize = 200;

/// A gate that opens when a given number of workers have arrived, in any processes.
/// [`Redlock::count_down_latch`](crate::Redlock::count_down_latch) makes it.
///
/// Picture the start of a race: threads wait at the gate, and go when the last worker has arrived. A latch is not a
/// lock. It has no holder and no lease, and an arrival stays even if its process ends.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use std::thread;
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let loaded = locks.count_down_latch("import:42:loaded", 3);
/// for part in 0..3 {
///     let loaded = loaded.clone(); // or made anew in another process
///     thread::spawn(move || {
///         // … load this part …
///         loaded.count_down_as(&format!("part {part}"))
///     });
/// }
/// loaded.wait()?; // until all parts are there
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// Once `count` arrivals are stored, the latch is open, until its [`lifetime`](CountDownLatch::lifetime) ends or it is
/// [reset](CountDownLatch::reset). `count` is 0 to 10,000. With 0, the latch is open at once. Each arrival has an id,
/// so a repeated arrival counts once.
///
/// `count` is in the handle and not on the servers. So a handle with a smaller number finds the latch open earlier. The
/// arrival that reaches the number of its own handle wakes the threads that wait.
///
/// A handle is stateless: it can be cloned, shared and thrown away.
///
/// # What is promised
///
/// A latch never opens before `count` different arrivals were sent, whatever happens to servers and processes. A latch
/// that is not stored is closed. On one server, an open latch stays open as long as the server keeps its data.
///
/// On several servers, a majority stores each arrival. Before the first thread goes through, a majority also stores
/// that the latch is open. If a server loses its data, it gets the data back from the others while threads wait. A
/// server that restarted within the [`lifetime`](CountDownLatch::lifetime) may lack arrivals. So as long as another
/// server does not answer, the restarted one has no vote for a closed latch
/// ([`restart_guard`](crate::Builder::restart_guard)). If the others are no majority, the call returns `Unavailable`.
///
/// If too many servers lose their data, arrivals are gone, and the latch stays closed. So wait with a limit, by
/// [`wait_for`](CountDownLatch::wait_for), and let workers repeat [`count_down_as`](CountDownLatch::count_down_as).
#[derive(Clone)]
pub struct CountDownLatch {
    client: Arc<ClientInner>,
    key: Result<Key, Error>,
    count: usize,
    lifetime: Duration,
    retry: Retry,
    unavailable_after: Duration,
    cancel: Cancelling,
}

impl CountDownLatch {
    pub(crate) fn new(
        client: Arc<ClientInner>,
        key: Result<Key, Error>,
        count: usize,
        defaults: &LockOptions,
    ) -> CountDownLatch {
        let LockOptions { retry, unavailable_after, .. } = defaults.clone();
        CountDownLatch {
            client,
            key,
            count,
            lifetime: LIFETIME,
            retry,
            unavailable_after,
            cancel: Cancelling::default(),
        }
    }

    /// Sets for how long the servers keep the latch after the last arrival, 1 s to 365 days; default 24 h. Then it is
    /// closed, as if no worker had arrived. With a longer time, threads that come late still find it open. With a
    /// shorter time, its key is gone sooner. Choose more than the whole time from the first arrival to the end of the
    /// last waiter. That is because, of several servers, one that restarted longer ago than this counts as having all
    /// arrivals.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 1).lifetime(Duration::from_secs(600));
    /// latch.count_down()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> CountDownLatch {
        self.lifetime = lifetime;
        self
    }

    /// Sets a [`Cancel`], by which another thread stops calls of this handle that wait; default none. Such a call
    /// returns [`Cancelled`](Error::Cancelled). A count-down that waits for its servers returns too, and may count all
    /// the same. [`Cancel`] says what it costs.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let (locks, cancel) = (redlock_sync::Redlock::open(&url)?, redlock_sync::Cancel::new());
    /// let latch = locks.count_down_latch("import:42", 1).cancel(&cancel);
    /// cancel.cancel();
    /// assert!(matches!(latch.wait(), Err(redlock_sync::Error::Cancelled { .. })));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> CountDownLatch {
        self.cancel = Cancelling::by(cancel);
        self
    }

    /// Reports that one more worker has arrived. Each call counts, even if a worker that failed arrives a second time.
    /// To count such a worker once, use [`count_down_as`](CountDownLatch::count_down_as). An open latch stays open.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) once no majority of the nodes could be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after). The arrival may still count
    /// - [`WrongType`](Error::WrongType) if the key holds something that is not a latch
    /// - [`Config`](Error::Config) and [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 2);
    /// latch.count_down()?;
    /// assert_eq!(latch.arrived()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn count_down(&self) -> Result<(), Error> {
        self.latch()?.arrive(&random_part()?)
    }

    /// Reports that the worker with this id, 1 to 200 bytes, has arrived. The arrival counts once, however often any
    /// process repeats the call. Use it for workers that are started again. If a worker is killed during the call, it
    /// may have arrived or not, so let it call again after its restart.
    ///
    /// # Errors
    /// The errors of [`count_down`](CountDownLatch::count_down), after which the call can be repeated, and
    /// [`Config`](Error::Config) for an id that is empty or too long.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 2);
    /// latch.count_down_as("part 7")?;
    /// latch.count_down_as("part 7")?;
    /// assert!(!latch.is_open()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn count_down_as(&self, id: &str) -> Result<(), Error> {
        if id.is_empty() || id.len() > LONGEST_ID {
            return Err(Error::config(format!(
                "the id of an arrival is {} bytes long; it must have 1 to {LONGEST_ID}",
                id.len()
            )));
        }
        // So that it is neither the mark of an open latch nor an id that `count_down` drew.
        self.latch()?.arrive(&format!("={id}"))
    }

    /// Blocks until the latch is open. The arrival that opens it wakes all threads that wait.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) once no majority of the nodes could be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after)
    /// - [`WrongType`](Error::WrongType) if the key holds something that is not a latch
    /// - [`Config`](Error::Config)
    /// - [`Closed`](Error::Closed), also when the client is closed meanwhile
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 1);
    /// latch.count_down()?;
    /// latch.wait()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn wait(&self) -> Result<(), Error> {
        self.latch()?.wait(MaxWait::Forever)
    }

    /// Blocks until the latch is open, for at most `wait`. The call makes a last check at the end, so it can return up
    /// to two node timeouts later.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if the latch was closed all the time
    /// - [`Unavailable`](Error::Unavailable) if no majority could be asked at the end of the wait, or before for the
    ///   client's [`unavailable_after`](crate::Builder::unavailable_after)
    /// - the errors of [`wait`](CountDownLatch::wait)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 1);
    /// assert!(latch.wait_for(Duration::from_millis(20)).unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn wait_for(&self, wait: Duration) -> Result<(), Error> {
        self.latch()?.wait(MaxWait::Until(self.client.quorum.now().after(wait)))
    }

    /// Like [`wait_for`](CountDownLatch::wait_for), but with a deadline in place of a length of time. It is converted
    /// once, on entry.
    ///
    /// # Errors
    /// The errors of [`wait_for`](CountDownLatch::wait_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 1);
    /// latch.count_down()?;
    /// latch.wait_until(Instant::now() + Duration::from_secs(2))?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn wait_until(&self, deadline: Instant) -> Result<(), Error> {
        self.latch()?.wait(MaxWait::Until(tick_at(&*self.client.quorum.clock, deadline)))
    }

    /// Returns whether the latch is open, without waiting. The call makes one round trip to each node, and another one
    /// if nodes differ.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - [`WrongType`](Error::WrongType) if the key holds something else
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// assert!(!locks.count_down_latch("import:42", 1).is_open()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn is_open(&self) -> Result<bool, Error> {
        Ok(self.latch()?.progress()?.is_open)
    }

    /// Returns how many workers have arrived. If the latch is open, this is at least its count. Use it to watch, not to
    /// decide: [`is_open`](CountDownLatch::is_open) is for that.
    ///
    /// # Errors
    /// The errors of [`is_open`](CountDownLatch::is_open).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 5);
    /// latch.count_down()?;
    /// assert_eq!(latch.arrived()?, 1);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn arrived(&self) -> Result<usize, Error> {
        Ok(self.latch()?.progress()?.arrived)
    }

    /// Closes the latch: deletes all arrivals, on every node. Call it only while no thread counts down or waits.
    /// Otherwise an arrival that is on its way can count afterwards, and on several nodes, also one that a waiting
    /// thread has seen. A latch with a new name for each use, such as `import:2026-11-22`, needs no reset.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) if not all nodes have confirmed it. Some may still have arrivals, so
    ///   repeat the call before the latch is used again
    /// - [`WrongType`](Error::WrongType) if the key holds something else
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let latch = locks.count_down_latch("import:42", 1);
    /// latch.count_down()?;
    /// latch.reset()?;
    /// assert!(!latch.is_open()?);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn reset(&self) -> Result<(), Error> {
        self.latch()?.reset()
    }

    fn latch(&self) -> Result<Latch, Error> {
        let key = self.key.clone()?;
        if self.count > MOST_ARRIVALS {
            return Err(Error::config(format!(
                "latch `{key}` waits for {} arrivals, more than {MOST_ARRIVALS}",
                self.count
            )));
        }
        check_within("lifetime", &self.lifetime, MIN_LIFETIME..=MAX_LIFETIME)?;
        self.retry.check()?;
        let (client, name, calls) = (Arc::clone(&self.client), key.clone(), LatchCalls::new(key, self.count));
        let (retry, cancel) = (self.retry.clone(), self.cancel.clone());
        let CountDownLatch { lifetime, unavailable_after, .. } = *self;
        Ok(Latch { client, name, terms: TERMS, calls, lifetime, retry, unavailable_after, cancel })
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch")
            .field("key", &self.key)
            .field("count", &self.count)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}
