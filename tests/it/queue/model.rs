//! Random operations run on a real server and on a reference model, which must agree after each operation.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use redlock_sync::{IfQueued, Job, Pushed, Queue, Redlock, Retry, Task};
use redlock_tests::Server;

use super::rig::{ask, ms};

const OPERATIONS: u32 = 220;
const MOST_ATTEMPTS: u32 = 4;
/// The shortest lease that the node timeout of these clients allows.
const SHORT: Duration = ms(1300);
const LATER: Duration = Duration::from_secs(3600);
const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The expected state of a queued task.
#[derive(Debug)]
struct Expected {
    is_later: bool,
    attempts: u32,
    /// Whether the task was pushed while it was claimed: `Some(true)` if that push was for later.
    again: Option<bool>,
    /// The body of a replacing push. When the claim ends, the task starts again with this body.
    next: Option<String>,
    claim: Option<Job>,
    is_over: bool,
    body: String,
}

impl Expected {
    fn new(is_later: bool, body: String) -> Expected {
        Expected { is_later, attempts: 0, again: None, next: None, claim: None, is_over: false, body }
    }

    fn is_due(&self) -> bool {
        if self.claim.is_some() { self.is_over } else { !self.is_later }
    }
}

struct Run {
    server: Server,
    mails: Queue,
    short: Queue,
    random: fastrand::Rng,
    queued: BTreeMap<&'static str, Expected>,
    dead: BTreeSet<&'static str>,
    /// Claims that expired and were taken over, and claims whose task is gone.
    stale: Vec<Job>,
    log: Vec<String>,
}

fn known(id: &str) -> &'static str {
    IDS.into_iter().find(|known| *known == id).unwrap()
}

impl Run {
    fn new(seed: u64) -> Run {
        let server = Server::start();
        let locks = Redlock::builder().node(server.url()).node_timeout(ms(1200)).build().unwrap();
        let retry = Retry::every(ms(1)).jitter(0.0).max_attempts(MOST_ATTEMPTS);
        let mails = locks.queue("q").retry(retry);
        let short = mails.clone().lease(SHORT).renew(false);
        let (queued, dead, random) = (BTreeMap::new(), BTreeSet::new(), fastrand::Rng::with_seed(seed));
        Run { server, mails, short, random, queued, dead, stale: Vec::new(), log: vec![format!("seed {seed}")] }
    }

    fn step(&mut self, n: u32) {
        match self.random.u32(0..17) {
            0..4 => self.push(n),
            4..8 => self.claim(),
            8..13 => self.end(),
            13 => self.pop(),
            14 => self.remove(),
            15 => self.remove_as_seen(),
            _ => self.end_stale(),
        }
        self.compare();
    }

    fn check(&self, is_right: bool, what: &str) {
        let last = self.log.len().saturating_sub(8);
        assert!(is_right, "{}: {what}, after {:#?}, expected {:#?}", self.log[0], &self.log[last..], self.queued);
    }

    fn push(&mut self, n: u32) {
        let (id, is_later, body) = (self.any_id(), self.random.bool(), format!("body {n}"));
        let policy = [IfQueued::Keep, IfQueued::Replace, IfQueued::Earlier][self.random.usize(0..3)];
        let replaces = policy == IfQueued::Replace;
        let after = if is_later { LATER } else { Duration::ZERO };
        let said = self.mails.push(Task::new(body.clone()).id(id).after(after).if_queued(policy)).unwrap();
        self.log.push(format!("push {id} {policy:?} later {is_later}: {said:?}"));
        let expected = match self.queued.get_mut(id) {
            None => {
                self.dead.remove(id);
                self.queued.insert(id, Expected::new(is_later, body));
                Pushed::New
            }
            Some(task) if task.claim.is_some() => {
                if task.again.is_none() || replaces || policy == IfQueued::Earlier && !is_later {
                    task.again = Some(is_later);
                }
                if replaces {
                    task.next = Some(body);
                }
                if replaces { Pushed::Again } else { Pushed::RunsAgain }
            }
            Some(task) if replaces || policy == IfQueued::Earlier && !is_later && task.is_later => {
                task.is_later = is_later;
                if replaces {
                    (task.body, task.attempts) = (body, 0);
                }
                Pushed::Changed
            }
            // Both pushes have the same delay, so the first one is due earlier.
            Some(_) => Pushed::Kept,
        };
        self.check(said == expected, "the outcome of the push");
    }

