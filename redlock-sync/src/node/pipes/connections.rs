//! The connections to one server, and which of them a call goes over.
//!
//! *Order.* A server executes two calls of a client about one key in the order in which they were written, as long as the earlier one is unanswered on a
//! connection that is in use: for a call goes over the connection on which a call about its key is unanswered ([`Table`]). Two rules end that. A call may go
//! elsewhere once a release stands behind each acquire there ([`Pipe::is_undone`]). A connection that breaks, or that is given up after [`PATIENT`] node
//! timeouts, can leave an acquire that is executed later: its token is an orphan, which no lease has, until its key ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::arrivals::Arrivals;
use super::ends::{Broken, Ends, Made};
use super::pipe::{Hearer, MANY, Pipe};
use super::supply::{MOST_OLD, Supply};
use super::table::{Claim, Table};
use crate::clock::{Clock, Tick};
use crate::fork::ForkGuard;
use crate::node::host::Host;
use crate::sync::Mutex;

/// A connection is given up after so many node timeouts without an answer.
const PATIENT: u32 = 8;

pub(crate) struct Connections {
    /// Its place where threads wait for connections.
    place: usize,
    host: Arc<Host>,
    supply: Box<dyn Supply>,
    arrivals: Arc<Arrivals>,
    table: Arc<Table>,
    heard: Arc<Heard>,
    /// How many connections calls share.
    most: usize,
    open: Mutex<Open>,
    clock: Arc<dyn Clock>,
    /// A node timeout.
    patience: Duration,
    fork: ForkGuard,
}

/// What the server has answered, on whatever connection.
struct Heard {
    /// When that was written, in nanoseconds.
    latest: AtomicU64,
    host: Arc<Host>,
}

#[derive(Default)]
struct Open {
    used: Vec<Numbered>,
    /// Those that do not answer, or must not be used for what is new: read, and written only behind what is unanswered there.
    old: Vec<Numbered>,
    last: u32,
}

#[derive(Clone)]
struct Numbered {
    number: u32,
    pipe: Arc<Pipe>,
    /// As [`Host::generation`] was when it was made.
    generation: u64,
    /// From when on it shall be replaced, and from when on nothing new may go over it: what it logged in with has run out then.
    validity: Option<(Tick, Tick)>,
}

/// Which connection a call wants.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wish<'a> {
    /// None that answers slowly at the moment.
    pub(crate) prompt: bool,
    /// It goes behind what is unanswered about its key, however slow that is.
    pub(crate) is_release: bool,
    /// The same as this one, so that calls travel in one packet.
    pub(crate) beside: Option<&'a Arc<Pipe>>,
}

/// The connection for a call.
pub(crate) struct Found {
    pub(crate) claim: Claim,
    pub(crate) pipe: Arc<Pipe>,
    /// As [`Host::generation`] was when it was made.
    pub(crate) generation: u64,
}

impl Hearer for Heard {
    fn heard(&self, written: Tick) {
        self.latest.fetch_max(written.as_nanos(), Ordering::AcqRel);
        self.host.record_answer();
    }
}

