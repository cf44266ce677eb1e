//! The place of a guard outside the body of a locked function.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use super::span::{Span, enter};
use crate::{
    Error, Lease, MultiLockGuard, MutexGuard, Redlock, ReentrantMutexGuard, RunOnce, RwLockReadGuard, RwLockWriteGuard,
    SemaphorePermit, once,
};

/// The guard of a call. The body runs inside [`run`](Hold::run), and all of its values are gone when the lock is
/// released.
#[derive(Debug)]
pub struct Hold<G>(Option<Held<G>>);

/// In the order in which they end: what is told of the release is told in the span.
#[derive(Debug)]
struct Held<G> {
    guard: G,
    _span: Span,
}

impl<G: Guard> Held<G> {
    fn new(guard: G) -> Held<G> {
        let span = enter(|| guard.leases());
        Held { guard, _span: span }
    }

    fn end(self, has_succeeded: bool) -> Result<(), Error> {
        self.guard.end(has_succeeded)
    }
}

/// A guard of any kind.
pub trait Guard {
    /// What the body knows by the name that it gives the guard.
    type Seen;
    fn seen(&self) -> &Self::Seen;
    fn leases(&self) -> impl Iterator<Item = &Lease>;
    /// Releases the lock. Only a run that succeeded is marked as such.
    fn end(self, has_succeeded: bool) -> Result<(), Error>;
}

impl<G: Guard> Hold<G> {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "the attribute makes it")]
    pub fn new() -> Hold<G> {
        Hold(None)
    }

    /// Calls `body`. Through a bound on `FnOnce`, so that it may return a borrow from its captures.
    pub fn run<R>(&mut self, body: impl FnOnce(&mut Hold<G>) -> R) -> R {
        body(self)
    }

    /// Keeps the guard for as long as the call lasts.
    pub fn keep(&mut self, guard: Result<G, Error>) -> Result<&G::Seen, Error> {
        Ok(self.0.insert(Held::new(guard?)).guard.seen())
    }

    /// Releases the lock. An error says that the lock was lost under the body; one that the body's own error hides is
    /// logged.
    pub fn release(&mut self, body_failed: bool) -> Result<(), Error> {
        match self.0.take().map_or(Ok(()), |held| held.end(!body_failed)) {
            Ok(()) => Ok(()),
            Err(error) if body_failed || matches!(error, Error::Unconfirmed { .. }) => {
                log::warn!("{error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl<G: Guard> Hold<G> {
    /// Like [`release`](Hold::release), but does not wait for the servers. An error says that the lock was lost by
    /// then, as far as this process knows.
    pub fn release_in_background(&mut self, body_failed: bool) -> Result<(), Error> {
        let Some(held) = self.0.take() else { return Ok(()) };
        let known = held.guard.leases().try_for_each(Lease::check);
        drop(held);
        // A loss is logged where it is noticed.
        if body_failed { Ok(()) } else { known }
    }
}

/// Like [`Hold`], for a body that is a function of its own.
///
/// The body gets a clone. It cannot get a reference: with one more lifetime among its parameters, that of its output
/// could not be left out.
#[derive(Debug)]
pub struct SharedHold<G>(Rc<OnceCell<Held<G>>>);

impl<G: Guard> SharedHold<G> {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "the attribute makes it")]
    pub fn new() -> SharedHold<G> {
        SharedHold(Rc::default())
    }

    /// Like [`Hold::keep`]; once.
    pub fn keep(&self, guard: Result<G, Error>) -> Result<&G::Seen, Error> {
        let held = Held::new(guard?);
        Ok(self.0.get_or_init(|| held).guard.seen())
    }

    /// Like [`Hold::release`], when the body's clone is gone.
    pub fn release(self, body_failed: bool) -> Result<(), Error> {
        Hold(Rc::into_inner(self.0).and_then(OnceCell::into_inner)).release(body_failed)
    }
}

impl<G: Guard> SharedHold<G> {
    /// Like [`Hold::release_in_background`], when the body's clone is gone.
    pub fn release_in_background(self, body_failed: bool) -> Result<(), Error> {
        Hold(Rc::into_inner(self.0).and_then(OnceCell::into_inner)).release_in_background(body_failed)
    }
}

impl<G> Clone for SharedHold<G> {
    fn clone(&self) -> SharedHold<G> {
        SharedHold(Rc::clone(&self.0))
    }
}

/// Guards of one lease each: of a type, and the method that gives it up.
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

/// The lock of a run of a function with `once`.
#[derive(Debug)]
pub struct OnceGuard(once::Run);

/// Takes it; `None` if the job has succeeded before.
pub fn begin(job: &RunOnce) -> Result<Option<OnceGuard>, Error> {
    Ok(job.begin()?.map(OnceGuard))
}

impl Guard for OnceGuard {
    type Seen = Lease;

    fn seen(&self) -> &Lease {
        self.0.lease()
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> {
        std::iter::once(self.0.lease())
    }

    fn end(self, has_succeeded: bool) -> Result<(), Error> {
        self.0.end(has_succeeded)
    }
}

/// What a body returned, to be asked whether it is an error.
///
/// `is_err` of a `Result` is found first, since it is inherent; anything else has that of [`AnyValue`].
#[derive(Debug)]
pub struct Value<'a, R>(pub &'a R);

impl<T, E> Value<'_, Result<T, E>> {
    #[must_use]
    pub fn is_err(&self) -> bool {
        self.0.is_err()
    }
}

/// A future is known by its type, also under an alias.
impl<F: Future> Value<'_, F> {
    pub fn has_run(&self)
    where
        F: Run,
    {
    }
}

/// No future implements it, so a function that returns one does not compile.
#[diagnostic::on_unimplemented(
    message = "the lock would be released when the future is returned, before it runs; this lock is for functions that block",
    label = "the function returns a future"
)]
pub trait Run {}

/// A value that is not a `Result` is no error, and one that is not known to be a future has run.
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

/// The client of `client = expr`: whatever coerces to a reference to one. A `Result`, as the default client is.
pub fn client(client: &Redlock) -> Result<Redlock, Error> {
    Ok(client.clone())
}

/// How long a function waits whose attribute has no `wait`.
#[must_use]
pub fn default_wait(client: &Redlock) -> Option<Duration> {
    client.default_wait()
}

/// What a call gets that has `busy`, but no `wait` and no default wait: it would wait until it has the lock, and `busy`
/// would have no effect.
#[must_use]
pub fn wait_without_end() -> Error {
    Error::config(
        "`busy` has no effect without a limit of the wait; add such as `wait = \"5s\"` to the attribute, or `wait = \"0s\"` to try once, or set \
         default_wait of the client",
    )
}
