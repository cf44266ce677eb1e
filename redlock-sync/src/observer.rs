//! Observers, by which a program learns of the events of its locks, for example for metrics.
//!
//! Observers are called where it happens, on the thread to which it happens, and never with a lock of the library held.
//! Without one nothing is done: each of the few places asks whether there is one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, LostReason};
use crate::handler::caught;

/// Is notified of what happens to the locks of a client: [`Builder::observer`](crate::Builder::observer).
///
/// It is called on the thread that takes, renews or releases the lock, which waits for it: keep it short. A panic in it
/// is caught and logged.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// use redlock_sync::{Event, Observer, Redlock};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Lost(AtomicU64);
///
/// impl Observer for Lost {
///     fn event(&self, event: &Event<'_>) {
///         if let Event::Lost { lock, reason, .. } = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///             eprintln!("lost {}: {reason:?}", lock.label);
///         }
///     }
/// }
///
/// let lost = Arc::new(Lost::default());
/// let locks = Redlock::builder().node(&url).observer(Arc::clone(&lost)).build()?;
/// let _guard = locks.mutex("order:42").label("order").lock()?;
/// locks.unlock_all()?;
/// assert_eq!(lost.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
pub trait Observer: Send + Sync {
    /// Called for each event.
    ///
    /// ```
    /// use redlock_sync::{Event, Observer};
    /// struct Slow;
    /// impl Observer for Slow {
    ///     fn event(&self, event: &Event<'_>) {
    ///         match event {
    ///             Event::Acquired { lock, waited, .. } if waited.as_secs() > 5 => println!("{}: waited {waited:?}", lock.key),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// ```
    fn event(&self, event: &Event<'_>);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn event(&self, event: &Event<'_>) {
        O::event(self, event);
    }
}

/// What kind of lock something is, and for a read-write lock which side of it. In a listing ([`HeldLock`]), for
/// observers ([`ObservedLock`]), for `redlock ls` and as the `kind` of
/// [`#[distributed_lock]`](macro@crate::distributed_lock) the words are the same: those of [`Display`](fmt::Display).
///
/// There is no variant for a reentrant mutex: on the servers it is a mutex, and other clients cannot tell the two
/// apart.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// use redlock_sync::LockKind;
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let reader = locks.rw_lock("prices").read()?;
/// let kind = locks.holders("prices")?[0].kind;
/// assert_eq!((kind, kind.to_string()), (LockKind::Read, "read".to_owned()));
/// # drop(reader);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// [`HeldLock`]: crate::HeldLock
/// [`ObservedLock`]: crate::ObservedLock
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// `mutex`: a [`Mutex`](crate::Mutex), a [`ReentrantMutex`](crate::ReentrantMutex), or a key of a
    /// [`MultiLock`](crate::MultiLock).
    Mutex,
    /// `read`: a [`RwLock`](crate::RwLock) that is held to read.
    Read,
    /// `write`: a [`RwLock`](crate::RwLock) that is held to write.
    Write,
    /// `semaphore`: permits of a [`Semaphore`](crate::Semaphore).
    Semaphore,
}

impl LockKind {
    /// The word for it, as [`Display`](fmt::Display) shows it: for labels that are not allocated.
    ///
    /// ```
    /// assert_eq!(redlock_sync::LockKind::Semaphore.as_str(), "semaphore");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LockKind::Mutex => "mutex",
            LockKind::Read => "read",
            LockKind::Write => "write",
            LockKind::Semaphore => "semaphore",
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The lock to which an event happened.
///
/// ```
/// fn title(lock: redlock_sync::ObservedLock<'_>) -> String {
///     format!("{} {}", lock.kind, lock.label) // such as `mutex order:{id}`
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ObservedLock<'a> {
    /// For an annotated function the template of its key (`order:{id}`), for a handle its
    /// [`label`](crate::Mutex::label); else empty. **The label of metrics**: there are few of them, while there can be
    /// millions of keys.
    pub label: &'a str,
    /// The key on the servers.
    pub key: &'a str,
    /// Which kind of lock it is, and for a read-write lock which side. After a
    /// [downgrade](crate::RwLockWriteGuard::downgrade) it is [`Read`](LockKind::Read).
    pub kind: LockKind,
}

