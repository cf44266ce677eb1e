//! The connections of one node, and how a call takes one.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::condition::During;
use super::host::Host;
use super::link::Link;
use super::manager::{self, LinkPool, PooledLink};
use super::{Failure, Lane, Patience, Trouble};
use crate::clock::Tick;

/// The news of a link that was dead on arrival is fresh for this long: the attempt may have been started on behalf of the call that
/// asks now, by its first try without patience.
const FRESH: Duration = Duration::from_millis(20);

/// Between the first two looks whether a connection has come; later ones take twice as long each.
const LOOK: Duration = Duration::from_micros(250);

/// Who waits for the connection that he asked for asks again when none has been made for this long: somebody else may have got his.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Two pools: whoever lets go of a lock never waits behind those who want one.
pub(super) struct Pools {
    host: Arc<Host>,
    ordinary: LanePool,
    reserved: LanePool,
}

/// The pool of one lane, made when it is needed.
#[derive(Default)]
struct LanePool {
    links: OnceLock<LinkPool>,
    /// When one more connection was asked for last, or seen to be made; none if nothing came of it.
    asked: Mutex<Option<Tick>>,
}

/// What came of asking for a connection.
pub(super) enum Taken {
    Link(PooledLink),
    /// None at hand; one is being made.
    Nothing,
    Failed(Failure),
}

impl Pools {
    pub(super) fn new(host: Arc<Host>) -> Pools {
        Pools { host, ordinary: LanePool::default(), reserved: LanePool::default() }
    }

    /// Takes a connection; waits for one as long as there is patience, until `by` at most.
    pub(super) fn take(&self, lane: Lane, by: Tick, patience: Patience) -> Taken {
        if let Some(link) = self.borrowed(lane) {
            return Taken::Link(link);
        }
        let pool = match self.own(lane) {
            Ok(pool) => pool,
            Err(failure) => return Taken::Failed(failure),
        };
        if let Patience::Slice(slice) = patience {
            return self.look(lane, pool, self.host.clock.now().after(slice).min(by), by);
        }
        match (self.idle(pool), patience) {
            (Some(link), _) => Taken::Link(link),
            (None, Patience::Wait) => self.wait(lane, pool, by),
            (None, _) => self.start_one(lane, pool),
        }
    }

    /// The lane's own pool. The error of a system that starts no thread for it.
    fn own(&self, lane: Lane) -> Result<&LinkPool, Failure> {
        let links = &self.of(lane).links;
        if let Some(pool) = links.get() {
            return Ok(pool);
        }
        let settings = &self.host.settings;
        let size = match lane {
            Lane::Ordinary => settings.pool_size,
            Lane::Reserved => settings.reserved_size,
        };
        let pool = manager::pool(&self.host, size)?;
        Ok(links.get_or_init(|| pool))
    }

    fn of(&self, lane: Lane) -> &LanePool {
        match lane {
            Lane::Ordinary => &self.ordinary,
            Lane::Reserved => &self.reserved,
        }
    }

    /// For the reserved lane an idle connection of the ordinary pool, which comes first since it is the most recently used.
    fn borrowed(&self, lane: Lane) -> Option<PooledLink> {
        let pool = self.ordinary.links.get().filter(|_| lane == Lane::Reserved)?;
        self.idle(pool)
    }

    /// Throws away what is stale until a good one comes.
    fn idle(&self, pool: &LinkPool) -> Option<PooledLink> {
        loop {
            let link = pool.try_get()?;
            if !self.host.is_stale(&link) {
                return Some(link);
            }
        }
    }

    /// Has a connection made in the background: a round that finds all nodes cold then waits for all of them at once.
    fn start_one(&self, lane: Lane, pool: &LinkPool) -> Taken {
        let now = self.host.clock.now();
        if !is_full(pool) {
            *self.of(lane).asked.lock() = Some(now);
        }
        let link = pool.get_timeout(Duration::ZERO).ok();
        link.and_then(|link| self.judge(lane, link, now)).unwrap_or(Taken::Nothing)
    }

    /// Waits until `until` for the connection that was asked for; what has not come then may still come until `by`.
    fn look(&self, lane: Lane, pool: &LinkPool, until: Tick, by: Tick) -> Taken {
        let began = self.host.clock.now();
        let mut pause = LOOK;
        loop {
            if let Some(taken) = self.arrived(lane, pool, began) {
                return taken;
            }
            let left = self.host.time_left(until);
            if left.is_zero() && self.host.time_left(by).is_zero() {
                return Taken::Failed(self.gave_up(pool, began));
            }
            if left.is_zero() {
                return self.not_yet(lane, pool);
            }
            if is_full(pool) {
                let link = pool.get_timeout(left).ok();
                if let Some(taken) = link.and_then(|link| self.judge(lane, link, began)) {
                    return taken;
                }
            } else {
                // Waiting in the pool would begin another one.
                self.host.clock.sleep(left.min(pause));
                pause = pause.saturating_mul(2);
            }
        }
    }