impl Connections {
    pub(crate) fn new(
        host: &Arc<Host>,
        (place, arrivals): (usize, &Arc<Arrivals>),
        supply: Box<dyn Supply>,
        most: usize,
    ) -> Connections {
        let heard = Arc::new(Heard { latest: AtomicU64::new(0), host: Arc::clone(host) });
        Connections {
            place,
            host: Arc::clone(host),
            supply,
            arrivals: Arc::clone(arrivals),
            table: Table::new(),
            heard,
            most: most.max(1),
            open: Mutex::default(),
            clock: Arc::clone(&host.clock),
            // What takes no time is never late, however far a test advances the clock.
            patience: if host.server.may_wait() { host.settings.node_timeout } else { Duration::MAX },
            fork: ForkGuard::new(),
        }
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// The connection for a call about that key, with the note that the call is unanswered. `None` if there is none now: one is ordered then.
    pub(crate) fn claim(&self, key: &[u8], wish: &Wish<'_>) -> Option<Found> {
        let mut open = self.open.lock();
        self.tend(&mut open);
        let group = Table::group_of(key);
        let found = self.table.claim(group, |busy| {
            match self.bound(&open, busy, group) {
                Some(one) => Some(one).filter(|one| wish.is_release || !wish.prompt || !self.is_slow(&one.pipe)),
                None => self.choose(&open, wish),
            }
            .map(Numbered::chosen)
        });
        if found.is_none() || open.used.len() < self.most && open.used.iter().all(|one| one.pipe.reader_waits()) {
            self.order(&mut open);
        }
        drop(open);
        found.map(|(claim, (pipe, generation))| Found { claim, pipe, generation })
    }

    /// The one on which calls about keys of this group are unanswered. What only asks, or lengthens a lease, binds for a moment: a release of the same
    /// token needs not wait behind it.
    fn bound<'a>(&self, open: &'a Open, busy: Option<u32>, group: usize) -> Option<&'a Numbered> {
        open.find(busy, group).filter(|one| !self.is_slow(&one.pipe) || !one.pipe.is_undone(Some(group)))
    }

    /// A call there is unanswered for a while.
    fn is_slow(&self, pipe: &Pipe) -> bool {
        pipe.is_late(self.patience / 4)
    }

    /// The one that is wanted. Else, of few calls each has a connection that is idle. Many travel together on the first one that answers at once: that
    /// costs the server and the threads less. Else the one with the fewest calls.
    fn choose<'a>(&self, open: &'a Open, wish: &Wish<'_>) -> Option<&'a Numbered> {
        let fits = |one: &&Numbered| self.is_usable(one) && !(wish.prompt && self.is_slow(&one.pipe));
        let usable = || open.used.iter().filter(fits);
        let wanted = || usable().find(|one| wish.beside.is_some_and(|pipe| Arc::ptr_eq(pipe, &one.pipe)));
        let many = open.used.iter().map(|one| one.pipe.len()).sum::<usize>() >= MANY;
        let takes =
            |one: &&Numbered| one.pipe.len() == 0 || many && !one.pipe.reader_waits() && !self.is_slow(&one.pipe);
        wanted()
            .or_else(|| usable().find(takes))
            .or_else(|| usable().min_by_key(|one| (self.is_slow(&one.pipe), one.pipe.len())))
    }

    /// What is new may go over it.
    fn is_usable(&self, one: &Numbered) -> bool {
        let has_run_out = one.validity.is_some_and(|(_, end)| self.clock.now() >= end);
        one.generation >= self.host.generation() && !has_run_out
    }

    /// A call that may set this token is unanswered.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        self.all().iter().any(|pipe| pipe.may_set(token))
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
        // What it answered was written less than a node timeout ago: none that is late was written after that.
        let latest = self.heard.latest.load(Ordering::Acquire);
        if self.clock.now().since(Tick::from_nanos(latest)) < self.patience {
            return false;
        }
        let open = self.open.lock();
        open.used.iter().any(|one| self.is_late(&one.pipe, 1) && !self.is_suspect(&one.pipe))
    }

    /// The server has answered something that was written since then.
    pub(crate) fn has_answered_since(&self, then: Tick) -> bool {
        self.heard.latest.load(Ordering::Acquire) >= then.as_nanos()
    }

    /// It shall be replaced.
    fn is_bad(&self, one: &Numbered) -> bool {
        let runs_out = one.validity.is_some_and(|(soon, _)| self.clock.now() >= soon);
        runs_out || !self.is_usable(one) || self.is_suspect(&one.pipe) || self.is_late(&one.pipe, 2)
    }

    /// Nothing has come, and nothing is to be replaced.
    fn is_settled(&self, open: &Open) -> bool {
        let is_fine = |one: &Numbered| !one.pipe.is_over() && !self.is_bad(one);
        open.old.is_empty() && open.used.iter().all(is_fine) && !self.arrivals.is_here(self.place)
    }

    /// Takes what has come, and replaces what does not answer.
    fn tend(&self, open: &mut Open) {
        if self.is_settled(open) {
            return;
        }
        open.used.retain(|one| !one.pipe.is_over());
        let (stale, used) = std::mem::take(&mut open.used).into_iter().partition(|one| !self.is_usable(one));
        (open.used, open.old) =
            (used, std::mem::take(&mut open.old).into_iter().chain::<Vec<Numbered>>(stale).collect());
        // An old connection is of use until all is answered there.
        for one in open.old.extract_if(.., |one| one.pipe.is_over() || one.pipe.len() == 0) {
            one.pipe.end(Broken::Cut("has been replaced".into()));
        }
        // A connection whose way to the server is lost never ends by itself, and calls about its keys would go there for ever.
        let Open { used, old, .. } = &mut *open;
        let is_dead = |one: &mut Numbered| self.is_late(&one.pipe, PATIENT);
        for one in used.extract_if(.., is_dead).chain(old.extract_if(.., is_dead)) {
            one.pipe.end(Broken::Cut(format!("did not answer for {:?}", self.patience * PATIENT)));
        }
        self.give_up(open);
        if open.used.iter().any(|one| self.is_bad(one)) {
            self.order(open);
        }
        if self.arrivals.is_here(self.place)
            && let Some(made) = self.supply.take()
        {
            self.join(open, made);
        }
    }

    /// Has a connection made beside those that do not answer: it tells whether the server does. A thread that looks for one at the moment does that.
    pub(crate) fn try_another(&self) {
        if let Some(mut open) = self.open.try_lock() {
            self.tend(&mut open);
            self.order(&mut open);
        }
    }

    fn order(&self, open: &mut Open) {
        let has_room = open.used.len() + open.old.len() < self.most + MOST_OLD;
        if has_room
            && self.arrivals.order(self.place)
            && let Some(made) = self.supply.order()
        {
            self.join(open, made);
        }
    }

    /// A connection has come, in place of one that does not answer if there is one.
    fn join(&self, open: &mut Open, Made { ends, generation, validity }: Made) {
        self.arrivals.taken(self.place);
        if let Some(bad) = open.used.iter().position(|one| self.is_bad(one)) {
            let bad = open.used.swap_remove(bad);
            open.old.push(bad);
        }
        self.give_up(open);
        let pipe = self.pipe(ends);
        open.last = open.last.wrapping_add(1);
        open.used.push(Numbered { number: open.last, pipe, generation, validity });
    }

    fn pipe(&self, ends: Ends) -> Arc<Pipe> {
        let heard = Arc::clone(&self.heard) as Arc<dyn Hearer>;
        let wait = wait_command(self.host.settings.min_replicas_ack, self.patience);
        Pipe::new(ends, heard, Arc::clone(&self.clock), self.patience, wait)
    }

    /// No more are kept than a few: of those with a release behind each acquire the oldest goes, else the oldest.
    fn give_up(&self, open: &mut Open) {
        while open.old.len() > MOST_OLD {
            let oldest = open.old.iter().position(|one| one.pipe.is_undone(None)).unwrap_or(0);
            open.old.remove(oldest).pipe.end(Broken::Cut(format!("did not answer for {:?}", self.patience * 2)));
        }
    }

    /// Writes and reads what no thread waits for, at most until then.
    pub(crate) fn finish(&self, until: Tick) {
        self.all().iter().for_each(|pipe| pipe.finish(until));
    }

    /// The connections at the moment.
    pub(crate) fn all(&self) -> Vec<Arc<Pipe>> {
        let open = self.open.lock();
        open.used.iter().chain(&open.old).map(|one| Arc::clone(&one.pipe)).collect()
    }
}

