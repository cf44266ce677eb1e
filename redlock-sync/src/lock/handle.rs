//! The part that all lock handles share: the client, the checked key, and the settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::{MaxWait, acquire, join};
use crate::clock::tick_at;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lease::Lease;
use crate::lock::holder::{HoldMode, Holder};
use crate::lock::reentry::held_by_thread;
use crate::options::LockOptions;
use crate::protocol::{LeaseCalls, Next, Protocol, ReleaseArgs, Request};

/// A lock by name, with its settings. It has no state, and is cheap to make. If the name is invalid, the first use
/// reports that.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) client: Arc<ClientInner>,
    pub(crate) lock: Result<(Key, Arc<Protocol>), Error>,
    pub(crate) options: Arc<LockOptions>,
}

impl Handle {
    pub(crate) fn new(
        client: Arc<ClientInner>,
        key: Result<Key, Error>,
        options: Arc<LockOptions>,
        protocol: impl FnOnce(Key) -> Protocol,
    ) -> Handle {
        Handle { client, lock: key.map(|key| (key.clone(), Arc::new(protocol(key)))), options }
    }

    /// The same lock with changed settings.
    pub(crate) fn set(mut self, change: impl FnOnce(&mut LockOptions)) -> Handle {
        change(Arc::make_mut(&mut self.options));
        self
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.lock.as_ref().map(|(key, _)| key).map_err(Error::clone)
    }

    /// The request of an acquire. Returns an error if the settings contradict each other.
    pub(crate) fn request(&self) -> Result<Request, Error> {
        self.options.check(&self.client.quorum.settings)?;
        let (key, protocol) = self.lock.clone()?;
        Ok(Request { key, protocol, options: Arc::clone(&self.options) })
    }

    pub(crate) fn acquire(&self, wait: MaxWait) -> Result<Lease, Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        if let Some(lease) = join(&self.client, key.as_str(), protocol.kind(), &self.options) {
            return Ok(lease);
        }
        acquire(&self.client, &self.request()?, wait)
    }

    pub(crate) fn for_at_most(&self, wait: Duration) -> MaxWait {
        MaxWait::Until(self.client.quorum.now().after(wait))
    }

    pub(crate) fn until(&self, deadline: Instant) -> MaxWait {
        MaxWait::Until(tick_at(&*self.client.quorum.clock, deadline))
    }

    /// Returns an error if this thread holds the lock, unless that lease certainly ends within `wait`.
    pub(crate) fn check_not_held(&self, wait: MaxWait) -> Result<(), Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        let Some((own, is_nested)) = held_by_thread(self.client.id, key.as_str()) else { return Ok(()) };
        // A lock of another kind by the same name. The attempt goes on: the servers then report the type of the key.
        if own.protocol().kind().name != protocol.kind().name {
            return Ok(());
        }
        if is_nested {
            own.check()?;
        }
        if own.surely_ends().is_some_and(|end| end <= wait.until()) {
            return Ok(());
        }
        let key = key.as_str().to_owned();
        if wait == MaxWait::Forever {
            return Err(Error::WouldDeadlock { key });
        }
        Err(Error::Busy { key, expires_in: Some(own.remaining()), by_this_thread: true, is_latch: false })
    }

    /// Asks all nodes for the holder of a lock that has one.
    pub(crate) fn inspect(&self) -> Result<Option<Holder>, Error> {
        let first = self.holders()?.into_iter().next();
        Ok(first.map(|(token, remaining)| Holder::new(HoldMode::Exclusive, &token, remaining)))
    }

    /// The holders that a majority of the nodes has, with their tokens as stored on the servers. The result is an error
    /// if a node that did not answer may give another token its majority.
    pub(crate) fn holders(&self) -> Result<Vec<(String, Option<Duration>)>, Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        self.client.check_not_ended()?;
        let quorum = &self.client.quorum;
        let ballot = quorum.round(&protocol.inspect(), quorum.round_deadline());
        let holders = ballot.of_majority();
        if !ballot.is_answered() || ballot.may_have_other_holder() {
            return Err(quorum.failed("inspect", key.as_str(), &ballot));
        }
        Ok(holders)
    }

    /// Releases the lock on all nodes where this holder has it. Returns true if that was a majority.
    pub(crate) fn force_unlock(&self, holder: &Holder) -> Result<bool, Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        self.client.check_not_ended()?;
        // A token that is not valid UTF-8 was read with this replacement character.
        if holder.id.as_str().is_empty() || holder.id.as_str().contains(char::REPLACEMENT_CHARACTER) {
            let problem = format!("the holder of lock `{key}` has a token that is not valid: delete the key by hand");
            return Err(Error::config(problem));
        }
        let quorum = &self.client.quorum;
        let release = ReleaseArgs { id: Some(&holder.id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        let ballot = quorum.round(&protocol.release(&release), quorum.round_deadline());
        if !ballot.is_answered() {
            return Err(quorum.failed("force unlock", key.as_str(), &ballot));
        }
        // If the call was sent twice, the second copy finds no key where the first one released the lock.
        let is_freed = ballot.won() || ballot.duplicate;
        if is_freed {
            self.client.mark_force_unlocked(&holder.id);
        }
        Ok(is_freed)
    }
}

