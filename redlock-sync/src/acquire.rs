//! Taking a lock: one attempt, and the loop of attempts.

use std::cell::LazyCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;
use crate::config::{LONGEST_NAP, Terms, drift, grant_span};
use crate::error::{Error, NodeError};
use crate::key::Key;
use crate::lease::{Afterlife, Core, Lease, Origin, Registry, Renewer, Start};
use crate::node::{Lane, Popped};
use crate::primitive::{Attempt, GiveUp, Grant, Primitive, Waiter};
use crate::quorum::{Ballot, Quorum, Vote};
use crate::token::{LockId, Mint, granted_id, is_granted, is_ours, waiter_id};
use crate::wait::{Entered, Envelope, Lines};

/// How much longer than its longest nap a waiter is marked as one.
const MARK_SLACK: Duration = Duration::from_secs(1);
/// How long after the holder's lease should have ended a waiter tries again.
const NAP_SLACK: Duration = Duration::from_millis(2);
/// As much of another's token as the acquire script tells.
const SEEN_BYTES: usize = 80;

/// What all locks of a client share.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Tells the clients of a process apart.
    pub(crate) id: u64,
    pub(crate) quorum: Arc<Quorum>,
    renewer: Arc<Renewer>,
    lines: Arc<Lines<Lease>>,
    registry: Registry,
    mint: Mint,
    /// Since when attempts find no majority; one for all threads, or each in a line would wait out the patience of its own.
    outage: Mutex<Option<Outage>>,
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
    /// Until it is ours, the retry policy gives up, or the servers were unavailable for too long.
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
    /// On some node the lock was granted; perhaps nobody has taken it.
    fn was_granted(&self) -> bool {
        let granted = |vote: &Vote| matches!(vote, Vote::Taken { token, .. } if is_granted(token));
        self.error.is_busy() && self.ballot.as_ref().is_some_and(|ballot| ballot.votes.iter().any(granted))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { error, ballot: None }
    }
}

/// A grant that is good for an ordinary attempt.
#[derive(Debug)]
struct Ticket {
    id: LockId,
    /// Server time in ms at which the chain of grants began.
    chain: u64,
}

/// How a wait for other processes ended.
enum Woken {
    /// Try again.
    Up,
    /// Try again; the lock stands on a token which nobody holds.
    Ticket(Ticket),
    /// The last holder granted it.
    Granted(Lease),
}

