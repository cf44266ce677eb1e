//! Sockets whose reply did not come in time. The server may still execute what was written on them; a release that is written behind
//! on the same connection is executed after it, whatever happens on other connections. Such a socket is never used for anything else.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Connection;

use super::Background;
use crate::clock::{Clock, Tick};
use crate::script::{Call, Note};
use crate::token::LockId;

/// At most this many sockets per node; the oldest are closed first.
const MOST: usize = 16;
/// The first question whether all replies have come; later ones follow after twice the pause each.
const FIRST_POLL: Duration = Duration::from_millis(20);
const LAST_POLL: Duration = Duration::from_secs(1);
/// Longest wait for a reply, and for room to write; such a server has most likely stopped reading.
const GLANCE: Duration = Duration::from_millis(2);

/// The late sockets of one node.
pub(super) struct Shelf {
    entries: Mutex<Entries>,
    clock: Arc<dyn Clock>,
    background: Background,
    this: Weak<Shelf>,
}

#[derive(Default)]
struct Entries {
    list: Vec<Entry>,
    /// When the janitor comes next, if he is ordered.
    janitor: Option<Tick>,
}

/// One late socket.
struct Entry {
    token: String,
    wire: Box<Connection>,
    /// From then on a late execution can do no harm.
    keep_until: Tick,
    /// Replies due for which no read was made yet; the reads that timed out are counted by the crate.
    owed: usize,
    /// The releases written behind. While there is none, the socket waits for one.
    behind: Vec<Vec<u8>>,
    /// Nothing more will be written behind: what is late is itself a release.
    is_release: bool,
    pause: Duration,
    next_poll: Tick,
}

/// What a late socket is kept for.
pub(super) struct Late<'a> {
    pub(super) token: &'a str,
    pub(super) lifetime: Duration,
    pub(super) is_release: bool,
    /// Replies due for which no read was made.
    pub(super) owed: usize,
}

impl Shelf {
    pub(super) fn new(clock: Arc<dyn Clock>, background: Background) -> Arc<Shelf> {
        Arc::new_cyclic(|this| Shelf { entries: Mutex::default(), clock, background, this: this.clone() })
    }

    /// Keeps a socket. The oldest one makes room.
    pub(super) fn keep(&self, wire: Box<Connection>, late: &Late<'_>) {
        if wire.set_write_timeout(Some(GLANCE)).and_then(|()| wire.set_read_timeout(Some(GLANCE))).is_err() {
            return;
        }
        let now = self.clock.now();
        let entry = Entry {
            token: late.token.to_owned(),
            wire,
            keep_until: now.after(late.lifetime),
            owed: late.owed,
            behind: Vec::new(),
            is_release: late.is_release,
            pause: FIRST_POLL,
            next_poll: now.after(FIRST_POLL),
        };
        let mut entries = self.entries.lock();
        let oldest = (entries.list.len() >= MOST).then(|| entries.list.remove(0));
        entries.list.push(entry);
        self.order_janitor(&mut entries);
        drop(entries);
        drop(oldest);
    }

    /// Writes a release behind every late call for its token. True if it stands behind at least one. It carries its
    /// source: nobody would be there to answer a NOSCRIPT.
    pub(super) fn send_behind(&self, release: &Call) -> bool {
        let mut entries = self.entries.lock();
        if entries.list.is_empty() {
            return false;
        }
        let (now, token) = (self.clock.now(), release.token.as_ref().map_or("", LockId::as_str));
        let bytes = release.packed_with_source(Note::Nothing);
        // Written under the lock, so that the janitor cannot have the socket in his hands meanwhile. A write waits only when the
        // socket's buffer is full.
        let (mine, others): (Vec<_>, Vec<_>) = entries.list.drain(..).partition(|entry| entry.token == token);
        let written: Vec<_> = mine.into_iter().filter_map(|entry| entry.with_behind(&bytes, now)).collect();
        let any = !written.is_empty();
        entries.list.extend(others);
        entries.list.extend(written);
        entries.list.sort_by_key(|entry| entry.keep_until);
        self.order_janitor(&mut entries);
        any
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.lock().list.len()
    }

    /// Orders the janitor for the earliest time at which there is something to do.
    fn order_janitor(&self, entries: &mut Entries) {
        let Some(due) = entries.list.iter().map(Entry::due).min() else { return };
        if entries.janitor.is_some_and(|ordered| ordered <= due) {
            return;
        }
        entries.janitor = Some(due);
        let this = self.this.clone();
        self.background.after(due.since(self.clock.now()), move || {
            if let Some(shelf) = this.upgrade() {
                shelf.clean(due);
            }
        });
    }

    /// The janitor's round, ordered for `due`: closes what is done or whose time has passed.
    fn clean(&self, due: Tick) {
        let mut entries = self.entries.lock();
        if entries.janitor != Some(due) {
            return; // He was ordered anew for an earlier time.
        }
        entries.janitor = None;
        let now = self.clock.now();
        let (ready, rest): (Vec<_>, Vec<_>) = entries.list.drain(..).partition(|entry| entry.due() <= now);
        entries.list = rest;
        drop(entries);
        // Unlocked: a release for one of these tokens is not written behind now, but it has one behind, or its time is over.
        let kept: Vec<_> = ready.into_iter().filter_map(|entry| entry.polled(now, &*self.clock)).collect();
        let mut entries = self.entries.lock();
        entries.list.extend(kept);
        entries.list.sort_by_key(|entry| entry.keep_until);
        self.order_janitor(&mut entries);
    }
}

impl Entry {
    /// A socket that waits for a release is looked at when its time has passed, the others when their replies may have come.
    fn due(&self) -> Tick {
        if self.is_settled() { self.next_poll.min(self.keep_until) } else { self.keep_until }
    }

    fn is_settled(&self) -> bool {
        self.is_release || !self.behind.is_empty()
    }

    /// The entry with the release behind it, or nothing if the connection is gone. A release that was written once is not repeated.
    fn with_behind(mut self, release: &[u8], now: Tick) -> Option<Entry> {
        if self.behind.iter().any(|written| written == release) {
            return Some(self);
        }
        self.wire.send_packed_command(release).ok()?;
        self.owed += 1;
        self.behind.push(release.to_vec());
        self.pause = FIRST_POLL;
        self.next_poll = now.after(FIRST_POLL);
        Some(self)
    }

    /// Asks whether all replies have come; nothing if the entry is done. Exactly one read for each command sent: a read that times
    /// out makes the crate skip its reply later, so the reply to this PING can only come after all others.
    fn polled(mut self, now: Tick, clock: &dyn Clock) -> Option<Entry> {
        if self.keep_until <= now {
            return None;
        }
        self.wire.send_packed_command(b"*1\r\n$4\r\nPING\r\n").ok()?;
        self.owed += 1;
        while self.owed > 0 {
            self.owed -= 1;
            match self.wire.recv_response() {
                Ok(_) if self.owed == 0 => return None,
                Ok(_) => {}
                Err(e) if e.is_timeout() => {
                    self.pause = self.pause.saturating_mul(2).min(LAST_POLL);
                    self.next_poll = clock.now().after(self.pause);
                    return Some(self);
                }
                Err(_) => return None,
            }
        }
        None
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} late", self.entries.lock().list.len())
    }
}
