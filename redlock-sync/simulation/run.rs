//! Runs one schedule.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use generator::{Generator, Gn};

use super::client::{live_as_foreigner, quorum};
use super::connection::Path;
use super::known::Counts;
use super::latches::LIFE;
use super::plan::{Fault, MS, Plan, Time, chance, nanos};
use super::thread::Thread;
use super::world::{Client, Event, Job, Task, World, enter, leave, with};
use crate::cancel::Cancel;
use crate::handover::rules::{LONGEST_GRANT, QUEUE_LIFETIME};
use crate::inner::ClientInner;
use crate::lock::reentry::ThreadHolds;

type Coroutine = Generator<'static, (), ()>;

/// The time within which all tasks finish after the faults have ended.
const LONGEST_RECOVERY: Time = 120_000 * MS;
/// The largest number of events. A schedule with more events has a task in an endless loop.
const MOST_EVENTS: u64 = 1_000_000;
/// The size of a stack, in machine words.
const STACK: usize = 32 * 1024;

thread_local! {
    /// Coroutines that have ended. Their stacks are used again.
    static IDLE: RefCell<Vec<Coroutine>> = const { RefCell::new(Vec::new()) };
}

/// The outcome of a schedule.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    pub(super) violation: Option<String>,
    pub(super) log: Vec<String>,
    pub(super) plan: Plan,
    /// A digest of all events. Two runs of the same seed have the same digest.
    pub(super) digest: u64,
}

/// The coroutines of a schedule, by the number of their task, with the locks that each thread holds.
struct Coroutines(Vec<Option<(Coroutine, ThreadHolds)>>);

impl Coroutines {
    fn start(&mut self, client: usize, life: Job) {
        let idle = IDLE.with_borrow_mut(Vec::pop);
        let coroutine = match idle {
            Some(mut coroutine) => {
                coroutine.init_code(life);
                coroutine
            }
            None => Gn::new_opt(STACK, life),
        };
        self.0.push(Some((coroutine, ThreadHolds::default())));
        with(|world| {
            world.tasks.push(Task::new(client));
            let waiter = (world.tasks.len() - 1, 0);
            world.plan_at(world.now, Event::Wake(waiter));
        });
    }

    fn resume(&mut self, task: usize) {
        let Some((mut coroutine, mut belongings)) = self.0[task].take() else { return };
        with(|world| {
            world.current = task;
            world.client = world.tasks[task].client;
        });
        belongings.exchange();
        coroutine.resume();
        belongings.exchange();
        if coroutine.is_done() {
            with(|world| world.tasks[task].is_done = true);
            IDLE.with_borrow_mut(|idle| idle.push(coroutine));
        } else {
            self.0[task] = Some((coroutine, belongings));
        }
    }
}

/// Runs the schedule of a seed. If `nodes` is given, it replaces the number of nodes of the seed.
pub(super) fn schedule(seed: u64, nodes: Option<usize>, is_logged: bool) -> Outcome {
    let plan = Plan::draw(seed, nodes);
    enter(World::new(plan.clone(), is_logged));
    let mut coroutines = Coroutines(Vec::new());
    start_clients(&mut coroutines, &plan);
    run_to_the_end(&mut coroutines, &plan);
    finish(&plan);
    let mut world = close(coroutines);
    let log = world.take_log();
    Outcome { counts: world.counts, violation: world.violation, log, plan, digest: world.digest }
}

/// Runs until no events are left or a rule is violated.
fn run_to_the_end(coroutines: &mut Coroutines, plan: &Plan) {
    while let Some(event) = with(|world| world.violation.is_none().then(|| world.next()).flatten()) {
        with(|world| {
            world.counts.events += 1;
            if world.counts.events > MOST_EVENTS {
                world.violate(format!("no end: not over after {MOST_EVENTS} events"));
            }
        });
        handle(event, coroutines, plan);
        if with(|world| world.counts.events > MOST_EVENTS) {
            break;
        }
    }
}

