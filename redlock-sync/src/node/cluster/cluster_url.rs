//! The URL of a cluster: like that of a server, with a list of hosts.

/// The URLs of the servers in `redis+cluster://[user[:password]@]h1:7000,h2`. `None` for a URL of another kind.
pub(in crate::node) fn servers(text: &str) -> Option<Vec<String>> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "redis+cluster" | "valkey+cluster" => "redis",
        "rediss+cluster" | "valkeys+cluster" => "rediss",
        _ => return None,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let (user, list) = authority.rsplit_once('@').map_or(("", authority), |(user, list)| (user, list));
    let at = if user.is_empty() { "" } else { "@" };
    Some(list.split(',').map(|host| format!("{scheme}://{user}{at}{host}{path}")).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn one_url_for_each_host() {
        let all = servers("redis+cluster://me:pw@h1:7000,h2,[::1]:7001/0").unwrap();
        assert_eq!(all, ["redis://me:pw@h1:7000/0", "redis://me:pw@h2/0", "redis://me:pw@[::1]:7001/0"]);
        assert_eq!(servers("REDISS+Cluster://h1").unwrap(), ["rediss://h1"]);
        assert_eq!(servers("redis://h1,h2"), None);
    }
}
