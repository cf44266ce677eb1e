//! Observes the servers: the token of each lock on each node.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::Connection;
use redlock_tests::Server;

use crate::clock::now;
use crate::history::Sighting;
use crate::names;
use crate::timing::NODE_TIMEOUT;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(25);
/// Checks one server until the run is over. The connection does not pass the proxy.
pub(crate) fn watch(node: usize, server: &Server, keys: usize, is_over: &AtomicBool, seen: &Mutex<Vec<Sighting>>) {
    let mut connection: Option<Connection> = None;
    let keys: Vec<usize> = names::all(keys).collect();
    let mut standing: Vec<Option<Sighting>> = vec![None; keys.len()];
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(PAUSE);
        let Some(tokens) = look(server, &keys, &mut connection) else { continue };
        let at = now();
        for ((stands, token), &key) in standing.iter_mut().zip(tokens).zip(&keys) {
            match (stands.as_mut(), token) {
                (Some(sighting), Some(token)) if sighting.token == token => sighting.until = at,
                (_, token) => {
                    let new = token.map(|token| Sighting { node, key, token, from: at, until: at });
                    let old = std::mem::replace(stands, new);
                    seen.lock().unwrap().extend(old);
                }
            }
        }
    }
    seen.lock().unwrap().extend(standing.into_iter().flatten());
}

fn look(server: &Server, keys: &[usize], connection: &mut Option<Connection>) -> Option<Vec<Option<String>>> {
    if connection.is_none() {
        let client = redis::Client::open(server.url()).ok()?;
        let new = client.get_connection_with_timeout(NODE_TIMEOUT).ok()?;
        new.set_read_timeout(Some(NODE_TIMEOUT)).ok()?;
        *connection = Some(new);
    }
    let names: Vec<String> = keys.iter().map(|&key| names::of(key)).collect();
    let answer = redis::cmd("MGET").arg(names).query(connection.as_mut()?).ok();
    if answer.is_none() {
        *connection = None;
    }
    answer
}
