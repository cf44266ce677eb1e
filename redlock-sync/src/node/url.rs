//! The URL of a node: how it is parsed, and how it is shown without its password.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

#[cfg(feature = "tls")]
use super::Tls;
use super::redact::{check_parameters, redact};
use super::{CredentialSource, Failure, Login};
use crate::error::Error;
use crate::names::escaped;

/// The kernel probes a peer that was silent for this long.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

const NEEDS_TLS: &str = "TLS needs the crate's feature `tls`: redlock-sync = { features = [\"tls\"] }";

const ENCODING: &str = "; in a user name or password, percent-encode special characters: `%23` for `#`, `%2F` for `/`, \
                        `%3F` for `?`, `%40` for `@`";

/// The parsed URL of one node.
#[derive(Clone)]
pub(crate) struct NodeUrl {
    pub(super) info: ConnectionInfo,
    address: String,
    credentials: Option<CredentialSource>,
    /// The Sentinel group whose master is the server. `info` has the login at the master.
    pub(super) group: Option<GroupConfig>,
    #[cfg(feature = "tls")]
    pub(super) tls: Tls,
    /// The hosts of a cluster. Empty for a single server.
    pub(super) hosts: Vec<(String, u16)>,
}

impl NodeUrl {
    /// Parses these forms. `rediss` is the same with TLS.
    ///
    /// - `redis://[user[:password]@]host[:port][/db]`
    /// - `redis+unix:///path?db=..&user=..&pass=..`, or `unix://`
    /// - `redis+sentinel://[user[:password]@]host[:port],host[:port]/name[/db]?sentinel_user=..&sentinel_password=..`
    /// - `redis+cluster://[user[:password]@]host[:port],host[:port]`
    pub(crate) fn parse(text: &str) -> Result<NodeUrl, Error> {
        let url = match cluster_servers(text) {
            Some(servers) => NodeUrl::check_cluster(&servers),
            None => NodeUrl::check_one(text),
        };
        let hint = if may_need_encoding(text) { ENCODING } else { "" };
        url.map_err(|why| Error::config(format!("node URL `{}`: {why}{hint}", escaped(&redact(text)))))
    }

