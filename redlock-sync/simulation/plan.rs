//! Generates a schedule from a seed: its size, its settings and its faults.

use std::time::Duration;

use super::kinds::DrawnKind;
pub(super) use super::units::{MS, Time, US, chance, nanos};
use crate::key::Key;
use crate::options::{ClientOptions, LockOptions, MIN_VALIDITY, Retry};

/// The longest lease, as a multiple of the plan's usual lease.
const LONGEST: u32 = 4;
/// The names of locks. Some of them resemble others, or the helper keys of others.
const NAMES: [&str; 7] = ["order", "{order}", "{order}:x", "a{order}", "{order", "{{order}", "{order}:x:waits"];

/// A fault at a given time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// A process dies.
    Crash { client: usize },
    /// A process is paused for this time.
    Pause { client: usize, long: Time },
    /// A client cannot reach one node, or any node, for this time. Its packets arrive later or are lost.
    Partition { client: usize, node: Option<usize>, long: Time, loses: bool },
    /// A node is down for this time. With several nodes it loses its data. A single node keeps its data.
    Restart { node: usize, long: Time },
    /// The wall clock of a node jumps, in ms.
    Jump { node: usize, by: i64 },
    /// The replica becomes the master. The former master continues for this time, unless it is killed.
    FailOver { long: Time, is_killed: bool },
    /// The master loses its data, and its replica loses them too.
    Forget { long: Time },
    /// The notification connections of a client break. Neither side notices for some time.
    Unplug { client: usize },
}

/// A schedule, except for the random decisions that are made while it runs.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// True if the node has a replica that can take over.
    pub(super) has_replica: bool,
    /// The number of clients, including the foreign ones, which come last.
    pub(super) clients: usize,
    pub(super) foreign: usize,
    /// The locks, by name.
    pub(super) names: Vec<&'static str>,
    /// The kind of each lock.
    pub(super) kinds: Vec<DrawnKind>,
    /// The number of locks that each thread takes.
    pub(super) turns: u32,
    /// The time scale of work and faults. If it is as long as a lease, leases end. If it is much shorter, the leftovers
    /// of a lock get in the way of the next holders.
    pub(super) pace: Duration,
    /// The usual lease.
    pub(super) lease: Duration,
    pub(super) settings: ClientOptions,
    /// The probability that a setting of a hold differs from the usual one, per mille.
    pub(super) mixed: u32,
    /// The probabilities, per mille, that a message is slow, stalled, lost or reset. A slow message is late by up to
    /// some node timeouts, and a stalled one by up to two paces. A message can be lost or reset before or after its
    /// execution.
    pub(super) slow: u32,
    pub(super) stalled: u32,
    pub(super) lost: u32,
    pub(super) reset: u32,
    /// The probability that a call finds no open connection, per mille.
    pub(super) cold: u32,
    /// The share of clients that may not use channels, per mille.
    pub(super) refused: u32,
    /// The share of holds without renewal, per mille.
    pub(super) careless: u32,
    /// The probability that a turn at a mutex uses its name for a job or a leader, per mille.
    pub(super) jobs: u32,
    /// The probability that a holder asks for its fencing token in a step, per mille.
    pub(super) fences: u32,
    /// The largest difference of clock rates, in parts per million.
    pub(super) rates: i64,
    /// The largest offset of the wall clocks of nodes, in ms.
    pub(super) offsets: i64,
    /// The largest time that a node takes for each command of a script, in microseconds.
    pub(super) microseconds_per_command: u64,
    pub(super) faults: Vec<(Time, Fault)>,
    /// True if there are no faults and no foreign clients.
    pub(super) is_calm: bool,
    /// The time at which the faults end.
    pub(super) healed: Time,
}

