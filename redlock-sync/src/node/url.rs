//! A node's URL: what may stand in it, and how it is shown without a password.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::{Asked, Failure};
use crate::error::Error;

/// After this much silence the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A checked URL of one node.
#[derive(Clone)]
pub(crate) struct NodeUrl {
    info: ConnectionInfo,
    address: String,
    credentials: Option<Asked>,
}

impl NodeUrl {
    /// `redis://[user[:password]@]host[:port][/db]`, `rediss://` likewise, `redis+unix:///path?db=..&user=..&pass=..`, `unix://` likewise.
    pub(crate) fn parse(text: &str) -> Result<NodeUrl, Error> {
        NodeUrl::check(text).map_err(|why| Error::config(format!("node URL `{}`: {why}", redact(text).escape_debug())))
    }

    fn check(text: &str) -> Result<NodeUrl, String> {
        check_scheme(text, cfg!(feature = "tls"))?;
        let url = redis::parse_redis_url(text).ok_or("not a valid URL")?;
        let tcp = matches!(url.scheme(), "redis" | "rediss" | "valkey" | "valkeys");
        if tcp && url.host_str().is_none_or(str::is_empty) {
            return Err("the host is missing".into());
        }
        if !tcp && url.path().trim_matches('/').is_empty() {
            return Err("the path of the socket is missing".into());
        }
        if url.fragment().is_some() {
            return Err("a part after `#` has no meaning here; write `%23` for a `#` in a user name or password".into());
        }
        let known: &[&str] = if tcp { &["protocol"] } else { &["db", "user", "pass", "protocol"] };
        if let Some((name, _)) = url.query_pairs().find(|(name, _)| !known.contains(&name.as_ref())) {
            // With an `@` behind it, it may be the end of a password that has a `?` in it; and one that is no word may have its value in it.
            let may_be_secret = !is_word(&name) || url.query().is_some_and(|query| query.contains('@'));
            return Err(if may_be_secret {
                "unknown parameter".into()
            } else {
                format!("unknown parameter `{}`", name.escape_debug())
            });
        }
        // The crate's own message can carry a part of the URL only in its detail, which is left out.
        let info = url.into_connection_info().map_err(|e| plain(&e))?;
        NodeUrl::from_info(info)
    }

    fn from_info(info: ConnectionInfo) -> Result<NodeUrl, String> {
        if info.redis_settings().db() < 0 {
            return Err("the database number is negative".into());
        }
        if matches!(info.addr(), ConnectionAddr::Tcp(_, 0) | ConnectionAddr::TcpTls { port: 0, .. }) {
            return Err("nothing can listen on port 0".into());
        }
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
        let address = address_of(info.addr());
        Ok(NodeUrl { info: info.set_tcp_settings(tcp).set_redis_settings(settings), address, credentials: None })
    }

    /// Asks for users and passwords there, at each connection.
    pub(crate) fn with_credentials(self, credentials: Option<Asked>) -> NodeUrl {
        NodeUrl { credentials, ..self }
    }

    pub(super) fn login(&self) -> Result<RedisConnectionInfo, Failure> {
        let login = self.info.redis_settings();
        self.credentials.as_ref().map_or_else(|| Ok(login.clone()), |asked| asked.login(&self.address, login))
    }

    /// `host:port`, or the path of the socket.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }
}

/// Says what is wrong with the scheme, with the remedy, before the parser says less.
fn check_scheme(text: &str, has_tls: bool) -> Result<(), String> {
    let Some((scheme, _)) = text.split_once("://") else {
        return Err("a URL starts with `redis://`, `rediss://` or `redis+unix://`".into());
    };
    match scheme.to_ascii_lowercase().as_str() {
        "rediss" | "valkeys" if !has_tls => {
            Err("TLS needs the crate's feature `tls`: redlock-sync = { features = [\"tls\"] }".into())
        }
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix" => Ok(()),
        name if name.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) => {
            Err(format!("unknown scheme `{name}`; use redis, rediss, redis+unix or unix"))
        }
        // What is no scheme at all may be a part of a password, and is not repeated.
        _ => Err("a URL starts with `redis://`, `rediss://` or `redis+unix://`".into()),
    }
}

fn plain(error: &redis::RedisError) -> String {
    let text = error.to_string();
    text.split(" - ").next().unwrap_or("not a valid URL").to_owned()
}

fn address_of(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => host_port(host, *port),
        ConnectionAddr::Unix(path) => path.display().to_string(),
        other => other.to_string(),
    }
}

/// `host:port` as a URL has it; host names in lower case, so that the same one compares equal.
pub(super) fn host_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) => format!("[{v6}]:{port}"),
        _ => format!("{}:{port}", host.to_ascii_lowercase()),
    }
}

/// The text with stars for its passwords; works on any text, since what cannot be parsed has to be shown too. All of them are looked for in the
/// text as it is: stars for one must not hide where another begins.
fn redact(text: &str) -> String {
    let mut secrets: Vec<Range<usize>> = behind_user(text).into_iter().chain(in_parameters(text)).collect();
    secrets.sort_by_key(|secret| secret.start);
    let (mut shown, mut at) = (String::new(), 0);
    for secret in secrets {
        // None within the one before.
        if let Some(between) = text.get(at..secret.start) {
            shown.push_str(between);
            shown.push_str("***");
        }
        at = at.max(secret.end);
    }
    shown + text.get(at..).unwrap_or_default()
}

