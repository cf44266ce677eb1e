//! The URL of a node: how it is parsed, and how it is shown without its password.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

#[cfg(feature = "tls")]
use super::Tls;
use super::cluster::cluster_url::servers;
use super::redact::{check_parameters, redact};
use super::sentinel::group_url::{GroupText, group_in};
use super::{CredentialSource, Failure, Login};
use crate::error::Error;

/// The kernel probes a peer that was silent for this long.
const KEEPALIVE: Duration = Duration::from_secs(30);

const NEEDS_TLS: &str = "TLS needs the crate's feature `tls`: redlock-sync = { features = [\"tls\"] }";

/// The parsed URL of one node.
#[derive(Clone)]
pub(crate) struct NodeUrl {
    info: ConnectionInfo,
    address: String,
    credentials: Option<CredentialSource>,
    /// The Sentinel group whose master is the server. `info` has the login at the master.
    group: Option<Arc<GroupConfig>>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    /// The hosts of a cluster. Empty for a single server.
    hosts: Vec<(String, u16)>,
}

impl NodeUrl {
    /// Parses these forms. `rediss` is the same with TLS.
    ///
    /// - `redis://[user[:password]@]host[:port][/db]`
    /// - `redis+unix:///path?db=..&user=..&pass=..`, or `unix://`
    /// - `redis+sentinel://…`, see `sentinel/group_url.rs`
    /// - `redis+cluster://[user[:password]@]host[:port],host[:port]`
    pub(crate) fn parse(text: &str) -> Result<NodeUrl, Error> {
        let url = servers(text).map_or_else(|| NodeUrl::check_one(text), |servers| NodeUrl::check_cluster(&servers));
        url.map_err(|why| Error::config(format!("node URL `{}`: {why}", redact(text).escape_debug())))
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
        if let Some(group) = group_in(text) {
            return NodeUrl::check_group(group?);
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

    fn check_group(text: GroupText) -> Result<NodeUrl, String> {
        let GroupText { name, server, sentinels, user, password } = text;
        let sentinel = |text: &String| Ok(NodeUrl::check_one(text)?.with_login(user.clone(), password.clone()));
        let group = GroupConfig { name, sentinels: sentinels.iter().map(sentinel).collect::<Result<_, String>>()? };
        // The name and the addresses of the Sentinels identify the group.
        let address = format!("{}@{}", group.name, group.hosts());
        Ok(NodeUrl { address, group: Some(Arc::new(group)), ..NodeUrl::check_one(&server)? })
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
            tls: None,
        })
    }

    pub(super) fn group(&self) -> Option<&GroupConfig> {
        self.group.as_deref()
    }

