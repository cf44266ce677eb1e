//! Replies that redirect a call to another server.

/// The reply of a server to a call for a slot that it does not serve, or does not serve alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another server serves the slot.
    Moved(usize, Address),
    /// The slot is migrating, and the key has already moved. Only this call goes to the other server, after `ASKING`.
    Ask(Address),
    /// The slot is migrating. Some keys of the call have moved, and others have not.
    TryAgain,
    /// No server serves the slot. Or the server is cut off from the others and cannot tell.
    Down,
}

/// How a call is sent to a server of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct Route {
    /// `ASKING` is sent before it.
    pub(in crate::node) asks: bool,
    /// Only its first keys are sent.
    pub(in crate::node) first_keys_only: bool,
    /// How often it was redirected.
    pub(in crate::node) redirects: u8,
}

/// Host and port. `None` stands for the host of the server that replied.
pub(super) type Address = (Option<String>, u16);

impl Redirect {
    pub(super) fn read(reply: &redis::Value) -> Option<Redirect> {
        let redis::Value::ServerError(error) = reply else { return None };
        let mut words = error.details().unwrap_or_default().split(' ');
        match error.code() {
            "MOVED" => Some(Redirect::Moved(words.next()?.parse().ok()?, address(words.next()?)?)),
            "ASK" => Some(Redirect::Ask(words.nth(1).and_then(address)?)),
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CLUSTERDOWN" => Some(Redirect::Down),
            _ => None,
        }
    }
}

/// Parses `host:port`. An IPv6 address has no brackets here.
fn address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Some((named(host), port.parse().ok()?))
}

/// The host, unless it is empty or `?`. A server sends that if it does not know its own address, or is configured not
/// to send it.
pub(super) fn named(host: &str) -> Option<String> {
    (!host.is_empty() && host != "?").then(|| host.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Redirect> {
        Redirect::read(&redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap())
    }

    #[test]
    fn redirects() {
        let at = |host: &str, port| (Some(host.to_owned()), port);
        assert_eq!(read("MOVED 3999 127.0.0.1:6381"), Some(Redirect::Moved(3999, at("127.0.0.1", 6381))));
        assert_eq!(read("MOVED 0 2001:db8::1:6381"), Some(Redirect::Moved(0, at("2001:db8::1", 6381))));
        assert_eq!(read("ASK 3999 node-2.local:7000"), Some(Redirect::Ask(at("node-2.local", 7000))));
        assert_eq!(read("MOVED 3999 :6381"), Some(Redirect::Moved(3999, (None, 6381))));
        assert_eq!(read("ASK 3999 ?:6381"), Some(Redirect::Ask((None, 6381))));
        assert_eq!(read("TRYAGAIN Multiple keys request during rehashing of slot"), Some(Redirect::TryAgain));
        assert_eq!(read("CLUSTERDOWN The cluster is down"), Some(Redirect::Down));
    }

    #[test]
    fn anything_else_is_none() {
        for line in ["MOVED", "MOVED x 127.0.0.1:1", "MOVED 1 127.0.0.1", "ASK 1 host:99999", "ERR MOVED 1 a:1"] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(Redirect::read(&redis::Value::Okay), None);
    }
}
