//! The process-wide default client: set by the program, or made from the environment when it is first needed.

use std::env;
use std::time::Duration;

use parking_lot::RwLock;

use crate::client::{Builder, Redlock};
use crate::error::Error;
use crate::fork::ForkGuard;
use crate::node::NodeUrl;

/// With the process it belongs to: a forked child cannot use its parent's client.
static DEFAULT: RwLock<Option<(ForkGuard, Redlock)>> = RwLock::new(None);

const NODES: &str = "REDLOCK_NODES";
const URL: &str = "REDIS_URL";
const LEASE: &str = "REDLOCK_LEASE";
const NODE_TIMEOUT: &str = "REDLOCK_NODE_TIMEOUT";
const KEY_PREFIX: &str = "REDLOCK_KEY_PREFIX";

/// The process-wide default client, which the macros use unless they are given another one.
impl Redlock {
    /// Makes this the default client of the process. Once: call it early in `main`, before the first annotated function.
    ///
    /// A default client that was [closed](Redlock::close) can be replaced. Until then it stays the default client, and every use of it is answered
    /// by [`Closed`](Error::Closed): none is made from the environment in its place.
    ///
    /// # Errors
    /// [`Config`](Error::Config) if there is a default client already that is not closed, set before or made from the environment by a first
    /// use: two clients would not see each other's nested locks. The old one stays. In a forked child the parent's does not count.
    ///
    /// ```
    /// # let server = redlock_tests::Server::start();
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
    /// Redlock::default_client()?.close()?;
    /// assert_eq!(ship(42).unwrap_err(), redlock_sync::Error::Closed);
    /// Redlock::set_default(Redlock::open(&url)?)?;
    /// assert_eq!(ship(42)?, 42);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn set_default(client: Redlock) -> Result<(), Error> {
        let mut default = DEFAULT.write();
        if ours(default.as_ref()).is_some_and(|client| !client.is_closed()) {
            return Err(Error::config(
                "the default client is set already, or in use; set it once, before the first use, or close it first",
            ));
        }
        let old = default.replace((ForkGuard::new(), client));
        drop(default);
        // Outside of the lock: the end of a client can take a moment.
        drop(old);
        Ok(())
    }

    /// The default client of the process: the one that was [set](Redlock::set_default), else one made now from the environment, which
    /// stays. Making it does no I/O. One that was [closed](Redlock::close) stays too, until another one is set.
    ///
    /// | Variable | Meaning | Without it |
    /// |---|---|---|
    /// | `REDLOCK_NODES` | URLs of the servers, separated by commas | `REDIS_URL` |
    /// | `REDIS_URL` | URL of the one server | an error |
    /// | `REDLOCK_LEASE` | [`lease`](crate::Builder::lease), such as `30s`, `500ms`, `1m30s` | 30 s |
    /// | `REDLOCK_NODE_TIMEOUT` | [`node_timeout`](crate::Builder::node_timeout), likewise | 250 ms |
    /// | `REDLOCK_KEY_PREFIX` | [`key_prefix`](crate::Builder::key_prefix) | none |
    ///
    /// Variables that are empty count as not set. Units are `ms`, `s`, `m` and `h`.
    ///
    /// # Errors
    /// [`Config`](Error::Config) if there is no default client and the environment names no server, or names something that cannot be;
    /// the message names the variable. A failure is not remembered: the next call tries again.
    ///
    /// ```
    /// # // Each doctest is a process of its own, without a default client so far.
    /// # let server = redlock_tests::Server::start();
    /// # redlock_sync::Redlock::set_default(redlock_sync::Redlock::open(server.url())?)?;
    /// use redlock_sync::Redlock;
    /// let guard = Redlock::default_client()?.mutex("order:42").lock()?;
    /// # drop(guard);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn default_client() -> Result<Redlock, Error> {
        if let Some(client) = ours(DEFAULT.read().as_ref()) {
            return Ok(client.clone());
        }
        let mut default = DEFAULT.write();
        if let Some(client) = ours(default.as_ref()) {
            return Ok(client.clone());
        }
        let client = Environment(variable).client()?;
        *default = Some((ForkGuard::new(), client.clone()));
        Ok(client)
    }
}

fn ours(default: Option<&(ForkGuard, Redlock)>) -> Option<&Redlock> {
    default.filter(|(home, _)| !home.is_left()).map(|(_, client)| client)
}

/// The value of a variable; an empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>, Error> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(Error::config(format!("{name} is not valid UTF-8"))),
    }
}

/// Where settings come from; a function, so that tests need not change the environment.
struct Environment<F>(F);

impl<F: Fn(&str) -> Result<Option<String>, Error>> Environment<F> {
    fn client(&self) -> Result<Redlock, Error> {
        let mut builder = self.nodes()?;
        if let Some(lease) = self.duration(LEASE)? {
            builder = builder.lease(lease);
        }
        if let Some(timeout) = self.duration(NODE_TIMEOUT)? {
            builder = builder.node_timeout(timeout);
        }
        if let Some(prefix) = (self.0)(KEY_PREFIX)? {
            builder = builder.key_prefix(prefix);
        }
        builder.build().map_err(|error| self.blame(&error))
    }

