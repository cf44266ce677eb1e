//! The result of a locked function whose body did not run, or lost the lock.

use crate::Error;

/// The policy `error`: for return types that can carry a lock error.
#[diagnostic::on_unimplemented(
    message = "a locked function that returns `{Self}` cannot report that it got no lock",
    label = "this type carries no `redlock_sync::Error`",
    note = "return a `Result<T, E>` where `E: From<redlock_sync::Error>`, or choose what happens instead:",
    note = "`failed = panic` or `failed = skip` for failures, and with `wait` or `once` also `busy = skip`, `busy = panic` or `busy = path::to::fallback`",
    note = "`skip` is for functions that return `()`, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>`"
)]
pub trait OrError: Sized {
    fn or_error(error: Error) -> Self;
}

impl<T, E: From<Error>> OrError for Result<T, E> {
    fn or_error(error: Error) -> Self {
        Err(error.into())
    }
}

/// The policy `skip`: for return types with a value that says that nothing was done.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no value that says that the body was skipped",
    label = "a function with `skip` returns `()`, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>`",
    note = "otherwise use `error`, `panic` or, for `busy` and `done`, the path of a fallback with the same parameters",
    note = "`once` without `done` is `done = skip`"
)]
pub trait OrSkip: Sized {
    fn skipped() -> Self;

    #[must_use]
    fn or_skip(error: Error) -> Self {
        let level = if error.is_busy() { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "skipped: {error}");
        Self::skipped()
    }
}

impl OrSkip for () {
    fn skipped() {}
}

impl<T> OrSkip for Option<T> {
    fn skipped() -> Option<T> {
        None
    }
}

impl<T: OrSkip, E> OrSkip for Result<T, E> {
    fn skipped() -> Result<T, E> {
        Ok(T::skipped())
    }
}

/// The policy `panic`, which the user has chosen.
#[cold]
#[track_caller]
#[allow(
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "the policy is to panic; all policies take the error itself"
)]
pub fn panic(error: Error) -> ! {
    panic!("{error}")
}
