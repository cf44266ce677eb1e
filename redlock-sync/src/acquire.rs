//! Taking a lock: one attempt, and the loop of attempts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;
use crate::config::Terms;
use crate::error::{Error, NodeError};
use crate::key::Key;
use crate::lease::{Afterlife, Core, Lease, Registry, Renewer};
use crate::node::Lane;
use crate::primitive::{Attempt, Primitive};
use crate::quorum::{Ballot, Quorum};
use crate::token::{LockId, Mint};
use crate::wait::{Lines, pause};

/// What all locks of a client share.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Tells the clients of a process apart.
    pub(crate) id: u64,
    pub(crate) quorum: Arc<Quorum>,
    renewer: Arc<Renewer>,
    lines: Arc<Lines>,
    registry: Registry,
    mint: Mint,
    /// Since when attempts find no majority; one for all threads, or each in a line would wait out the patience of its own.
    outage: Mutex<Option<Outage>>,
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
        })
    }

    /// Refuses to work in a forked child: it shares its parent's sockets, and has none of its threads.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        if std::process::id() == self.mint.pid() { Ok(()) } else { Err(Error::Closed) }
    }

    /// Takes the lock. **This is the loop**: attempts, and waiting in between.
    pub(crate) fn acquire(self: &Arc<Self>, request: &Request, wait: Wait) -> Result<Lease, Error> {
        self.ready()?;
        request.terms.check(&self.quorum.limits)?;
        let until = match wait {
            Wait::No => return self.attempt(request),
            Wait::Until(until) => until,
            Wait::Forever => Tick::NEVER,
        };
        // Who never got to the head of the line still makes its one try, and so learns whether the lock is busy or Redis is away.
        let Some(_turn) = self.lines.enter(&request.key.shared(), until) else { return self.attempt(request) };
        let clock = &*self.quorum.clock;
        let mut made = 0_u32;
        let mut unavailable_since = None;
        loop {
            let tried_at = clock.now();
            let error = match self.attempt(request) {
                Ok(lease) => {
                    *self.outage.lock() = None;
                    return Ok(lease);
                }
                Err(error) => error,
            };
            made = made.saturating_add(1);
            let retry_after = match error {
                Error::Busy { retry_after, .. } => {
                    unavailable_since = None;
                    *self.outage.lock() = None;
                    retry_after
                }
                Error::Unavailable { .. } => {
                    let since = *unavailable_since.get_or_insert(self.outage_since(tried_at));
                    let waited = clock.now().since(since);
                    if wait == Wait::Forever && waited >= self.quorum.limits.unavailable_after {
                        return Err(error);
                    }
                    None
                }
                _ => return Err(error),
            };
            if clock.now() >= until || request.terms.retry.is_exhausted(made) {
                return Err(error);
            }
            // Ends at the deadline at the latest: the attempt after that is the last.
            pause(clock, &request.terms.retry, made, retry_after, until);
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
    fn attempt(self: &Arc<Self>, request: &Request) -> Result<Lease, Error> {
        let quorum = &self.quorum;
        let lease = Core::first_lease(&request.terms);
        quorum.note_lease(lease);
        let key = request.key.shared();
        let tickets = self.lines.tickets(&key);
        let id = self.mint.fresh(request.terms.lock_id.as_deref());
        let call = request.primitive.acquire(&Attempt { id: &id, lease, least_fence: 0, tickets: &tickets });
        let by = quorum.now().after(quorum.limits.node_timeout);
        let mut ballot = quorum.round(&call, Lane::Ordinary, by, &|_| true);
        quorum.disqualify_restarted(&mut ballot.votes);
        if let Err(error) = self.judge(request, &ballot, lease) {
            self.take_back(request, &ballot, &id, lease, by);
            return Err(error);
        }
        if !tickets.is_empty() && ballot.tally().yes == quorum.len() {
            self.lines.drop_tickets(&key);
        }
        self.hold(request, id, &ballot)
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
        let release = request.primitive.release(id, Duration::ZERO);
        let by = by.max(quorum.now().after(quorum.limits.node_timeout / 4));
        if quorum.roll_back(ballot, &release, by) {
            self.lines.add_ticket(&request.key.shared(), id.clone(), quorum.now().after(lease));
        }
    }

    /// Makes a lease of a round that was won.
    fn hold(self: &Arc<Self>, request: &Request, id: LockId, ballot: &Ballot) -> Result<Lease, Error> {
        let core = Arc::new(Core::new(
            Arc::clone(&self.quorum),
            Arc::clone(&request.primitive),
            (request.key.clone(), id),
            (request.terms.clone(), self.mint.pid()),
            ballot,
        ));
        let afterlife: Weak<dyn Afterlife> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn Afterlife>));
        match Lease::new(Arc::clone(&core), Arc::clone(&self.renewer), afterlife) {
            Ok(lease) => {
                self.registry.add(&core);
                Ok(lease)
            }
            Err(spawn) => {
                let release = core.release(self.quorum.limits.node_timeout);
                self.ended(&core, release.haunted);
                Err(Error::Unavailable {
                    op: "acquire",
                    key: request.key.as_str().to_owned(),
                    of: self.quorum.len(),
                    nodes: vec![self.quorum.node_error(0, format!("no renewal thread could be started: {spawn}"))],
                })
            }
        }
    }

    /// Gives up every lock that this client holds.
    pub(crate) fn unlock_all(&self) -> Result<usize, Error> {
        self.ready()?;
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
    fn ended(&self, core: &Core, haunted: bool) {
        if haunted {
            let until = self.quorum.now().after(core.terms.lease);
            self.lines.add_ticket(&core.key.shared(), core.id.clone(), until);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.ready().is_ok() {
            self.renewer.close();
        }
    }
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