    fn nodes(&self) -> Result<Builder, Error> {
        for name in [NODES, URL] {
            if let Some(value) = (self.0)(name)? {
                return urls(name, &value);
            }
        }
        Err(Error::config(format!(
            "no default client: call Redlock::set_default(client) first, or set {NODES} or {URL}, such as {URL}=redis://127.0.0.1/"
        )))
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, Error> {
        let Some(value) = (self.0)(name)? else { return Ok(None) };
        duration(value.trim()).map(Some).ok_or_else(|| {
            let value = value.escape_debug();
            Error::config(format!("{name} = `{value}` is no length of time; write such as 30s, 250ms or 1h30m"))
        })
    }

    /// Values that are right one by one and do not go together: names those that are set.
    fn blame(&self, error: &Error) -> Error {
        let is_set = |name: &&str| matches!((self.0)(name), Ok(Some(_)));
        let set: Vec<_> = [NODES, URL, LEASE, NODE_TIMEOUT].into_iter().filter(is_set).collect();
        Error::config(format!("{error} (set by {})", set.join(", ")))
    }
}

fn urls(name: &str, value: &str) -> Result<Builder, Error> {
    let urls: Vec<_> = match name {
        NODES => value.split(',').map(str::trim).filter(|url| !url.is_empty()).collect(),
        _ => vec![value.trim()],
    };
    for url in &urls {
        NodeUrl::parse(url).map_err(|error| Error::config(format!("{name}: {error}")))?;
    }
    if urls.is_empty() {
        return Err(Error::config(format!("{name} names no server")));
    }
    Ok(Redlock::builder().nodes(urls))
}

/// Numbers with units, added up, as the attribute's arguments have them (`duration.rs` in redlock-macros).
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = None;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, after) = after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let unit = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let part = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(unit)?);
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(part)?);
        rest = after;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(vars: &[(&str, &str)]) -> Result<Redlock, Error> {
        let find = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Environment(|name: &str| Ok(find(name))).client()
    }

    fn message(vars: &[(&str, &str)]) -> String {
        client(vars).unwrap_err().to_string()
    }

    /// The only test of this binary that has a default client.
    #[test]
    fn a_closed_one_is_replaced() {
        let client = |host| Redlock::open(format!("redis://{host}:1/")).unwrap();
        let shown = || format!("{:?}", Redlock::default_client().unwrap());
        Redlock::set_default(client("first")).unwrap();
        assert!(matches!(Redlock::set_default(client("second")), Err(Error::Config { .. })));
        assert_eq!(Redlock::default_client().unwrap().close(), Ok(0));

        assert!(shown().contains("first"), "it stays until it is replaced");
        assert_eq!(Redlock::default_client().unwrap().mutex("a").lock().unwrap_err(), Error::Closed);
        Redlock::set_default(client("second")).unwrap();
        assert!(shown().contains("second"));
        assert!(matches!(Redlock::set_default(client("third")), Err(Error::Config { .. })));
    }

    #[test]
    fn settings_are_read() {
        let vars = [
            (NODES, "redis://a/, redis://b/ ,redis://c/,"),
            (URL, "redis://unused/"),
            (LEASE, "1m30s"),
            (NODE_TIMEOUT, "100ms"),
            (KEY_PREFIX, "shop:"),
        ];
        let shown = format!("{:?}", client(&vars).unwrap());
        for part in ["a:6379", "b:6379", "c:6379", "shop:", "90s", "100ms"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("unused"));
        assert!(format!("{:?}", client(&[(URL, "redis://one/")]).unwrap()).contains("one:6379"));
    }

    #[test]
    fn mistakes_name_the_variable() {
        assert!(message(&[]).contains("Redlock::set_default(client)"));
        assert!(message(&[(NODES, "redis://a/,http://b/")]).starts_with("REDLOCK_NODES: node URL `http://b/`"));
        assert!(message(&[(URL, "redis://a/,redis://b/")]).starts_with("REDIS_URL"));
        assert!(message(&[(NODES, " , ")]).contains("REDLOCK_NODES names no server"));
        let with = |name, value| message(&[(URL, "redis://a/"), (name, value)]);
        assert!(with(LEASE, "30").starts_with("REDLOCK_LEASE = `30` is no length of time"));
        assert!(with(NODE_TIMEOUT, "soon").starts_with("REDLOCK_NODE_TIMEOUT"));
        assert!(with(LEASE, "1ms").ends_with("(set by REDIS_URL, REDLOCK_LEASE)"));
        assert!(!message(&[(URL, "redis://u:secret@:0/")]).contains("secret"));
    }

    #[test]
    fn lengths_of_time() {
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "30", "1.5s", "-1s", "1 s", "18446744073709551615h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