fn close(coroutines: Coroutines) -> World {
    let is_whole = |world: &World| world.violation.is_none() && world.tasks.iter().all(|task| task.is_done);
    let (is_over, planned) = with(|world| (is_whole(world), world.take_planned()));
    if is_over {
        drop((coroutines, planned));
    } else {
        // Coroutines that have not ended must not continue, so their destructors must not run.
        std::mem::forget((coroutines, planned));
    }
    leave()
}

fn start_clients(coroutines: &mut Coroutines, plan: &Plan) {
    for client in 0..plan.clients {
        let quorum = quorum(client, plan.nodes, plan.settings.clone());
        // The restart guard works only if all clients of a lock have the same longest lease.
        quorum.record_lease_length(plan.longest());
        if client >= plan.clients - plan.foreign {
            coroutines.start(client, Box::new(move || live_as_foreigner(client, &quorum)));
            continue;
        }
        with(|world| world.client = client);
        let inner = ClientInner::new(quorum);
        for _ in 0..[1, 1, 1, 2, 3][fastrand::usize(0..5)] {
            let thread = Thread { client, inner: Arc::clone(&inner) };
            coroutines.start(client, Box::new(move || thread.live()));
        }
    }
}

fn handle(event: Event, coroutines: &mut Coroutines, plan: &Plan) {
    match event {
        Event::Wake(waiter) => {
            let is_due = with(|world| {
                let client = &world.clients[world.tasks[waiter.0].client];
                let paused = if client.is_dead { 0 } else { client.paused_until };
                if paused > world.now {
                    world.plan_at(paused, Event::Wake(waiter));
                    return false;
                }
                true
            });
            if is_due {
                with(|world| world.counts.wakes += 1);
                coroutines.resume(waiter.0);
            }
            with(|world| {
                if world.now > plan.healed + LONGEST_RECOVERY + 20 * nanos(plan.longest()) {
                    world.violate(format!(
                        "no end: all has been well since {} ms, and a thread still waits",
                        plan.healed / MS
                    ));
                }
            });
        }
        Event::Job { client, job } => {
            let is_dead = with(|world| world.clients[client].is_dead);
            if is_dead {
                std::mem::forget(job);
            } else {
                with(|world| world.counts.jobs += 1);
                coroutines.start(client, job);
            }
        }
        Event::Fault(fault) => {
            with(|world| world.strike(fault, plan));
            // A `Cancel` wakes threads, which needs the world.
            let of_dead = |client: &mut Client| std::mem::take(&mut client.cancels);
            let dead: Vec<_> =
                with(|world| world.clients.iter_mut().filter(|client| client.is_dead).flat_map(of_dead).collect());
            dead.iter().for_each(Cancel::cancel);
        }
        Event::Arrival { connection } => with(|world| world.arrive(connection)),
        Event::Duplicate { packet, epoch } => with(|world| {
            let server = &world.servers[world.connections[packet.connection].node];
            if server.is_up && server.epoch == epoch {
                world.note_duplicate(&packet);
                world.execute(&packet);
            }
        }),
        Event::Incoming { connection, bytes, told } => with(|world| world.come_in(connection, bytes, told)),
        Event::Broken { connection, for_client } => with(|world| world.broken(connection, for_client)),
        Event::Up { node } => with(|world| world.come_up(node)),
        Event::Hangup { client } => with(|world| world.hang_up(client)),
        Event::Replication(event) => with(|world| world.handle_replication(event)),
        Event::Look => with(World::look),
    }
}

/// Checks the end of a schedule: all tasks have finished, and after some time nothing is left on the nodes.
fn finish(plan: &Plan) {
    with(|world| {
        let stuck: Vec<usize> = world.tasks.iter().filter(|task| !task.is_done).map(|task| task.client).collect();
        if world.violation.is_none() && !stuck.is_empty() {
            world.violate(format!("no end: nothing happens any more, and clients {stuck:?} wait"));
        }
        let set_back = world.servers.iter().map(|server| server.set_back).max().unwrap_or(0) * MS;
        if world.violation.is_none()
            && let Some(what) = world.wrong_queue()
        {
            world.violate(what);
        }
        world.now +=
            nanos(LIFE) + nanos(plan.longest().min(LONGEST_GRANT) + plan.longest() + QUEUE_LIFETIME * 2) + set_back;
        if world.violation.is_none()
            && let Some(what) = world.residue()
        {
            world.violate(what);
        }
    });
}

