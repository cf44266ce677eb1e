//! A server in memory, and what tests can do to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::rules::{Rule, refused};
use super::store::{Item, MemoryReply, Store};
use super::{lua, message};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{ACQUIRE, RW_ACQUIRE, SEMAPHORE_ACQUIRE};
use crate::sync::{Condvar, Mutex};

/// The server's wall clock at its start, in microseconds. It does not depend on the machine, so that tests are
/// reproducible.
const EPOCH: u64 = 1_700_000_000_000_000;
/// The token that a denied attempt sees as the holder's.
const DENIED: &str = "00000000000000000000000000000000:denied";
/// The time-to-live that a denied attempt sees, in milliseconds. It is short, so a waiter soon tries again.
const DENIED_FOR: u64 = 20;

/// A server. It keeps its data while it is unreachable.
pub(crate) struct MemoryServer {
    pub(super) address: String,
    run_id: String,
    pub(super) clock: Arc<dyn Clock>,
    started: Tick,
    pub(super) state: Mutex<ServerState>,
    /// Notified when a message was published, or the server became unreachable.
    pub(super) changed: Arc<Condvar>,
    pub(super) this: Weak<MemoryServer>,
}

#[derive(Default)]
pub(super) struct ServerState {
    store: Store,
    /// The texts of the known scripts, by digest.
    scripts: HashMap<String, String>,
    has_forgotten: bool,
    pub(super) is_away: bool,
    /// Incremented when the server becomes unreachable. Connections of earlier epochs are broken.
    pub(super) epoch: u64,
    /// For each key, how many attempts to take the lock are still to be denied.
    denials: HashMap<Vec<u8>, u32>,
    /// The inboxes of the subscribed connections.
    pub(super) inboxes: BTreeMap<u64, Inbox>,
    /// The number of connections made.
    pub(super) connections: u64,
}

pub(super) struct Inbox {
    channel: Vec<u8>,
    /// The bytes of the unread messages.
    pub(super) messages: VecDeque<u8>,
}

impl MemoryServer {
    /// Makes a server. The number distinguishes it from other servers of its clients.
    pub(crate) fn new(number: usize, clock: Arc<dyn Clock>) -> Arc<MemoryServer> {
        static MADE: AtomicU64 = AtomicU64::new(1);
        Arc::new_cyclic(|this| MemoryServer {
            address: format!("memory:{number}"),
            run_id: format!("{:040x}", MADE.fetch_add(1, Ordering::Relaxed)),
            started: clock.now(),
            clock,
            state: Mutex::default(),
            changed: Arc::new(Condvar::new()),
            this: this.clone(),
        })
    }

    // --- what a test does --------------------------------------------------------------------------------------------

    /// Deletes a key.
    pub(crate) fn lose(&self, key: &str) {
        self.state.lock().store.replace(key.as_bytes(), None);
    }

    /// Lets the next attempts to take this lock find it taken.
    pub(crate) fn deny(&self, key: &str, times: u32) {
        self.state.lock().denials.insert(key.as_bytes().to_vec(), times);
    }

    /// Lets the server differ from Redis in this way.
    pub(crate) fn follow(&self, rules: &[Rule]) {
        self.state.lock().store.rules = rules.to_vec();
    }

    /// Breaks all connections, and refuses new ones.
    pub(crate) fn go_away(&self) {
        let mut state = self.state.lock();
        state.is_away = true;
        state.epoch += 1;
        state.inboxes.clear();
        state.count_listeners();
        // Unlocked before the notification, so that the woken threads find the state free. Pairs with `Source::read` of
        // a connection, which reads the state under its lock before it sleeps. So no notification is lost.
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn come_back(&self) {
        self.state.lock().is_away = false;
    }

    // --- what clients ask for ----------------------------------------------------------------------------------------

    /// Executes one command of a connection.
    pub(crate) fn execute(&self, connection: u64, words: &[&[u8]]) -> MemoryReply {
        let mut state = self.state.lock();
        let passed = self.clock.now().since(self.started);
        state.store.clock = EPOCH.saturating_add(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX));
        if let Some(refused) = refused(&state.store.rules, words) {
            return MemoryReply::Error(refused.into());
        }
        let is_short = state.store.rules.contains(&Rule::ShortInfo);
        let reply = match words {
            [b"EVALSHA", ..] if state.forgets_now() => no_script(),
            [b"EVALSHA", digest, rest @ ..] => state.eval_known(&String::from_utf8_lossy(digest), rest),
            [b"EVAL", source, rest @ ..] => {
                let digest = sha1_smol::Sha1::from(source).hexdigest();
                state.scripts.entry(digest.clone()).or_insert_with(|| String::from_utf8_lossy(source).into_owned());
                state.eval_known(&digest, rest)
            }
            // `SET NX` is refused without counting a denial. The script that the client sends next counts it.
            [b"SET", key, ..] if state.denials.get(*key).is_some_and(|left| *left > 0) => MemoryReply::Nil,
            [b"SUBSCRIBE", channel] => state.subscribe(connection, channel),
            [b"INFO", ..] if is_short => MemoryReply::Bulk(b"connected_clients:1\r\n".to_vec()),
            [b"INFO", ..] => {
                let (run_id, seconds) = (&self.run_id, passed.as_secs());
                let info = format!("run_id:{run_id}\r\nuptime_in_seconds:{seconds}\r\nrole:master\r\n");
                MemoryReply::Bulk(info.into_bytes())
            }
            // A server in memory has no replicas, and loses no data. So it says that all replicas acknowledged.
            [b"WAIT", replicas, _] => MemoryReply::Int(String::from_utf8_lossy(replicas).parse().unwrap_or(0)),
            [b"PING"] | [b"AUTH" | b"SELECT", ..] => MemoryReply::Ok,
            words => state.store.command(words),
        };
        if state.deliver() {
            self.changed.notify_all();
        }
        reply
    }
}