    /// The server to which a client of the `redis` crate connects.
    #[cfg(feature = "client")]
    pub(crate) fn of_client(client: &redis::Client) -> Result<NodeUrl, Error> {
        let info = client.get_connection_info().clone();
        let address = address_of(info.addr());
        let refused = match info.addr() {
            ConnectionAddr::TcpTls { .. } if !cfg!(feature = "tls") => Some(NEEDS_TLS),
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                Some("it does not verify the certificate of its server; use a client that does")
            }
            ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
                Some("its own certificates cannot be read from it: give them with Builder::tls")
            }
            _ => None,
        };
        let url = refused.map_or_else(|| NodeUrl::from_info(info), |why| Err(why.into()));
        url.map_err(|why| Error::config(format!("the client of `{address}`: {why}")))
    }

    fn check_cluster(servers: &[String]) -> Result<NodeUrl, String> {
        let all: Vec<NodeUrl> = servers.iter().map(|text| NodeUrl::check_one(text)).collect::<Result<_, _>>()?;
        let host = |url: &NodeUrl| match url.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
            _ => None,
        };
        let hosts = all.iter().filter_map(host).collect();
        let address = all.iter().map(NodeUrl::address).collect::<Vec<_>>().join(",");
        let first = all.into_iter().next().ok_or("the host is missing")?;
        if first.info.redis_settings().db() != 0 {
            return Err("a cluster has database 0 only".into());
        }
        Ok(NodeUrl { address, hosts, ..first })
    }

    fn check_one(text: &str) -> Result<NodeUrl, String> {
        check_scheme(text, cfg!(feature = "tls"))?;
        if let Some((scheme, rest)) = group_in(text) {
            return NodeUrl::check_group(scheme, rest);
        }
        let url = redis::parse_redis_url(text).ok_or(if lacks_host(text) {
            "the host is missing"
        } else {
            "not a valid URL"
        })?;
        let tcp = matches!(url.scheme(), "redis" | "rediss" | "valkey" | "valkeys");
        if tcp && url.host_str().is_none_or(str::is_empty) {
            return Err("the host is missing".into());
        }
        if !tcp && url.path().trim_matches('/').is_empty() {
            return Err("the path of the socket is missing".into());
        }
        if !tcp && ["&", ";"].iter().any(|sign| url.path().contains(sign)) && url.path().contains('=') {
            // The parser would take the parameters as a part of the path, and the path is shown.
            return Err(
                "a socket's parameters begin with `?`; in its path, write `%26` and `%3B` for `&` and `;`".into()
            );
        }
        if url.fragment().is_some() {
            return Err("a part after `#` has no meaning here; write `%23` for a `#` in a user name or password".into());
        }
        let known: &[&str] = if tcp { &["protocol"] } else { &["db", "user", "pass", "protocol"] };
        check_parameters(url.query_pairs(), url.query(), known)?;
        // The parser's message can contain a password, but only after ` - `. `plain` cuts that part off.
        let info = url.into_connection_info().map_err(|e| plain(&e))?;
        NodeUrl::from_info(info)
    }

    /// `scheme` is that of the servers, such as `redis`. `rest` follows the `://`.
    fn check_group(scheme: &str, rest: &str) -> Result<NodeUrl, String> {
        let (before, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        // With the `@`. This is the login at the master.
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        // Sentinel allows no other characters.
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err("the name of the group must follow the hosts of the Sentinels, such as `/mymaster`".into());
        }
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err("the host of a Sentinel is missing".into());
        }
        let first = hosts.first().copied().unwrap_or_default();
        let url = redis::parse_redis_url(&format!("{scheme}://{first}/{query}")).ok_or("not a valid URL")?;
        check_parameters(url.query_pairs(), url.query(), &["sentinel_user", "sentinel_password"])?;
        let value = |wanted: &str| {
            let found = url.query_pairs().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.into_owned())
        };
        let (user, password) = (value("sentinel_user"), value("sentinel_password"));
        let sentinel = |host: &&str| {
            let url = NodeUrl::check_one(&format!("{scheme}://{}/", with_sentinel_port(host)))?;
            Ok(url.with_login(user.clone(), password.clone()))
        };
        let sentinels: Vec<NodeUrl> = hosts.iter().map(sentinel).collect::<Result<_, String>>()?;
        // A majority of them decides, so each may be named once.
        let is_twice = |(i, one): &(usize, &NodeUrl)| sentinels.iter().take(*i).any(|s| s.address() == one.address());
        if let Some((_, twice)) = sentinels.iter().enumerate().find(is_twice) {
            return Err(format!("the sentinel {} is named twice", twice.address()));
        }
        let group = GroupConfig { name: name.to_owned(), sentinels };
        // The name and the addresses of the Sentinels identify the group.
        let address = format!("{name}@{}", group.hosts());
        let master = NodeUrl::check_one(&format!("{scheme}://{login}{first}/{db}"))?;
        Ok(NodeUrl { address, group: Some(group), ..master })
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
        Ok(NodeUrl {
            info: info.set_tcp_settings(tcp).set_redis_settings(settings),
            address,
            credentials: None,
            group: None,
            hosts: Vec::new(),
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        })
    }

    /// Replaces the login of the URL.
    fn with_login(self, user: Option<String>, password: Option<String>) -> NodeUrl {
        let login = self.info.redis_settings().clone();
        let login = user.into_iter().fold(login, RedisConnectionInfo::set_username);
        let login = password.into_iter().fold(login, RedisConnectionInfo::set_password);
        NodeUrl { info: self.info.set_redis_settings(login), ..self }
    }

    /// Asks this source for credentials at each connection.
    pub(crate) fn with_credentials(self, credentials: Option<CredentialSource>) -> NodeUrl {
        NodeUrl { credentials, ..self }
    }

    /// Uses these certificates if the connections use TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(mut self, tls: &Tls) -> NodeUrl {
        if self.speaks_tls() {
            self.tls = tls.clone();
        }
        if let Some(group) = &mut self.group {
            group.sentinels = group.sentinels.iter().map(|url| url.clone().with_tls(tls)).collect();
        }
        self
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    pub(super) fn login(&self) -> Result<Login, Failure> {
        let login = self.info.redis_settings();
        self.credentials.as_ref().map_or_else(|| Ok(login.clone().into()), |asked| asked.login(&self.address, login))
    }

    /// `host:port`, or the path of the socket.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The URL of one server of a cluster.
    pub(super) fn with_host(&self, host: &str, port: u16) -> NodeUrl {
        let mut addr = self.info.addr().clone();
        if let ConnectionAddr::Tcp(of, at) | ConnectionAddr::TcpTls { host: of, port: at, .. } = &mut addr {
            (*of, *at) = (host.to_owned(), port);
        }
        let info = self.info.clone().set_addr(addr);
        NodeUrl { info, address: host_port(host, port), group: None, hosts: Vec::new(), ..self.clone() }
    }
}