    fn claim(&mut self) {
        let is_short = self.random.u32(0..4) == 0;
        let job = if is_short { self.short.try_claim() } else { self.mails.try_claim() }.unwrap();
        self.log.push(format!(
            "claim, short {is_short}: {:?}",
            job.as_ref().map(|job| (job.id().to_owned(), job.attempt()))
        ));
        let due: Vec<&str> = self.queued.iter().filter(|(_, task)| task.is_due()).map(|(id, _)| *id).collect();
        let is_passed = |id: &&&str| {
            let task = &self.queued[**id];
            (task.attempts >= MOST_ATTEMPTS || task.next.is_some()) && task.again != Some(false)
        };
        let Some(job) = job else {
            self.check(due.iter().filter(is_passed).count() == due.len(), "a task was due");
            for id in due {
                self.passes(id);
            }
            return;
        };
        let passed: Vec<&str> = due.iter().filter(is_passed).copied().collect();
        let id = known(job.id());
        self.check(due.contains(&id) && !passed.contains(&id), "the task was not due");
        // Tasks that were due before this one have died, or start again later.
        let due = self.mails.peek_due(100).unwrap();
        passed.iter().filter(|id| due.iter().all(|entry| entry.id() != **id)).for_each(|id| self.passes(id));
        let task = self.queued.get_mut(id).unwrap();
        if task.attempts >= MOST_ATTEMPTS || task.next.is_some() {
            task.attempts = 0;
        }
        if let Some(next) = task.next.take() {
            task.body = next;
        }
        let is_right = job.attempt() == task.attempts + 1 && job.body() == task.body.as_bytes();
        if task.again == Some(false) {
            task.again = None;
        }
        task.attempts += 1;
        self.stale.extend(task.claim.take());
        (task.claim, task.is_over) = (Some(job), is_short);
        self.check(is_right, "attempt or body");
        if is_short {
            thread::sleep(SHORT + ms(15));
        }
    }

    /// The script passes over this task, because its attempts are used up or it was replaced. It dies, unless a push
    /// for later makes it start again.
    fn passes(&mut self, id: &str) {
        let task = self.queued.remove(id).unwrap();
        self.stale.extend(task.claim);
        if task.again.is_some() {
            self.queued.insert(known(id), Expected::new(true, task.next.unwrap_or(task.body)));
        } else {
            self.dead.insert(known(id));
        }
    }

    /// Ends a claim that is valid, or that has expired without another claim of the task.
    fn end(&mut self) {
        let claimed: Vec<&str> =
            self.queued.iter().filter(|(_, task)| task.claim.is_some()).map(|(id, _)| *id).collect();
        let Some(id) = self.random.choice(claimed) else { return };
        let mut task = self.queued.remove(id).unwrap();
        let job = task.claim.take().unwrap();
        let (how, is_later) = (self.random.u32(0..5), self.random.bool());
        let pause = if is_later { LATER } else { Duration::ZERO };
        self.log.push(format!("end {id} by {how}, later {is_later}"));
        task.is_over = false;
        let again = task.again.take();
        let is_last = task.attempts >= MOST_ATTEMPTS;
        let is_replaced = task.next.is_some();
        let body = task.next.take().unwrap_or(task.body);
        match how {
            0 | 1 => job.ack().unwrap(),
            2 => job.retry_after(pause, "boom").unwrap(),
            3 => job.again_after(pause).unwrap(),
            _ => job.fail("boom").unwrap(),
        }
        match (how, again) {
            // The task was pushed during the claim, so it starts again.
            (_, Some(is_later)) if is_replaced || matches!(how, 0 | 1 | 4) => {
                self.queued.insert(id, Expected::new(is_later, body));
            }
            (0 | 1, None) => {}
            (2, _) if is_last && again.is_some() => {
                let is_later = again == Some(true);
                self.queued.insert(id, Expected::new(is_later, body));
            }
            (4, None) => {
                self.dead.insert(id);
            }
            (2, None) if is_last => {
                self.dead.insert(id);
            }
            (_, again) => {
                let attempts = if how == 3 { 0 } else { task.attempts };
                let is_later = is_later && again != Some(false);
                self.queued.insert(id, Expected { attempts, ..Expected::new(is_later, body) });
            }
        }
    }

    fn pop(&mut self) {
        let most = self.random.usize(1..4);
        let popped = self.mails.pop_due(most).unwrap();
        let is_replaced = |task: &&Expected| task.next.is_some() && task.again == Some(true);
        let due = self.queued.values().filter(|task| task.is_due() && !is_replaced(task)).count();
        self.log.push(format!("pop {most}: {:?}", popped.iter().map(redlock_sync::TaskInfo::id).collect::<Vec<_>>()));
        self.check(popped.len() == most.min(due), "how many were popped");
        for entry in popped {
            let task = self.queued.remove(entry.id());
            let body = |task: &Expected| task.next.as_ref().unwrap_or(&task.body).clone();
            self.check(
                task.as_ref().is_some_and(|task| task.is_due() && body(task).as_bytes() == entry.body()),
                "popped",
            );
            self.stale.extend(task.and_then(|task| task.claim));
        }
        // The pop passes over tasks that a push for later has replaced. They are queued for that time now.
        let passed: Vec<&str> =
            self.queued.iter().filter(|(_, task)| task.is_due() && is_replaced(task)).map(|(id, _)| *id).collect();
        let due = self.mails.peek_due(100).unwrap();
        passed.iter().filter(|id| due.iter().all(|entry| entry.id() != **id)).for_each(|id| self.passes(id));
    }

