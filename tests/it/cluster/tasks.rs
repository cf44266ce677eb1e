//! Queues of tasks whose slot moves from one server to another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Job, Queue, Retry, Task};
use redlock_tests::{Cluster, Server, eventually};

use super::{SOON, builder};

/// All keys of the queue are in one slot.
const QUEUE: &str = "{moves}";
/// The keys of the queue while a task is claimed.
const OF_A_CLAIM: [&str; 3] = ["due", "tasks", "claims"];
const LATER: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn queue(cluster: &Cluster, timeout: Duration) -> Queue {
    let locks = builder(cluster).node_timeout(timeout).build().unwrap();
    locks.queue(QUEUE).retry(Retry::every(MS).max_attempts(100))
}

fn task(id: &str) -> Task {
    Task::new("body").id(id)
}

fn claim(mails: &Queue) -> Job {
    mails.try_claim_for(SOON).unwrap().unwrap()
}

/// The server that the slot leaves, and the server that it moves to.
fn ends(cluster: &Cluster) -> (&Server, &Server) {
    let from = cluster.master_of(QUEUE);
    let to = cluster.servers().iter().find(|server| server.port() != from.port()).unwrap();
    (from, to)
}

fn key(part: &str) -> String {
    format!("{QUEUE}::q2:{part}")
}

/// Moves the remaining keys and closes the slot.
fn finish(cluster: &Cluster, from: &Server, to: &Server) {
    cluster.move_keys(cluster.slot(QUEUE), from, to);
    cluster.close_slot(cluster.slot(QUEUE), to);
}

#[test]
fn claims_are_renewed_and_ended_while_their_slot_is_open() {
    let cluster = Cluster::without_replicas();
    let mails = queue(&cluster, 2000 * MS);
    let slot = cluster.slot(QUEUE);
    for has_moved in [false, true] {
        mails.push_all(["ack", "retry", "again", "dropped"].map(task)).unwrap();
        let [ack, retry, again, dropped] = std::array::from_fn(|_| claim(&mails));
        let (from, to) = ends(&cluster);
        cluster.open_slot(slot, from, to);
        if has_moved {
            cluster.move_keys(slot, from, to);
        }
        for job in [&ack, &retry, &again, &dropped] {
            job.extend(LATER).unwrap();
        }
        assert_eq!((mails.len().unwrap(), mails.peek(9).unwrap().len()), (4, 4));
        ack.ack().unwrap();
        retry.retry_after(LATER, "later").unwrap();
        again.again_after(LATER).unwrap();
        drop(dropped);
        let is_back = || mails.peek(9).is_ok_and(|left| left.iter().any(|entry| entry.why() == "the job was dropped"));
        eventually("the dropped task is queued again", SOON, is_back);
        // A push names keys that may not have arrived yet.
        let refused = mails.push("new").unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains("being moved"), "{refused}");
        finish(&cluster, from, to);
        let left = mails.peek(9).unwrap();
        let mut left: Vec<_> = left.iter().map(|entry| (entry.id(), entry.attempts(), entry.why())).collect();
        left.sort_unstable();
        assert_eq!(left, [("again", 0, ""), ("dropped", 1, "the job was dropped"), ("retry", 1, "later")]);
        assert!(left.iter().all(|(id, ..)| mails.remove(id).unwrap()));
    }
}

/// While the queue's keys are on two servers, neither can end a claim. The claim stays valid as long as before.
#[test]
fn a_claim_is_ended_when_its_keys_are_together_again() {
    let cluster = Cluster::without_replicas();
    let mails = queue(&cluster, 500 * MS);
    let patient = queue(&cluster, 2000 * MS);
    let slot = cluster.slot(QUEUE);
    for part in OF_A_CLAIM {
        mails.push_all(["ack", "fail", "in time"].map(task)).unwrap();
        let [ack, fail] = std::array::from_fn(|_| claim(&mails));
        let in_time = claim(&patient);
        let (from, to) = ends(&cluster);
        cluster.open_slot(slot, from, to);
        cluster.move_key(from, to, &key(part));
        if ["due", "tasks"].contains(&part) {
            assert!(ack.extend(LATER).unwrap_err().is_unavailable());
        }
        ack.check().unwrap();
        for ended in [ack.ack(), fail.fail("never")] {
            let error = ended.unwrap_err();
            assert!(matches!(error, Error::Unconfirmed { .. }) && error.to_string().contains("being moved"), "{error}");
        }
        thread::scope(|scope| {
            let ended = scope.spawn(move || in_time.ack());
            finish(&cluster, from, to);
            ended.join().unwrap().unwrap();
        });
        // The client repeats the other ends in the background, long before the leases end.
        eventually("all have ended", SOON / 4, || patient.is_empty().unwrap());
        assert_eq!((patient.dead_len().unwrap(), patient.purge_dead().unwrap()), (1, 1));
    }
}

/// The slot moves back and forth while one thread pushes tasks and workers handle them. The thread repeats each push
/// until it succeeds.
#[test]
fn each_task_is_run_once_while_its_slot_moves_to_and_fro() {
    let cluster = Cluster::without_replicas();
    let mails = queue(&cluster, 2000 * MS);
    let runs: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let worker = queue(&cluster, 2000 * MS)
        .worker(4, {
            let runs = Arc::clone(&runs);
            move |job: &Job| {
                *runs.lock().unwrap().entry(job.id().to_owned()).or_default() += 1;
                thread::sleep(fastrand::u32(0..30) * MS);
            }
        })
        .unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let pushed = thread::scope(|scope| {
        let pushes = scope.spawn(|| {
            let mut pushed = 0;
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                match mails.push(task(&pushed.to_string())) {
                    Ok(_) => pushed += 1,
                    Err(error) => assert!(error.is_unavailable(), "{error}"),
                }
                thread::sleep(5 * MS);
            }
            pushed
        });
        let slot = cluster.slot(QUEUE);
        for _ in 0..4 {
            let before = runs.lock().unwrap().len();
            eventually("the worker goes on", SOON, || runs.lock().unwrap().len() > before + 20);
            let (from, to) = ends(&cluster);
            cluster.open_slot(slot, from, to);
            thread::sleep(100 * MS);
            for part in OF_A_CLAIM {
                cluster.move_key(from, to, &key(part));
                thread::sleep(30 * MS);
            }
            finish(&cluster, from, to);
        }
        let (from, to) = ends(&cluster);
        if cluster.migrate_at_once(slot, from, to) {
            let before = runs.lock().unwrap().len();
            eventually("the worker goes on", SOON, || runs.lock().unwrap().len() > before + 20);
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        pushes.join().unwrap()
    });
    eventually("all are done", SOON, || mails.is_empty().unwrap());
    assert_eq!((worker.stop(SOON), mails.dead_len().unwrap()), (0, 0));
    let runs = runs.lock().unwrap();
    let odd: Vec<_> = runs.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(runs.len() == pushed && odd.is_empty(), "{} of {pushed} were run, not once: {odd:?}", runs.len());
}
