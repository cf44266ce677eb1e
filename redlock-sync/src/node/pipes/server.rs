//! The connections to one server, and which of them a call goes over.
//!
//! *Order.* Two calls of a client about one key to one server are executed in the order in which they were written; or the earlier one was answered, or was on
//! a connection that is known to be broken, or on one that was given up with a release behind it. For a call goes over the connection on which a call about
//! its key is unanswered ([`Table`]), and a connection that does not answer is given up only where [`Pipe::is_undone`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::arrivals::Arrivals;
use super::ends::{Broken, Ends};
use super::pipe::{Hearer, Pipe};
use super::table::{Claim, Table};
use crate::clock::{Clock, Tick};
use crate::sync::Mutex;

/// How many connections that do not answer are kept beside those in use.
pub(super) const MOST_OLD: usize = 2;

/// What gives connections to one server: a pool of sockets, memory, or the simulation.
pub(crate) trait Supply: Send + Sync {
    /// A connection that is there.
    fn take(&self) -> Option<Ends>;

    /// A connection that is there. If there is none, one is made: [`Arrivals`] then learn that it has come, or why it has not.
    fn order(&self) -> Option<Ends>;
}

pub(crate) struct Pipes {
    /// Its place among the servers of its client.
    pub(super) number: usize,
    supply: Box<dyn Supply>,
    pub(super) arrivals: Arc<Arrivals>,
    table: Arc<Table>,
    heard: Arc<Heard>,
    /// Calls share so many.
    most: usize,
    open: Mutex<Open>,
    pub(super) clock: Arc<dyn Clock>,
    /// A node timeout.
    pub(super) patience: Duration,
}