/// A group of servers monitored by Sentinels.
#[derive(Clone)]
pub(super) struct GroupConfig {
    pub(super) name: String,
    /// The URLs of the Sentinels, with the login there.
    pub(super) sentinels: Vec<NodeUrl>,
}

impl GroupConfig {
    fn hosts(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(NodeUrl::address).collect();
        hosts.join(",")
    }
}

/// The URLs of the servers in `redis+cluster://[user[:password]@]h1:7000,h2`. `None` for a URL of another kind.
fn cluster_servers(text: &str) -> Option<Vec<String>> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "redis+cluster" | "valkey+cluster" => "redis",
        "rediss+cluster" | "valkeys+cluster" => "rediss",
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // With the `@`.
    let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    Some(hosts.split(',').map(|host| format!("{scheme}://{login}{host}{path}")).collect())
}

/// The scheme of the servers in the URL of a Sentinel group, and what follows the `://`. `None` for a URL of another
/// kind.
fn group_in(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (servers, kind) = scheme.split_once('+')?;
    kind.eq_ignore_ascii_case("sentinel").then_some((servers, rest))
}

fn with_sentinel_port(host: &str) -> String {
    // The colons of an IPv6 address are inside brackets.
    let behind = host.rsplit(']').next().unwrap_or_default();
    if behind.contains(':') { host.to_owned() } else { format!("{host}:{SENTINEL_PORT}") }
}

/// True if a special character stands before an `@`, as it does in a password that is not percent-encoded.
fn may_need_encoding(text: &str) -> bool {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    !scheme.ends_with("unix") && rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(['#', '/', '?']))
}

/// True if the host is empty: the port, the path or the end follows directly.
fn lacks_host(text: &str) -> bool {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    place.is_empty() || place.starts_with([':', '/'])
}

/// Checks the scheme. The messages are more helpful than those of the parser.
fn check_scheme(text: &str, has_tls: bool) -> Result<(), String> {
    let Some((scheme, _)) = text.split_once("://") else {
        return Err("a URL starts with `redis://`, `rediss://` or `redis+unix://`".into());
    };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.strip_suffix("+sentinel").unwrap_or(&scheme) {
        "rediss" | "valkeys" if !has_tls => Err(NEEDS_TLS.into()),
        "redis" | "rediss" | "valkey" | "valkeys" => Ok(()),
        "redis+unix" | "valkey+unix" | "unix" if !scheme.ends_with("+sentinel") => Ok(()),
        _ if scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) => Err(format!(
            "unknown scheme `{scheme}`; use redis, rediss, redis+unix, unix, redis+sentinel or redis+cluster"
        )),
        // Text that is not a scheme may be a part of a password, so it is not repeated.
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

/// `host:port` as in a URL. Host names are in lower case, so that equal names compare equal.
pub(super) fn host_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) => format!("[{v6}]:{port}"),
        _ => format!("{}:{port}", host.to_ascii_lowercase()),
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let db = self.info.redis_settings().db();
        let tls = if self.speaks_tls() { "s" } else { "" };
        if let Some(group) = &self.group {
            return write!(f, "redis{tls}+sentinel://{}/{}/{db}", group.hosts(), group.name);
        }
        if !self.hosts.is_empty() {
            return write!(f, "redis{tls}+cluster://{}", self.address);
        }
        match self.info.addr() {
            ConnectionAddr::Unix(_) => write!(f, "redis+unix://{}?db={db}", self.address),
            _ => write!(f, "redis{tls}://{}/{db}", self.address),
        }
    }
}

impl fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
