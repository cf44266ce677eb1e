//! Users and passwords that are asked for at each new connection.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use redis::RedisConnectionInfo;

use super::{Failure, FailureKind};

/// A user and a password for a server: see [`Builder::credentials`](crate::Builder::credentials). Its `Debug` shows neither.
///
/// ```
/// use redlock_sync::Credentials;
/// let of_the_user_in_the_url = Credentials::password("secret");
/// let of_this_user = Credentials::of("locks", "secret");
/// assert!(!format!("{of_this_user:?}").contains("secret"));
/// # drop(of_the_user_in_the_url);
/// ```
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// The password of the user in the URL; of the user `default`, if it names none.
    ///
    /// ```
    /// let credentials = redlock_sync::Credentials::password("secret");
    /// # drop(credentials);
    /// ```
    #[must_use]
    pub fn password(password: impl Into<String>) -> Credentials {
        Credentials { user: None, password: password.into() }
    }

    /// A user and its password, whatever stands in the URL.
    ///
    /// ```
    /// let credentials = redlock_sync::Credentials::of("locks", "secret");
    /// # drop(credentials);
    /// ```
    #[must_use]
    pub fn of(user: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { user: Some(user.into()), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

type Ask = dyn Fn(&str) -> Result<Credentials, String> + Send + Sync;

/// Where credentials come from.
#[derive(Clone)]
pub(crate) struct Asked(Arc<Ask>);

impl Asked {
    pub(crate) fn of<E: fmt::Display>(ask: impl Fn(&str) -> Result<Credentials, E> + Send + Sync + 'static) -> Asked {
        Asked(Arc::new(move |node| ask(node).map_err(|error| error.to_string())))
    }

    /// The password is the file's first line.
    pub(crate) fn file(path: &Path) -> Asked {
        let path = path.to_owned();
        Asked::of(move |_node: &str| match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Credentials::password(text.lines().next().unwrap_or_default())),
            Err(error) => Err(format!("{}: {error}", path.display())),
        })
    }

    /// The login in the URL with these in their place.
    pub(super) fn login(&self, node: &str, url: &RedisConnectionInfo) -> Result<RedisConnectionInfo, Failure> {
        let failed = |why: &str| Failure::unsent(FailureKind::Unreachable, format!("no credentials: {why}"));
        // What a program panics with must not end a thread that makes connections.
        let asked = catch_unwind(AssertUnwindSafe(|| (self.0)(node))).map_err(|panic| {
            std::mem::forget(panic);
            failed("the function that was asked panicked")
        })?;
        let Credentials { user, password } = asked.map_err(|why| failed(&why))?;
        let login = url.clone().set_password(password);
        Ok(match user {
            Some(user) => login.set_username(user),
            None => login,
        })
    }
}