    /// A node that is left out gets no more time than a slice for the attempt under way; else one that was silent would cost each call all of its
    /// time.
    fn not_yet(&self, lane: Lane, pool: &LinkPool) -> Taken {
        let is_connecting = self.host.is_connecting();
        match self.host.breaker.outage() {
            // Those whose calls are on these connections find out how the node is, at the latest when their time is up.
            Some(_) if is_full(pool) => Taken::Nothing,
            Some(outage) if is_connecting => Taken::Failed(outage),
            Some(_) => self.start_one(lane, pool),
            None if self.is_forgotten(lane) => self.start_one(lane, pool),
            None => {
                if is_connecting {
                    *self.of(lane).asked.lock() = Some(self.host.clock.now());
                }
                Taken::Nothing
            }
        }
    }

    fn is_forgotten(&self, lane: Lane) -> bool {
        let enough = ASK_AGAIN.min(self.host.settings.node_timeout / 4);
        self.of(lane).asked.lock().is_none_or(|asked| self.host.clock.now().since(asked) >= enough)
    }

    /// A connection, or the fresh news that none could be made.
    fn arrived(&self, lane: Lane, pool: &LinkPool, began: Tick) -> Option<Taken> {
        if let Some(link) = self.borrowed(lane) {
            return Some(Taken::Link(link));
        }
        let mut news = None;
        while let Some(link) = pool.try_get() {
            match self.judge(lane, link, began) {
                Some(Taken::Failed(failure)) => news = Some(Taken::Failed(failure)),
                None => {}
                found => return found,
            }
        }
        news
    }

    /// What a link of the lane's own pool is to a caller who has waited for it since `began`; nothing if it is stale.
    fn judge(&self, lane: Lane, link: PooledLink, began: Tick) -> Option<Taken> {
        if !self.host.is_stale(&link) {
            return Some(Taken::Link(link));
        }
        let news = fresh_failure(&link, began).map(Taken::Failed);
        if news.is_none() {
            *self.of(lane).asked.lock() = None;
        }
        news
    }

    /// Waits until `by`.
    fn wait(&self, lane: Lane, pool: &LinkPool, by: Tick) -> Taken {
        let began = self.host.clock.now();
        loop {
            let left = self.host.time_left(by);
            // r2d2 wakes nobody when a broken connection leaves a full pool: look again from time to time.
            let got = pool.get_timeout(left.min(self.host.settings.node_timeout / 4)).ok();
            let idle = || self.borrowed(lane).or_else(|| self.idle(pool));
            let taken = got.map_or_else(|| idle().map(Taken::Link), |link| self.judge(lane, link, began));
            if let Some(taken) = taken {
                return taken;
            }
            if left.is_zero() {
                return Taken::Failed(self.gave_up(pool, began));
            }
        }
    }

    /// How many ordinary ones there are.
    #[cfg(test)]
    pub(super) fn connections(&self) -> u32 {
        self.ordinary.links.get().map_or(0, |pool| pool.state().connections)
    }

    /// Nothing came in time: all connections are in use, or none could be made. The latter is the node's fault.
    fn gave_up(&self, pool: &LinkPool, began: Tick) -> Failure {
        let waited = self.host.clock.now().since(began);
        let all = pool.max_size();
        if pool.state().connections >= all {
            return Failure::unsent(Trouble::TimedOut, format!("no free connection in time: all {all} are in use"));
        }
        let failure = Failure::unsent(Trouble::TimedOut, "no connection in time");
        if waited >= self.host.settings.node_timeout / 2 {
            self.host.note(&failure, During::Connect);
        }
        failure
    }
}

/// All connections are there; those that are not idle are in use.
fn is_full(pool: &LinkPool) -> bool {
    pool.state().connections >= pool.max_size()
}

/// Why the link was dead on arrival, unless that was long before the wait for it began.
fn fresh_failure(link: &Link, began: Tick) -> Option<Failure> {
    let fresh = link.made() >= began.before(FRESH);
    link.failure().filter(|_| fresh).cloned()
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |pool: &LanePool| pool.links.get().map(LinkPool::state);
        write!(f, "ordinary {:?}, reserved {:?}", state(&self.ordinary), state(&self.reserved))
    }
}
