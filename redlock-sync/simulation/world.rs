//! The simulated world: its time, the planned events, and the wait of each task. Everything runs on one thread of the
//! operating system. The threads of the clients are coroutines, which yield instead of blocking.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::connection::{Connection, Packet, Path, Waiter};
use super::known::{Counts, InvariantChecker};
use super::plan::{Fault, Plan, Time, chance, nanos};
use super::random::Generator;
use super::replication::{Replication, Sequel};
use super::server::{Server, Told};
use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::options::LockOptions;

thread_local!(static WORLD: RefCell<Option<Box<World>>> = const { RefCell::new(None) });

/// Calls `f` with the world. `f` must not yield.
pub(super) fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(|world| f(world.as_mut().unwrap()))
}

/// Calls `f` with the world, if this thread of the operating system runs a schedule.
pub(super) fn try_with<R>(f: impl FnOnce(&mut World) -> R) -> Option<R> {
    WORLD.try_with(|world| world.borrow_mut().as_mut().map(|world| f(world))).ok().flatten()
}

pub(super) fn enter(world: World) {
    WORLD.set(Some(Box::new(world)));
}

pub(super) fn leave() -> World {
    *WORLD.take().unwrap()
}

pub(super) type Job = Box<dyn FnOnce() + Send>;

pub(super) enum Event {
    Wake(Waiter),
    /// The first packet on a connection arrives at its node. At most one such event is planned for each connection.
    Arrival {
        connection: usize,
    },
    /// A packet of a broken connection is executed.
    Duplicate {
        packet: Packet,
        epoch: u32,
    },
    /// Replies or a message of a node arrive at its client.
    Incoming {
        connection: usize,
        bytes: Vec<u8>,
        told: Vec<Told>,
    },
    /// The client or the server notices that a connection is broken.
    Broken {
        connection: usize,
        for_client: bool,
    },
    Fault(Fault),
    Up {
        node: usize,
    },
    /// The server closes the connections of a client.
    Hangup {
        client: usize,
    },
    /// A thread of a client begins.
    Job {
        client: usize,
        job: Job,
    },
    Replication(Sequel),
    /// The data of the nodes are checked.
    Look,
}

struct Planned {
    at: Time,
    order: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    /// Reversed: the earliest event is the greatest.
    fn cmp(&self, other: &Planned) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) client: usize,
    /// The number of the current wait of the task. Wake-ups for older waits are ignored.
    pub(super) waits: u64,
    pub(super) is_done: bool,
    /// The number of locks that the task has asked for, and the settings of the last one.
    pub(super) turn: u32,
    pub(super) options: Option<LockOptions>,
    /// The largest fencing token of that lock at that time.
    pub(super) floor: u64,
    /// True during a call that may already hold a lock, unknown to the checker.
    pub(super) takes_several: bool,
}

impl Task {
    pub(super) fn new(client: usize) -> Task {
        Task { client, waits: 0, is_done: false, turn: 0, options: None, floor: 0, takes_several: false }
    }
}

/// One process.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each can be so without the others")]
pub(super) struct Client {
    pub(super) is_dead: bool,
    pub(super) is_closed: bool,
    /// The `Cancel` of each wait that has one. They are cancelled when the client dies, since no code of the client
    /// runs then.
    pub(super) cancels: Vec<Cancel>,
    pub(super) paused_until: Time,
    offset: Time,
    rate: i64,
    /// The time that passes for the client after its death.
    afterlife: Time,
    pub(super) paths: Vec<Path>,
    pub(super) generator: Generator,
    /// True if the client may not use channels.
    pub(super) is_refused: bool,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) order: u64,
    planned: BinaryHeap<Planned>,
    pub(super) plan: Plan,
    pub(super) tasks: Vec<Task>,
    pub(super) current: usize,
    /// The client whose code runs now. `current` is the task.
    pub(super) client: usize,
    pub(super) clients: Vec<Client>,
    pub(super) servers: Vec<Server>,
    pub(super) connections: Vec<Connection>,
    pub(super) replication: Replication,
    /// The threads that wait for a notification of the condition variable at that address.
    pub(super) sleepers: Vec<(usize, Waiter)>,
    /// The random parts of tokens and ids: the task that drew each, and the first lease of the lock that it wanted.
    pub(super) drawn: HashMap<u128, (usize, Option<Duration>)>,
    pub(super) invariants: InvariantChecker,
    pub(super) counts: Counts,
    pub(super) violation: Option<String>,
    log: Option<Vec<String>>,
    /// A digest of all events, for the comparison of two runs.
    pub(super) digest: u64,
}

