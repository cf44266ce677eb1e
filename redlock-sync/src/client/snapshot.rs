//! A snapshot of locks, latches, queues and servers, for programs that display them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Redlock;
use super::listing::{HeldLock, NodeListing, busy, listed, waits};
use crate::clock::Tick;
use crate::error::Error;
#[cfg(feature = "serde")]
use crate::error::LostReason;
use crate::health::Health;
use crate::key::TaskQueue;
use crate::names::{is_helper, printable, queue_of};
#[cfg(feature = "serde")]
use crate::observer::LockKind;
use crate::queue::on_one_node;

/// The settings of a [`snapshot`](Redlock::snapshot): what it reads, and how much it may cost the servers.
///
/// ```
/// use redlock_sync::SnapshotOptions;
/// let for_a_screen = SnapshotOptions::default().pattern("order:*").limit(1000).server_share(0.01);
/// # let _ = for_a_screen;
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotOptions {
    name: Option<String>,
    pattern: String,
    limit: usize,
    share: f64,
    only_queues: bool,
}

impl Default for SnapshotOptions {
    fn default() -> SnapshotOptions {
        SnapshotOptions { name: None, pattern: "*".to_owned(), limit: usize::MAX, share: 1.0, only_queues: false }
    }
}

impl SnapshotOptions {
    /// Limits the snapshot to the lock of this name, of any kind. The servers find it without a scan. The call makes
    /// one round for each 100 holders. If there are more than 100, it can miss a holder that renews its lease between
    /// two rounds. If the key holds something that is not a lock, the error is [`WrongType`](Error::WrongType). Queues
    /// are not found by name. A pattern and a share have no effect then.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{LockKind, Redlock, SnapshotOptions};
    /// let locks = Redlock::open(&url)?;
    /// let reader = locks.rw_lock("prices").read()?;
    /// let prices = locks.snapshot(&SnapshotOptions::default().name("prices"))?;
    /// assert_eq!(prices.locks[0].kind, LockKind::Read);
    /// # drop(reader);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> SnapshotOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets a pattern for the names of locks, latches and queues, without the client's prefix; default `*`. In the
    /// pattern, `*` stands for any text, `?` for one character, and `\` escapes the next character.
    ///
    /// ```
    /// let orders = redlock_sync::SnapshotOptions::default().pattern("order:*");
    /// # let _ = orders;
    /// ```
    #[must_use]
    pub fn pattern(mut self, pattern: impl Into<String>) -> SnapshotOptions {
        self.pattern = pattern.into();
        self
    }

    /// Sets how many holders, latches and queues the snapshot keeps, the first of each by name; default: all. The
    /// client asks the servers for the others as well, and counts them in [`left_out`](Snapshot::left_out).
    ///
    /// ```
    /// let few = redlock_sync::SnapshotOptions::default().limit(1000);
    /// # let _ = few;
    /// ```
    #[must_use]
    pub fn limit(mut self, most: usize) -> SnapshotOptions {
        self.limit = most;
        self
    }

    /// Sets the part of the time for which the calls keep a server busy, 0.0001 to 1; default 1, which makes no pauses.
    /// A number outside these limits counts as the nearest limit.
    /// With a smaller share, other clients wait less, and the snapshot takes longer. A viewer that takes snapshots all
    /// the time should use 0.01. A snapshot of 10 000 locks then takes ten to thirty seconds.
    ///
    /// ```
    /// let gentle = redlock_sync::SnapshotOptions::default().server_share(0.01);
    /// # let _ = gentle;
    /// ```
    #[must_use]
    pub fn server_share(mut self, share: f64) -> SnapshotOptions {
        self.share = share;
        self
    }

    /// Limits the snapshot to queues. Then the servers read no value of any other key. A queue is on one node: with
    /// several nodes, the error is [`Config`](Error::Config).
    ///
    /// ```
    /// let queues = redlock_sync::SnapshotOptions::default().only_queues();
    /// # let _ = queues;
    /// ```
    #[must_use]
    pub fn only_queues(mut self) -> SnapshotOptions {
        self.only_queues = true;
        self
    }
}

