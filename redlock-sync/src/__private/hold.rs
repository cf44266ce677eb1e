//! Keeps the guard of a locked function outside its body.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use super::span::{Span, enter};
use crate::lock::with::after_body;
use crate::once::OnceGuard;
use crate::{
    Error, Lease, MultiLockGuard, MutexGuard, Once, Redlock, ReentrantMutexGuard, RwLockReadGuard, RwLockWriteGuard,
    SemaphorePermit,
};

/// The guard of one call of a locked function. The body runs inside [`run`](Hold::run). All of its values are dropped
/// before the lock is released.
///
/// The guard is dropped before the span, so that events of its release are in the span.
#[derive(Debug)]
pub struct Hold<G>(Option<(G, Span)>);

fn in_span<G: Guard>(guard: G) -> (G, Span) {
    let span = enter(|| guard.leases());
    (guard, span)
}

/// A guard of any kind.
pub trait Guard {
    /// The type of the guard in the body.
    type Seen;
    fn seen(&self) -> &Self::Seen;
    fn leases(&self) -> impl Iterator<Item = &Lease>;
    /// Releases the lock. With `once`, the mark is set only if the body has succeeded.
    fn end(self, has_succeeded: bool) -> Result<(), Error>;
}

impl<G: Guard> Hold<G> {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "the attribute makes it")]
    pub fn new() -> Hold<G> {
        Hold(None)
    }

    /// Calls `body`. Since the bound is `FnOnce`, the body may return a borrow from its captures.
    pub fn run<R>(&mut self, body: impl FnOnce(&mut Hold<G>) -> R) -> R {
        body(self)
    }

    /// Keeps the guard until the call ends.
    pub fn keep(&mut self, guard: Result<G, Error>) -> Result<&G::Seen, Error> {
        Ok(self.0.insert(in_span(guard?)).0.seen())
    }

    /// Releases the lock. Returns an error if the lock was lost while the body ran. If the body has failed too, its
    /// error takes precedence, and this one is logged.
    pub fn release(&mut self, body_failed: bool) -> Result<(), Error> {
        after_body(self.0.take().map_or(Ok(()), |(guard, _span)| guard.end(!body_failed)), body_failed)
    }

    /// Like [`release`](Hold::release), but does not wait for the servers. Returns an error if this process knows that
    /// the lock was lost.
    pub fn release_in_background(&mut self, body_failed: bool) -> Result<(), Error> {
        let Some(held) = self.0.take() else { return Ok(()) };
        let known = held.0.leases().try_for_each(Lease::check);
        drop(held);
        // A loss has been logged when it was noticed.
        if body_failed { Ok(()) } else { known }
    }
}

/// Like [`Hold`], for a body that is a function of its own.
///
/// The body gets a clone. With a reference, the body would have one more lifetime parameter, and the lifetime of its
/// result could no longer be elided.
#[derive(Debug)]
pub struct SharedHold<G>(Rc<OnceCell<(G, Span)>>);

impl<G: Guard> SharedHold<G> {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "the attribute makes it")]
    pub fn new() -> SharedHold<G> {
        SharedHold(Rc::default())
    }

    /// Like [`Hold::keep`], but may be called only once.
    pub fn keep(&self, guard: Result<G, Error>) -> Result<&G::Seen, Error> {
        let held = in_span(guard?);
        Ok(self.0.get_or_init(|| held).0.seen())
    }

    /// Like [`Hold::release`]. Called after the clone of the body was dropped.
    pub fn release(self, body_failed: bool) -> Result<(), Error> {
        Hold(Rc::into_inner(self.0).and_then(OnceCell::into_inner)).release(body_failed)
    }

    /// Like [`Hold::release_in_background`]. Called after the clone of the body was dropped.
    pub fn release_in_background(self, body_failed: bool) -> Result<(), Error> {
        Hold(Rc::into_inner(self.0).and_then(OnceCell::into_inner)).release_in_background(body_failed)
    }
}

impl<G> Clone for SharedHold<G> {
    fn clone(&self) -> SharedHold<G> {
        SharedHold(Rc::clone(&self.0))
    }
}

/// Implements [`Guard`] for guards with one lease: the type, and the method that releases it.
macro_rules! of_one_lease {
    ($($guard:ident $end:ident),*) => {$(
        impl Guard for $guard {
            type Seen = Lease;

            fn seen(&self) -> &Lease {
                self
            }

            fn leases(&self) -> impl Iterator<Item = &Lease> {
                std::iter::once(&**self)
            }

            fn end(self, _: bool) -> Result<(), Error> {
                self.$end().map(drop)
            }
        }
    )*};
}

of_one_lease!(
    MutexGuard unlock,
    ReentrantMutexGuard unlock,
    RwLockReadGuard unlock,
    RwLockWriteGuard unlock,
    SemaphorePermit release
);

impl Guard for MultiLockGuard {
    type Seen = MultiLockGuard;

    fn seen(&self) -> &MultiLockGuard {
        self
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> {
        MultiLockGuard::leases(self)
    }

    fn end(self, _: bool) -> Result<(), Error> {
        self.unlock()
    }
}

/// Takes the lock of a function with `once`, by one attempt or within this time. `None` if the job has succeeded.
pub fn begin(job: &Once, wait: Option<Duration>) -> Result<Option<OnceGuard>, Error> {
    job.begin(job.for_at_most(wait))
}

impl Guard for OnceGuard {
    type Seen = Lease;

    fn seen(&self) -> &Lease {
        self.lease()
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> {
        std::iter::once(self.lease())
    }

    fn end(self, has_succeeded: bool) -> Result<(), Error> {
        OnceGuard::end(self, has_succeeded)
    }
}

/// The result of a body, which is checked for an error.
///
/// For a `Result`, the compiler finds the inherent `is_err` first. For every other type it finds that of [`AnyValue`].
#[derive(Debug)]
pub struct Value<'a, R>(pub &'a R);

impl<T, E> Value<'_, Result<T, E>> {
    #[must_use]
    pub fn is_err(&self) -> bool {
        self.0.is_err()
    }
}

/// A future is recognized by its type, also under an alias.
impl<F: Future> Value<'_, F> {
    pub fn has_run(&self)
    where
        F: Run,
    {
    }
}

/// No future implements this trait, so a function that returns a future does not compile.
#[diagnostic::on_unimplemented(
    message = "the lock would be released when the function returns its future, before the future runs; \
               lock a function that blocks",
    label = "the function returns a future"
)]
pub trait Run {}

/// For values that are no `Result`: they are no errors. Values that are not known to be futures have run.
pub trait AnyValue {
    fn is_err(&self) -> bool;
    fn has_run(&self);
}

impl<R> AnyValue for Value<'_, R> {
    fn is_err(&self) -> bool {
        false
    }

    fn has_run(&self) {}
}

/// The client of the argument `client = expr`, which may be any expression that coerces to a reference. It returns a
/// `Result`, like the default client.
pub fn client(client: &Redlock) -> Result<Redlock, Error> {
    Ok(client.clone())
}

/// How long a function waits if its attribute has no `wait`.
#[must_use]
pub fn default_wait(client: &Redlock) -> Option<Duration> {
    client.default_wait()
}

/// The error of a call with `busy`, but without `wait` and without a default wait. It would wait until it has the lock,
/// so `busy` would have no effect.
#[must_use]
pub fn wait_without_end() -> Error {
    Error::config(
        "`busy` has no effect without a limit for the wait; add `wait = \"5s\"` to the attribute, or `wait = \"0s\"` to try \
         once, or set the client's default_wait",
    )
}
