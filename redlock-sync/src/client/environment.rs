//! Settings from environment variables.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::time::Duration;

use super::Builder;
use crate::error::Error;
use crate::names::{escaped, printable};
use crate::node::NodeUrl;
use crate::options::Retry;

/// The variables with the URLs of the servers.
pub(crate) const NODES: &str = "REDLOCK_NODES";
pub(crate) const URL: &str = "REDIS_URL";

const PREFIX: &str = "REDLOCK_";
/// Variables with the prefix that are no settings and no mistakes: a command that runs under a lock gets them.
const OF_COMMANDS: [&str; 2] = ["REDLOCK_KEY", "REDLOCK_FENCE"];

const TIME: &str = "a length of time, such as 30s, 250ms, 1h30m or 7d";
const NUMBER: &str = "a number";
/// Used without the feature only: with the feature, no path is invalid before it is read.
const WITHOUT_TLS: &str = "available without the crate's feature `tls`";

/// A variable, a description of its values for errors, and the function that applies its value.
type Setting = (&'static str, &'static str, fn(Builder, &str) -> Option<Builder>);

/// The role of a file for TLS.
#[derive(Clone, Copy)]
enum TlsFile {
    Authorities,
    Certificate,
    Key,
}

/// The settings of `retry` are in the order in which they have to be applied.
const SETTINGS: [Setting; 16] = [
    ("REDLOCK_KEY_PREFIX", "a text", |to, value| Some(to.key_prefix(value))),
    ("REDLOCK_PASSWORD_FILE", "a path", |to, value| Some(to.password_file(value))),
    ("REDLOCK_TLS_CA", WITHOUT_TLS, |to, value| tls_file(to, TlsFile::Authorities, value)),
    ("REDLOCK_TLS_CERT", WITHOUT_TLS, |to, value| tls_file(to, TlsFile::Certificate, value)),
    ("REDLOCK_TLS_KEY", WITHOUT_TLS, |to, value| tls_file(to, TlsFile::Key, value)),
    ("REDLOCK_LEASE", TIME, |to, value| Some(to.lease(duration(value)?))),
    ("REDLOCK_RETRY", "a pause between attempts, such as 20ms, or 2ms..100ms for pauses that grow", |to, value| {
        let (first, last) = value.split_once("..").unwrap_or((value, value));
        Some(to.retry(Retry::growing(duration(first.trim())?, duration(last.trim())?)))
    }),
    ("REDLOCK_RETRY_JITTER", "a number from 0.0 to 1.0", |to, value| {
        let retry = to.options.retry.clone().jitter(value.parse().ok()?);
        Some(to.retry(retry))
    }),
    ("REDLOCK_RETRY_MAX_ATTEMPTS", NUMBER, |to, value| {
        let retry = to.options.retry.clone().max_attempts(value.parse().ok()?);
        Some(to.retry(retry))
    }),
    ("REDLOCK_NODE_TIMEOUT", TIME, |to, value| Some(to.node_timeout(duration(value)?))),
    ("REDLOCK_UNAVAILABLE_AFTER", TIME, |to, value| Some(to.unavailable_after(duration(value)?))),
    ("REDLOCK_DEFAULT_WAIT", TIME, |to, value| Some(to.default_wait(duration(value)?))),
    ("REDLOCK_CONNECTIONS", NUMBER, |to, value| Some(to.connections(value.parse().ok()?))),
    ("REDLOCK_RESTART_GUARD", "`true` or `false`", |to, value| Some(to.restart_guard(value.parse().ok()?))),
    ("REDLOCK_FAILOVER_GUARD", "`true` or `false`", |to, value| Some(to.failover_guard(value.parse().ok()?))),
    ("REDLOCK_MIN_REPLICAS_ACK", NUMBER, |to, value| Some(to.min_replicas_ack(value.parse().ok()?))),
];

impl Builder {
    /// Makes a builder with the settings of environment variables. Methods that are called on it override these
    /// settings, but [`node`](Builder::node) adds a server.
    ///
    /// `REDLOCK_NODES` has URLs, separated by commas. A comma separates two URLs only if `scheme://` follows it.
    /// `REDIS_URL` has one URL, and has an effect if `REDLOCK_NODES` is not set. Each other setting has a variable of
    /// its name, such as `REDLOCK_KEY_PREFIX` or `REDLOCK_LEASE`: [all variables][settings].
    ///
    /// Times have units: `500ms`, `30s`, `5m`, `1h30m`. If a variable is empty, it counts as not set. If a variable
    /// begins with `REDLOCK_` and is no setting, the log names it at WARN.
    ///
    /// [settings]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#of-a-client
    ///
    /// # Errors
    /// [`Config`](Error::Config) if a value is not valid; the message names the variable. If values are valid but
    /// contradict each other, [`build`](Builder::build) returns the error, which names the variables that were set.
    ///
    /// ```no_run
    /// use redlock_sync::Builder;
    /// let locks = Builder::from_env()?.key_prefix("shop:").build()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn from_env() -> Result<Builder, Error> {
        from_variables(env::vars_os())
    }
}

