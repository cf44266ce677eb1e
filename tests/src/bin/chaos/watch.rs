//! Watches the servers: which token stands under each lock on each node, and which tokens are asked to be extended.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::Connection;
use redlock_tests::{Proxy, Server};

use crate::clock::now;
use crate::history::Sighting;
use crate::timing::NODE_TIMEOUT;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(25);
/// Between two looks at what went through a proxy.
const SWEEP: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) sightings: Vec<Sighting>,
    pub(crate) extended: HashMap<String, u64>,
}

/// Looks at one server until the run is over; straight, past the proxy.
pub(crate) fn watch(node: usize, server: &Server, keys: usize, is_over: &AtomicBool, seen: &Mutex<Seen>) {
    let mut connection: Option<Connection> = None;
    let mut standing: Vec<Option<Sighting>> = vec![None; keys];
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(PAUSE);
        let Some(tokens) = look(server, keys, &mut connection) else { continue };
        let at = now();
        for (key, (stands, token)) in standing.iter_mut().zip(tokens).enumerate() {
            match (stands.as_mut(), token) {
                (Some(sighting), Some(token)) if sighting.token == token => sighting.until = at,
                (_, token) => {
                    let new = token.map(|token| Sighting { node, key, token, from: at, until: at });
                    let old = std::mem::replace(stands, new);
                    seen.lock().unwrap().sightings.extend(old);
                }
            }
        }
    }
    seen.lock().unwrap().sightings.extend(standing.into_iter().flatten());
}

fn look(server: &Server, keys: usize, connection: &mut Option<Connection>) -> Option<Vec<Option<String>>> {
    if connection.is_none() {
        let client = redis::Client::open(server.url()).ok()?;
        let new = client.get_connection_with_timeout(NODE_TIMEOUT).ok()?;
        new.set_read_timeout(Some(NODE_TIMEOUT)).ok()?;
        *connection = Some(new);
    }
    let names: Vec<String> = (0..keys).map(|key| format!("k{key}")).collect();
    let answer = redis::cmd("MGET").arg(names).query(connection.as_mut()?).ok();
    if answer.is_none() {
        *connection = None;
    }
    answer
}

/// Notes which tokens clients ask to extend, and forgets everything else that went through.
pub(crate) fn sweep(proxies: &[Proxy], is_over: &AtomicBool, seen: &Mutex<Seen>) {
    loop {
        let is_last = is_over.load(Ordering::SeqCst);
        let (at, instant) = (now(), std::time::Instant::now());
        for command in proxies.iter().flat_map(Proxy::take_log).filter(|command| command.name == "extend") {
            // Behind the digest: the number of keys, the key, the token.
            let Some(token) = command.args.get(3) else { continue };
            let ago = instant.saturating_duration_since(command.at).as_nanos();
            let when = at.saturating_sub(u64::try_from(ago).unwrap_or(0));
            let mut seen = seen.lock().unwrap();
            let last = seen.extended.entry(token.clone()).or_default();
            *last = when.max(*last);
        }
        if is_last {
            return;
        }
        thread::sleep(SWEEP);
    }
}
