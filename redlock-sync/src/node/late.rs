//! Calls whose reply did not come in time, and the sockets on which they were written. The server may still execute
//! such a call; a release that is written behind it on the same connection is executed after it, whatever happens on
//! other connections.
//!
//! A socket whose replies did not come is kept here, and is never used for anything else. A call that its thread has
//! left while a leader still reads the replies of that connection is *out*: what shall go behind it is written by the
//! leader when all replies have come, or here if they have not.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::Background;
use super::link::{Broken, Connection, Link};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Note, Purpose};
use crate::token::LockId;

/// Lets the next call in for a slot that is on its way to that server.
pub(super) const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// At most this many sockets per node. Beyond that the oldest is closed, perhaps before the server has executed the
/// release behind it: an acquire that is executed after that leaves a token that no lease has, until its time-to-live
/// ends. As an orphan it does not lock this process out.
const MOST: usize = 16;
/// The first question whether all replies have come; later ones follow after twice the pause each.
const FIRST_POLL: Duration = Duration::from_millis(20);
const LAST_POLL: Duration = Duration::from_secs(1);
/// Longest wait for a reply, and for room to write; such a server has most likely stopped reading.
const GLANCE: Duration = Duration::from_millis(2);

/// The late calls of one node.
pub(super) struct LateReplies {
    entries: Mutex<Entries>,
    /// How many calls are out. Nearly always none, and then a leader does not lock.
    out: AtomicUsize,
    clock: Arc<dyn Clock>,
    background: Background,
    this: Weak<LateReplies>,
}

#[derive(Default)]
struct Entries {
    list: Vec<Entry>,
    out: Vec<Out>,
    /// When the sweeper comes next, if one is ordered.
    sweeper: Option<Tick>,
}

/// One late socket.
struct Entry {
    /// Which link it was.
    link: u64,
    calls: Vec<Filed>,
    wire: Box<dyn Connection>,
    /// Replies due for which no read was made yet; the reads that timed out are counted by the connection.
    owed: usize,
    /// The releases written behind.
    behind: Vec<Behind>,
    pause: Duration,
    next_poll: Tick,
}

/// A call that was written and not answered.
struct Filed {
    token: String,
    /// From then on a late execution can do no harm.
    keep_until: Tick,
    /// Nothing more has to be written behind: it is a release, or has one behind it.
    is_settled: bool,
    /// `ASKING` stands before it.
    asks: bool,
}

/// A call that its thread has left while a leader reads on that link.
struct Out {
    link: u64,
    filed: Filed,
    behind: Vec<Behind>,
}

/// A release that goes behind a late call.
#[derive(Clone, PartialEq, Eq)]
struct Behind {
    bytes: Vec<u8>,
    replies: usize,
}

impl LateReplies {
    pub(super) fn new(clock: Arc<dyn Clock>, background: Background) -> Arc<LateReplies> {
        let (entries, out) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new_cyclic(|this| LateReplies { entries, out, clock, background, this: this.clone() })
    }

