//! The reply to `CLUSTER SLOTS`: which server serves which slots.

use std::collections::BTreeSet;

use super::redirect::named;
use super::slots::SLOTS;

/// The most masters that a cluster may have. Redis recommends at most 1000 servers in all.
pub(super) const MOST_MASTERS: usize = 1000;
/// The most servers that a cluster may have, with replicas.
const MOST_SERVERS: usize = 10_000;

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
    /// `Ok(None)` if the reply has another form, or the cluster has no slots. The error says why there cannot be such a
    /// cluster. Without these bounds, a broken server could have the client make any number of servers.
    pub(in crate::node) fn read(reply: &redis::Value) -> Result<Option<SlotsReply>, String> {
        let redis::Value::Array(entries) = reply else { return Ok(None) };
        let ranges: Vec<Range> = entries.iter().filter_map(range).collect();
        let slots = ranges.iter().map(|range| range.last - range.first + 1).sum();
        let masters = ranges.iter().map(|range| (&range.host, range.port)).collect::<BTreeSet<_>>().len();
        let ids: BTreeSet<String> = entries.iter().flat_map(nodes).filter_map(|node| text(node.get(2)?)).collect();
        for (count, most, what) in
            [(slots, SLOTS, "slots"), (masters, MOST_MASTERS, "masters"), (ids.len(), MOST_SERVERS, "servers")]
        {
            if count > most {
                return Err(format!(
                    "reports a cluster of {count} {what}, but this library accepts at most {most}: check CLUSTER SLOTS \
                     at this server, and that the URL names servers of your cluster"
                ));
            }
        }
        Ok((!ranges.is_empty()).then(|| SlotsReply { ranges, ids: ids.into_iter().collect() }))
    }

    /// The smallest id. It stays the same when a replica becomes a master.
    pub(in crate::node) fn id(&self) -> Option<&String> {
        self.ids.first()
    }

    /// True if the two sorted lists share no id, so they describe different clusters. False if one of them is empty.
    pub(super) fn is_of_another_cluster(&self, ids: &[String]) -> bool {
        !ids.is_empty() && !self.ids.is_empty() && !self.ids.iter().any(|id| ids.binary_search(id).is_ok())
    }
}

/// Parses an entry: first slot, last slot, the master, and its replicas.
fn range(entry: &redis::Value) -> Option<Range> {
    let redis::Value::Array(parts) = entry else { return None };
    let number = |at: usize| if let redis::Value::Int(n) = parts.get(at)? { usize::try_from(*n).ok() } else { None };
    let master = nodes(entry).next()?;
    let port = if let redis::Value::Int(port) = master.get(1)? { u16::try_from(*port).ok()? } else { return None };
    let host = text(master.first()?).and_then(|host| named(&host));
    let (first, last) = (number(0)?, number(1)?.min(SLOTS - 1));
    (first <= last).then_some(Range { first, last, host, port })
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
        let reply = SlotsReply::read(&redis::parse_redis_value(reply).unwrap()).unwrap().unwrap();
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
        for reply in [
            "*0\r\n",
            "-ERR no\r\n",
            "*1\r\n*2\r\n:0\r\n:1\r\n",
            "*1\r\n:3\r\n",
            "*1\r\n*3\r\n:9\r\n:8\r\n*2\r\n+a\r\n:1\r\n",
        ] {
            assert_eq!(SlotsReply::read(&redis::parse_redis_value(reply.as_bytes()).unwrap()), Ok(None), "{reply}");
        }
    }
    #[test]
    fn a_cluster_that_cannot_be_is_refused() {
        let entry = |first: usize, last: usize, host: String, id: usize| {
            let master = [
                redis::Value::BulkString(host.into_bytes()),
                redis::Value::Int(6379),
                redis::Value::BulkString(format!("{id:040}").into_bytes()),
            ];
            let slot = |slot: usize| redis::Value::Int(i64::try_from(slot).unwrap());
            redis::Value::Array(vec![slot(first), slot(last), redis::Value::Array(master.into())])
        };
        let read = |entries: Vec<redis::Value>| SlotsReply::read(&redis::Value::Array(entries));
        // A range for each slot is possible, with as many masters as are accepted.
        let most = read((0..SLOTS).map(|n| entry(n, n, format!("h{}", n % MOST_MASTERS), n % MOST_SERVERS)).collect());
        assert_eq!(most.unwrap().unwrap().ranges.len(), SLOTS);
        for (entries, words) in [
            ((0..=MOST_MASTERS).map(|n| entry(n, n, format!("h{n}"), 0)).collect::<Vec<_>>(), "1001 masters"),
            ((0..=MOST_SERVERS).map(|n| entry(n, n, String::new(), n)).collect(), "10001 servers"),
            ((0..3000).map(|_| entry(0, SLOTS, String::new(), 0)).collect(), "49152000 slots"),
            ((0..=SLOTS).map(|_| entry(0, 0, String::new(), 0)).collect(), "16385 slots"),
        ] {
            let why = read(entries).unwrap_err();
            assert!(why.contains(words) && why.contains("at most") && why.contains("CLUSTER SLOTS"), "{why}");
        }
    }
}