/// What the server has answered, on whatever connection.
pub(crate) struct Heard {
    /// When that was written, in nanoseconds.
    latest: AtomicU64,
    /// Told of each answer.
    tell: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Open {
    used: Vec<Numbered>,
    /// Those that do not answer: read, and written only behind what is unanswered there.
    old: Vec<Numbered>,
    last: u32,
}

#[derive(Clone)]
struct Numbered {
    number: u32,
    pipe: Arc<Pipe>,
}

impl Heard {
    pub(crate) fn new(tell: Box<dyn Fn() + Send + Sync>) -> Arc<Heard> {
        Arc::new(Heard { latest: AtomicU64::new(0), tell })
    }
}

impl Hearer for Heard {
    fn heard(&self, written: Tick) {
        self.latest.fetch_max(nanos(written), Ordering::AcqRel);
        (self.tell)();
    }
}

fn nanos(tick: Tick) -> u64 {
    u64::try_from(tick.since(Tick::ZERO).as_nanos()).unwrap_or(u64::MAX)
}

impl Pipes {
    pub(crate) fn new(
        (number, supply): (usize, Box<dyn Supply>),
        (arrivals, heard): (Arc<Arrivals>, Arc<Heard>),
        most: usize,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> Pipes {
        let (table, open) = (Table::new(), Mutex::default());
        Pipes { number, supply, arrivals, table, heard, most: most.max(1), open, clock, patience }
    }

    /// The connection for a call about that key, with the note that the call is unanswered. `None` if there is none now: one is ordered then.
    pub(crate) fn claim(&self, key: &[u8]) -> Option<(Claim, Arc<Pipe>)> {
        let mut open = self.open.lock();
        self.tend(&mut open);
        let group = Table::group_of(key);
        let found = self.table.claim(group, |busy| open.find(busy, group).or_else(|| open.choose()));
        if found.is_none() || open.used.len() < self.most && open.used.iter().all(|one| one.pipe.reader_waits()) {
            self.order(&mut open);
        }
        drop(open);
        found
    }

    /// A call there is unanswered for so many node timeouts.
    fn is_late(&self, pipe: &Pipe, timeouts: u32) -> bool {
        pipe.is_late(self.patience.saturating_mul(timeouts))
    }

    /// It alone does not answer: another one has answered what was written later.
    fn is_suspect(&self, pipe: &Pipe) -> bool {
        self.is_late(pipe, 1) && self.heard.latest.load(Ordering::Acquire) > pipe.oldest()
    }

    /// Hung is a server of which no connection has answered what was written later than a call that is unanswered for a node timeout.
    pub(crate) fn is_hung(&self) -> bool {
        let open = self.open.lock();
        open.used.iter().any(|one| self.is_late(&one.pipe, 1) && !self.is_suspect(&one.pipe))
    }

    /// Takes what has come, and replaces what does not answer.
    fn tend(&self, open: &mut Open) {
        open.used.retain(|one| !one.pipe.is_over());
        // An old connection is of use until all is answered there.
        for one in open.old.extract_if(.., |one| one.pipe.is_over() || one.pipe.len() == 0) {
            one.pipe.end(Broken::Cut("has been replaced".into()));
        }
        let is_bad = |one: &Numbered| self.is_suspect(&one.pipe) || self.is_late(&one.pipe, 2);
        if open.used.iter().any(is_bad) {
            self.order(open);
        }
        if self.arrivals.is_here(self.number)
            && let Some(ends) = self.supply.take()
        {
            self.join(open, ends);
        }
    }

    fn order(&self, open: &mut Open) {
        if self.arrivals.order(self.number)
            && let Some(ends) = self.supply.order()
        {
            self.join(open, ends);
        }
    }

    /// A connection has come, in place of one that does not answer if there is one.
    fn join(&self, open: &mut Open, ends: Ends) {
        self.arrivals.taken(self.number);
        let late = open.used.iter().position(|one| self.is_suspect(&one.pipe) || self.is_late(&one.pipe, 2));
        if let Some(late) = late {
            let late = open.used.swap_remove(late);
            open.old.push(late);
            self.give_up(open);
        }
        let pipe = Pipe::new(ends, Arc::clone(&self.heard) as Arc<dyn Hearer>, Arc::clone(&self.clock), self.patience);
        open.last = open.last.wrapping_add(1);
        open.used.push(Numbered { number: open.last, pipe });
    }

    /// No more are kept than a few: of those with a release behind each acquire the oldest goes, else the oldest.
    fn give_up(&self, open: &mut Open) {
        if open.old.len() > MOST_OLD {
            let oldest = open.old.iter().position(|one| one.pipe.is_undone(None)).unwrap_or(0);
            open.old.remove(oldest).pipe.end(Broken::Cut(format!("did not answer for {:?}", self.patience * 2)));
        }
    }

    /// The connections at the moment.
    pub(crate) fn all(&self) -> Vec<Arc<Pipe>> {
        let open = self.open.lock();
        open.used.iter().chain(&open.old).map(|one| Arc::clone(&one.pipe)).collect()
    }
}

impl Open {
    /// One that is idle, else the one with the fewest calls.
    fn choose(&self) -> Option<(u32, Arc<Pipe>)> {
        let idle = self.used.iter().find(|one| one.pipe.len() == 0);
        let chosen = idle.or_else(|| self.used.iter().min_by_key(|one| one.pipe.len()));
        chosen.map(|one| (one.number, Arc::clone(&one.pipe)))
    }

    /// The one with that number, unless it is given up: over, or old with a release behind each acquire of this group.
    fn find(&self, number: Option<u32>, group: usize) -> Option<(u32, Arc<Pipe>)> {
        let number = number?;
        let is_it = |one: &&Numbered| one.number == number && !one.pipe.is_over();
        let old = || self.old.iter().find(is_it).filter(|one| !one.pipe.is_undone(Some(group)));
        let one = self.used.iter().find(is_it).or_else(old)?;
        Some((number, Arc::clone(&one.pipe)))
    }
}

impl Drop for Pipes {
    /// Its threads end. What was left there was flushed before: see [`flush`](super::exchange::flush).
    fn drop(&mut self) {
        for pipe in self.all() {
            pipe.end(Broken::Cut("the client has ended".into()));
        }
    }
}