/// The question which replicas have all that was written before. The server may take a quarter of a node timeout for it: calls behind one that is not
/// acknowledged shall be answered in time too.
fn wait_command(least: u32, patience: Duration) -> Vec<u8> {
    if least == 0 {
        return Vec::new();
    }
    // None would be without a limit.
    let ms = (patience / 4).as_millis().max(1);
    redis::cmd("WAIT").arg(least).arg(ms.to_string()).get_packed_command()
}

impl Numbered {
    fn chosen(&self) -> (u32, (Arc<Pipe>, u64)) {
        (self.number, (Arc::clone(&self.pipe), self.generation))
    }
}

impl Open {
    /// The one with that number, unless it is given up: over, or old with a release behind each acquire of this group.
    fn find(&self, number: Option<u32>, group: usize) -> Option<&Numbered> {
        let number = number?;
        let is_it = |one: &&Numbered| one.number == number && !one.pipe.is_over();
        let old = || self.old.iter().find(is_it).filter(|one| !one.pipe.is_undone(Some(group)));
        self.used.iter().find(is_it).or_else(old)
    }
}

impl Drop for Connections {
    /// A forked child has copies of the sockets of its parent, which goes on: they are not shut down.
    fn drop(&mut self) {
        let all = self.all();
        if self.fork.is_left() {
            return std::mem::forget(all);
        }
        for pipe in all {
            pipe.end(Broken::Cut("the client has ended".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_given_a_quarter_of_a_node_timeout_to_ask_replicas() {
        let asked = |ms| String::from_utf8(wait_command(2, Duration::from_millis(ms))).unwrap();
        assert_eq!(asked(500), "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n125\r\n");
        assert!(asked(1).ends_with("$1\r\n1\r\n"));
        assert_eq!(wait_command(0, Duration::from_secs(1)), Vec::<u8>::new());
    }
}