    /// Keeps the socket of a link for calls that were not answered, unless none of them matters. `owed` replies have
    /// not been read for. With each call comes whether `ASKING` stands before it.
    pub(super) fn keep<'a>(&self, link: &mut Link, calls: impl Iterator<Item = (&'a Call, bool)>, owed: usize) {
        let now = self.clock.now();
        let Some(mut wire) = link.take() else { return };
        let filed: Vec<_> = calls.filter_map(|(call, asks)| Filed::new(call, asks, now)).collect();
        let mut entries = self.entries.lock();
        let outs = self.take_out(&mut entries, link.id);
        if filed.is_empty() || wire.set_write_timeout(GLANCE).and(wire.set_read_timeout(GLANCE)).is_err() {
            return;
        }
        let mut entry = Entry {
            link: link.id,
            calls: filed,
            wire,
            owed,
            behind: Vec::new(),
            pause: FIRST_POLL,
            next_poll: now.after(FIRST_POLL),
        };
        for out in outs {
            for release in &out.behind {
                match entry.with_behind(&out.filed.token, release, now) {
                    Some(written) => entry = written,
                    None => return,
                }
            }
        }
        let oldest = (entries.list.len() >= MOST).then(|| entries.list.remove(0));
        entries.list.push(entry);
        entries.list.sort_by_key(Entry::keep_until);
        self.order_sweeper(&mut entries);
        drop(entries);
        drop(oldest);
    }

    /// Files a call as out on a link whose replies a leader still reads. The caller keeps the leader from reading this
    /// call's own reply meanwhile.
    pub(super) fn file_out(&self, link: u64, call: &Call, asks: bool) {
        let now = self.clock.now();
        let Some(filed) = Filed::new(call, asks, now) else { return };
        let mut entries = self.entries.lock();
        entries.out.retain(|out| out.filed.keep_until > now);
        // Else the leader has given up on that link, and has filed this call itself.
        if entries.list.iter().all(|entry| entry.link != link) {
            entries.out.push(Out { link, filed, behind: Vec::new() });
        }
        self.out.store(entries.out.len(), Ordering::SeqCst);
    }

    /// A leader has read all replies of this link: what shall go behind calls that are out is written now. Their
    /// replies are owed.
    pub(super) fn settle(&self, link: &mut Link) {
        if self.out.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        for out in self.take_out(&mut entries, link.id) {
            for release in out.behind {
                // A link that breaks here is found broken when it is used next.
                if link.send(&release.bytes).is_ok() {
                    link.owed += release.replies;
                }
            }
        }
    }

    fn take_out(&self, entries: &mut Entries, link: u64) -> Vec<Out> {
        let (mine, others) = entries.out.drain(..).partition(|out| out.link == link);
        entries.out = others;
        self.out.store(entries.out.len(), Ordering::SeqCst);
        mine
    }

    /// Writes a release behind every late call for its token, or has that done. True if it stands behind at least one.
    /// It carries its source, since no thread will be there to answer a NOSCRIPT.
    pub(super) fn send_behind(&self, release: &Call) -> bool {
        let mut entries = self.entries.lock();
        if entries.list.is_empty() && entries.out.is_empty() {
            return false;
        }
        let (now, token) = (self.clock.now(), release.token.as_ref().map_or("", LockId::as_str));
        let [plain, asking] = [false, true].map(|asks| Behind::of(release, asks));
        let for_one = |asks| if asks { &asking } else { &plain };
        // Written under the lock, so that the sweeper cannot have the socket in its hands meanwhile. A write waits only when the
        // socket's buffer is full.
        let (mine, others): (Vec<_>, Vec<_>) = entries.list.drain(..).partition(|entry| entry.is_about(token));
        let written = mine.into_iter().filter_map(|entry| {
            let release = for_one(entry.asks(token));
            entry.with_behind(token, release, now)
        });
        let written: Vec<_> = written.collect();
        let mut any = !written.is_empty();
        entries.list.extend(others);
        entries.list.extend(written);
        entries.list.sort_by_key(Entry::keep_until);
        for out in entries.out.iter_mut().filter(|out| out.filed.token == token) {
            any = true;
            let release = for_one(out.filed.asks);
            if !out.behind.contains(release) {
                out.behind.push(release.clone());
            }
        }
        self.order_sweeper(&mut entries);
        any
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.lock().list.len()
    }

    /// Orders the sweeper for the earliest time at which there is something to do.
    fn order_sweeper(&self, entries: &mut Entries) {
        let Some(due) = entries.list.iter().map(Entry::due).min() else { return };
        if entries.sweeper.is_some_and(|ordered| ordered <= due) {
            return;
        }
        entries.sweeper = Some(due);
        let this = self.this.clone();
        self.background.after(due.since(self.clock.now()), move || {
            if let Some(late) = this.upgrade() {
                late.clean(due);
            }
        });
    }

    /// The sweeper's round, ordered for `due`: closes what is done or whose time has passed.
    fn clean(&self, due: Tick) {
        let mut entries = self.entries.lock();
        if entries.sweeper != Some(due) {
            return; // Ordered anew for an earlier time.
        }
        entries.sweeper = None;
        let now = self.clock.now();
        let (ready, rest): (Vec<_>, Vec<_>) = entries.list.drain(..).partition(|entry| entry.due() <= now);
        entries.list = rest;
        drop(entries);
        // Unlocked: a release for one of these tokens is not written behind now, but it has one behind, or its time is over.
        let kept: Vec<_> = ready.into_iter().filter_map(|entry| entry.polled(now, &*self.clock)).collect();
        let mut entries = self.entries.lock();
        entries.list.extend(kept);
        entries.list.sort_by_key(Entry::keep_until);
        self.order_sweeper(&mut entries);
    }
}

