//! The reply to `CLUSTER SLOTS`: which server serves which slots.

use super::redirect::named;
use super::slots::SLOTS;

/// A parsed reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct SlotsReply {
    pub(super) ranges: Vec<Range>,
    /// The sorted ids of all servers, including replicas.
    pub(super) ids: Vec<String>,
}

/// A range of slots that one master serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) last: usize,
    /// `None` stands for the host of the server that replied.
    pub(super) host: Option<String>,
    pub(super) port: u16,
}

impl SlotsReply {
    /// `None` if the reply has another form, or the cluster has no slots.
    pub(in crate::node) fn read(reply: &redis::Value) -> Option<SlotsReply> {
        let redis::Value::Array(entries) = reply else { return None };
        let ranges: Vec<Range> = entries.iter().filter_map(range).collect();
        let mut ids: Vec<String> = entries.iter().flat_map(nodes).filter_map(|node| text(node.get(2)?)).collect();
        ids.sort_unstable();
        (!ranges.is_empty()).then_some(SlotsReply { ranges, ids })
    }

    /// The smallest id. It stays the same when a replica becomes a master.
    pub(in crate::node) fn id(&self) -> Option<&String> {
        self.ids.first()
    }

    /// True if the two lists share no id, so they describe different clusters. False if one of them is empty.
    pub(super) fn is_of_another_cluster(&self, ids: &[String]) -> bool {
        !ids.is_empty() && !self.ids.is_empty() && !self.ids.iter().any(|id| ids.contains(id))
    }
}

/// Parses an entry: first slot, last slot, the master, and its replicas.
fn range(entry: &redis::Value) -> Option<Range> {
    let redis::Value::Array(parts) = entry else { return None };
    let number = |at: usize| if let redis::Value::Int(n) = parts.get(at)? { usize::try_from(*n).ok() } else { None };
    let master = nodes(entry).next()?;
    let port = if let redis::Value::Int(port) = master.get(1)? { u16::try_from(*port).ok()? } else { return None };
    let host = text(master.first()?).and_then(|host| named(&host));
    Some(Range { first: number(0)?, last: number(1)?.min(SLOTS - 1), host, port })
}

/// The servers of an entry. Each has a host, a port, an id, and more.
fn nodes(entry: &redis::Value) -> impl Iterator<Item = &[redis::Value]> {
    let parts = if let redis::Value::Array(parts) = entry { parts.get(2..).unwrap_or_default() } else { &[] };
    parts.iter().filter_map(|node| if let redis::Value::Array(facts) = node { Some(facts.as_slice()) } else { None })
}

fn text(value: &redis::Value) -> Option<String> {
    match value {
        redis::Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        redis::Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn slots_of_redis_7_with_and_without_hosts() {
        let reply = b"*2\r\n*4\r\n:0\r\n:5460\r\n*4\r\n$9\r\n127.0.0.1\r\n:30001\r\n$2\r\nbb\r\n*0\r\n*4\r\n$9\r\n127.0.0.1\r\n:30004\r\n$2\r\naa\r\n*0\r\n\
            *3\r\n:5461\r\n:16383\r\n*3\r\n$0\r\n\r\n:30002\r\n$2\r\ncc\r\n";
        let reply = SlotsReply::read(&redis::parse_redis_value(reply).unwrap()).unwrap();
        let range = |first, last, host: Option<&str>, port| Range { first, last, host: host.map(str::to_owned), port };
        let ranges = vec![range(0, 5460, Some("127.0.0.1"), 30001), range(5461, 16383, None, 30002)];
        assert_eq!(reply, SlotsReply { ranges, ids: ["aa", "bb", "cc"].map(str::to_owned).into() });
        assert_eq!(reply.id().unwrap(), "aa");
    }

    #[test]
    fn another_cluster_has_no_server_in_common() {
        let reply =
            |ids: &[&str]| SlotsReply { ids: ids.iter().map(|id| (*id).to_owned()).collect(), ..SlotsReply::default() };
        let is_other = |a: &[&str], b: &[&str]| reply(a).is_of_another_cluster(&reply(b).ids);
        assert!(is_other(&["a", "b"], &["c"]));
        assert!(!is_other(&["a", "b"], &["b", "c"]) && !is_other(&[], &["a"]) && !is_other(&["a"], &[]));
    }

    #[test]
    fn a_cluster_without_slots_tells_nothing() {
        for reply in ["*0\r\n", "-ERR no\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n", "*1\r\n:3\r\n"] {
            assert_eq!(SlotsReply::read(&redis::parse_redis_value(reply.as_bytes()).unwrap()), None, "{reply}");
        }
    }
}
