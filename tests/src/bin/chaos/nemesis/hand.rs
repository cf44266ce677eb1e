//! Deletes keys by hand, in cases that the library promises to survive.
//!
//! A holder relies on a lock for as long as a majority of the nodes keeps the key. So the key is deleted only on nodes
//! that are not needed for this majority. It is not deleted if its lease was extended in between.

use redis::{Connection, Script};

use super::Field;
use crate::clock::now;
use crate::history::Deleted;
use crate::names;
use crate::timing::NODE_TIMEOUT;

/// Deletes the key, unless it has another token or a longer time to live by now.
const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[2]) then \
                      return redis.call('DEL', KEYS[1]) end return 0";

/// Reads the token and the time to live of the key.
const LOOK: &str = "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}";

/// Deletes the key of this lock on some nodes. Returns the number of nodes.
pub(super) fn delete(field: &Field<'_>, key: usize) -> usize {
    let name = names::of(key);
    let mut nodes: Vec<Connection> = field.servers.iter().filter_map(|server| connect(&server.url())).collect();
    let stands: Vec<Option<(String, u64)>> = nodes.iter_mut().map(|node| look(node, &name)).collect();
    let Some(token) = stands.iter().flatten().map(|stand| stand.0.clone()).next() else { return 0 };
    let chosen = if field.beyond { (0..stands.len()).collect() } else { spare(&stands, &token, field.servers.len()) };
    let mut deleted = 0;
    for node in chosen {
        let seen = if field.beyond { u64::MAX >> 12 } else { stands[node].as_ref().map_or(0, |stand| stand.1) };
        let script = Script::new(DELETE);
        let gone: Result<usize, _> = script.key(&name).arg(&token).arg(seen).invoke(&mut nodes[node]);
        deleted += gone.unwrap_or(0);
    }
    if deleted > 0 {
        field.records.deleted.lock().unwrap().push(Deleted { at: now(), token, nodes: deleted });
    }
    deleted
}

fn connect(url: &str) -> Option<Connection> {
    let connection = redis::Client::open(url).ok()?.get_connection_with_timeout(NODE_TIMEOUT).ok()?;
    connection.set_read_timeout(Some(NODE_TIMEOUT)).ok()?;
    Some(connection)
}

fn look(node: &mut Connection, name: &str) -> Option<(String, u64)> {
    let (token, ttl): (Option<String>, i64) = Script::new(LOOK).key(name).invoke(node).ok()?;
    Some((token?, u64::try_from(ttl).ok()?))
}

/// The nodes that the holder can spare. They are a minority. Without them, a majority still keeps the lock for as long
/// as the holder relies on it.
fn spare(stands: &[Option<(String, u64)>], token: &str, nodes: usize) -> Vec<usize> {
    let need = nodes / 2 + 1;
    let ttl =
        |stand: &Option<(String, u64)>| stand.as_ref().filter(|stand| stand.0 == token).map_or(0, |stand| stand.1);
    let mut ttls: Vec<u64> = stands.iter().map(ttl).collect();
    ttls.resize(nodes, 0);
    ttls.sort_unstable_by(|a, b| b.cmp(a));
    let promised = ttls[need - 1];
    // A node may fall short by 2 ms. The library allows for that, because clocks differ.
    let enough = promised.saturating_sub(2);
    let keeping: Vec<usize> = (0..stands.len()).filter(|&node| promised > 0 && ttl(&stands[node]) >= enough).collect();
    let spare = keeping.len().saturating_sub(need);
    keeping.into_iter().take(spare).collect()
}

#[cfg(test)]
mod tests {
    use super::spare;

    fn stands(ttls: &[u64]) -> Vec<Option<(String, u64)>> {
        ttls.iter().map(|&ttl| (ttl > 0).then(|| ("a".to_owned(), ttl))).collect()
    }

    #[test]
    fn a_majority_keeps_it_for_as_long() {
        assert_eq!(spare(&stands(&[90, 90, 90]), "a", 3), [0]);
        assert_eq!(spare(&stands(&[90, 0, 90]), "a", 3), [0; 0]);
        assert_eq!(spare(&stands(&[10, 90, 90]), "a", 3), [0; 0]);
        assert_eq!(spare(&stands(&[90, 90, 90, 90, 90]), "a", 5), [0, 1]);
        assert_eq!(spare(&stands(&[90]), "a", 1), [0; 0]);
        assert_eq!(spare(&stands(&[90, 90, 90]), "b", 3), [0; 0]);
    }
}
