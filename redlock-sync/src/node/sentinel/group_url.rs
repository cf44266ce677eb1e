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

/// `None` if the scheme is not one of a group.
pub(in crate::node) fn group_in(text: &str) -> Option<Result<GroupText, String>> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.split_once('+').filter(|(_, kind)| kind.eq_ignore_ascii_case("sentinel"))?.0;
    Some(group(scheme, rest))
}

/// `scheme` is that of the servers, such as `redis`.
fn group(scheme: &str, rest: &str) -> Result<GroupText, String> {
    let (before, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let (authority, path) = before.split_once('/').unwrap_or((before, ""));
    // With the `@`.
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
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
    let login = redis::parse_redis_url(&format!("{scheme}://{first}/{query}")).ok_or("not a valid URL")?;
    check_parameters(login.query_pairs(), login.query(), &["sentinel_user", "sentinel_password"])?;
    let value = |wanted: &str| {
        let found = login.query_pairs().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.into_owned())
    };
    Ok(GroupText {
        name: name.to_owned(),
        server: format!("{scheme}://{user}{first}/{db}"),
        sentinels: hosts.iter().map(|host| format!("{scheme}://{}/", with_port(host))).collect(),
        user: value("sentinel_user"),
        password: value("sentinel_password"),
    })
}

fn with_port(host: &str) -> String {
    // The colons of an IPv6 address are inside brackets.
    let behind = host.rsplit(']').next().unwrap_or_default();
    if behind.contains(':') { host.to_owned() } else { format!("{host}:{PORT}") }
}
