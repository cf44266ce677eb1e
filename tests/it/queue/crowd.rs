//! Many threads call all operations at once, on clients with different settings. Each task ends exactly once.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{Job, Queue, Redlock, Retry, Task};
use redlock_tests::Server;

use super::rig::{assert_empty, ms};

const THREADS: usize = 200;
const TIME: Duration = Duration::from_secs(3);

/// The outcome of each task, by its id.
#[derive(Default)]
struct Counts {
    pushed: AtomicUsize,
    /// Ids of tasks that were acked, popped or removed.
    gone: Mutex<Vec<usize>>,
    removed: Mutex<HashSet<usize>>,
    purged: AtomicUsize,
    /// Ids of tasks with a claim that has not ended.
    held: Mutex<HashSet<usize>>,
    lost: Mutex<Vec<usize>>,
}

impl Counts {
    fn end(&self, id: &str) {
        self.gone.lock().unwrap().push(id.parse().unwrap());
    }

    fn claimed(&self, job: &Job) {
        assert!(self.held.lock().unwrap().insert(job.id().parse().unwrap()), "task {} is claimed twice", job.id());
    }

    fn finish(&self, job: Job, how: u32) {
        let id: usize = job.id().parse().unwrap();
        self.held.lock().unwrap().remove(&id);
        let ended = match how {
            0 => job.retry_after(ms(1), "once more"),
            1 => job.fail("never"),
            2 => job.again_after(Duration::ZERO),
            3 => return drop(job),
            _ => job.ack().inspect(|()| self.gone.lock().unwrap().push(id)),
        };
        match ended {
            Err(error) if error.is_lost() => self.lost.lock().unwrap().push(id),
            ended => ended.unwrap(),
        }
    }

    fn some_id(&self, random: &mut fastrand::Rng) -> usize {
        random.usize(0..=self.pushed.load(Ordering::SeqCst))
    }

    fn step(&self, mails: &Queue, random: &mut fastrand::Rng, jobs: &mut Vec<Job>) {
        match random.u32(0..24) {
            0..6 => {
                let id = self.pushed.fetch_add(1, Ordering::SeqCst);
                mails.push(Task::new("body").id(id.to_string()).after(ms(random.u64(0..2)))).unwrap();
            }
            6..13 if jobs.len() < 3 => {
                if let Some(job) = mails.try_claim_for(ms(random.u64(0..3))).unwrap() {
                    self.claimed(&job);
                    jobs.push(job);
                }
            }
            6..20 if !jobs.is_empty() => {
                let job = jobs.swap_remove(random.usize(0..jobs.len()));
                self.finish(job, random.u32(0..8));
            }
            20 => mails.pop_due(random.usize(0..3)).unwrap().iter().for_each(|entry| self.end(entry.id())),
            21 => {
                let id = self.some_id(random);
                if mails.remove(&id.to_string()).unwrap() {
                    self.removed.lock().unwrap().insert(id);
                    self.end(&id.to_string());
                }
            }
            22 => drop(mails.revive(&self.some_id(random).to_string()).unwrap()),
            23 if random.u32(0..9) == 0 => drop(mails.revive_all().unwrap()),
            23 if random.u32(0..9) == 0 => {
                self.purged.fetch_add(usize::try_from(mails.purge_dead().unwrap()).unwrap(), Ordering::SeqCst);
            }
            _ => drop(mails.peek(3).unwrap()),
        }
    }
}

#[test]
fn each_task_of_a_crowd_ends_once() {
    let server = Server::start();
    let open = |lease: u64| {
        let locks = Redlock::builder().node(server.url()).node_timeout(ms(3000)).build().unwrap();
        let retry = Retry::every(ms(1)).max_attempts(u32::try_from(lease).unwrap());
        locks.queue("q").lease(Duration::from_secs(lease)).retry(retry).keep_dead(1_000_000)
    };
    let clients = [open(30), open(60)];
    let (counts, is_over) = (Counts::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for nth in 0..THREADS {
            let (mails, counts, is_over) = (&clients[nth % 2], &counts, &is_over);
            scope.spawn(move || {
                let (mut random, mut jobs) = (fastrand::Rng::with_seed(nth as u64), Vec::new());
                while !is_over.load(Ordering::SeqCst) {
                    counts.step(mails, &mut random, &mut jobs);
                }
                for job in jobs {
                    counts.finish(job, 9);
                }
            });
        }
        thread::sleep(TIME);
        is_over.store(true, Ordering::SeqCst);
    });
    let mails = &clients[0];
    mails.revive_all().unwrap();
    while !mails.is_empty().unwrap() {
        if let Some(job) = mails.try_claim_for(ms(100)).unwrap() {
            counts.claimed(&job);
            counts.finish(job, 9);
        }
    }
    assert_empty(&server);
    let (pushed, purged) = (counts.pushed.into_inner(), counts.purged.into_inner());
    let (gone, removed) = (counts.gone.into_inner().unwrap(), counts.removed.into_inner().unwrap());
    let distinct: HashSet<_> = gone.iter().collect();
    eprintln!("{pushed} pushed, {} gone, {purged} purged", gone.len());
    assert_eq!(distinct.len(), gone.len(), "some tasks ended twice");
    assert_eq!(gone.len() + purged, pushed);
    let lost = counts.lost.into_inner().unwrap();
    assert!(lost.iter().all(|id| removed.contains(id)), "claims of tasks that were not removed are lost");
}