fn no_script() -> MemoryReply {
    MemoryReply::Error("NOSCRIPT No matching script. Please use EVAL.".into())
}

impl ServerState {
    /// True for each second call by a digest, if the server forgets scripts.
    fn forgets_now(&mut self) -> bool {
        self.has_forgotten = !self.has_forgotten && self.store.rules.contains(&Rule::ForgetsScripts);
        self.has_forgotten
    }

    fn eval_known(&mut self, digest: &str, rest: &[&[u8]]) -> MemoryReply {
        let ServerState { scripts, store, denials, .. } = self;
        let Some(text) = scripts.get(digest) else {
            return no_script();
        };
        let Some((keys, args)) = keys_and_args(rest) else {
            return MemoryReply::Error("ERR value is not an integer or out of range".into());
        };
        let busy_item: [(&str, BusyItem); 3] = [
            (&ACQUIRE.sha, Store::lasting),
            (&SEMAPHORE_ACQUIRE.sha, Store::exhausted),
            (&RW_ACQUIRE.sha, Store::written),
        ];
        let busy_item = busy_item.into_iter().find(|(acquire, _)| *acquire == digest);
        // While the script runs, the key holds another holder's lock. So the script replies that the lock is busy.
        let hidden = keys.first().zip(busy_item).and_then(|(key, (_, busy_item))| {
            let left = denials.get_mut(*key).filter(|left| **left > 0)?;
            *left -= 1;
            let busy = busy_item(store, DENIED, DENIED_FOR);
            Some((key, store.replace(key, Some(busy))))
        });
        let reply = lua::run(store, digest, text, keys, args);
        if let Some((key, item)) = hidden {
            store.replace(key, item);
        }
        reply
    }

    fn subscribe(&mut self, connection: u64, channel: &[u8]) -> MemoryReply {
        self.inboxes.insert(connection, Inbox { channel: channel.to_vec(), messages: VecDeque::new() });
        self.count_listeners();
        MemoryReply::List(vec![
            MemoryReply::Bulk(b"subscribe".to_vec()),
            MemoryReply::Bulk(channel.to_vec()),
            MemoryReply::Int(1),
        ])
    }

    pub(super) fn count_listeners(&mut self) {
        self.store.listeners.clear();
        for inbox in self.inboxes.values() {
            *self.store.listeners.entry(inbox.channel.clone()).or_default() += 1;
        }
    }

    /// Moves published messages to the subscribed connections. Returns false if there were none.
    fn deliver(&mut self) -> bool {
        let published = std::mem::take(&mut self.store.published);
        for (channel, text) in &published {
            for inbox in self.inboxes.values_mut().filter(|inbox| inbox.channel == *channel) {
                inbox.messages.extend(message(channel, text));
            }
        }
        !published.is_empty()
    }
}

type Words<'a, 'b> = &'b [&'a [u8]];

/// Makes the item of a lock that a token holds for this many milliseconds.
type BusyItem = fn(&Store, &str, u64) -> Item;

/// Splits the arguments of `EVAL` after the script into keys and other arguments.
fn keys_and_args<'a, 'b>(rest: Words<'a, 'b>) -> Option<(Words<'a, 'b>, Words<'a, 'b>)> {
    let (number, words) = rest.split_first()?;
    words.split_at_checked(std::str::from_utf8(number).ok()?.parse().ok()?)
}

impl fmt::Display for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}
