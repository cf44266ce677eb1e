//! Replies that send a call elsewhere.

/// What a server of a cluster says to a call for a slot that it does not serve, or not alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is served there.
    Moved(usize, Address),
    /// The slot is on its way there, and so is this key: this call alone goes there, behind `ASKING`.
    Ask(Address),
    /// The slot is on its way, and some keys of the call have arrived and others have not.
    TryAgain,
    /// None: the server sees too little of the cluster, or thinks so because it is cut off from the others.
    Down,
}

/// How a call goes to a server of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct Route {
    /// `ASKING` stands before it.
    pub(in crate::node) asks: bool,
    /// It names its first keys alone.
    pub(in crate::node) is_alone: bool,
    /// How often it was sent elsewhere.
    pub(in crate::node) redirects: u8,
}

/// Host and port; without a host it is that of the server that said so.
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

/// `host:port`, where an IPv6 address has no brackets.
fn address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Some((named(host), port.parse().ok()?))
}

/// A server that does not know its own address, or is told not to tell it, has none, or says `?`.
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
