//! What a seed stands for: the size of a schedule, its settings and its faults.

use std::time::Duration;

use crate::config::{Limits, Retry, Terms};

/// Nanoseconds of true time.
pub(super) type Time = u64;

pub(super) const US: Time = 1_000;
pub(super) const MS: Time = 1_000_000;

pub(super) fn nanos(d: Duration) -> Time {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// True with the given probability, in thousandths.
pub(super) fn chance(per_mille: u32) -> bool {
    per_mille > 0 && fastrand::u32(0..1000) < per_mille
}

/// Something that happens to the system at a given time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The process stops for ever.
    Crash { client: usize },
    /// The process is stopped for so long.
    Pause { client: usize, long: Time },
    /// A client and a node cannot talk for so long; what was sent arrives later.
    Partition { client: usize, node: usize, long: Time },
    /// A node is down for so long. With several nodes it loses its data, else it has kept them.
    Restart { node: usize, long: Time },
    /// The wall clock of a node jumps, in ms.
    Jump { node: usize, by: i64 },
}

/// A schedule but for what the dice decide on the way.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// The last of them are foreign.
    pub(super) clients: usize,
    pub(super) foreign: usize,
    pub(super) keys: usize,
    /// Locks that each thread takes.
    pub(super) turns: u32,
    pub(super) lease: Duration,
    pub(super) limits: Limits,
    /// Per mille of messages: slow by up to some node timeouts, stalled by up to two leases, lost, reset before or after execution.
    pub(super) slow: u32,
    pub(super) stalled: u32,
    pub(super) lost: u32,
    pub(super) reset: u32,
    /// Per mille: a call finds no connection at hand.
    pub(super) cold: u32,
    /// Per mille of holds in which nobody renews.
    pub(super) careless: u32,
    /// Per mille of holds in which a fence is asked for.
    pub(super) fences: u32,
    /// Clock rates differ by up to so many parts per million.
    pub(super) rates: i64,
    /// Wall clocks of the nodes are off by up to so many ms.
    pub(super) offsets: i64,
    /// A script takes up to so many microseconds for each command.
    pub(super) creep: u64,
    pub(super) faults: Vec<(Time, Fault)>,
    /// Nothing goes wrong, and all clients are ours.
    pub(super) is_calm: bool,
    /// From then on all is well.
    pub(super) healed: Time,
}

impl Plan {
    /// Draws a plan. Seeds the random generator, which everything else in the schedule draws from.
    pub(super) fn draw(seed: u64, nodes: Option<usize>) -> Plan {
        fastrand::seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D);
        let of = [1, 1, 1, 1, 3, 3, 3, 3, 5, 2][fastrand::usize(0..10)];
        let nodes = nodes.unwrap_or(of);
        let node_timeout = Duration::from_millis(fastrand::u64(10..=40));
        let lease = node_timeout * fastrand::u32(4..=20) + Duration::from_millis(20);
        // Calm, bad, very bad.
        let level = fastrand::u32(0..3);
        let some = |most: u32| if level > 0 && fastrand::bool() { fastrand::u32(0..=most * level) } else { 0 };
        let (slow, stalled, lost, reset, cold) = (some(60), some(15), some(20), some(20), some(60));
        let rates = if fastrand::bool() { 3000 } else { 0 };
        let offsets = if fastrand::bool() { 1 + nanos(lease) as i64 / MS as i64 / 4 } else { 0 };
        let foreign = usize::from(chance(300));
        let mut plan = Plan {
            nodes,
            clients: fastrand::usize(2..=4) + foreign,
            foreign,
            keys: if chance(150) { 2 } else { 1 },
            turns: fastrand::u32(1..=4),
            lease,
            limits: Limits {
                node_timeout,
                min_validity: Duration::from_millis(2),
                unavailable_after: Duration::from_secs(2),
                ..Limits::default()
            },
            slow,
            stalled,
            lost,
            reset,
            cold,
            careless: if chance(400) { 300 } else { 0 },
            fences: if fastrand::bool() { 600 } else { 0 },
            rates,
            offsets,
            creep: if chance(200) { fastrand::u64(1..200) } else { 0 },
            faults: Vec::new(),
            is_calm: level == 0 && foreign == 0,
            healed: nanos(lease) * fastrand::u64(2..=8),
        };
        plan.draw_faults(level);
        plan
    }

    fn draw_faults(&mut self, level: u32) {
        let lease = nanos(self.lease);
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
        some(3, &|| Fault::Pause { client: any(of_ours), long: fastrand::u64(0..lease * 2) });
        some(3, &|| Fault::Partition {
            client: any(self.clients),
            node: any(self.nodes),
            long: fastrand::u64(0..lease * 2),
        });
        if fastrand::bool() {
            some(4, &|| Fault::Restart { node: any(self.nodes), long: fastrand::u64(0..lease / 4) });
        } else if self.nodes > 2 {
            let most = 2 * (lease / MS) as i64;
            some(2, &|| Fault::Jump { node: any(self.nodes), by: fastrand::i64(-most..=most) });
        }
        faults.sort_by_key(|(at, _)| *at);
        self.faults = faults;
    }

    /// The settings of one thread's locks.
    pub(super) fn draw_terms(&self) -> Terms {
        Terms {
            lease: if chance(200) { self.lease + self.lease / 3 } else { self.lease },
            renew: !chance(100),
            at_least: if chance(50) { self.lease / 4 } else { Duration::ZERO },
            max_hold: chance(50).then(|| self.lease * 2),
            max_renewals: chance(30).then_some(2),
            fenced: chance(300),
            retry: if chance(50) { Retry::every(Duration::from_millis(3)).max_attempts(5) } else { Retry::default() },
            lock_id: chance(80).then(|| "mine".to_owned()),
        }
    }
}
