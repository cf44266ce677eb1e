//! Queues of tasks: the work of threads with them, and the rules.
//!
//! 1. A claimed task has one claimant: when another claimant gets it, `check` of the former one is no longer `Ok`.
//!    Fencing tokens rise.
//! 2. The end of a claim is not accepted if the call began after a later claim of the task had returned.
//! 3. A task whose push was confirmed is queued or dead. The exception is an accepted end of a claim that returned
//!    after the push began.
//! 4. No call finds nothing while a task is due. Without faults, a task that a thread waits for is not due for long.
//! 5. At the end, either all keys of the queue know a task, or none does. No claim is left without a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::kinds::Access;
use super::known::{Claim, Holder, QueueState, TaskState};
use super::plan::{MS, Plan, Time, chance, nanos};
use super::scripts::{self, Execution};
use super::server::Server;
use super::thread::Thread;
use super::world::{World, sleep, with};
use crate::error::Error;
use crate::key::TaskQueue;
use crate::lease::Lease;
use crate::node::memory::Data;
use crate::options::{LockOptions, Retry};
use crate::queue::Queue;
use crate::queue::job::Job;
use crate::queue::task::{IfQueued, Task};
use crate::queue::worker::Verdict;

/// The longest time from the moment when a task is due until its claim, while a thread waits and there are no faults.
const LONGEST_IDLE: Time = 1000 * MS;

fn with_queue<R>(key: usize, f: impl FnOnce(&mut QueueState, Time) -> R) -> R {
    with(|world| {
        let now = world.now;
        f(world.invariants.queues.entry(key).or_default(), now)
    })
}

fn with_task<R>(key: usize, id: &str, f: impl FnOnce(&mut TaskState, Time) -> R) -> R {
    with_queue(key, |queue, now| f(queue.tasks.entry(id.to_owned()).or_default(), now))
}

/// Makes one call to a queue. Returns false if the client is closed.
pub(super) fn visit(thread: &Thread, key: usize, plan: &Plan) -> bool {
    let keys = TaskQueue::new("", plan.names[key]);
    let options = LockOptions { lease: plan.lease, ..LockOptions::default() };
    let retry = Retry::growing(plan.pace / 20, plan.pace).max_attempts(6);
    let queue = Queue::new(Arc::clone(&thread.inner), keys, &options).retry(retry);
    let outcome = match fastrand::u32(0..10) {
        0..4 => push(key, &queue, plan),
        4 => work_for_a_while(thread, key, &queue, plan),
        _ => claim(thread, key, &queue, plan),
    };
    outcome.is_ok() || thread.is_dead() || outcome.is_err_and(|error| thread.note_error(&error))
}

/// Pushes one task or several tasks, some of which may already be queued.
fn push(key: usize, queue: &Queue, plan: &Plan) -> Result<(), Error> {
    let many = [1, 1, 1, 4][fastrand::usize(0..4)];
    let ids: BTreeSet<String> = (0..many).map(|_| fastrand::u32(0..6).to_string()).collect();
    let policy = [IfQueued::Keep, IfQueued::Replace, IfQueued::Earlier][fastrand::usize(0..3)];
    let delay = if chance(600) { Duration::ZERO } else { plan.pace.mul_f64(fastrand::f64()) };
    let task = |id: &String| Task::new(id.as_str()).id(id.as_str()).if_queued(policy).after(delay);
    let began = with(|world| world.now);
    queue.push_all(ids.iter().map(task))?;
    for id in &ids {
        with_task(key, id, |task, _| task.pushed = task.pushed.max(Some(began)));
    }
    with(|world| world.counts.pushed += ids.len() as u64);
    Ok(())
}

fn claim(thread: &Thread, key: usize, queue: &Queue, plan: &Plan) -> Result<(), Error> {
    let task = with(|world| world.current);
    let floor = with_queue(key, |queue, now| {
        queue.waiting.push((task, now));
        queue.fence
    });
    let claimed =
        if chance(300) { queue.try_claim() } else { queue.try_claim_for(plan.pace.mul_f64(fastrand::f64() * 3.0)) };
    if !thread.is_dead()
        && let Ok(found) = &claimed
    {
        with(|world| world.has_claimed(key, found.as_ref()));
    }
    with_queue(key, |queue, _| queue.waiting.retain(|(other, _)| *other != task));
    let Some(job) = claimed?.filter(|_| !thread.is_dead()) else { return Ok(()) };
    let (since, fence) = (with(|world| world.now), begin(thread.client, key, &job, floor));
    if chance(100) {
        Lease::inner(&job).renew_no_more();
    }
    for _ in 0..fastrand::u32(0..3) {
        sleep(thread.client, plan.pace.mul_f64(fastrand::f64().powi(3) * 2.0));
        if job.check().is_err() {
            break;
        }
    }
    finish(thread, key, job, (since, fence), plan);
    Ok(())
}

