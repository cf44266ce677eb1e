//! Users and passwords that the application supplies for each new connection.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::{Failure, FailureKind};
use crate::handler::caught;

/// A user and a password for a server: see [`Builder::credentials`](crate::Builder::credentials). Its `Debug` shows
/// neither.
///
/// ```
/// use redlock_sync::Credentials;
/// let of_the_user_in_the_url = Credentials::password("secret");
/// let of_this_user = Credentials::new("locks", "secret");
/// assert!(!format!("{of_this_user:?}").contains("secret"));
/// # drop(of_the_user_in_the_url);
/// ```
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
    valid_for: Option<Duration>,
}

impl Credentials {
    /// The password of the user in the URL. If the URL names no user, the password of the user `default`.
    ///
    /// ```
    /// let credentials = redlock_sync::Credentials::password("secret");
    /// # drop(credentials);
    /// ```
    #[must_use]
    pub fn password(password: impl Into<String>) -> Credentials {
        Credentials { user: None, password: password.into(), valid_for: None }
    }

    /// A user and its password. They replace those in the URL.
    ///
    /// ```
    /// let credentials = redlock_sync::Credentials::new("locks", "secret");
    /// # drop(credentials);
    /// ```
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { user: Some(user.into()), password: password.into(), valid_for: None }
    }

    /// Sets how long a connection that logged in with these credentials is used before it is replaced. Use it for
    /// passwords that expire, such as tokens of a cloud provider. New credentials are requested when a quarter of the
    /// time is left. Default: a connection is kept as long as the server keeps it.
    ///
    /// ```
    /// use std::time::Duration;
    /// let credentials = redlock_sync::Credentials::new("locks", "a token").valid_for(Duration::from_secs(900));
    /// # drop(credentials);
    /// ```
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Credentials {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The command that logs in with the password alone, or as this user. `None` for the user `default` without a password.
/// A user without a password may have none (`nopass`).
pub(super) fn auth(login: &RedisConnectionInfo, user: Option<&str>) -> Option<redis::Cmd> {
    let password = login.password().or(user.map(|_| ""))?;
    let mut auth = redis::cmd("AUTH");
    auth.arg(user).arg(password);
    Some(auth)
}

/// The login of one connection.
pub(crate) struct Login {
    pub(super) info: RedisConnectionInfo,
    pub(super) valid_for: Option<Duration>,
    /// True if the application supplied it just now. If it is refused, asking again may yield another one.
    pub(super) is_from_source: bool,
}

impl From<RedisConnectionInfo> for Login {
    fn from(info: RedisConnectionInfo) -> Login {
        Login { info, valid_for: None, is_from_source: false }
    }
}

type AskFn = dyn Fn(&str) -> Result<Credentials, String> + Send + Sync;

/// A function of the application that supplies credentials.
#[derive(Clone)]
pub(crate) struct CredentialSource(Arc<AskFn>);

impl CredentialSource {
    pub(crate) fn of<E: fmt::Display>(
        ask: impl Fn(&str) -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> CredentialSource {
        CredentialSource(Arc::new(move |node| ask(node).map_err(|error| error.to_string())))
    }

    /// Reads the password from the first line of the file.
    pub(crate) fn file(path: &Path) -> CredentialSource {
        let path = path.to_owned();
        CredentialSource::of(move |_node: &str| match std::fs::read_to_string(&path) {
            Ok(text) => {
                // Some editors write this mark in front of a text.
                let line = text.strip_prefix('\u{feff}').unwrap_or(&text).lines().next().unwrap_or_default();
                if line.is_empty() {
                    return Err(format!("the first line of {} is empty: write the password there", path.display()));
                }
                Ok(Credentials::password(line))
            }
            Err(error) => Err(format!("{}: {error}", path.display())),
        })
    }

    /// The login of the URL, with the user and password replaced by the supplied ones.
    pub(super) fn login(&self, node: &str, url: &RedisConnectionInfo) -> Result<Login, Failure> {
        let failed = |why: &str| Failure::unsent(FailureKind::Unreachable, format!("no credentials: {why}"));
        let asked = caught(|| (self.0)(node)).map_err(|_| failed("the credentials function panicked"))?;
        let Credentials { user, password, valid_for } = asked.map_err(|why| failed(&why))?;
        let info = user.into_iter().fold(url.clone().set_password(password), RedisConnectionInfo::set_username);
        Ok(Login { info, valid_for, is_from_source: true })
    }
}