impl Engine {
    pub(crate) fn new(quorum: Quorum) -> Arc<Engine> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let clock = Arc::clone(&quorum.clock);
        Arc::new(Engine {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            quorum: Arc::new(quorum),
            renewer: Renewer::new(Arc::clone(&clock)),
            lines: Lines::new(clock),
            registry: Registry::default(),
            mint: Mint::new(),
            outage: Mutex::new(None),
            competing: AtomicUsize::new(0),
        })
    }

    /// Refuses to work once closed, and in a forked child: it shares its parent's sockets, and has none of its threads.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        let is_open = std::process::id() == self.mint.pid() && !self.lines.is_closed();
        if is_open { Ok(()) } else { Err(Error::Closed) }
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
        let key = request.key.shared();
        let until = match wait {
            Wait::No => {
                let turn = self.lines.try_enter(&key);
                let lease = self.only_attempt(request)?;
                turn.into_iter().for_each(|turn| lease.core().keep_turn(turn));
                return Ok(lease);
            }
            Wait::Until(until) => until,
            Wait::Forever => Tick::NEVER,
        };
        // Where attempts are counted, the wait in line takes no longer than they would.
        let patience = request.terms.retry.patience();
        let in_line = patience.map_or(until, |patience| until.min(self.quorum.now().after(patience)));
        loop {
            match self.lines.enter(&key, in_line, &request.terms) {
                Entered::Head(turn) => {
                    let lease = self.compete(request, wait, until)?;
                    lease.core().keep_turn(turn);
                    return Ok(lease);
                }
                Entered::Handed(lease) => {
                    // It can have run out on the way, if this process did not run.
                    if lease.check().is_ok() {
                        return Ok(lease);
                    }
                }
                // Who never got to the head of the line still makes one try, and so learns whether the lock is busy or Redis is away.
                Entered::Late => return self.only_attempt(request),
                Entered::Closed => return Err(Error::Closed),
            }
        }
    }

    /// The attempt of one who does not wait. The bare call cannot tell a lock that is held from one that was granted to nobody, such as a
    /// waiter that died; where that may be so, the full one follows.
    fn only_attempt(self: &Arc<Self>, request: &Request) -> Result<Lease, Error> {
        let outcome = match self.attempt(request, None, None) {
            Err(refusal) if refusal.was_granted() => {
                let nobody = Waiter { id: "", stays: Duration::ZERO, was_marked: false };
                self.attempt(request, Some(nobody), None)
            }
            outcome => outcome,
        };
        outcome.map_err(|refusal| refusal.error)
    }

    /// **This is the loop**: attempts, and waiting for other processes in between. Who is here is at the head of this process's line.
    fn compete(self: &Arc<Self>, request: &Request, wait: Wait, until: Tick) -> Result<Lease, Error> {
        let (clock, terms) = (&*self.quorum.clock, &request.terms);
        // Most need none.
        let waiter = LazyCell::new(waiter_id);
        let mut made = 0_u32;
        let mut ticket = None;
        let mut unavailable_since = None;
        loop {
            if let Err(closed) = self.ready() {
                if made > 1 {
                    self.leave(request, &waiter, ticket);
                }
                return Err(closed);
            }
            let tried_at = clock.now();
            let is_last = tried_at >= until || terms.retry.is_exhausted(made.saturating_add(1));
            let stays = if is_last { Duration::ZERO } else { LONGEST_NAP + MARK_SLACK };
            // The first attempt is a bare one: most locks are free, and it costs the servers least. After it the waiter gets a mark. An only
            // attempt is a full one, which also takes what was granted to nobody.
            let mark = (made > 0 || is_last).then(|| Waiter { id: &waiter, stays, was_marked: made > 1 });
            let refusal = match self.attempt(request, mark, ticket.as_ref()) {
                Ok(lease) => {
                    *self.outage.lock() = None;
                    return Ok(lease);
                }
                Err(refusal) => refusal,
            };
            made = made.saturating_add(1);
            match refusal.error {
                Error::Busy { .. } => {
                    unavailable_since = None;
                    *self.outage.lock() = None;
                }
                Error::Unavailable { .. } => {
                    let since = *unavailable_since.get_or_insert(self.outage_since(tried_at));
                    let lasted = clock.now().since(since);
                    if wait == Wait::Forever && lasted >= self.quorum.limits.unavailable_after {
                        return Err(refusal.error);
                    }
                }
                _ => return Err(refusal.error),
            }
            if is_last {
                return Err(refusal.error);
            }
            if made == 1 && refusal.error.is_busy() {
                continue;
            }
            // Ends at the deadline at the latest: the attempt after that is the last.
            match self.wait_for_others(request, &waiter, made, &refusal, until) {
                Woken::Up => {}
                // Kept from then on: it does no harm, and the attempt may not get through.
                Woken::Ticket(new) => ticket = Some(new),
                Woken::Granted(lease) => return Ok(lease),
            }
        }
    }

    /// Takes the mark off one who waits no more, and passes on what he was granted: else the next release would be for nobody.
    fn leave(&self, request: &Request, waiter: &str, ticket: Option<Ticket>) {
        let quorum = &self.quorum;
        let (id, chain) = ticket.map_or_else(|| (granted_id(), 0), |ticket| (ticket.id, ticket.chain));
        let next = granted_id();
        let span = grant_span(request.terms.lease);
        let grant = Grant { next: &next, span, chain, with_fence: quorum.are_fences_wanted() };
        let give_up = GiveUp { id: &id, keep: Duration::ZERO, waiter: Some(waiter), grant: Some(grant) };
        let by = quorum.now().after(quorum.limits.node_timeout);
        quorum.round(&request.primitive.release(&give_up), Lane::Reserved, by, &|_| true);
    }

    /// Waits until the holder pushes, or until it is time to look again.
    fn wait_for_others(
        self: &Arc<Self>,
        request: &Request,
        waiter: &Arc<str>,
        made: u32,
        refusal: &Refusal,
        until: Tick,
    ) -> Woken {
        let retry = &request.terms.retry;
        let retry_after = if let Error::Busy { retry_after, .. } = refusal.error { retry_after } else { None };
        let pause = || {
            self.lines.pause(retry, made, retry_after, until);
            Woken::Up
        };
        let (Some(ballot), Some((node, wake_node))) = (&refusal.ballot, self.quorum.wake_node()) else {
            return pause();
        };
        let Some(Vote::Taken { token: seen, ttl }) = ballot.votes.get(node) else { return pause() };
        // A holder that does not push has to be polled; and where attempts are counted, the waits are those that were set.
        let nap = if is_ours(seen) && retry.patience().is_none() {
            ttl.map_or(LONGEST_NAP, |left| (left + NAP_SLACK).min(jittered(LONGEST_NAP)))
        } else {
            retry.pause(made, fastrand::f64())
        };
        let nap = nap.min(until.since(self.quorum.now()));
        match wake_node.pop(request.primitive.wake_list(), nap) {
            Popped::Nothing => Woken::Up,
            Popped::Unavailable => pause(),
            Popped::Pushed(bytes) => match Envelope::read(&bytes) {
                Some(Envelope { token: Some(id), fence, chain, span }) => {
                    self.open(request, waiter, ballot, seen, id, (fence, chain, span))
                }
                _ => Woken::Up,
            },
        }
    }

    /// An envelope came: with one node whoever pops it holds the lock. With more, or if the caller has an id of his own to show, it is a
    /// ticket for an ordinary attempt, and exclusion is plain Redlock: two waiters could pop the same grant on different nodes.
    fn open(
        self: &Arc<Self>,
        request: &Request,
        waiter: &Arc<str>,
        ballot: &Ballot,
        seen: &str,
        id: LockId,
        (fence, chain, span): (u64, u64, Duration),
    ) -> Woken {
        let is_ticket = self.quorum.len() > 1 || request.terms.lock_id.is_some();
        #[cfg(test)]
        let is_ticket = is_ticket && !crate::simulation::is_on(crate::simulation::Control::GrantIsHeld);
        if is_ticket {
            return Woken::Ticket(Ticket { id, chain });
        }
        let origin = Origin { waiter: Some(Arc::clone(waiter)), chain };
        let start = self.start(request, id.clone(), origin);
        // The attempt saw another token, so the grant was made after that attempt was sent, and lasts at least from then.
        let is_new = seen.as_bytes() != id.as_str().as_bytes().get(..SEEN_BYTES).unwrap_or(id.as_str().as_bytes());
        let since = if is_new { ballot.started } else { Tick::ZERO };
        // What is counted from the acquisition, such as the longest hold, is counted from here: the attempt was before the wait.
        let core = Arc::new(Core::granted(start, fence, self.quorum.now(), since, span));
        if self.lines.is_closed() {
            core.release(self.quorum.limits.node_timeout);
            return Woken::Up;
        }
        let valid = since.after(span).before(drift(span)).since(self.quorum.now());
        if valid < self.quorum.limits.min_validity && !core.confirm() {
            return Woken::Ticket(Ticket { id, chain });
        }
        match self.lease(&core) {
            Ok(lease) => Woken::Granted(lease),
            Err(_) => Woken::Up,
        }
    }

    /// Notes that an attempt found no majority; since when that has been so for this client.
    fn outage_since(&self, tried_at: Tick) -> Tick {
        let mut outage = self.outage.lock();
        let since = outage.filter(|o| tried_at.since(o.last) < SAME_OUTAGE).map_or(tried_at, |o| o.since);
        *outage = Some(Outage { since, last: self.quorum.now() });
        since
    }

    /// One round with a token of its own. What it set is taken back before it returns an error.
    fn attempt(
        self: &Arc<Self>,
        request: &Request,
        waiter: Option<Waiter<'_>>,
        ticket: Option<&Ticket>,
    ) -> Result<Lease, Refusal> {
        let quorum = &self.quorum;
        let lease = Core::first_lease(&request.terms);
        quorum.note_lease(lease);
        let key = request.key.shared();
        let mut tickets = self.lines.tickets(&key);
        let has_tickets = !tickets.is_empty();
        tickets.extend(ticket.map(|ticket| ticket.id.clone()));
        let id = self.mint.fresh(request.terms.lock_id.as_deref());
        let fence = quorum.are_fences_wanted().then_some(0);
        let call = request.primitive.acquire(&Attempt { id: &id, lease, fence, waiter, tickets: &tickets });
        let by = quorum.now().after(quorum.limits.node_timeout);
        let mut ballot = quorum.round(&call, Lane::Ordinary, by, &|_| true);
        quorum.disqualify_restarted(&mut ballot.votes);
        if let Err(error) = self.judge(request, &ballot, lease) {
            self.take_back(request, &ballot, &id, lease, by);
            return Err(Refusal { error, ballot: Some(ballot) });
        }
        if has_tickets && ballot.tally().yes == quorum.len() {
            self.lines.drop_tickets(&key);
        }
        // A node that said no to this attempt has marked him just now.
        let is_marked = |w: &Waiter<'_>| w.was_marked || !w.stays.is_zero() && ballot.tally().yes < quorum.len();
        let waiter = waiter.filter(is_marked).map(|w| w.id.into());
        let chain = ticket.map_or(0, |ticket| ticket.chain);
        let start = self.start(request, id, Origin { waiter, chain });
        Ok(self.lease(&Arc::new(Core::won(start, &ballot)))?)
    }

    fn start(&self, request: &Request, id: LockId, origin: Origin) -> Start {
        Start {
            quorum: Arc::clone(&self.quorum),
            primitive: Arc::clone(&request.primitive),
            key: request.key.clone(),
            id,
            terms: request.terms.clone(),
            pid: self.mint.pid(),
            origin,
        }
    }

    /// Whether the round was won, and if not, why.
    fn judge(&self, request: &Request, ballot: &Ballot, lease: Duration) -> Result<(), Error> {
        let quorum = &self.quorum;
        let key = request.key.as_str();
        // Asked after the round: only then every node that voted has told who it is.
        if let Some(conflict) = quorum.nodes.conflict() {
            return Err(Error::config(conflict));
        }
        let tally = ballot.tally();
        if !tally.won() {
            return Err(if tally.is_answered() {
                Error::Busy { key: key.to_owned(), retry_after: ballot.retry_after() }
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
        let release = request.primitive.release(&GiveUp { id, keep: Duration::ZERO, waiter: None, grant: None });
        let by = by.max(quorum.now().after(quorum.limits.node_timeout / 4));
        if quorum.roll_back(ballot, &release, by) {
            self.lines.add_ticket(&request.key.shared(), id.clone(), quorum.now().after(lease));
        }
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
                let release = core.release(self.quorum.limits.node_timeout);
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
        if std::process::id() != self.mint.pid() {
            return Err(Error::Closed);
        }
        self.lines.close();
        // Again and again: a thread may have looked before the client was closed and start to wait only now.
        let by = self.quorum.now().after(LONGEST_NAP);
        while self.competing.load(Ordering::SeqCst) > 0 && self.quorum.now() < by {
            self.quorum.end_pops();
            self.quorum.clock.sleep(Duration::from_millis(2));
        }
        self.give_up_all()
    }

    /// Gives up every lock that this client holds.
    pub(crate) fn unlock_all(&self) -> Result<usize, Error> {
        self.ready()?;
        self.give_up_all()
    }

    fn give_up_all(&self) -> Result<usize, Error> {
        let results: Vec<_> = self.registry.live().iter().map(|core| core.revoke()).collect();
        results.into_iter().try_fold(0, |n, revoked| revoked.map(|done| n + usize::from(done)))
    }

    /// Asks all nodes who holds the lock: the token that a majority has, and until when it surely does.
    pub(crate) fn holder(&self, key: &Key, call: &crate::script::Call) -> Result<Option<Holder>, Error> {
        self.ready()?;
        let by = self.quorum.now().after(self.quorum.limits.node_timeout);
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
            let until = self.quorum.now().after(core.terms.lease);
            self.lines.add_ticket(&core.key.shared(), core.id.clone(), until);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::process::id() == self.mint.pid() {
            self.renewer.close();
        }
    }
}

/// Between half of it and all.
fn jittered(nap: Duration) -> Duration {
    nap.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Who holds a lock right now, as seen by a majority of the nodes.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let order = locks.mutex("order:42");
/// assert!(order.inspect()?.is_none());
/// let guard = order.lock()?;
/// let holder = order.inspect()?.unwrap();
/// assert_eq!(&holder.id, guard.id());
/// assert!(holder.remaining.unwrap() <= std::time::Duration::from_secs(30));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's token; [`LockId::owner`] is its readable part. Of another program's token the whole may be unreadable.
    pub id: LockId,
    /// Time-to-live of the key; the holder may lengthen it. `None` if some program set the key without one.
    pub remaining: Option<Duration>,
}

impl Holder {
    fn of_majority(ballot: &Ballot) -> Option<Holder> {
        use crate::quorum::{Tally, Vote};
        let need = Tally::need(ballot.votes.len());
        let held = |vote: &Vote| match vote {
            Vote::Taken { token, ttl } => Some((token.clone(), ttl.unwrap_or(Duration::MAX))),
            _ => None,
        };
        let all: Vec<(String, Duration)> = ballot.votes.iter().filter_map(held).collect();
        let of_token = |token: &str| {
            let mut ttls: Vec<Duration> = all.iter().filter(|(t, _)| t == token).map(|(_, ttl)| *ttl).collect();
            ttls.sort_unstable_by(|a, b| b.cmp(a));
            ttls.get(need - 1).copied()
        };
        all.iter().find_map(|(token, _)| {
            let ttl = of_token(token)?;
            Some(Holder { id: LockId::from_server(token), remaining: (ttl != Duration::MAX).then_some(ttl) })
        })
    }
}
