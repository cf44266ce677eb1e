//! Taking a lock.
//!
//! 1. [`compete`]: the loop of attempts, and waiting for other processes in between.
//! 2. [`queued`]: a wait as the servers know it, and when a grant to it is a lock.
//! 3. [`holder`]: what `inspect` tells.
//! 4. [`Engine`], here: the way in, one attempt, and the end of a client.

mod compete;
mod holder;
mod queued;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use self::compete::Contender;
pub use self::holder::Holder;
use crate::clock::Tick;
use crate::config::{CLOSING, LONG_PAUSE, LONGEST_GRANT, LOOK, Terms};
use crate::ear::Ear;
use crate::error::{Error, NodeError};
use crate::key::Key;
use crate::lease::{Afterlife, Backlog, Core, Lease, Leftover, Origin, Registry, Renewer, Start, granting};
use crate::node::Lane;
use crate::primitive::{Attempt, Chain, Entry, GiveUp, Grant, Next, Order, Primitive};
use crate::quorum::{Ballot, Quorum, Vote};
use crate::token::{LockId, Mint, is_ours, random_part};
use crate::wait::{Entered, Lines};

/// What all locks of a client share.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Tells the clients of a process apart.
    pub(crate) id: u64,
    pub(crate) quorum: Arc<Quorum>,
    renewer: Arc<Renewer>,
    lines: Arc<Lines<Lease>>,
    ear: Arc<Ear>,
    backlog: Arc<Backlog>,
    registry: Registry,
    mint: Mint,
    /// Since when attempts find no majority. One for all threads: otherwise each thread of a line would wait for `unavailable_after` anew.
    outage: Mutex<Option<Outage>>,
    has_outage: AtomicBool,
    /// How many threads are in an acquire.
    competing: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Tick,
    last: Tick,
}

/// An attempt that fails later than this after the last one that did is the first of a new outage.
const SAME_OUTAGE: Duration = Duration::from_secs(1);

/// How long an acquire may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One attempt.
    No,
    Until(Tick),
    /// Until the lock is held, the retry policy gives up, or the servers were unavailable for too long.
    Forever,
}

/// One lock with its settings, ready to be taken.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) primitive: Arc<dyn Primitive>,
    pub(crate) terms: Terms,
}

/// An attempt that brought no lock.
struct Refusal {
    error: Error,
    /// What the nodes said, if they were asked.
    ballot: Option<Ballot>,
}

impl Refusal {
    /// On some node the lock is free, but others wait for it.
    fn is_queued(&self) -> bool {
        let is_queued = |vote: &Vote| matches!(vote, Vote::Taken { token, .. } if token.is_empty());
        self.error.is_busy() && self.ballot.as_ref().is_some_and(|ballot| ballot.votes.iter().any(is_queued))
    }

    /// Each node said no, and to one copy of the attempt.
    fn is_clean(&self) -> bool {
        self.ballot.as_ref().is_some_and(|ballot| !ballot.ghost && ballot.votes.iter().all(Vote::is_definite_no))
    }

    fn expires_in(&self) -> Option<Duration> {
        if let Error::Busy { expires_in, .. } = self.error { expires_in } else { None }
    }
}

/// What an attempt asks for besides the lock.
#[derive(Debug, Default)]
struct Try<'a> {
    /// Nothing.
    is_bare: bool,
    entry: Option<Entry<'a>>,
    /// The wait can be in the queue although the attempt won.
    keeps_wait: bool,
    ticket: Option<&'a LockId>,
    chain: Chain,
}

impl From<Error> for Box<Refusal> {
    fn from(error: Error) -> Box<Refusal> {
        Box::new(Refusal { error, ballot: None })
    }
}