impl World {
    pub(super) fn new(plan: Plan, is_logged: bool) -> World {
        let client = |client| Client {
            offset: fastrand::u64(1..1_000_000_000_000),
            rate: fastrand::i64(-plan.rates..=plan.rates),
            paths: (0..plan.servers()).map(|_| Path::default()).collect(),
            generator: Generator::new(client),
            is_refused: chance(plan.refused),
            ..Client::default()
        };
        let mut world = World {
            now: 0,
            order: 0,
            planned: BinaryHeap::new(),
            tasks: Vec::new(),
            current: 0,
            client: 0,
            clients: (0..plan.clients).map(client).collect(),
            servers: (0..plan.servers()).map(|_| Server::new(&plan)).collect(),
            connections: Vec::new(),
            replication: Replication::new(&plan),
            sleepers: Vec::new(),
            drawn: HashMap::new(),
            invariants: InvariantChecker::new(plan.names.len()),
            counts: Counts { schedules: 1, ..Counts::default() },
            violation: None,
            log: is_logged.then(Vec::new),
            digest: 0,
            plan,
        };
        for (at, fault) in world.plan.faults.clone() {
            world.plan_at(at, Event::Fault(fault));
        }
        for at in world.looks() {
            world.plan_at(at, Event::Look);
        }
        world.with_replica()
    }

    pub(super) fn plan_at(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.planned.push(Planned { at: at.max(self.now), order: self.order, event });
    }

    /// Returns the next event and advances the time to it. Skips wake-ups of threads that were already woken.
    pub(super) fn next(&mut self) -> Option<Event> {
        let planned = loop {
            let planned = self.planned.pop()?;
            if !matches!(planned.event, Event::Wake(waiter) if !self.waits(waiter)) {
                break planned;
            }
        };
        self.now = self.now.max(planned.at);
        self.digest = self.digest.wrapping_mul(0x0100_0000_01B3) ^ self.now ^ planned.order;
        Some(planned.event)
    }

    pub(super) fn is_healed(&self) -> bool {
        self.now >= self.plan.healed
    }

    pub(super) fn log(&mut self, line: impl FnOnce(&World) -> String) {
        let Some(mut log) = self.log.take() else { return };
        log.push(format!("{:>12.6} ms  {}", self.now as f64 / 1e6, line(self)));
        self.log = Some(log);
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }

    /// Removes the planned events from the world. They must be dropped before the world, since their destructors may
    /// read its clock.
    pub(super) fn take_planned(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.planned)
    }

    // --- clocks ------------------------------------------------------------------------------------------------------

    pub(super) fn tick(&self, client: usize) -> Tick {
        let client = &self.clients[client];
        let fast = self.now as i64 / 1_000_000 * client.rate + self.now as i64 % 1_000_000 * client.rate / 1_000_000;
        Tick::from_nanos((client.offset + self.now).saturating_add_signed(fast) + client.afterlife)
    }

    /// The true time at which the clock of the client will have advanced by this much.
    pub(super) fn true_time(&self, client: usize, d: Duration) -> Time {
        let d = nanos(d).min(1 << 50);
        self.now + (u128::from(d) * 1_000_000 / (1_000_000 + self.clients[client].rate) as u128) as u64 + 2
    }

    // --- waiting -----------------------------------------------------------------------------------------------------

    /// Begins the next wait of the current task.
    pub(super) fn waiter(&mut self) -> Waiter {
        let task = &mut self.tasks[self.current];
        task.waits += 1;
        (self.current, task.waits)
    }

    /// Returns true if the wait has not ended.
    pub(super) fn waits(&self, (task, waits): Waiter) -> bool {
        !self.tasks[task].is_done && self.tasks[task].waits == waits
    }
}

impl World {
    pub(super) fn notify(&mut self, condvar: usize, most: usize) {
        let mut left = most;
        let sleepers = std::mem::take(&mut self.sleepers);
        for (address, waiter) in sleepers {
            if address == condvar && left > 0 {
                left -= 1;
                self.plan_at(self.now, Event::Wake(waiter));
            } else {
                self.sleepers.push((address, waiter));
            }
        }
    }
}

/// Yields until something wakes the current task, or until the given time. In a dead client, the time passes at once.
pub(super) fn wait(until: impl FnOnce(&mut World, Waiter) -> Time) {
    with(|world| {
        let waiter = world.waiter();
        let until = until(world, waiter);
        let is_dead = world.clients[world.client].is_dead;
        world.plan_at(if is_dead { world.now } else { until }, Event::Wake(waiter));
    });
    give_way();
}

#[allow(
    deprecated,
    reason = "its successor must be passed down to where the waiting is done, which is below the library's own code"
)]
fn give_way() {
    generator::yield_with(());
}

pub(super) fn sleep(client: usize, d: Duration) {
    sleep_on(client, d, None);
}

/// Like `sleep`, but a notification of the condition variable at this address ends it.
pub(super) fn sleep_on(client: usize, d: Duration, condvar: Option<usize>) {
    wait(|world, waiter| {
        world.sleepers.extend(condvar.map(|condvar| (condvar, waiter)));
        if world.clients[client].is_dead {
            world.clients[client].afterlife += nanos(d).clamp(1000, 1 << 40);
        }
        world.true_time(client, d)
    });
}