/// Called when a claimant gets a task. Returns the fencing token of the claim.
fn begin(client: usize, key: usize, job: &Job, floor: u64) -> u64 {
    let (id, fence) = (job.id().to_owned(), job.fencing_token().unwrap_or_default());
    let lease: &Lease = job;
    let new = Holder::new(
        client,
        with(|world| world.current),
        lease.id().as_str(),
        Claim::Lease(Arc::clone(lease.inner())),
        Access::Alone,
    );
    let others = with_task(key, &id, |task, _| task.claimants.clone());
    let rival = others.into_iter().find(|other| !other.remaining().is_zero());
    let is_held = !new.remaining().is_zero();
    with(|world| {
        if let Some(other) = rival.filter(|other| is_held && !world.clients[other.client].is_dead) {
            world.violate(format!(
                "two claimants of task {id}: client {} has it, client {client} gets it",
                other.client
            ));
        }
        if is_held && fence <= floor {
            world.violate(format!("the fence of a claim does not rise: {fence} after {floor}"));
        }
        world.counts.claims += 1;
        world.log(|_| format!("client {client} has claimed task {id} by fence {fence}"));
    });
    with_queue(key, |queue, now| {
        queue.fence = queue.fence.max(fence);
        let task = queue.tasks.entry(id).or_default();
        task.last = task.last.max((fence, now));
        task.claimants.push(new);
    });
    fence
}

/// Records that the claimant no longer works on the task. Returns the current time.
fn end(key: usize, id: &str) -> Time {
    let current = with(|world| world.current);
    with_task(key, id, |task, now| {
        task.claimants.retain(|one| one.task != current);
        now
    })
}

fn finish(thread: &Thread, key: usize, job: Job, (since, fence): (Time, u64), plan: &Plan) {
    let id = job.id().to_owned();
    let began = end(key, &id);
    let is_final = chance(650);
    if is_final {
        // As long as the outcome is unknown, the node may have accepted the end.
        with_task(key, &id, |task, _| task.open += 1);
    }
    let outcome = match fastrand::u32(0..10) {
        _ if is_final => {
            if chance(900) {
                job.ack()
            } else {
                job.fail("it must not be")
            }
        }
        0..4 => job.retry("not now"),
        4..6 => job.again_after(plan.pace / 2),
        _ => return,
    };
    if thread.is_dead() {
        return;
    }
    with(|world| world.log(|world| format!("client {} ends task {id}: {outcome:?}", world.client)));
    let is_accepted = outcome.is_ok();
    let is_known = is_accepted || outcome.is_err_and(|error| error.is_lost());
    let (last, told) = with_task(key, &id, |task, _| {
        task.open -= u32::from(is_final && is_known);
        if is_final && is_accepted {
            task.ended = task.ended.max(Some(since));
        }
        task.last
    });
    with(|world| {
        world.counts.acks += u64::from(is_accepted);
        if is_accepted && last > fence && told < began {
            world.violate(format!("a stale end of task {id} is accepted: by fence {fence} after {last}"));
        }
    });
}

fn work_for_a_while(thread: &Thread, key: usize, queue: &Queue, plan: &Plan) -> Result<(), Error> {
    let (client, pace) = (thread.client, plan.pace);
    let handler = move |job: &Job| {
        begin(client, key, job, 0);
        sleep(client, pace.mul_f64(fastrand::f64().powi(3)));
        end(key, job.id());
        if chance(700) {
            with_task(key, job.id(), |task, _| task.open += 1);
            return Verdict::Done;
        }
        Verdict::Retry("not now".to_owned())
    };
    let worker = queue.worker(fastrand::usize(1..=2), handler)?;
    sleep(client, pace.mul_f64(fastrand::f64() * 2.0));
    let late = with(|world| world.now) + nanos(pace) + nanos(plan.settings.node_timeout * 3);
    let running = worker.stop(pace);
    with(|world| {
        let was_paused = world.clients[client].paused_until > 0 || world.clients[client].is_dead;
        if world.now > late && !was_paused {
            world.violate(format!("a worker does not stop: {running} handlers run"));
        }
    });
    Ok(())
}

impl World {
    /// The time at which the first task of a queue is due, in µs of the server's clock.
    fn first_due(&mut self, name: &str) -> Option<u64> {
        // A call behind another one of its packet is executed when that one is over.
        let now = self.now.max(self.servers[0].busy_until);
        let key = due_key(name);
        let (_, item) = self.servers[0].store(now).live().find(|(known, _)| ***known == *key)?;
        let Data::Sorted(set) = &item.data else { return None };
        set.values().map(|score| *score as u64).min()
    }

    /// Records how long the first task of a queue has been due. Called before a script claims it.
    pub(super) fn note_claim(&mut self, call: &Execution) {
        if scripts::name(call.script) != "q_claim" {
            return;
        }
        let name = self.plan.names.clone().into_iter().find(|name| due_key(name) == call.keys[0].as_bytes());
        let Some(due) = name.and_then(|name| self.first_due(name)) else { return };
        let late = self.servers[0].store.clock.saturating_sub(due) * 1000;
        self.invariants.lateness.insert(call.args[0].clone(), late);
    }