/// Like [`Builder::from_env`], but with these servers in place of those that variables name.
pub(crate) fn with_nodes(urls: &[String]) -> Result<Builder, Error> {
    let is_setting = |(name, _): &(OsString, OsString)| name != NODES && name != URL;
    Ok(from_variables(env::vars_os().filter(is_setting))?.nodes(urls))
}

#[cfg(feature = "tls")]
#[allow(clippy::unnecessary_wraps, reason = "as the one of a build without TLS")]
fn tls_file(mut to: Builder, file: TlsFile, path: &str) -> Option<Builder> {
    let tls = to.tls.take().unwrap_or_default();
    to.tls = Some(match file {
        TlsFile::Authorities => tls.ca_file(path),
        TlsFile::Certificate => tls.certificate_file(path.as_ref()),
        TlsFile::Key => tls.key_file(path.as_ref()),
    });
    Some(to)
}

#[cfg(not(feature = "tls"))]
fn tls_file(_: Builder, _: TlsFile, _: &str) -> Option<Builder> {
    None
}

/// Makes a builder with the settings that these variables are.
fn from_variables(all: impl Iterator<Item = (OsString, OsString)>) -> Result<Builder, Error> {
    let named = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let settings = named.filter(|(name, _)| name == URL || name.starts_with(PREFIX));
    let variables: BTreeMap<String, OsString> = settings.collect();
    for warning in variables.keys().filter_map(|name| warning(name)) {
        log::warn!("{warning}");
    }
    let mut builder = Builder::default();
    for name in [NODES, URL] {
        if let Some(value) = value(&variables, name)? {
            builder = builder.nodes(urls(name, value)?);
            builder.variables.push(name);
            break;
        }
    }
    for (variable, form, set) in &SETTINGS {
        if let Some(value) = value(&variables, variable)? {
            let value = if *variable == "REDLOCK_KEY_PREFIX" { value } else { value.trim() };
            let wrong = || Error::config(format!("{variable} = `{}` is not {form}", escaped(value)));
            builder = set(builder, value).ok_or_else(wrong)?;
            builder.variables.push(variable);
        }
    }
    Ok(builder)
}

/// The value of a variable. An empty value counts as not set.
fn value<'a>(variables: &'a BTreeMap<String, OsString>, name: &str) -> Result<Option<&'a str>, Error> {
    let Some(value) = variables.get(name) else { return Ok(None) };
    let text = value.to_str().ok_or_else(|| Error::config(format!("{name} is not valid UTF-8")))?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

fn urls<'a>(name: &str, value: &'a str) -> Result<Vec<&'a str>, Error> {
    let urls: Vec<_> = match name {
        NODES => split_urls(value),
        _ => vec![value.trim()],
    };
    for url in &urls {
        NodeUrl::parse(url).map_err(|error| Error::config(format!("{name}: {error}")))?;
    }
    if urls.is_empty() {
        return Err(Error::config(format!("{name} names no server")));
    }
    Ok(urls)
}

/// Splits URLs that are separated by commas. URLs can contain commas too, so a comma separates URLs only before a
/// scheme.
fn split_urls(value: &str) -> Vec<&str> {
    let begins = |(at, _): &(usize, &str)| value.get(at + 1..).is_some_and(|rest| has_scheme(rest.trim_start()));
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, _) in value.match_indices(',').filter(begins) {
        parts.extend(value.get(start..at));
        start = at + 1;
    }
    parts.extend(value.get(start..));
    let urls = parts.into_iter().map(|part| part.trim_matches(|c: char| c == ',' || c.is_whitespace()));
    urls.filter(|url| !url.is_empty()).collect()
}

fn has_scheme(text: &str) -> bool {
    let name = text.split_once("://").map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'))
}

/// Parses a sum of numbers with units, with the syntax of the attribute (`duration.rs` in redlock-macros).
pub(crate) fn duration(text: &str) -> Option<Duration> {
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
            "d" => 86_400_000,
            _ => return None,
        };
        let part = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(unit)?);
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(part)?);
        rest = after;
    }
    total
}

// --- names that are no settings --------------------------------------------------------------------------------------

fn known() -> impl Iterator<Item = &'static str> {
    [NODES, URL].into_iter().chain(SETTINGS.iter().map(|(variable, ..)| *variable))
}

/// The warning about a variable that resembles a setting but is none. Its value may be a secret.
fn warning(name: &str) -> Option<String> {
    if OF_COMMANDS.contains(&name) || known().any(|known| known == name) {
        return None;
    }
    let name = printable(name);
    Some(format!("the environment variable {name} is not a setting of redlock-sync and has no effect"))
}

#[cfg(test)]
#[path = "environment/tests.rs"]
mod tests;
