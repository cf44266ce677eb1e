//! The URL of a Sentinel group:
//!
//! `redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/name[/db][?sentinel_user=…&sentinel_password=…]`

use crate::node::redact::check_parameters;

/// The default port of a Sentinel.
const PORT: u16 = 26379;

/// The parts of the URL, as URLs of single servers.
pub(in crate::node) struct GroupText {
    pub(in crate::node) name: String,
    /// The URL of a server with the login at the master. Its host is that of the first Sentinel.
    pub(in crate::node) server: String,
    pub(in crate::node) sentinels: Vec<String>,
    /// The user at the Sentinels. The password likewise.
    pub(in crate::node) user: Option<String>,
    pub(in crate::node) password: Option<String>,
}

/// The parts of the text.
struct Parts<'a> {
    /// The scheme for the servers, such as `redis`.
    scheme: &'a str,
    /// Includes the `@`.
    user: &'a str,
    hosts: Vec<&'a str>,
    name: &'a str,
    db: &'a str,
    /// Includes the `?`.
    query: &'a str,
}

/// `None` if the scheme is not one of a group.
pub(in crate::node) fn group_in(text: &str) -> Option<Result<GroupText, String>> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.split_once('+').filter(|(_, kind)| kind.eq_ignore_ascii_case("sentinel"))?.0;
    Some(Parts::of(scheme, rest).and_then(|parts| parts.group()))
}

impl<'a> Parts<'a> {
    fn of(scheme: &'a str, rest: &'a str) -> Result<Parts<'a>, String> {
        let (before, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        // Sentinel allows no other characters.
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err("behind the hosts of the sentinels stands the name of the group, such as `/mymaster`".into());
        }
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err("a host of a sentinel is missing".into());
        }
        Ok(Parts { scheme, user, hosts, name, db, query })
    }

    fn group(&self) -> Result<GroupText, String> {
        let Parts { scheme, user, name, db, query, .. } = self;
        let first = self.hosts.first().copied().unwrap_or_default();
        let login = redis::parse_redis_url(&format!("{scheme}://{first}/{query}")).ok_or("not a valid URL")?;
        check_parameters(login.query_pairs(), login.query(), &["sentinel_user", "sentinel_password"])?;
        let value = |wanted: &str| {
            let found = login.query_pairs().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.into_owned())
        };
        Ok(GroupText {
            name: (*name).to_owned(),
            server: format!("{scheme}://{user}{first}/{db}"),
            sentinels: self.hosts.iter().map(|host| format!("{scheme}://{}/", with_port(host))).collect(),
            user: value("sentinel_user"),
            password: value("sentinel_password"),
        })
    }
}

fn with_port(host: &str) -> String {
    // The colons of an IPv6 address are inside brackets.
    let behind = host.rsplit(']').next().unwrap_or_default();
    if behind.contains(':') { host.to_owned() } else { format!("{host}:{PORT}") }
}