impl World {
    fn strike(&mut self, fault: Fault, plan: &Plan) {
        let now = self.now;
        self.log(|_| format!("{fault:?}"));
        match fault {
            Fault::Crash { client } if !self.clients[client].is_dead => {
                self.counts.crashes += 1;
                self.clients[client].is_dead = true;
                let machine = chance(300);
                // The connections of a process that dies are closed at once. The connections of a machine that dies are
                // not.
                let noticed = if machine { fastrand::u64(0..2 * nanos(plan.pace)) } else { fastrand::u64(0..5 * MS) };
                self.plan_at(now + noticed, Event::Hangup { client });
                for task in 0..self.tasks.len() {
                    if self.tasks[task].client == client && !self.tasks[task].is_done {
                        let waiter = (task, self.tasks[task].waits);
                        self.plan_at(now, Event::Wake(waiter));
                    }
                }
            }
            Fault::Crash { .. } => {}
            Fault::Pause { client, long } => {
                self.counts.pauses += 1;
                // A shorter pause within a longer one does not shorten it.
                let until = &mut self.clients[client].paused_until;
                *until = (*until).max(now + long);
                self.hears_late(client, now + long);
            }
            Fault::Partition { client, node, long, loses } => {
                self.counts.partitions += 1;
                let is_cut = |(i, _): &(usize, &mut Path)| node.is_none_or(|node| node == *i);
                for (_, path) in self.clients[client].paths.iter_mut().enumerate().filter(is_cut) {
                    *path = Path { partitioned_until: (now + long).min(plan.healed.max(now)), loses };
                }
            }
            Fault::Restart { node, long } => self.go_down(node, long),
            Fault::FailOver { long, is_killed } => self.fail_over(long, is_killed),
            Fault::Forget { long } => self.forget(long),
            Fault::Jump { node, by } => self.jump(node, by),
            Fault::Unplug { client } => self.unplug(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::node::Background;
    use crate::quorum::Quorum;

    const MANY: u64 = 2000;

    fn background(quorum: &Quorum) -> &Background {
        quorum.nodes.background()
    }

    /// Records when it runs, waits as if in a round, and starts a further job.
    fn job(quorum: &Arc<Quorum>, began: &Arc<Mutex<Vec<Time>>>) -> impl FnOnce() + Send + use<> {
        let (quorum, began) = (Arc::clone(quorum), Arc::clone(began));
        move || {
            began.lock().push(with(|world| world.now));
            quorum.clock.sleep(Duration::from_millis(3));
            background(&quorum).after(Duration::from_secs(1), move || began.lock().push(with(|world| world.now)));
        }
    }

    #[test]
    fn many_jobs_run_when_they_are_due_unless_their_client_is_dead() {
        let plan = Plan { faults: Vec::new(), rates: 0, ..Plan::draw(1, Some(1)) };
        enter(World::new(plan.clone(), false));
        let (alive, dead, paused) = (0, 1, MANY / 2 * MS);
        let began = Arc::new(Mutex::new(Vec::new()));
        for client in [alive, dead] {
            let quorum = Arc::new(quorum(client, plan.nodes, plan.settings.clone()));
            for i in 0..MANY {
                background(&quorum).after(Duration::from_millis(i), job(&quorum, &began));
            }
        }
        with(|world| {
            world.clients[alive].paused_until = paused;
            world.clients[dead].is_dead = true;
        });
        let mut coroutines = Coroutines(Vec::new());
        run_to_the_end(&mut coroutines, &plan);
        let world = close(coroutines);
        assert_eq!((world.violation, world.counts.jobs), (None, 2 * MANY));
        let began = began.lock();
        assert_eq!(began.len() as u64, 2 * MANY);
        assert!(began.is_sorted() && began[0] >= paused, "{:?}", began.first());
        assert!(began.last().is_some_and(|last| *last / MS == MANY - 1 + 3 + 1000), "{:?}", began.last());
    }
}