/// The settings that every kind of lock has, as builder methods on its handle, which call its method `set`.
///
/// `$open` is the expression by which the examples make a handle. `$take` and `$try` are the methods of the handle that
/// take the lock, and `$free` is the method of the guard that releases it.
macro_rules! settings {
    ($open:literal, $take:literal, $try:literal, $free:literal) => {
        /// Sets how long the lock is held without a renewal, 10 ms to 24 h; default: the client's (30 s). With a longer
        /// lease, there are fewer renewals, and the lock outlives longer outages of the servers. With a shorter lease,
        /// other processes get the lock sooner after this one dies. The lease must be longer than drift (1 % + 2 ms),
        /// node timeout and minimum validity together. The first use of the lock checks that.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".lease(Duration::from_secs(5)).", $take, "()?;")]
        /// assert!(guard.remaining() < Duration::from_secs(5));
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn lease(self, lease: Duration) -> Self {
            self.set(|options| options.lease = lease)
        }

        /// Sets whether the lease is renewed while the guard lives; default true. With `false`, the lock is lost when
        /// the lease has run out, unless [`extend`](crate::Lease::extend) is called in time. That limits how long a
        /// hung holder keeps it.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".renew(false).", $take, "()?;")]
        /// guard.check()?;
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn renew(self, renew: bool) -> Self {
            self.set(|options| options.renew = renew)
        }

        /// Keeps the lock taken for at least this long after it was acquired, even if the guard ends earlier; default
        /// zero, at most the lease. Use it for scheduled jobs that can finish before the machine with the slowest clock
        /// starts the same job. With a longer time, the clocks may differ more. With a shorter time, the next run can
        /// start sooner. If calls of a thread nest, the lock stays taken for the time of each, counted from that call.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".min_hold(Duration::from_secs(10)).", $take, "()?;")]
        #[doc = concat!("guard.", $free, "()?;")]
        #[doc = concat!("assert!(", $open, ".", $try, "().unwrap_err().is_busy());")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn min_hold(self, hold: Duration) -> Self {
            self.set(|options| options.min_hold = hold)
        }

        /// Ends renewal so that the lock is lost at the latest this long after it was acquired, with the reason
        /// [`MaxHold`](crate::LostReason::MaxHold). The time must be at least `min_hold`, and long enough for a
        /// [`lease`](Self::lease); default: no limit. Without a limit, a forgotten guard, or a holder that hangs, keeps
        /// the lock until its process ends. With a longer time, slow work keeps its lock. With a shorter time, others
        /// get the lock of a holder that hangs sooner.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".max_hold(Duration::from_secs(3600)).", $take, "()?;")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn max_hold(self, hold: Duration) -> Self {
            self.set(|options| options.max_hold = Some(hold))
        }

        /// Sets for how long calls of this handle that wait go on trying while no majority of the servers answers;
        /// default: the client's (10 s). [`Builder::unavailable_after`](crate::Builder::unavailable_after) says what a
        /// longer and a shorter time cost. With zero, a call gives up at the first failure.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".unavailable_after(Duration::from_secs(1)).", $take, "()?;")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn unavailable_after(self, time: Duration) -> Self {
            self.set(|options| options.unavailable_after = time)
        }

        /// Sets a [`Cancel`](crate::Cancel), by which another thread stops calls of this handle that wait; default
        /// none. Such a call returns [`Cancelled`](crate::Error::Cancelled), and so does each later call that would
        /// acquire the lock. `Cancel` says what it costs.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let (locks, cancel) = (redlock_sync::Redlock::open(&url)?, redlock_sync::Cancel::new());
        #[doc = concat!("let guard = ", $open, ".cancel(&cancel).", $take, "()?;")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn cancel(self, cancel: &crate::Cancel) -> Self {
            self.set(|options| options.cancel = crate::cancel::Cancelling::by(cancel))
        }

        /// Sets the label under which observers and metrics show the lock, in place of its key; default empty. Choose
        /// one label for all locks of a kind, such as `order` for `order:42`, since metrics have a series for each
        /// label. In an annotated function, the label is the template. Threads that use different labels for one lock
        /// do not hand it to each other in memory.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".label(\"a label\").", $take, "()?;")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn label(self, label: impl Into<std::borrow::Cow<'static, str>>) -> Self {
            let label = label.into();
            self.set(|options| options.label = label.clone())
        }

        /// Sets whether the acquire brings the [fencing token](crate::Lease::fencing_token) along; default false. With
        /// `true`, each acquire raises the lock's counter on the servers in the same step. Then `fencing_token()` needs
        /// no round trip of its own on one server. With `false`, a lock has a counter only if `fencing_token()` is
        /// called. Tokens rise from holder to holder either way.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".fenced(true).", $take, "()?;")]
        /// println!("UPDATE … WHERE fence <= {}", guard.fencing_token()?); // no I/O
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn fenced(self, fenced: bool) -> Self {
            self.set(|options| options.fenced = fenced)
        }
    };
}

