//! Methods that hold a lock while a closure runs.

use std::ops::Deref;

use crate::error::Error;
use crate::lease::Lease;

/// Runs the body under the guard, and releases the guard by `end`. A panic drops the guard.
pub(crate) fn run<G, R, T, E>(
    guard: Result<G, Error>,
    body: impl FnOnce(&Lease) -> Result<T, E>,
    end: impl FnOnce(G) -> Result<R, Error>,
) -> Result<T, E>
where
    G: Deref<Target = Lease>,
    E: From<Error>,
{
    let guard = guard?;
    let outcome = body(&guard);
    after_body(end(guard), outcome.is_err())?;
    outcome
}

/// The error of a release for the caller of a closure or of an annotated function. The error of the body takes
/// precedence, and a release that is not confirmed is only logged.
pub(crate) fn after_body<R>(release: Result<R, Error>, body_failed: bool) -> Result<(), Error> {
    match release {
        Ok(_) => Ok(()),
        Err(error) if body_failed || matches!(error, Error::Unconfirmed { .. }) => {
            log::warn!("{error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The methods of a handle that hold its lock while a closure runs.
///
/// `$open` is the expression by which the examples make a handle. `$lock` is the method of the handle that takes the
/// lock, and `$unlock` is the method of the guard that releases it.
macro_rules! closures {
    (
        $open:literal, $guard:ident $unlock:ident,
        $with:ident $lock:ident
    ) => {
        #[doc = concat!("Takes the lock as [`", stringify!($lock), "`](Self::", stringify!($lock), ") does, runs the body, and releases")]
        #[doc = concat!("the lock by [`", stringify!($unlock), "`](crate::", stringify!($guard), "::", stringify!($unlock), "). The value of the body is returned.")]
        ///
        /// The body gets the [`Lease`](crate::Lease), to [`check`](crate::Lease::check) before each step that needs the
        /// lock. If the body panics, the lock is released, and the panic goes on. Unlike a guard, the lock cannot
        /// outlive the call; a guard can be kept in a struct or sent to another thread.
        ///
        /// # Errors
        #[doc = concat!("- The errors of [`", stringify!($lock), "`](Self::", stringify!($lock), "): the body did not run")]
        /// - The error of the body, once the lock is released
        /// - [`Lost`](crate::Error::Lost) in place of the body's `Ok`, if the lock was not held any more at the end.
        ///   What the body did may have overlapped with another holder
        /// - [`WrongType`](crate::Error::WrongType) likewise, if the key holds something else by then
        ///
        /// A release that no majority confirmed is logged at WARN, and the body's value is returned. Nothing is held
        /// after an error.
        ///
        /// ```
        /// # let server = redlock_tests::Server::for_sample();
        /// # let url = server.url();
        /// use redlock_sync::{Error, Redlock};
        /// let locks = Redlock::open(&url)?;
        #[doc = concat!("let sum = ", $open, ".", stringify!($with), "(|lease| {")]
        ///     lease.check()?;
        ///     Ok::<_, Error>(40 + 2)
        /// })?;
        /// assert_eq!(sum, 42);
        /// # Ok::<(), Error>(())
        /// ```
        pub fn $with<T, E: From<crate::Error>>(
            &self,
            body: impl FnOnce(&crate::Lease) -> Result<T, E>,
        ) -> Result<T, E> {
            $crate::lock::with::run(self.$lock(), body, $guard::$unlock)
        }
    };
}

pub(crate) use closures;