impl Engine {
    pub(crate) fn new(quorum: Quorum) -> Arc<Engine> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let quorum = Arc::new(quorum);
        let clock = Arc::clone(&quorum.clock);
        Arc::new(Engine {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            backlog: Backlog::new(&quorum),
            ear: Ear::new(Arc::clone(&quorum)),
            quorum,
            renewer: Renewer::new(Arc::clone(&clock)),
            lines: Lines::new(clock),
            registry: Registry::default(),
            mint: Mint::new(),
            outage: Mutex::new(None),
            has_outage: AtomicBool::new(false),
            competing: AtomicUsize::new(0),
        })
    }

    /// `Closed` once the client is closed, and in a forked child, which shares the sockets of its parent and has none of its threads.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        if self.mint.home().is_left() || self.lines.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Takes the lock.
    pub(crate) fn acquire(self: &Arc<Self>, request: &Request, wait: Wait) -> Result<Lease, Error> {
        // Counted before it looks whether the client is closed: `close` looks the other way round, so that one of the two sees the other.
        self.competing.fetch_add(1, Ordering::SeqCst);
        let outcome = self.take(request, wait);
        self.competing.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn take(self: &Arc<Self>, request: &Request, wait: Wait) -> Result<Lease, Error> {
        self.ready()?;
        request.terms.check(&self.quorum.limits)?;
        let key = request.key.name();
        let until = match wait {
            Wait::No => {
                let turn = self.lines.try_enter(key);
                let lease = self.only_attempt(request)?;
                if let Some(turn) = turn {
                    lease.core().keep_turn(turn);
                }
                return Ok(lease);
            }
            Wait::Until(until) => until,
            Wait::Forever => Tick::NEVER,
        };
        // Where attempts are counted, the wait in line takes no longer than they would.
        let patience = request.terms.retry.patience();
        let in_line = patience.map_or(until, |patience| until.min(self.quorum.now().after(patience)));
        loop {
            match self.lines.enter(key, in_line, &request.terms) {
                Entered::Head(turn) => {
                    let rest = turn.rest();
                    self.rest(request, rest.until.min(until));
                    let lease = Contender::new(self, request, wait, until, rest.pauses).compete()?;
                    lease.core().keep_turn(turn);
                    return Ok(lease);
                }
                Entered::Handed(lease) => {
                    // It can have run out on the way, if this process did not run.
                    if lease.check().is_ok() {
                        return Ok(lease);
                    }
                }
                // A thread that never got to the head still makes one attempt, and so learns whether the lock is busy or Redis is away.
                Entered::Late => return self.only_attempt(request),
                Entered::Closed => return Err(Error::Closed),
            }
        }
    }

    /// The attempt of a call that does not wait. If a queue is found, a full attempt follows the bare one, since all waits in the queue may be dead.
    /// Both together take one node timeout at most.
    fn only_attempt(self: &Arc<Self>, request: &Request) -> Result<Lease, Error> {
        let by = self.quorum.round_deadline();
        let outcome = match self.attempt(request, &Try { is_bare: true, ..Try::default() }, by) {
            Err(refusal) if refusal.is_queued() && self.quorum.now() < by => self.attempt(request, &Try::default(), by),
            outcome => outcome,
        };
        match &outcome {
            Err(refusal) if matches!(refusal.error, Error::Unavailable { .. }) => {
                self.outage_since(by.before(self.quorum.limits.node_timeout), &refusal.error);
            }
            _ => self.outage_is_over(),
        }
        outcome.map_err(|refusal| refusal.error)
    }

    fn outage_is_over(&self) {
        // Asked by every acquire, and there is hardly ever one.
        if !self.has_outage.load(Ordering::Relaxed) {
            return;
        }
        self.has_outage.store(false, Ordering::Relaxed);
        let outage = self.outage.lock().take();
        if outage.is_some() {
            log::info!("a majority of the nodes can be asked again");
        }
    }

    /// Notes that an attempt found no majority; since when that has been so for this client.
    fn outage_since(&self, tried_at: Tick, error: &Error) -> Tick {
        let mut outage = self.outage.lock();
        if outage.is_none() {
            log::warn!("{error}; calls that wait for a lock try again");
        }
        let since = outage.filter(|o| tried_at.since(o.last) < SAME_OUTAGE).map_or(tried_at, |o| o.since);
        *outage = Some(Outage { since, last: self.quorum.now() });
        self.has_outage.store(true, Ordering::Relaxed);
        since
    }

    /// One round with a token of its own, which ends by `by`. What it set is taken back before it returns an error.
    fn attempt(self: &Arc<Self>, request: &Request, what: &Try<'_>, by: Tick) -> Result<Lease, Box<Refusal>> {
        let quorum = &self.quorum;
        let lease = Core::first_lease(&request.terms);
        quorum.note_lease(lease);
        let key = request.key.name();
        let mut tickets = self.lines.tickets(key);
        let has_tickets = !tickets.is_empty();
        tickets.extend(what.ticket.cloned());
        let (id, next) = self.mint.fresh(request.terms.lock_id.as_deref())?;
        let fence = request.terms.fenced.then_some(0);
        let is_bare = what.is_bare && fence.is_none() && tickets.is_empty();
        let random = if is_bare || quorum.len() > 1 { String::new() } else { random_part()? };
        let order = match quorum.len() {
            1 if is_bare => Order::Bare,
            1 => Order::First { random: &random, span: granting::span(quorum, request.terms.lease) },
            _ => Order::None,
        };
        let attempt = Attempt { id: &id, lease, fence, wait: what.entry, order, tickets: &tickets };
        let mut ballot = quorum.round(&request.primitive.acquire(&attempt), Lane::Ordinary, by, &|_| true);
        quorum.disqualify_restarted(&mut ballot.votes);
        self.note_strangers(request, &ballot);
        if let Err(error) = self.judge(request, &ballot, lease) {
            self.take_back(request, &ballot, &id, lease, by);
            return Err(Box::new(Refusal { error, ballot: Some(ballot) }));
        }
        if has_tickets && ballot.tally().yes == quorum.len() {
            self.lines.drop_tickets(key);
        }
        // A node that said yes has taken it out of its queue.
        let may_be_queued = what.keeps_wait || ballot.ghost || ballot.tally().yes < quorum.len();
        let wait = what.entry.filter(|_| may_be_queued).map(|entry| entry.id.into());
        let start = self.start(request, id, Origin { wait, chain: what.chain, next: Some(next) });
        Ok(self.lease(&Arc::new(Core::won(start, &ballot)))?)
    }

    /// Remembers that a program of another library has the lock.
    fn note_strangers(&self, request: &Request, ballot: &Ballot) {
        let is_strange =
            |vote: &Vote| matches!(vote, Vote::Taken { token, .. } if !token.is_empty() && !is_ours(token));
        if ballot.votes.iter().any(is_strange) {
            self.lines.note_stranger(request.key.name());
        }
    }

    /// Leaves the key to programs of other libraries until then, and looks whether one comes.
    fn rest(&self, request: &Request, end: Tick) {
        // What is left of a minimum hold comes first.
        self.lines.rest(end.before(LONG_PAUSE));
        while self.quorum.now() < end && !self.lines.is_closed() {
            self.look(request, end);
            self.lines.rest(self.quorum.now().after(LOOK).min(end));
        }
    }

    /// Looks whether a program of another library takes the lock in a pause that is left to it.
    fn look(&self, request: &Request, by: Tick) {
        let by = self.quorum.round_deadline().min(by);
        let ballot = self.quorum.round(&request.primitive.inspect(), Lane::Ordinary, by, &|_| true);
        self.note_strangers(request, &ballot);
    }

    /// What a release that is made for this request grants.
    fn grant<'a>(&self, request: &Request, random: &'a str, chain: &Chain) -> Grant<'a> {
        Grant {
            random,
            span: granting::span(&self.quorum, request.terms.lease),
            age: chain.age(self.quorum.now()),
            pauses: chain.pauses,
            with_fence: request.terms.fenced,
            several: self.quorum.len() > 1,
        }
    }

    /// Gives back what was granted to a wait that is over, in the background.
    fn give_back(self: &Arc<Self>, request: &Request, id: LockId) {
        let (this, request) = (Arc::clone(self), request.clone());
        self.quorum.nodes.background().after(Duration::ZERO, move || {
            let Ok(random) = random_part() else { return };
            let next = Next::First(this.grant(&request, &random, &Chain::default()));
            let give_up = GiveUp { id: Some(&id), keep: Duration::ZERO, wait: None, next };
            let by = this.quorum.round_deadline();
            let ballot = this.quorum.round(&request.primitive.release(&give_up), Lane::Reserved, by, &|_| true);
            granting::unreserve(&this.quorum, &*request.primitive, &ballot, &random, by);
        });
    }

    fn start(&self, request: &Request, id: LockId, origin: Origin) -> Start {
        Start {
            quorum: Arc::clone(&self.quorum),
            backlog: Arc::clone(&self.backlog),
            primitive: Arc::clone(&request.primitive),
            key: request.key.clone(),
            id,
            terms: request.terms.clone(),
            home: self.mint.home().clone(),
            origin,
        }
    }

    /// Whether the round was won, and if not, why.
    fn judge(&self, request: &Request, ballot: &Ballot, lease: Duration) -> Result<(), Error> {
        let quorum = &self.quorum;
        let key = request.key.as_str();
        // Asked after the round: only then every node that voted has told its identity.
        if let Some(conflict) = quorum.nodes.conflict() {
            return Err(Error::config(conflict));
        }
        let tally = ballot.tally();
        if !tally.won() {
            return Err(if tally.is_answered() {
                Error::Busy { key: key.to_owned(), expires_in: ballot.expires_in(), by_this_thread: false }
            } else {
                quorum.failed("acquire", key, ballot)
            });
        }
        let now = quorum.now();
        if ballot.validity(lease, now) >= quorum.limits.min_validity {
            return Ok(());
        }
        let took = now.since(ballot.started);
        let late = |i| quorum.node_error(i, format!("the round took {took:?}, too long for a lease of {lease:?}"));
        let nodes: Vec<NodeError> = (0..quorum.len()).map(late).collect();
        Err(Error::Unavailable { op: "acquire", key: key.to_owned(), of: quorum.len(), nodes })
    }

    fn take_back(&self, request: &Request, ballot: &Ballot, id: &LockId, lease: Duration, by: Tick) {
        let quorum = &self.quorum;
        let give_up = GiveUp { id: Some(id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        let release = request.primitive.release(&give_up);
        let by = by.max(quorum.now().after(quorum.limits.node_timeout / 4));
        if quorum.roll_back(ballot, &release, by) {
            let ends = quorum.now().after(lease);
            self.lines.add_ticket(request.key.name(), id.clone(), ends);
            let primitive = Arc::clone(&request.primitive);
            let id = id.clone();
            self.backlog.add(Leftover { primitive, id, wait: None, keep_until: Tick::ZERO, ends, core: None });
        }
    }

    /// Has the backlog take a wait that is over out of the queues, and give up what was granted to it, until a majority has confirmed that. Never called
    /// for a wait that holds the lock by its grant: such a wait had all its attempts answered (`Standing`), and is not haunted.
    fn leave_later(&self, request: &Request, wait: &Arc<str>) {
        self.backlog.add(Leftover {
            primitive: Arc::clone(&request.primitive),
            // No token: that of the grant is not known.
            id: LockId::from_server(&format!("left:{wait}")),
            wait: Some(Arc::clone(wait)),
            keep_until: Tick::ZERO,
            // No grant lasts longer.
            ends: self.quorum.now().after(LONGEST_GRANT),
            core: None,
        });
    }

    /// Gives a lock that is held its renewal thread.
    fn lease(self: &Arc<Self>, core: &Arc<Core>) -> Result<Lease, Error> {
        let afterlife: Weak<dyn Afterlife> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn Afterlife>));
        match Lease::new(Arc::clone(core), Arc::clone(&self.renewer), afterlife) {
            Ok(lease) => {
                self.registry.add(core);
                Ok(lease)
            }
            Err(spawn) => {
                let release = core.release(self.quorum.now(), self.quorum.limits.node_timeout);
                self.ended(core, release.haunted);
                Err(Error::Unavailable {
                    op: "acquire",
                    key: core.key.as_str().to_owned(),
                    of: self.quorum.len(),
                    nodes: vec![self.quorum.node_error(0, format!("no renewal thread could be started: {spawn}"))],
                })
            }
        }
    }

    /// Ends all waits with `Closed`, for good, and gives up what is held.
    pub(crate) fn close(&self) -> Result<usize, Error> {
        if self.mint.home().is_left() {
            return Err(Error::Closed);
        }
        self.lines.close();
        self.ear.close();
        let by = self.quorum.now().after(CLOSING);
        let given_up = self.backlog.revoke(self.registry.live(), self.backlog.close());
        // In a loop: a thread may have looked before the client was closed, and start to wait only now.
        while self.competing.load(Ordering::SeqCst) > 0 && self.quorum.now() < by {
            self.quorum.clock.sleep(Duration::from_millis(2));
        }
        // What a thread got after the first look.
        let rest = self.backlog.revoke(self.registry.live(), Vec::new());
        given_up.and_then(|first| rest.map(|more| first + more))
    }

    /// Gives up every lock that this client holds.
    pub(crate) fn unlock_all(&self) -> Result<usize, Error> {
        self.ready()?;
        self.backlog.revoke(self.registry.live(), Vec::new())
    }

    /// Asks all nodes for the holder of the lock: the token that a majority has, and until when it surely does.
    pub(crate) fn holder(&self, key: &Key, call: &Arc<crate::script::Call>) -> Result<Option<Holder>, Error> {
        self.ready()?;
        let by = self.quorum.round_deadline();
        let ballot = self.quorum.round(call, Lane::Ordinary, by, &|_| true);
        if !ballot.tally().is_answered() {
            return Err(self.quorum.failed("inspect", key.as_str(), &ballot));
        }
        Ok(Holder::of_majority(&ballot))
    }
}

impl Afterlife for Engine {
    fn passed_on(&self, successor: &Arc<Core>) {
        self.registry.add(successor);
    }

    fn ended(&self, core: &Core, haunted: bool) {
        if haunted {
            self.lines.add_ticket(core.key.name(), core.id.clone(), core.latest_end());
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.mint.home().is_left() {
            self.renewer.close();
        }
    }
}