/// Further settings of every kind of lock. Few programs need them.
macro_rules! rarely_needed {
    ($open:literal, $take:literal) => {
        /// Ends renewal after this many renewals. The lock is lost one lease after the last of them; default: no limit.
        /// Without a limit and without `max_hold`, a holder that hangs keeps the lock. With more renewals, slow work
        /// keeps its lock. With fewer, others get the lock of a holder that hangs sooner. Zero means `renew(false)`.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".max_renewals(10).", $take, "()?;")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn max_renewals(self, times: u32) -> Self {
            self.set(|options| options.max_renewals = Some(times))
        }

        /// Sets the pauses between attempts if no message can notify a waiter that the lock is free; default: the
        /// client's. [`Retry`](crate::Retry) says when that is, and what longer and shorter pauses cost.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// use redlock_sync::Retry;
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".retry(Retry::every(Duration::from_millis(50))).", $take, "()?;")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn retry(self, retry: crate::Retry) -> Self {
            self.set(|options| options.retry = retry.clone())
        }

        /// Sets the readable part of the token, 1 to 200 bytes, which `inspect` shows to other clients. Default: host,
        /// process and thread. If the last holder granted the mutex to a waiter, the default is only [the id of that
        /// waiter](crate::LockId::holder_name). A `holder_name` costs a round trip for each mutex that is granted so.
        /// Readers that have a `holder_name` have a lease each.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".holder_name(\"worker-7\").", $take, "()?;")]
        /// assert_eq!(guard.id().holder_name(), "worker-7");
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn holder_name(self, name: impl Into<String>) -> Self {
            let name = name.into();
            self.set(|options| options.holder_name = Some(name.clone()))
        }
    };
}

/// The setting for keys without a time-to-live, which programs of other libraries can leave. Only exclusive kinds have
/// it.
macro_rules! taking_over {
    ($open:literal) => {
        /// Sets whether a waiter takes over a key without a time-to-live; default false. A program leaves such a key if
        /// it stops between `SETNX` and `EXPIRE`. With `true`, the waiter observes the key for one lease of this
        /// handle. If the value has not changed by then, and still has no time-to-live, the waiter takes the key over.
        /// All handles of a client for this key need the setting. Otherwise a waiter without it keeps those behind it
        /// from taking the key over. An annotated function has no such argument. **Use it only if no program holds the
        /// lock by a key that never ends.** Such a holder would not notice the loss. With `false`, such a key keeps the
        /// lock taken until it is deleted by hand. A key stays untouched if it has another type, or if its value is
        /// empty, longer than 80 bytes, or not valid UTF-8.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// use std::time::Duration;
        /// # server.set("order:42", "left behind");
        /// let locks = redlock_sync::Redlock::builder().node(&url).node_timeout(Duration::from_millis(100)).build()?;
        #[doc = concat!("let order = ", $open, ".lease(Duration::from_millis(300));")]
        /// let guard = order.take_over_keys_without_ttl(true).lock()?; // after 300 ms
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn take_over_keys_without_ttl(self, take_over: bool) -> Self {
            self.set(|options| options.take_over_keys_without_ttl = take_over)
        }
    };
}

