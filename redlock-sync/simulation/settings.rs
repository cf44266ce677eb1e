//! Checks holds against their settings: the longest time that they last, and how long the nodes keep their keys.

use std::time::Duration;

use super::known::Allowance;
use super::plan::{Time, nanos};
use super::rules::Rule;
use super::server::{Server, short};
use super::world::{World, with};
use crate::clock::Tick;
use crate::lease::{Lease, LeaseInner};
use crate::options::{LockOptions, Mode, drift};

/// The largest rounding error: a key lives through its last millisecond, and times are rounded up to whole
/// milliseconds.
pub(super) const ROUNDING: Duration = Duration::from_millis(2);
/// The time that an acquire may take after its last round.
const SLACK: Duration = Duration::from_millis(10);

impl Allowance {
    fn new(options: &LockOptions, now: Tick) -> Allowance {
        let longest = LeaseInner::first_lease(options);
        let hold_end = options.max_hold.map_or(Tick::NEVER, |max| now.after(max));
        let renewals = if options.renew { options.max_renewals } else { Some(0) };
        let renewals = renewals.map(|n| options.lease * n);
        let end = renewals.map_or(Tick::NEVER, |more| now.after(longest + more)).min(hold_end);
        Allowance { longest, end, hold_end, renewals, keep: options.min_hold }
    }

    /// Records that the holder asks for this lease from now on.
    fn extend(&mut self, long: Duration, now: Tick) {
        self.longest = self.longest.max(long);
        if let Some(more) = self.renewals {
            self.end = self.end.max(now.after(long + more)).min(self.hold_end);
        }
    }

    /// The longest lease that may be asked for now.
    fn at(&self, now: Tick) -> Duration {
        self.longest.min(self.end.since(now))
    }
}

pub(super) fn milliseconds(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap())
}

/// Called when the current task acquires a lock for which it asked at the given time. For a part of a multi-lock, that
/// time is unknown.
pub(super) fn begin(name: &str, lease: &Lease, options: &LockOptions, asked: Option<Time>) {
    let (token, remaining) = (lease.id().as_str(), lease.remaining());
    with(|world| {
        let mut allowance = Allowance::new(options, world.tick(world.client));
        let former = world.invariants.allowances.get(token);
        let mut own = allowance.longest;
        // If the lock was handed over and its former holder had tried to extend it, some node may keep the key for that
        // time.
        allowance.longest = allowance.longest.max(former.map_or(Duration::ZERO, |former| former.longest));
        if lease.inner().protocol().kind().mode == Mode::Joint {
            // A writer may have extended the lock before it let readers join.
            own = allowance.longest;
        }
        let asked = asked.filter(|_| former.is_none());
        let floor = asked.map_or(Duration::ZERO, |asked| world.floor(token, options, asked));
        if remaining > own || remaining < floor {
            let what = format!(
                "settings not kept: {} of client {} has {remaining:?} left of a lease between {floor:?} and {:?}",
                short(token),
                world.client,
                own
            );
            world.breaks(Rule::Settings, what);
        }
        if let Some(id) = &options.holder_name
            && !token.ends_with(&format!(":{id}"))
        {
            world.breaks(Rule::Settings, format!("settings not kept: {} has not the holder's name {id}", short(token)));
        }
        world.check_keys(name, token, allowance.longest);
        world.invariants.allowances.insert(token.to_owned(), allowance);
    });
}

/// Checks that a lease does not last longer than the settings allow.
pub(super) fn observe(lease: &Lease) {
    let remaining = lease.remaining();
    with(|world| {
        let now = world.tick(world.client);
        let token = lease.id().as_str();
        world.check_belief(world.client, lease.key(), token, remaining);
        let Some(allowance) = world.invariants.allowances.get(token) else { return };
        if !remaining.is_zero() && now.after(remaining) > allowance.end {
            let over = now.after(remaining).since(allowance.end);
            let what = format!("settings not kept: {} lasts {over:?} longer than they say", short(token));
            world.breaks(Rule::Settings, what);
        }
    });
}