    fn remove(&mut self) {
        let id = self.any_id();
        let removed = self.mails.remove(id).unwrap();
        self.log.push(format!("remove {id}: {removed}"));
        let task = self.queued.remove(id);
        let was_there = task.is_some() || self.dead.remove(id);
        self.stale.extend(task.and_then(|task| task.claim));
        self.check(removed == was_there, "whether it was removed");
    }

    fn remove_as_seen(&mut self) {
        let entries = self.mails.peek(100).unwrap();
        let Some(entry) = self.random.choice(entries) else { return };
        let id = known(entry.id());
        if self.random.bool() {
            self.log.push(format!("remove {id} as it was seen"));
            let removed = self.mails.remove_if(&entry).unwrap();
            self.check(removed, "removed as it was seen");
            self.stale.extend(self.queued.remove(id).and_then(|task| task.claim));
        } else {
            // The push changes the version of the entry, also if the task is claimed.
            let replaces = Task::new("another body").id(id).if_queued(IfQueued::Replace).after(LATER);
            let said = self.mails.push(replaces).unwrap();
            self.log.push(format!("push {id} and remove it as it was before: {said:?}"));
            let task = self.queued.get_mut(id).unwrap();
            if task.claim.is_some() {
                (task.again, task.next) = (Some(true), Some("another body".into()));
            } else {
                (task.is_later, task.attempts, task.body) = (true, 0, "another body".into());
            }
            let removed = self.mails.remove_if(&entry).unwrap();
            self.check(!removed, "a changed task was removed");
        }
    }

    /// Ends an outdated claim, which must fail and change nothing.
    fn end_stale(&mut self) {
        let Some(job) = self.stale.pop() else { return };
        self.log.push(format!("end a stale claim of {}", job.id()));
        let how = self.random.u32(0..3);
        let ended = match how {
            0 => job.ack(),
            1 => job.retry_after(Duration::ZERO, "stale"),
            _ => job.fail("stale"),
        };
        self.check(
            ended.as_ref().is_err_and(redlock_sync::Error::is_lost),
            &format!("a stale end by {how}: {ended:?}"),
        );
    }

    /// Asserts that each key on the server has the expected content.
    fn compare(&self) {
        let fields: Vec<String> = ask(&self.server, "HKEYS", "tasks", &[]);
        let of = |prefix| -> BTreeSet<String> {
            fields.iter().filter_map(|field| field.strip_prefix(prefix)).map(str::to_owned).collect()
        };
        let queued: BTreeSet<String> = self.queued.keys().map(|id| (*id).to_owned()).collect();
        let dead: BTreeSet<String> = self.dead.iter().map(|id| (*id).to_owned()).collect();
        let all: BTreeSet<String> = queued.union(&dead).cloned().collect();
        let places = |set| -> BTreeSet<String> {
            let places: Vec<String> = ask(&self.server, "ZRANGE", set, &["0", "-1"]);
            places.into_iter().map(|place| place[16..].to_owned()).collect()
        };
        self.check(places("due") == queued, "the tasks");
        self.check(places("dead") == dead, "the dead");
        // A task that was never claimed can lack a state.
        self.check(of("b:") == all && of("s:").is_subset(&all), "bodies and states");
        let replaced = self.queued.iter().filter(|(_, task)| task.next.is_some()).map(|(id, _)| (*id).to_owned());
        self.check(of("n:") == replaced.collect(), "bodies that replace others");
        let claims: BTreeMap<String, String> = ask(&self.server, "HGETALL", "claims", &[]);
        let claims: BTreeSet<(String, String)> =
            claims.into_iter().map(|(token, place)| (token, place[16..].to_owned())).collect();
        let held = |(id, task): (&&str, &Expected)| Some((token(task.claim.as_ref()?), (*id).to_owned()));
        let expected: BTreeSet<_> = self.queued.iter().filter_map(held).collect();
        self.check(claims == expected, &format!("the claims {claims:?}, {expected:?}"));
    }

    fn any_id(&mut self) -> &'static str {
        IDS[self.random.usize(0..IDS.len())]
    }
}

/// The token of a claim.
fn token(claim: &Job) -> String {
    let lease: &redlock_sync::Lease = claim;
    lease.id().as_str().to_owned()
}

#[test]
fn random_operations_agree_with_the_model() {
    let first = std::env::var("REDLOCK_QUEUE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = first.map_or_else(|| vec![1, 2, 3, fastrand::u64(..)], |seed| vec![seed]);
    thread::scope(|scope| {
        for seed in seeds {
            println!("REDLOCK_QUEUE_SEED={seed}");
            scope.spawn(move || {
                let mut run = Run::new(seed);
                (0..OPERATIONS).for_each(|n| run.step(n));
            });
        }
    });
}