/// The methods that inspect a lock and unlock it by force. Only exclusive kinds have them.
macro_rules! inspection {
    ($open:literal) => {
        /// Returns whether any process holds the lock at this moment, on a majority of the nodes. That can have changed
        /// when the call returns, so use it to watch a system, not to decide. A holder calls
        /// [`check`](crate::Lease::check).
        ///
        /// # Errors
        /// - [`Unavailable`](crate::Error::Unavailable) without a majority, or if only a node without a usable answer
        ///   knows whether there is a holder
        /// - [`WrongType`](crate::Error::WrongType) if the key holds something else
        /// - [`Config`](crate::Error::Config), [`Closed`](crate::Error::Closed)
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("assert!(!", $open, ".is_locked()?);")]
        #[doc = concat!("let guard = ", $open, ".lock()?;")]
        #[doc = concat!("assert!(", $open, ".is_locked()?);")]
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        pub fn is_locked(&self) -> Result<bool, crate::Error> {
            Ok(self.handle.inspect()?.is_some())
        }

        /// Returns the holder of the lock at this moment, on a majority of the nodes, or `None` if the lock is free.
        ///
        /// # Errors
        /// The errors of `is_locked`.
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let guard = ", $open, ".holder_name(\"me\").lock()?;")]
        #[doc = concat!("let holder = ", $open, ".inspect()?.unwrap();")]
        /// assert_eq!(holder.name(), "me");
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        pub fn inspect(&self) -> Result<Option<crate::Holder>, crate::Error> {
            self.handle.inspect()
        }

        /// Takes the lock away from a holder that `inspect` showed, if its token is still the same. Use it if you know
        /// that the holder is gone or stuck. Returns true if a majority of the nodes freed the lock, and false if that
        /// holder has no majority any more. Threads that wait are notified. Waiters of the holder's own client go on
        /// after that client has detected the loss. Only mutexes have this call. Readers of one process share a lease,
        /// a writer can become a reader, and several permits can have one lease. So the call could end work that is not
        /// stuck. If such a holder is stuck, end its process. Then its lease ends by itself.
        ///
        /// `inspect` shows a string of another program as a holder too. This library gives each lock a time-to-live, so
        /// if [`remaining`](crate::Holder::remaining) is `None`, the string may be no lock.
        ///
        /// Threads of one client that hand a lock to each other have the same token. So `force_unlock` can take the
        /// lock from the next thread of that client instead.
        ///
        /// **The holder may still be at work.** Its guard is [`Lost`](crate::Error::Lost) about a second later. On a
        /// Redis Cluster, that is at its next renewal or at the end of its lease, and for a holder of this same client,
        /// at once. Until then, another holder can be at work beside it, and only [fencing
        /// tokens](crate::Lease::fencing_token) protect the resource.
        ///
        /// # Errors
        /// - [`Unavailable`](crate::Error::Unavailable) if no majority answered. The lock may be freed on some nodes,
        ///   so call again
        /// - [`WrongType`](crate::Error::WrongType) if the key holds something else
        /// - [`Config`](crate::Error::Config), also if the token, of another program, is empty or not valid UTF-8
        /// - [`Closed`](crate::Error::Closed)
        ///
        /// ```
        /// # let server = redlock_tests::Server::start();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let stuck = ", $open, ".lock()?;")]
        #[doc = concat!("let holder = ", $open, ".inspect()?.unwrap();")]
        #[doc = concat!("assert!(", $open, ".force_unlock(&holder)?);")]
        #[doc = concat!("assert!(!", $open, ".force_unlock(&holder)?); // no longer")]
        /// assert!(stuck.unlock().unwrap_err().is_lost());
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        pub fn force_unlock(&self, holder: &crate::Holder) -> Result<bool, crate::Error> {
            self.handle.force_unlock(holder)
        }
    };
}

/// Implements `Deref` to the lease for a guard.
macro_rules! derefs_to_lease {
    ($guard:ident $(<$bound:ident>)?, $($lease:ident).+) => {
        impl$(<$bound>)? std::ops::Deref for $guard$(<$bound>)? {
            type Target = $crate::Lease;

            fn deref(&self) -> &$crate::Lease {
                &self.$($lease).+
            }
        }

        impl$(<$bound>)? std::fmt::Debug for $guard$(<$bound>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.$($lease).+).finish()
            }
        }
    };
}

pub(crate) use {derefs_to_lease, inspection, rarely_needed, settings, taking_over};