    /// Replaces the login of the URL.
    pub(super) fn with_login(self, user: Option<String>, password: Option<String>) -> NodeUrl {
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
    pub(crate) fn with_tls(self, tls: Option<Tls>) -> NodeUrl {
        let group = self.group.as_ref().map(|group| Arc::new(group.with_tls(tls.as_ref())));
        NodeUrl { tls: tls.filter(|_| self.speaks_tls()), group, ..self }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn speaks_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    #[cfg(feature = "tls")]
    pub(super) fn tls(&self) -> Tls {
        self.tls.clone().unwrap_or_default()
    }

    pub(super) fn login(&self) -> Result<Login, Failure> {
        let login = self.info.redis_settings();
        self.credentials.as_ref().map_or_else(|| Ok(login.clone().into()), |asked| asked.login(&self.address, login))
    }

    /// `host:port`, or the path of the socket.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The hosts of a cluster. Empty for a single server.
    pub(super) fn hosts(&self) -> &[(String, u16)] {
        &self.hosts
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

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }
}

/// A group of servers monitored by Sentinels.
#[derive(Debug)]
pub(super) struct GroupConfig {
    pub(super) name: String,
    /// The URLs of the Sentinels, with the login there.
    pub(super) sentinels: Vec<NodeUrl>,
}

impl GroupConfig {
    /// Uses these certificates for the Sentinels.
    #[cfg(feature = "tls")]
    pub(super) fn with_tls(&self, tls: Option<&Tls>) -> GroupConfig {
        let sentinels = self.sentinels.iter().map(|url| url.clone().with_tls(tls.cloned())).collect();
        GroupConfig { name: self.name.clone(), sentinels }
    }

    pub(super) fn hosts(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(NodeUrl::address).collect();
        hosts.join(",")
    }
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
        let tls = if matches!(self.info.addr(), ConnectionAddr::TcpTls { .. }) { "s" } else { "" };
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
        let group = "redis+sentinel://user:a,b%40@h1:7000,H2,[::1]/main/3?sentinel_user=me&sentinel_password=secret%26";
        assert_eq!(show(group), "redis+sentinel://h1:7000,h2:26379,[::1]:26379/main/3");
        assert_eq!(show("valkey+sentinel://h1/a.b-c_d"), "redis+sentinel://h1:26379/a.b-c_d/0");
        let url = NodeUrl::parse(group).unwrap();
        let login = |url: &NodeUrl| url.info().redis_settings().password().map(str::to_owned);
        assert_eq!((url.address(), login(&url).unwrap()), ("main@h1:7000,h2:26379,[::1]:26379", "a,b@".into()));
        assert_eq!(login(url.group().unwrap().sentinels.last().unwrap()).unwrap(), "secret&");
        assert_eq!((url.with_host("x", 9).address(), login(&url.with_host("x", 9)).unwrap()), ("x:9", "a,b@".into()));
        let url = NodeUrl::parse("redis://user:secret@127.0.0.1/1").unwrap();
        assert_eq!(format!("{url:?}"), "redis://127.0.0.1:6379/1");
        assert_eq!(url.address(), "127.0.0.1:6379");
        assert_eq!(url.info().redis_settings().password(), Some("secret"));
        assert!(url.info().tcp_settings().nodelay());
    }

    #[test]
    fn a_cluster_has_a_list_of_hosts() {
        assert_eq!(
            show("redis+cluster://me:pa%40ss@H1:7000,[::1]:7001,h3"),
            "redis+cluster://h1:7000,[::1]:7001,h3:6379"
        );
        let url = NodeUrl::parse("redis+cluster://me:secret@h1:7000,h2/0").unwrap();
        assert_eq!(url.hosts(), [("h1".to_owned(), 7000), ("h2".to_owned(), 6379)]);
        let server = url.with_host("10.0.0.7", 7003);
        assert_eq!((server.to_string().as_str(), server.hosts().len()), ("redis://10.0.0.7:7003/0", 0));
        assert_eq!(server.info().redis_settings().password(), Some("secret"));
        for (bad, why) in [
            ("redis+cluster://me:secret@h1,h2/1", "database 0 only"),
            ("redis+cluster://me:secret@h1,,h2", "host is missing"),
            ("redis+cluster://me:secret@h1:x,h2", ""),
            ("redis+cluster://me:secret@", "host is missing"),
            ("redis+cluster://h1,h2?pass=secret", "unknown parameter"),
        ] {
            let message = refusal(bad);
            assert!(message.contains(why) && !message.contains("secret"), "{message}");
        }
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
            "redis+unix:///a.sock&pass=secret",
            "redis+unix:///a.sock;pass=secret",
            "redis://secret@host:port",
            "redis://host:port/secret@host",
            "redis+unix:///a.sock?db=x;pass=secret",
            "redis+unix:///a.sock?p%61ss=secret&what=1",
            "redis+unix:///a.sock?pa\tss=secret&what=1",
            "redis+unix:///a.sock?pass%3Dsecret",
            "redis+unix:///a.sock?user=me;pass=secret&what=1",
            "redis+sentinel://:secret@h1,h2",
            "redis+sentinel://:secret@h1,,h2/main",
            "redis+sentinel://:secret@h1,h2/main/x",
            "redis+sentinel://:secret@h1,h2/ma%20in",
            "redis+sentinel://:secret@h1,ho st/main",
            "redis+sentinel://h1,h2/main?sentinel_pass=secret",
            "redis+sentinel://h1,h2/main?sentinel_password=a@secret&pass=secret",
            "redis+unix+sentinel://:secret@h1/main",
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
        for no_host in ["redis://", "redis:///0", "redis://:6379/", "redis://:pa/ss@", "redis://:secret@/0"] {
            assert!(refusal(no_host).contains("host is missing"), "{no_host}");
        }
        for no_number in ["redis://host:99999/", "redis://:secret@host:x/"] {
            assert!(refusal(no_number).contains("not a valid URL"), "{no_number}");
        }
        assert!(refusal("redis://host?db=3").contains("unknown parameter `db`"));
        assert!(!refusal("redis://ho\u{7f}st\n:x").contains(char::is_control));
    }

    /// Tests are compiled with the feature `tls`, so this calls a function that takes it as a parameter.
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