/// The locks, latches, queues and servers of a client at one time: see
/// [`Redlock::snapshot`](crate::Redlock::snapshot).
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Redlock, SnapshotOptions};
/// let locks = Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").lock()?;
/// let seen = locks.snapshot(&SnapshotOptions::default())?;
/// assert_eq!((&*seen.locks[0].name, seen.locks[0].waiting), ("order:42", 0));
/// assert!(seen.health.is_ready());
/// # drop(guard);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The holders of locks, sorted by the name of the lock. A lock with several holders occurs several times.
    pub locks: Vec<HeldLock>,
    /// Latches at which a worker has arrived, sorted by name. Marks of jobs that are run [once](crate::Redlock::once)
    /// are left out.
    pub latches: Vec<SeenLatch>,
    /// Queues that have tasks or dead tasks, sorted by name. The list is empty for a client of several nodes, since a
    /// queue is on one node.
    pub queues: Vec<SeenQueue>,
    /// The health of the servers, as they report it.
    pub health: Health,
    /// The shortest round trip to each node, in the order of the nodes; `None` for a node that did not answer. Empty
    /// without a scan.
    #[cfg_attr(feature = "serde", serde(rename = "round_trips_ms", serialize_with = "crate::serial::all_millis"))]
    pub round_trips: Vec<Option<Duration>>,
    /// How long the snapshot took. Its entries were read at different moments in this time.
    #[cfg_attr(feature = "serde", serde(rename = "took_ms", serialize_with = "crate::serial::millis"))]
    pub took: Duration,
    /// About how long the scan kept a server busy. With several nodes, this is the longest time of a node. For a
    /// cluster, it is the sum of the times of its servers.
    #[cfg_attr(feature = "serde", serde(rename = "busy_ms", serialize_with = "crate::serial::millis"))]
    pub busy: Duration,
    /// How many holders, latches and queues there were beyond the [limit](SnapshotOptions::limit).
    pub left_out: usize,
    #[cfg_attr(feature = "serde", serde(skip))]
    at: Tick,
}

/// A count-down latch at which a worker has arrived.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// locks.count_down_latch("import", 3).count_down()?;
/// let seen = locks.snapshot(&Default::default())?;
/// assert_eq!((&*seen.latches[0].name, seen.latches[0].arrived, seen.latches[0].is_open), ("import", 1, false));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SeenLatch {
    /// The name, without the client's prefix.
    pub name: String,
    /// How many workers have arrived: the largest number that a node reported. The servers do not know how many open
    /// the latch.
    pub arrived: u64,
    /// True if the latch is marked as open, by a waiter or by the last arrival. A latch can be open before it is
    /// marked.
    #[cfg_attr(feature = "serde", serde(rename = "open"))]
    pub is_open: bool,
    /// How many waiters the latch has.
    pub waiting: u64,
    /// How long the servers keep the latch without another arrival.
    #[cfg_attr(feature = "serde", serde(rename = "remaining_ms", serialize_with = "crate::serial::some_millis"))]
    pub remaining: Option<Duration>,
}

/// The numbers of a queue of tasks.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// locks.queue("emails").push("welcome")?;
/// let seen = locks.snapshot(&Default::default())?;
/// assert_eq!((&*seen.queues[0].name, seen.queues[0].tasks, seen.queues[0].due), ("emails", 1, 1));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SeenQueue {
    /// The name, without the client's prefix.
    pub name: String,
    /// Tasks that wait or are claimed. Dead tasks are not counted.
    pub tasks: u64,
    /// Tasks that wait and are due.
    pub due: u64,
    /// Claims. A claim whose lease has ended counts until its task is claimed again, and its task counts as due too.
    pub claimed: u64,
    /// Dead tasks.
    pub dead: u64,
    /// For how long the first task has been due; zero if none is.
    #[cfg_attr(feature = "serde", serde(rename = "oldest_ms", serialize_with = "crate::serial::millis"))]
    pub oldest: Duration,
    /// True if the queue is [paused](crate::Queue::pause).
    pub is_paused: bool,
    /// Why the numbers of the queue are not known. If this is set, they are zero.
    pub problem: Option<String>,
}

impl Snapshot {
    /// Returns this snapshot, completed by an earlier one. For each holder that is in both,
    /// [`seen_for`](HeldLock::seen_for) and [`lease`](HeldLock::lease) continue those of the earlier snapshot.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// let first = locks.snapshot(&Default::default())?;
    /// let second = locks.snapshot(&Default::default())?.following(&first);
    /// assert!(second.locks[0].seen_for > first.locks[0].seen_for);
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn following(mut self, earlier: &Snapshot) -> Snapshot {
        let id = |held: &HeldLock| (held.name.clone(), held.holder.id.as_str().to_owned());
        let known: BTreeMap<_, &HeldLock> = earlier.locks.iter().map(|held| (id(held), held)).collect();
        let passed = self.at.since(earlier.at);
        for held in &mut self.locks {
            if let Some(before) = known.get(&id(held)) {
                held.seen_for = before.seen_for + passed;
                held.lease = held.lease.max(before.lease);
            }
        }
        self
    }
}