    /// Checks a call that has claimed a task or has found none.
    fn has_claimed(&mut self, key: usize, found: Option<&Job>) {
        let name = self.plan.names[key];
        let client = &self.clients[self.client];
        if client.paused_until > 0 || client.is_closed {
            return;
        }
        let first = self.invariants.queues[&key].waiting.iter().map(|(_, since)| *since).min().unwrap_or(self.now);
        let late = if let Some(job) = found {
            self.invariants.lateness.get(Lease::id(job).as_str()).copied().unwrap_or(0)
        } else {
            let due = self.first_due(name).unwrap_or(u64::MAX);
            self.servers[0].store.clock.saturating_sub(due) * 1000
        };
        let idle = late.min(self.now - first);
        let is_blind = found.is_none() && late > nanos(self.plan.settings.node_timeout * 2) + 100 * MS;
        if is_blind {
            self.violate(format!("a task is not found: one of `{name}` has been due for {} ms", late / MS));
        } else if self.plan.is_calm && idle > LONGEST_IDLE {
            self.violate(format!("a task is idle: one of `{name}` is due for {} ms while a thread waits", idle / MS));
        }
    }

    /// Finds a violation in the queues at the end of a schedule.
    pub(super) fn wrong_queue(&mut self) -> Option<String> {
        let names: Vec<&str> = self.invariants.queues.keys().map(|&key| self.plan.names[key]).collect();
        let now = self.now;
        for (key, name) in self.invariants.queues.keys().copied().collect::<Vec<_>>().into_iter().zip(names) {
            let kept = Kept::of(&mut self.servers[0], name, now);
            if let Some(what) = kept.odd() {
                return Some(format!("a queue is at odds with itself: `{name}` has {what}"));
            }
            let is_lost =
                |(id, task): &(&String, &TaskState)| !kept.has(id) && task.open == 0 && task.pushed > task.ended;
            if let Some((id, _)) = self.invariants.queues[&key].tasks.iter().find(is_lost) {
                return Some(format!("a task is gone: {id} of `{name}`"));
            }
        }
        None
    }
}

fn due_key(name: &str) -> Vec<u8> {
    TaskQueue::new("", name).unwrap().due.as_str().as_bytes().to_vec()
}

/// The data of a queue on a server.
#[derive(Debug, Default)]
struct Kept {
    /// The places of the tasks that are queued or dead.
    places: BTreeSet<String>,
    /// The digits of each body, by id.
    bodies: BTreeMap<String, String>,
    states: BTreeMap<String, String>,
    /// The ids of the tasks that get another body after their claim.
    replaced: BTreeSet<String>,
    /// The place of each token.
    claims: BTreeMap<String, String>,
}

impl Kept {
    fn of(server: &mut Server, name: &str, now: Time) -> Kept {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let keys = TaskQueue::new("", name).unwrap();
        let mut kept = Kept::default();
        for (key, item) in server.store(now).live() {
            let key = text(key);
            match &item.data {
                Data::Sorted(set) if key == keys.due.as_str() || key == *keys.dead => {
                    kept.places.extend(set.keys().map(|place| text(place)));
                }
                Data::Hash(fields) if key == *keys.tasks => {
                    for (field, value) in fields {
                        let (field, value) = (text(field), text(value));
                        match field.split_at(2) {
                            ("b:", id) => drop(kept.bodies.insert(id.into(), value.chars().take(16).collect())),
                            ("s:", id) => drop(kept.states.insert(id.into(), value)),
                            ("n:", id) => drop(kept.replaced.insert(id.into())),
                            _ => {}
                        }
                    }
                }
                Data::Hash(fields) if key == *keys.claims => {
                    kept.claims.extend(fields.iter().map(|(token, place)| (text(token), text(place))));
                }
                _ => {}
            }
        }
        kept
    }

    fn has(&self, id: &str) -> bool {
        self.bodies.get(id).is_some_and(|digits| self.places.contains(&format!("{digits}{id}")))
    }

    fn odd(&self) -> Option<String> {
        let of_bodies: BTreeSet<String> = self.bodies.iter().map(|(id, digits)| format!("{digits}{id}")).collect();
        let states: BTreeSet<&String> = self.states.keys().collect();
        // A task that was never claimed may have no state.
        if of_bodies != self.places || !states.iter().all(|id| self.bodies.contains_key(*id)) {
            return Some(format!("tasks {:?}, states of {states:?}, bodies of {of_bodies:?}", self.places));
        }
        let holder = |id: &str| self.states.get(id).and_then(|state| state.split(' ').nth(5));
        let is_of = |token: &str, place: &str| holder(&place[16..]) == Some(token);
        if let Some((token, place)) = self.claims.iter().find(|(token, place)| !is_of(token, place)) {
            return Some(format!("the claim {token} of task {place}, which has another"));
        }
        let is_claimed = |id: &str| holder(id).is_some_and(|token| self.claims.contains_key(token));
        let id = self.replaced.iter().find(|id| !is_claimed(id))?;
        Some(format!("another body for task {id}, which is not claimed"))
    }
}