impl Plan {
    /// Draws a plan. The seed also sets the random generator from which all other decisions of the schedule are drawn.
    pub(super) fn draw(seed: u64, nodes: Option<usize>) -> Plan {
        fastrand::seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D);
        let of = [1, 1, 1, 1, 3, 3, 3, 3, 5, 2][fastrand::usize(0..10)];
        let nodes = nodes.unwrap_or(of);
        let node_timeout = Duration::from_millis(fastrand::u64(10..=40));
        let pace = node_timeout * fastrand::u32(4..=20) + Duration::from_millis(20);
        let lease = draw_lease(pace);
        // The levels are: no faults, some faults, many faults.
        let level = fastrand::u32(0..3);
        let some = |most: u32| if level > 0 && fastrand::bool() { fastrand::u32(0..=most * level) } else { 0 };
        let (slow, stalled, lost, reset, cold) = (some(60), some(15), some(20), some(30), some(60));
        let rates = if fastrand::bool() { 3000 } else { 0 };
        let offsets = if fastrand::bool() { 1 + nanos(pace) as i64 / MS as i64 / 4 } else { 0 };
        let foreign = usize::from(chance(300));
        let mut plan = Plan {
            nodes,
            has_replica: false,
            clients: fastrand::usize(2..=4) + foreign,
            foreign,
            names: draw_names(),
            kinds: Vec::new(),
            turns: fastrand::u32(1..=4),
            pace,
            lease,
            settings: ClientOptions { node_timeout, ..ClientOptions::default() },
            mixed: [0, 0, 60, 400][fastrand::usize(0..4)],
            slow,
            stalled,
            lost,
            reset,
            cold,
            refused: if level > 0 && chance(150) { [300, 1000][fastrand::usize(0..2)] } else { 0 },
            careless: if chance(400) { 300 } else { 0 },
            jobs: if chance(200) { 900 } else { 50 },
            fences: if fastrand::bool() { 600 } else { 0 },
            rates,
            offsets,
            microseconds_per_command: if chance(200) { fastrand::u64(1..200) } else { 0 },
            faults: Vec::new(),
            is_calm: level == 0 && foreign == 0,
            healed: nanos(pace) * fastrand::u64(2..=8),
        };
        plan.draw_faults(level);
        plan.draw_replica(level);
        // Programs in other languages know mutexes only.
        let kind = |_: &&str| if foreign > 0 { DrawnKind::Mutex } else { plan.draw_kind() };
        plan.kinds = plan.names.iter().map(kind).collect();
        plan
    }

    /// The longest lease of the schedule.
    pub(super) fn longest(&self) -> Duration {
        self.lease * LONGEST
    }

    /// A period after which all leases have ended that a restarted node has forgotten, or whose majority a clock jump
    /// has broken.
    pub(super) fn window(&self) -> Time {
        nanos(self.longest() + self.lease)
    }

    fn draw_faults(&mut self, level: u32) {
        let (lease, pace) = (nanos(self.lease), nanos(self.pace));
        let of_ours = self.clients - self.foreign;
        let any = |n: usize| fastrand::usize(0..n);
        let when = || fastrand::u64(0..self.healed);
        let mut faults = Vec::new();
        let mut some = |most: u32, fault: &dyn Fn() -> Fault| {
            if level > 0 && chance(300 * level) {
                faults.extend((0..fastrand::u32(1..=most)).map(|_| (when(), fault())));
            }
        };
        some(2, &|| Fault::Crash { client: any(of_ours) });
        some(3, &|| Fault::Pause { client: any(of_ours), long: fastrand::u64(0..pace * 2) });
        some(3, &|| Fault::Partition {
            client: any(self.clients),
            node: fastrand::bool().then(|| any(self.nodes)),
            long: fastrand::u64(0..pace * 2),
            loses: fastrand::bool(),
        });
        some(6, &|| Fault::Unplug { client: any(of_ours) });
        if fastrand::bool() {
            some(4, &|| Fault::Restart { node: any(self.nodes), long: fastrand::u64(0..pace / 4) });
        } else if self.nodes > 2 {
            let most = 2 * (lease / MS) as i64;
            some(2, &|| Fault::Jump { node: any(self.nodes), by: fastrand::i64(-most..=most) });
        }
        faults.sort_by_key(|(at, _)| *at);
        self.faults = faults;
    }

    /// Draws the settings of a thread's lock.
    pub(super) fn draw_options(&self) -> LockOptions {
        let is_odd = || chance(self.mixed);
        let lease =
            if chance(2 * self.mixed) { self.draw_length(self.lease, &[0.25, 0.5, 1.3, 2.0, 4.0]) } else { self.lease };
        let max_hold = is_odd().then(|| self.draw_length(lease, &[0.5, 1.0, 2.0, 3.0]));
        let first = max_hold.map_or(lease, |max| lease.min(max));
        LockOptions {
            lease,
            renew: !is_odd(),
            min_hold: if is_odd() { first / [1, 2, 4][fastrand::usize(0..3)] } else { Duration::ZERO },
            max_hold,
            max_renewals: is_odd().then(|| fastrand::u32(0..=3)),
            fenced: chance(300),
            retry: if chance(50) { Retry::every(Duration::from_millis(3)).max_attempts(5) } else { Retry::default() },
            unavailable_after: Duration::from_secs(2),
            holder_name: is_odd().then(|| "mine".to_owned()),
            ..LockOptions::default()
        }
    }

    /// Draws a multiple of `of` that is not too short for a round.
    fn draw_length(&self, of: Duration, times: &[f64]) -> Duration {
        let spent = self.settings.node_timeout + MIN_VALIDITY + Duration::from_millis(4);
        of.mul_f64(times[fastrand::usize(0..times.len())]).max(spent)
    }
}

/// Draws a lease: as long as the work of threads, longer, or much longer.
fn draw_lease(pace: Duration) -> Duration {
    match fastrand::u32(0..10) {
        0..5 => pace,
        5..9 => Duration::from_millis(fastrand::u64(1000..10_000)),
        _ => Duration::from_millis(fastrand::u64(10_000..30_000)),
    }
}

/// Draws one name or a few names.
fn draw_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = NAMES.into_iter().filter(|name| Key::new("", name).is_ok()).collect();
    fastrand::shuffle(&mut names);
    names.truncate([1, 1, 1, 2, 3][fastrand::usize(0..5)]);
    names
}
