//! The process-wide default client: set by the program, or made from the environment when it is first needed.

use std::sync::OnceLock;

use parking_lot::RwLock;

use crate::client::{Builder, NODES, Redlock, URL};
use crate::error::Error;
use crate::fork::ForkGuard;

static DEFAULT: OnceLock<ProcessDefault> = OnceLock::new();

/// The default client of the process in which it was first wanted.
struct ProcessDefault {
    process: ForkGuard,
    client: RwLock<Option<Redlock>>,
}

/// The place of the default client. In a forked child of a process that has one it is `Closed`: another thread of the
/// parent may have held the lock at the fork, and no thread of the child would release it.
fn of_this_process() -> Result<&'static RwLock<Option<Redlock>>, Error> {
    let new = || ProcessDefault { process: ForkGuard::new(), client: RwLock::new(None) };
    let default = DEFAULT.get_or_init(new);
    if default.process.is_forked_child() { Err(Error::Closed) } else { Ok(&default.client) }
}

/// The default client of the process, which the macros use unless they name another one.
impl Redlock {
    /// Makes this the default client of the process. Call it once, early in `main`, before the first annotated
    /// function.
    ///
    /// A default client that was [shut down](Redlock::shutdown) can be replaced by another call. Until then it stays
    /// the default client, and every use of it returns [`Closed`](Error::Closed). The library makes no other one from
    /// the environment.
    ///
    /// # Errors
    /// - [`Config`](Error::Config) if there is a default client already that is not closed, whether it was set or made
    ///   from the environment. The old client stays, because two clients would not see each other's nested locks
    /// - [`Closed`](Error::Closed) in a forked child, if the parent has used its default client. Such a child makes a
    ///   client of its own, and names it by `client = …`. A pre-forking server calls `set_default` in each child
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Redlock, distributed_lock};
    ///
    /// #[distributed_lock("order:{id}")]
    /// fn ship(id: u64) -> Result<u64, redlock_sync::Error> {
    ///     Ok(id)
    /// }
    ///
    /// Redlock::set_default(Redlock::open(&url)?)?;
    /// assert_eq!(ship(42)?, 42);
    /// assert!(Redlock::set_default(Redlock::open(&url)?).is_err());
    ///
    /// Redlock::default_client()?.shutdown(std::time::Duration::ZERO)?;
    /// assert_eq!(ship(42).unwrap_err(), redlock_sync::Error::Closed);
    /// Redlock::set_default(Redlock::open(&url)?)?;
    /// assert_eq!(ship(42)?, 42);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn set_default(client: Redlock) -> Result<(), Error> {
        let mut current = of_this_process()?.write();
        if current.as_ref().is_some_and(|client| !client.is_closed()) {
            return Err(Error::config(
                "the default client is already set or in use; set it once before its first use, or shut it down first",
            ));
        }
        let old = current.replace(client);
        drop(current);
        // Dropped after the lock is released, since closing a client can take some time.
        drop(old);
        Ok(())
    }

    /// Returns the default client of the process, which [`set_default`](Redlock::set_default) has set. If none was set,
    /// this call makes one from the environment, without I/O. Later calls return the same client. After a
    /// [`shutdown`](Redlock::shutdown), it is still the default client, until another one is set.
    ///
    /// The variables are those of [`Builder::from_env`]. `REDLOCK_NODES` or `REDIS_URL` has to be set.
    ///
    /// # Errors
    /// - [`Config`](Error::Config) if there is no default client and the environment names no server, or has a value
    ///   that is not valid. The message names the variable. The next call tries again
    /// - [`Closed`](Error::Closed) in a forked child, if the parent has used its default client
    ///
    /// ```
    /// # // Each doctest is a process of its own, without a default client so far.
    /// # let server = redlock_tests::Server::for_sample();
    /// # redlock_sync::Redlock::set_default(redlock_sync::Redlock::open(server.url())?)?;
    /// use redlock_sync::Redlock;
    /// let guard = Redlock::default_client()?.mutex("order:42").lock()?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn default_client() -> Result<Redlock, Error> {
        let default = of_this_process()?;
        if let Some(client) = &*default.read() {
            return Ok(client.clone());
        }
        let mut current = default.write();
        if let Some(client) = &*current {
            return Ok(client.clone());
        }
        let client = from_environment()?;
        *current = Some(client.clone());
        Ok(client)
    }
}

fn from_environment() -> Result<Redlock, Error> {
    let builder = Builder::from_env()?;
    if builder.names_no_server() {
        return Err(Error::config(format!(
            "no default client: call Redlock::set_default(client) first, or set {NODES} or {URL}, such as {URL}=redis://127.0.0.1/"
        )));
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ShutdownReport;

    /// This is the only test of this binary that sets a default client.
    #[test]
    fn a_closed_one_is_replaced() {
        let client = |host| Redlock::open(format!("redis://{host}:1/")).unwrap();
        let shown = || format!("{:?}", Redlock::default_client().unwrap());
        Redlock::set_default(client("first")).unwrap();
        assert!(matches!(Redlock::set_default(client("second")), Err(Error::Config { .. })));
        assert_eq!(
            Redlock::default_client().unwrap().shutdown(std::time::Duration::ZERO),
            Ok(ShutdownReport::default())
        );

        assert!(shown().contains("first"), "it stays until it is replaced");
        assert_eq!(Redlock::default_client().unwrap().mutex("a").lock().unwrap_err(), Error::Closed);
        Redlock::set_default(client("second")).unwrap();
        assert!(shown().contains("second"));
        assert!(matches!(Redlock::set_default(client("third")), Err(Error::Config { .. })));
    }
}