/// Where the authority begins: behind the first `://`, unless a colon before it makes that a part of a password.
fn scheme_end(text: &str) -> usize {
    text.find("://").filter(|at| text.find(':') == Some(*at)).map_or(0, |at| at + 3)
}

/// What stands between the first colon and the last `@`.
fn behind_user(text: &str) -> Option<Range<usize>> {
    let start = scheme_end(text);
    let colon = start + text.get(start..)?.find(':')?;
    text.rfind('@').filter(|at| colon < *at).map(|at| colon + 1..at)
}

/// What may be a part of a password among the parameters: everything but what is certainly something else.
fn in_parameters(text: &str) -> Vec<Range<usize>> {
    let mut end = text.find('?').unwrap_or(text.len());
    let secret = |pair: &str| {
        end += 1 + pair.len();
        match pair.split_once('=') {
            Some((name, value)) if is_harmless(name, value) => None,
            Some((name, value)) if is_word(name) => Some(end - value.len()..end),
            _ => Some(end - pair.len()..end),
        }
    };
    text.split_once('?').map_or_else(Vec::new, |(_, query)| query.split('&').filter_map(secret).collect())
}

/// Cannot be, or contain, a misspelt password.
fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        "db" | "protocol" => value.chars().all(|c| c.is_ascii_digit()),
        "user" => value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c)),
        _ => false,
    }
}

fn is_word(name: &str) -> bool {
    name.len() <= 20 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let db = self.info.redis_settings().db();
        match self.info.addr() {
            ConnectionAddr::TcpTls { .. } => write!(f, "rediss://{}/{db}", self.address),
            ConnectionAddr::Unix(_) => write!(f, "redis+unix://{}?db={db}", self.address),
            _ => write!(f, "redis://{}/{db}", self.address),
        }
    }
}

impl fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        NodeUrl::parse(text).unwrap().to_string()
    }

    fn refusal(text: &str) -> String {
        NodeUrl::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn good_urls_are_shown_without_user_and_password() {
        assert_eq!(show("redis://localhost"), "redis://localhost:6379/0");
        assert_eq!(show("redis://user:pa%40ss@Host:7000/3"), "redis://host:7000/3");
        assert_eq!(show("redis://:secret@[::1]:7000"), "redis://[::1]:7000/0");
        assert_eq!(show("redis+unix:///run/redis.sock?db=2&pass=secret"), "redis+unix:///run/redis.sock?db=2");
        assert_eq!(show("unix:///run/redis.sock"), "redis+unix:///run/redis.sock?db=0");
        let url = NodeUrl::parse("redis://user:secret@127.0.0.1/1").unwrap();
        assert_eq!(format!("{url:?}"), "redis://127.0.0.1:6379/1");
        assert_eq!(url.address(), "127.0.0.1:6379");
        assert_eq!(url.info().redis_settings().password(), Some("secret"));
        assert!(url.info().tcp_settings().nodelay());
    }

    #[test]
    fn bad_urls_are_refused_by_name_and_never_show_the_password() {
        for bad in [
            "redis://:secret@",
            "redis://user:secret@host:notaport",
            "redis://:sec#secret@host",
            "redis://:secret@host/x",
            "redis://:secret@host/-1",
            "redis://:secret@host:0",
            "http://:secret@host",
            "redis:user:secret@host",
            "redis://:secret@host?db=3",
            "redis://:sec:secret@secret@ho st",
            "redis+unix://?pass=secret",
            "redis+unix://relative/path?pass=secret&db=x",
            "redis+unix:///path?db=x&pass=secret",
            "redis+unix:///pa:th?db=x&pass=a@secret",
            "ann:secret://?pass=x@host:port",
            "redis://ann:a@b?secret@host",
            "redis://ann:a@b?secret=c@host",
            "unix:/run/redis.sock?user=me@work&pass=secret",
            "redis+unix://run:redis?user=me@work&pass=secret",
            "redis://ann:a?b@host?pass=secret",
            "redis+unix:///a.sock?db=1&amp;pass=secret",
            "redis+unix:///a.sock?db=x;pass=secret",
            "redis+unix:///a.sock?p%61ss=secret&what=1",
            "redis+unix:///a.sock?pa\tss=secret&what=1",
            "redis+unix:///a.sock?pass%3Dsecret",
            "redis+unix:///a.sock?user=me;pass=secret&what=1",
        ] {
            let message = refusal(bad);
            assert!(!message.contains("secret"), "{message}");
            assert!(message.starts_with("node URL `"), "{message}");
        }
        for bad in [
            "",
            "localhost:6379",
            "redis://",
            "redis:///0",
            "redis://host/0#x",
            "redis://0.0.0.0",
            "://",
            "redis://ü:ö@",
        ] {
            refusal(bad);
        }
        assert!(refusal("redis:///0").contains("host is missing"));
        assert!(refusal("redis://host?db=3").contains("unknown parameter `db`"));
        assert!(!refusal("redis://ho\u{7f}st\n:x").contains(char::is_control));
    }

    /// The tests of the workspace have the feature, so this is asked of the function that knows both.
    #[test]
    fn input_11_tls_without_the_feature() {
        for scheme in ["rediss", "valkeys", "REDISS"] {
            let url = format!("{scheme}://host/");
            assert!(check_scheme(&url, false).unwrap_err().contains("feature `tls`"), "{scheme}");
            assert_eq!(check_scheme(&url, true), Ok(()), "{scheme}");
        }
        assert_eq!(NodeUrl::parse("rediss://host").is_ok(), cfg!(feature = "tls"));
    }
}
