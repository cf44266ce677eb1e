//! The settings of locks. Each is written here once, and each kind names those that it has.

/// Makes builder methods of a handle, which call its method `set`. `$open` is how the examples make a handle.
macro_rules! settings {
    ($open:literal: $($name:ident)+) => {
        $($crate::lock::settings::setting!($name $open);)+
    };
}

macro_rules! setting {
    (lease $open:literal) => {
        /// Sets how long the lock is held without a renewal, 10 ms to 24 h; default: the client's (30 s). With a longer
        /// lease, there are fewer renewals, and the lock outlives longer outages of the servers. With a shorter lease,
        /// other processes get the lock sooner after this one dies. The lease must be longer than drift (1 % + 2 ms),
        /// node timeout and 10 ms together. The first use of the lock checks that.
        ///
        /// ```
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".lease(Duration::from_secs(5));")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn lease(self, lease: std::time::Duration) -> Self {
            self.set(|options| options.lease = lease)
        }
    };
    (renew $open:literal) => {
        /// Sets whether the lease is renewed while the guard lives; default true. With `false`, the lock is lost when
        /// the lease has run out, unless [`extend`](crate::Lease::extend) is called in time. That limits how long a
        /// hung holder keeps it.
        ///
        /// ```
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".renew(false);")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn renew(self, renew: bool) -> Self {
            self.set(|options| options.renew = renew)
        }
    };
    (min_hold $open:literal) => {
        /// Keeps the lock taken for at least this long after it was acquired, even if the guard ends earlier; default
        /// zero, at most the lease. Use it for scheduled jobs that can finish before the machine with the slowest clock
        /// starts the same job. With a longer time, the clocks may differ more. With a shorter time, the next run can
        /// start sooner. If calls of a thread nest, the lock stays taken for the time of each, counted from that call.
        ///
        /// ```
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".min_hold(Duration::from_secs(10));")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn min_hold(self, hold: std::time::Duration) -> Self {
            self.set(|options| options.min_hold = hold)
        }
    };
    (max_hold $open:literal) => {
        /// Ends renewal so that the lock is lost at the latest this long after it was acquired, with the reason
        /// [`MaxHold`](crate::LostReason::MaxHold). The time must be long enough for a [`lease`](Self::lease), and at
        /// least `min_hold` if that is set; default: no limit. Without a limit, a forgotten guard, or a holder that
        /// hangs, keeps the lock until its process ends. With a longer time, slow work keeps its lock. With a shorter
        /// time, others get the lock of a holder that hangs sooner.
        ///
        /// ```
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".max_hold(Duration::from_secs(3600));")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn max_hold(self, hold: std::time::Duration) -> Self {
            self.set(|options| options.max_hold = Some(hold))
        }
    };
    (unavailable_after $open:literal) => {
        /// Sets for how long calls of this handle that wait go on trying while no majority of the nodes answers;
        /// default: the client's (10 s). [`Builder::unavailable_after`](crate::Builder::unavailable_after) says what a
        /// longer and a shorter time cost. With zero, a call gives up at the first failure.
        ///
        /// ```
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".unavailable_after(Duration::from_secs(1));")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn unavailable_after(self, time: std::time::Duration) -> Self {
            self.set(|options| options.unavailable_after = time)
        }
    };
    (cancel $open:literal) => {
        /// Sets a [`Cancel`](crate::Cancel), by which another thread stops calls of this handle that wait; default
        /// none. Such a call returns [`Cancelled`](crate::Error::Cancelled), and so does each later call that would
        /// acquire the lock. What runs under the lock goes on. `Cancel` says what it costs.
        ///
        /// ```
        /// use redlock_sync::{Cancel, Redlock};
        /// let (locks, cancel) = (Redlock::open("redis://127.0.0.1/")?, Cancel::new());
        #[doc = concat!("let handle = ", $open, ".cancel(&cancel);")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn cancel(self, cancel: &$crate::Cancel) -> Self {
            self.set(|options| options.cancel = $crate::cancel::Cancelling::by(cancel))
        }
    };
    (label $open:literal) => {
        /// Sets the label under which observers and metrics show the lock, in place of its key; default empty. Choose
        /// one label for all locks of a kind, such as `order` for `order:42`, since metrics have a series for each
        /// label. In an annotated function, the label is the template. Threads that use different labels for one lock
        /// do not hand it to each other in memory.
        ///
        /// ```
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".label(\"a label\");")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn label(self, label: impl Into<std::borrow::Cow<'static, str>>) -> Self {
            let label = label.into();
            self.set(|options| options.label = label.clone())
        }
    };
    (fenced $open:literal) => {
        /// Sets whether the acquire brings the [fencing token](crate::Lease::fencing_token) along; default false. With
        /// `true`, each acquire raises the lock's counter on the servers in the same step. Then `fencing_token()` needs
        /// no round trip of its own on one server. With `false`, a lock has a counter only if `fencing_token()` is
        /// called. Tokens rise from holder to holder either way.
        ///
        /// ```
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".fenced(true);")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn fenced(self, fenced: bool) -> Self {
            self.set(|options| options.fenced = fenced)
        }
    };
    (max_renewals $open:literal) => {
        /// Ends renewal after this many renewals. The lock is lost one lease after the last of them; default: no limit.
        /// Without a limit and without `max_hold`, a holder that hangs keeps the lock. With more renewals, slow work
        /// keeps its lock. With fewer, others get the lock of a holder that hangs sooner. Zero means `renew(false)`.
        ///
        /// ```
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".max_renewals(10);")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn max_renewals(self, times: u32) -> Self {
            self.set(|options| options.max_renewals = Some(times))
        }
    };
    (retry $open:literal) => {
        /// Sets the pauses between attempts if no message can notify a waiter that the lock is free; default: the
        /// client's. [`Retry`](crate::Retry) says when that is, and what longer and shorter pauses cost.
        ///
        /// ```
        /// use redlock_sync::Retry;
        /// use std::time::Duration;
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".retry(Retry::every(Duration::from_millis(50)));")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        #[allow(clippy::needless_pass_by_value, reason = "some kinds need no copy")]
        pub fn retry(self, retry: $crate::Retry) -> Self {
            self.set(|options| options.retry = retry.clone())
        }
    };
    (holder_name $open:literal) => {
        /// Sets the readable part of the token, 1 to 200 bytes, which `inspect` shows to other clients. Default: host,
        /// process and thread. If the last holder granted the mutex to a waiter, the default is only [the id of that
        /// waiter](crate::LockId::holder_name). A `holder_name` costs a round trip for each mutex that is granted so.
        /// Readers that have a `holder_name` have a lease each.
        ///
        /// ```
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".holder_name(\"worker-7\");")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn holder_name(self, name: impl Into<String>) -> Self {
            let name = name.into();
            self.set(|options| options.holder_name = Some(name.clone()))
        }
    };
    (take_over_keys_without_ttl $open:literal) => {
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
        /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1/")?;
        #[doc = concat!("let handle = ", $open, ".take_over_keys_without_ttl(true);")]
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        #[must_use]
        pub fn take_over_keys_without_ttl(self, take_over: bool) -> Self {
            self.set(|options| options.take_over_keys_without_ttl = take_over)
        }
    };
}

pub(crate) use {setting, settings};
