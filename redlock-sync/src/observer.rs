//! Observers, to which the library reports the events of a program's locks, for example for metrics.
//!
//! The thread of an event calls the observers, and holds no lock of the library meanwhile. If a client has no observer,
//! an event costs one check.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, LostReason};
use crate::handler::caught;

/// Receives the events of a client's locks. [`Builder::observer`](crate::Builder::observer) adds an observer.
///
/// The thread that takes, renews or releases the lock calls the observer, and goes on when it returns. So keep it
/// short. If it panics, the library catches and logs the panic. The events of one server come one after the other.
/// While an observer handles one, the later ones wait.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
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
    /// The library calls this for each event.
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

/// The kind of a lock, and for a read-write lock the side. [`Display`](fmt::Display) shows it as one word.
/// [`HeldLock`], [`ObservedLock`], the command `redlock ls` and the `kind` of
/// [`#[distributed_lock]`](macro@crate::distributed_lock) use the same words.
///
/// There is no variant for a reentrant mutex: on the servers it is a mutex, and other clients cannot tell the two
/// apart.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::LockKind;
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let reader = locks.rw_lock("prices").read()?;
/// let kind = locks.snapshot(&redlock_sync::SnapshotOptions::default().name("prices"))?.locks[0].kind;
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
    /// Returns the word that [`Display`](fmt::Display) shows. This makes no allocation, so use it for labels of
    /// metrics.
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

/// The lock of an event.
///
/// ```
/// fn title(lock: redlock_sync::ObservedLock<'_>) -> String {
///     format!("{} {}", lock.kind, lock.label) // such as `mutex order:{id}`
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ObservedLock<'a> {
    /// For an annotated function, the template of its key, such as `order:{id}`. For a handle, its
    /// [`label`](crate::Mutex::label), which is empty by default. **Use it as the label of metrics**: there are few
    /// labels, while there can be millions of keys.
    pub label: &'a str,
    /// The key on the servers.
    pub key: &'a str,
    /// The kind of the lock, and for a read-write lock the side. After a
    /// [downgrade](crate::RwLockWriteGuard::downgrade), this is [`Read`](LockKind::Read).
    pub kind: LockKind,
}

/// An event that an [`Observer`] receives.
///
/// After each [`Wanted`](Event::Wanted) comes an [`Acquired`](Event::Acquired) or a
/// [`NotAcquired`](Event::NotAcquired). After each `Acquired` comes one [`Released`](Event::Released) or one
/// [`Lost`](Event::Lost). If a thread locks again what it holds already, that guard causes no event.
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
        /// How long the lock lasts without another renewal.
        remaining: Duration,
    },
    /// No majority of the nodes confirmed a renewal. The lock is held until its remaining time has passed.
    #[non_exhaustive]
    RenewalFailed {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long the lock lasts unless a renewal is confirmed.
        remaining: Duration,
        /// The error.
        error: &'a Error,
    },
    /// The lock was lost while its guard lived.
    #[non_exhaustive]
    Lost {
        /// The lock.
        lock: ObservedLock<'a>,
        /// How long the lock was held.
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
        /// How long the lock was held.
        held: Duration,
        /// Whether a majority of the nodes confirmed the release.
        confirmed: bool,
    },
    /// The claim of a task has ended. A method of its [`Job`](crate::Job), the value of a handler, or the drop of the
    /// job has ended it.
    #[non_exhaustive]
    Job {
        /// The [`label`](crate::Queue::label) of the queue. By default, this is its name, without the client's
        /// `key_prefix`.
        queue: &'a str,
        /// The id of the task.
        id: &'a str,
        /// How often the task has been claimed, this claim included.
        attempt: u32,
        /// How the claim ended: `done`, `retry`, `again` or `dead`. It is `lost` if the claim was lost before, and
        /// `unconfirmed` if the server did not confirm the end.
        verdict: &'static str,
        /// How long the task had been due when it was claimed.
        waited: Duration,
        /// How long this process had the claim.
        ran: Duration,
    },
    /// A server cannot be used, because it does not answer, or refuses requests. Until it can be used again, there is
    /// another event only if the cause changes.
    #[non_exhaustive]
    NodeDown {
        /// The address of the server.
        node: &'a str,
        /// The cause.
        why: &'a str,
    },
    /// A server for which [`NodeDown`](Event::NodeDown) was reported can be used again.
    #[non_exhaustive]
    NodeUp {
        /// The address of the server.
        node: &'a str,
        /// The time since the first [`NodeDown`](Event::NodeDown) of this outage.
        after: Duration,
    },
}

/// The observers of a client.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: Arc<dyn Observer>) {
        self.0.push(observer);
    }

    pub(crate) fn are_there(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn notify(&self, event: &Event<'_>) {
        for observer in &self.0 {
            if caught(|| observer.event(event)).is_err() {
                log::error!("an observer panicked at {event:?}");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.len())
    }
}