impl Filed {
    /// Nothing for a call whose late execution does no harm.
    fn new(call: &Call, asks: bool, now: Tick) -> Option<Filed> {
        let token = call.token.as_ref().map_or("", LockId::as_str).to_owned();
        let is_settled = call.purpose == Purpose::Release;
        (call.purpose != Purpose::Other).then(|| Filed {
            token,
            keep_until: now.after(call.lifetime),
            is_settled,
            asks,
        })
    }
}

impl Entry {
    /// From then on no late execution on this socket can do harm.
    fn keep_until(&self) -> Tick {
        self.calls.iter().map(|filed| filed.keep_until).max().unwrap_or(Tick::ZERO)
    }

    fn asks(&self, token: &str) -> bool {
        self.calls.iter().any(|filed| filed.asks && filed.token == token)
    }

    fn is_about(&self, token: &str) -> bool {
        self.calls.iter().any(|filed| filed.token == token)
    }

    /// A socket that waits for a release is looked at when its time has passed, the others when their replies may have
    /// come.
    fn due(&self) -> Tick {
        let is_settled = self.calls.iter().all(|filed| filed.is_settled);
        if is_settled { self.next_poll.min(self.keep_until()) } else { self.keep_until() }
    }

    /// The entry with the release behind it, or nothing if the connection is gone. A release that was written once is
    /// not repeated.
    fn with_behind(mut self, token: &str, release: &Behind, now: Tick) -> Option<Entry> {
        if !self.behind.iter().any(|written| written == release) {
            self.wire.send(&release.bytes).ok()?;
            self.owed += release.replies;
            self.behind.push(release.clone());
            self.pause = FIRST_POLL;
            self.next_poll = now.after(FIRST_POLL);
        }
        self.calls.iter_mut().filter(|filed| filed.token == token).for_each(|filed| filed.is_settled = true);
        Some(self)
    }

    /// Asks whether all replies have come; nothing if the entry is done. Exactly one read for each command sent: a read
    /// that times out makes the connection skip its reply later, so the reply to this PING can only come after all
    /// others.
    fn polled(mut self, now: Tick, clock: &dyn Clock) -> Option<Entry> {
        if self.keep_until() <= now {
            return None;
        }
        self.wire.send(b"*1\r\n$4\r\nPING\r\n").ok()?;
        self.owed += 1;
        while self.owed > 0 {
            self.owed -= 1;
            match self.wire.receive() {
                Ok(_) if self.owed == 0 => return None,
                Ok(_) => {}
                Err(Broken::TimedOut | Broken::Slow) => {
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

impl Behind {
    /// Behind a call that went with `ASKING` it has one too, and names its first keys alone: else the server would send
    /// it away, since the slot is not its own, or the other keys have not arrived.
    fn of(release: &Call, asks: bool) -> Behind {
        let mut bytes = if asks { ASKING.to_vec() } else { Vec::new() };
        let alone = release.alone().filter(|_| asks);
        alone.as_ref().unwrap_or(release).write_source_to(&mut bytes, Note::Nothing);
        Behind { bytes, replies: 1 + usize::from(asks) }
    }
}

impl fmt::Debug for LateReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.lock();
        write!(f, "{} late, {} out", entries.list.len(), entries.out.len())
    }
}