/// Called before and after the holder itself extends its lease.
pub(super) fn extend(lease: &Lease, long: Duration) {
    with(|world| {
        let now = world.tick(world.client);
        if let Some(allowance) = world.invariants.allowances.get_mut(lease.id().as_str()) {
            allowance.extend(long, now);
        }
    });
}

/// The longest lease that this holder may have asked for.
pub(super) fn longest(lease: &Lease) -> Option<Duration> {
    with(|world| world.invariants.allowances.get(lease.id().as_str()).map(|allowance| allowance.longest))
}

/// The longest time that the hold of the current task can still last; `None` if its settings set no end.
pub(super) fn rest(lease: &Lease) -> Option<Duration> {
    with(|world| {
        let end = world.invariants.allowances.get(lease.id().as_str())?.end;
        (end < Tick::NEVER).then(|| end.since(world.tick(world.client)))
    })
}

impl World {
    /// The shortest lease that may remain when an acquire returns.
    fn floor(&self, token: &str, options: &LockOptions, asked: Time) -> Duration {
        let client = &self.clients[self.client];
        if client.is_dead || client.is_closed || client.paused_until > asked {
            return Duration::ZERO;
        }
        let lease = LeaseInner::first_lease(options);
        let spent = if token.contains(":granted:") && options.renew {
            lease * 2 / 3 + SLACK
        } else {
            self.plan.settings.node_timeout * 5 / 4 + SLACK
        };
        lease.saturating_sub(drift(lease) + spent)
    }

    /// Checks that no node keeps the key for longer than the settings allow.
    fn check_keys(&mut self, name: &str, token: &str, longest: Duration) {
        let now = self.now;
        let ttl = |server: &mut Server| {
            let is_ours = server.set_back == 0 && server.store(now).text(name) == Some(token.as_bytes());
            is_ours.then(|| server.store.state(name).map(|state| state.left)).flatten()
        };
        let most = self.servers.iter_mut().filter_map(ttl).max().unwrap_or_default();
        if most > longest + ROUNDING {
            let what = format!(
                "settings not kept: a node keeps `{name}` for {most:?}, {} has no lease of more than {longest:?}",
                short(token)
            );
            self.breaks(Rule::Settings, what);
        }
    }

    /// Checks a call in which the library asks for a lease of this many milliseconds.
    pub(super) fn note_length(&mut self, script: &str, token: &str, ms: &str) {
        // The library may have computed the lease this long ago, when the round began.
        let old = self.plan.settings.node_timeout + SLACK;
        let began = self.tick(self.client).before(old);
        let is_timely = self.clients[self.client].paused_until + nanos(old) < self.now;
        let asked = milliseconds(ms);
        let allowed = match (self.invariants.allowances.get(token), self.first_lease(token)) {
            (Some(allowance), _) if script == "extend" => allowance.at(began),
            // A node that lost the token gets it again, for the time that the last renewal asked for.
            (Some(allowance), _) => allowance.longest,
            // The token of a grant was drawn by another task. A lease without an allowance is a part of a multi-lock
            // that is still being acquired. The task that drew its token may have handed it over.
            (None, Some(lease)) if script != "extend" && !token.contains(":granted:") => lease,
            (None, _) => return,
        };
        if is_timely && asked > allowed + ROUNDING {
            let what = format!(
                "settings not kept: {script}.lua for {asked:?} by {}, where {allowed:?} is allowed",
                short(token)
            );
            self.breaks(Rule::Settings, what);
        }
    }

    /// Checks the time to live that a script has set for a lock.
    pub(super) fn check_length(&mut self, script: &str, token: &str, left: Duration) {
        let Some(allowance) = self.invariants.allowances.get(token) else { return };
        if left > allowance.longest.max(allowance.keep) + ROUNDING {
            let what = format!("settings not kept: {script}.lua keeps {} for {left:?} on a node", short(token));
            self.breaks(Rule::Settings, what);
        }
    }
}