/// An event, of which an [`Observer`] is notified.
///
/// Each lock that is acquired is later either released or lost, once; each call that wants one acquires it or does not.
/// A guard that nests in a lock which its thread holds already causes no event.
///
/// ```
/// use redlock_sync::Event;
/// fn is_worth_a_line(event: &Event<'_>) -> bool {
///     matches!(event, Event::Lost { .. } | Event::RenewalFailed { .. } | Event::Released { confirmed: false, .. })
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A thread begins to acquire the lock.
    #[non_exhaustive]
    Wanted {
        /// The lock.
        lock: ObservedLock<'a>,
    },
    /// The thread has the lock.
    #[non_exhaustive]
    Acquired {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long the call took.
        waited: Duration,
    },
    /// The thread does not get the lock.
    #[non_exhaustive]
    NotAcquired {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long the call took.
        waited: Duration,
        /// The error.
        error: &'a Error,
    },
    /// The lease was renewed.
    #[non_exhaustive]
    Renewed {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long it lasts without another renewal.
        remaining: Duration,
    },
    /// A renewal was not confirmed by a majority. The lock is held as long as something remains.
    #[non_exhaustive]
    RenewalFailed {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long it lasts unless a renewal is confirmed.
        remaining: Duration,
        /// The error.
        error: &'a Error,
    },
    /// The lock was lost while its guard lived.
    #[non_exhaustive]
    Lost {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long it was held.
        held: Duration,
        /// The reason.
        reason: LostReason,
    },
    /// The guard released the lock. If the guard was dropped, a background thread reports this event once the servers
    /// have answered.
    #[non_exhaustive]
    Released {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long it was held.
        held: Duration,
        /// Whether a majority of the servers confirmed that it is free.
        confirmed: bool,
    },
    /// The claim of a task has ended, by a method of its [`Job`](crate::Job), by what a handler returned, or as the job
    /// was dropped.
    #[non_exhaustive]
    Job {
        /// The [`label`](crate::Queue::label) of the queue; else its name, without the client's `key_prefix`.
        queue: &'a str,
        /// The id of the task.
        id: &'a str,
        /// How often it has been claimed, this time included.
        attempt: u32,
        /// How it ended: `done`, `retry`, `again` or `dead`; `lost` if it had been lost before; `unconfirmed` if the
        /// server may not know that it has ended.
        verdict: &'static str,
        /// How long the task had been due when it was claimed.
        waited: Duration,
        /// How long it was claimed.
        ran: Duration,
    },
    /// A server cannot be used: it does not answer, or refuses. Reported again only if the cause changes.
    #[non_exhaustive]
    NodeDown {
        /// Its address.
        node: &'a str,
        /// The cause.
        why: &'a str,
    },
    /// A server for which [`NodeDown`](Event::NodeDown) was reported can be used again.
    #[non_exhaustive]
    NodeUp {
        /// Its address.
        node: &'a str,
        /// How long ago it was first reported that it cannot be used.
        after: Duration,
    },
}

/// The observers of a client.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<[Arc<dyn Observer>]>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: Arc<dyn Observer>) {
        let all = self.0.iter().flat_map(|all| all.iter().cloned()).chain([observer]);
        self.0 = Some(all.collect());
    }

    pub(crate) fn are_there(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn notify(&self, event: &Event<'_>) {
        for observer in self.0.iter().flat_map(|all| all.iter()) {
            if caught(|| observer.event(event)).is_err() {
                log::error!("an observer panicked at {event:?}");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_ref().map_or(0, |all| all.len()))
    }
}
