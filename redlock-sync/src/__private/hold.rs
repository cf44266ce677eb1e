//! The place of a guard outside the body of a locked function.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::{Error, Lease, MutexGuard, Redlock, ReentrantMutexGuard, Unlocked};

/// The guard of a call. The body runs inside [`run`](Hold::run), and all of its values are gone when the lock is released.
#[derive(Debug, Default)]
pub struct Hold(Option<Held>);

/// A guard of any kind.
#[derive(Debug)]
pub enum Held {
    Mutex(MutexGuard),
    Reentrant(ReentrantMutexGuard),
}

impl Hold {
    #[must_use]
    pub fn new() -> Hold {
        Hold::default()
    }

    /// Calls `body`. Through a bound on `FnOnce`, so that it may return a borrow from its captures.
    pub fn run<R>(&mut self, body: impl FnOnce(&mut Hold) -> R) -> R {
        body(self)
    }

    /// Keeps the guard for as long as the call lasts.
    pub fn keep(&mut self, guard: Result<impl Into<Held>, Error>) -> Result<&Lease, Error> {
        Ok(self.0.insert(guard?.into()).lease())
    }

    /// Releases the lock. An error says that the lock was lost under the body; one that the body's own error hides is logged.
    pub fn release(&mut self, body_failed: bool) -> Result<(), Error> {
        match self.0.take().map_or(Ok(()), Held::unlock) {
            Ok(()) => Ok(()),
            Err(error) if body_failed || matches!(error, Error::Unconfirmed { .. }) => {
                log::warn!("{error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// As [`Hold`], for a body that is a function of its own.
///
/// The body gets a clone. It cannot get a reference: with one more lifetime among its parameters, that of its output could not be left out.
#[derive(Debug, Clone, Default)]
pub struct SharedHold(Rc<OnceCell<Held>>);

impl SharedHold {
    #[must_use]
    pub fn new() -> SharedHold {
        SharedHold::default()
    }

    /// As [`Hold::keep`]; once.
    pub fn keep(&self, guard: Result<impl Into<Held>, Error>) -> Result<&Lease, Error> {
        let guard = guard?;
        Ok(self.0.get_or_init(|| guard.into()).lease())
    }

    /// As [`Hold::release`], when the body's clone is gone.
    pub fn release(self, body_failed: bool) -> Result<(), Error> {
        Hold(Rc::into_inner(self.0).and_then(OnceCell::into_inner)).release(body_failed)
    }
}

impl Held {
    fn lease(&self) -> &Lease {
        match self {
            Held::Mutex(guard) => guard,
            Held::Reentrant(guard) => guard,
        }
    }

    fn unlock(self) -> Result<(), Error> {
        match self {
            Held::Mutex(guard) => guard.unlock(),
            Held::Reentrant(guard) => guard.unlock().map(|_: Unlocked| ()),
        }
    }
}

impl From<MutexGuard> for Held {
    fn from(guard: MutexGuard) -> Held {
        Held::Mutex(guard)
    }
}

impl From<ReentrantMutexGuard> for Held {
    fn from(guard: ReentrantMutexGuard) -> Held {
        Held::Reentrant(guard)
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

/// What is no `Result` is no error.
pub trait AnyValue {
    fn is_err(&self) -> bool;
}

impl<R> AnyValue for Value<'_, R> {
    fn is_err(&self) -> bool {
        false
    }
}

/// The client of `client = expr`: whatever coerces to a reference to one. A `Result`, as the default client is.
pub fn client(client: &Redlock) -> Result<Redlock, Error> {
    Ok(client.clone())
}