/// # Inspection
impl Redlock {
    /// Reads everything in one call: held locks with their holders and numbers of waiters, latches, queues with their
    /// numbers, and the health of the servers. The locks are those with tokens of this library, sorted by name. Their
    /// holders include those without a majority, which the `inspect` of a handle leaves out.
    ///
    /// This call is meant for display, not for decisions. Unless the options give the [name](SnapshotOptions::name) of
    /// a lock, it scans all keys of the servers, in steps of 100 keys and about 2 ms, and reads its entries at
    /// different moments. In a Redis Cluster it reads one master after the other.
    ///
    /// If a server restricts its users, the user needs the permission `+scan`, and should have `+getrange`, `+zcount`
    /// and `+hlen`. Without `+getrange` the server copies whole values, which is slow if a value is large. Keys that
    /// the user may not read are left out.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - [`Config`](Error::Config), [`WrongType`](Error::WrongType), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _guard = locks.mutex("order:42").holder_name("billing").lock()?;
    /// for held in locks.snapshot(&Default::default())?.locks {
    ///     println!("{} is held by {}, {} wait", held.name, held.holder.name(), held.waiting);
    /// }
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn snapshot(&self, options: &SnapshotOptions) -> Result<Snapshot, Error> {
        let clock = &self.inner.quorum.clock;
        let at = clock.now();
        let health = self.health()?;
        if options.only_queues {
            on_one_node(self.inner.quorum.len())?;
        }
        let (listings, round_trips) = match &options.name {
            Some(name) => (self.list_one(name)?, Vec::new()),
            None => self.scan(&self.patterns(options), options.share)?,
        };
        let mut left_out = 0;
        let locks = keep_first(self.merge_holders(&listings), options.limit, &mut left_out);
        let latches = keep_first(self.latches(&listings), options.limit, &mut left_out);
        let queues = keep_first(self.seen_queues(&listings), options.limit, &mut left_out);
        let (took, busy) = (clock.now().since(at), busy(&listings));
        Ok(Snapshot { locks, latches, queues, health, round_trips, took, busy, left_out, at })
    }

    /// The patterns of the keys of locks, and of the keys with the tasks of queues: `{name}:q2:due`, or `name::q2:due`.
    fn patterns(&self, options: &SnapshotOptions) -> Vec<String> {
        let names = self.pattern(&options.pattern);
        let of_queues = [format!("{{{names}}}:q2:d*"), format!("{names}::q2:d*")];
        match (options.only_queues, names.as_str()) {
            (true, _) => of_queues.into(),
            (false, "*") => vec![names],
            (false, _) => [names].into_iter().chain(of_queues).collect(),
        }
    }

    fn latches(&self, listings: &[NodeListing]) -> Vec<SeenLatch> {
        let (mut all, waiting) = (BTreeMap::new(), waits(listings));
        for (_, entry) in listed(listings).filter(|(_, entry)| entry.kind == "latch" && !is_helper(&entry.key)) {
            let Some(name) = entry.key.strip_prefix(&*self.prefix) else { continue };
            let number = entry.token.trim_end_matches('!');
            let waiting = waiting.get(entry.key.as_str()).copied().unwrap_or(0);
            let (name, remaining) = (name.to_owned(), entry.remaining);
            let new = || SeenLatch { name, arrived: 0, is_open: false, waiting, remaining };
            let latch = all.entry(entry.key.as_str()).or_insert_with(new);
            latch.arrived = number.parse().unwrap_or(0).max(latch.arrived);
            latch.is_open |= number != entry.token;
            latch.remaining = latch.remaining.max(remaining);
        }
        all.into_values().collect()
    }

    fn seen_queues(&self, listings: &[NodeListing]) -> Vec<SeenQueue> {
        let mut all = BTreeMap::new();
        for (_, entry) in listed(listings).filter(|(_, entry)| entry.kind == "queue" && listings.len() == 1) {
            let name = queue_of(&entry.key).and_then(|queue| queue.strip_prefix(&*self.prefix));
            if let Some(name) = name {
                all.insert(name, self.seen_queue(name, &entry.token));
            }
        }
        all.into_values().collect()
    }

    fn seen_queue(&self, name: &str, numbers: &str) -> SeenQueue {
        let parsed: Option<Vec<u64>> = numbers.split(' ').map(|number| number.parse().ok()).collect();
        let keys = TaskQueue::new(&self.prefix, name);
        let name = name.to_owned();
        match (keys, parsed.as_deref()) {
            (Ok(_), Some(&[tasks, due, claimed, dead, micros, pause])) => {
                let (oldest, is_paused) = (Duration::from_micros(micros), pause == 1);
                SeenQueue { name, tasks, due, claimed, dead, oldest, is_paused, problem: None }
            }
            (Ok(_), _) => SeenQueue { name, problem: Some(printable(numbers)), ..SeenQueue::default() },
            (Err(error), _) => SeenQueue { name, problem: Some(error.to_string()), ..SeenQueue::default() },
        }
    }
}

/// Keeps the first `most` items, and adds the number of the others to `left_out`.
fn keep_first<T>(mut all: Vec<T>, most: usize, left_out: &mut usize) -> Vec<T> {
    *left_out += all.len().saturating_sub(most);
    all.truncate(most);
    all
}

/// Serialized as its name, like [`LockKind::as_str`].
#[cfg(feature = "serde")]
impl serde::Serialize for LockKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

/// Serialized as the name of the variant in snake case.
#[cfg(feature = "serde")]
impl serde::Serialize for LostReason {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
