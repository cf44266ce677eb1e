//! Worker processes are killed repeatedly. A checker examines what they printed.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redlock_tests::bench::stats::{float, jain};
use redlock_tests::{Server, eventually};

use super::rig::{assert_empty, key, ms, queue, task};

const TASKS: usize = 1200;
const KILLS: usize = 6;
const PROCESSES: usize = 8;
const LONG: Duration = Duration::from_secs(60);

/// The lines that a worker process printed: `claimed ID FENCE`, `acked ID FENCE`, `refused ID FENCE`.
type Told = Mutex<Vec<(String, String, u64)>>;

/// Starts a worker process. A thread records its lines until it ends.
fn start<'scope>(scope: &'scope thread::Scope<'scope, '_>, url: &str, told: &'scope Told) -> Child {
    let mut process = Command::new(env!("CARGO_BIN_EXE_agent"));
    let mut process = process.args(["queue", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    scope.spawn(move || {
        // The last line of a killed process can be incomplete.
        for line in lines.map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            if let [what, id, fence] = words[..]
                && let Ok(fence) = fence.parse()
            {
                told.lock().unwrap().push((what.to_owned(), id.to_owned(), fence));
            }
        }
    });
    process
}

#[test]
fn queue_fault_01_killed_workers_lose_no_task_and_leave_none() {
    let server = Server::start();
    let mails = queue(&server.url());
    let told = Told::default();
    thread::scope(|scope| {
        let mut workers: Vec<Child> = (0..PROCESSES).map(|_| start(scope, &server.url(), &told)).collect();
        for batch in 0..KILLS {
            let ids = batch * TASKS / KILLS..(batch + 1) * TASKS / KILLS;
            mails.push_all(ids.map(|n| task(&format!("{n}")))).unwrap();
            thread::sleep(ms(300));
            // The victim is the process that has run longest, wherever it is in its work.
            let mut victim = workers.remove(0);
            victim.kill().unwrap();
            victim.wait().unwrap();
            workers.push(start(scope, &server.url(), &told));
        }
        eventually("all tasks are done", LONG, || mails.is_empty().unwrap());
        for mut worker in workers {
            // The process ends gracefully at the end of its input.
            drop(worker.stdin.take());
            assert!(worker.wait().unwrap().success());
        }
    });
    assert_empty(&server);
    check(&told.into_inner().unwrap());
}

/// Each process gets its share of the tasks, whichever process waited first.
#[test]
fn queue_fault_21_many_tasks_are_shared_out_fairly() {
    let server = Server::start();
    let mails = queue(&server.url());
    let told: Vec<Told> = (0..PROCESSES).map(|_| Told::default()).collect();
    thread::scope(|scope| {
        let workers: Vec<Child> = told.iter().map(|told| start(scope, &server.url(), told)).collect();
        let waits = || server.ask::<usize>(redis::cmd("ZCARD").arg(key("waits"))) == PROCESSES;
        eventually("all processes wait", LONG, waits);
        mails.push_all((0..TASKS).map(|n| task(&format!("{n}")))).unwrap();
        eventually("all tasks are done", LONG, || mails.is_empty().unwrap());
        for mut worker in workers {
            drop(worker.stdin.take());
            assert!(worker.wait().unwrap().success());
        }
    });
    assert_empty(&server);
    let of_processes: Vec<Vec<_>> = told.into_iter().map(|told| told.into_inner().unwrap()).collect();
    check(&of_processes.concat());
    let acked = |told: &Vec<(String, String, u64)>| told.iter().filter(|(what, ..)| what == "acked").count();
    let shares: Vec<f64> = of_processes.iter().map(|told| float(acked(told) as u64)).collect();
    let jain = jain(&shares);
    assert!(jain > 0.9, "{jain}: {shares:?}");
}

fn check(told: &[(String, String, u64)]) {
    let mut acks: HashMap<&str, Vec<u64>> = HashMap::new();
    let mut claims: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (what, id, fence) in told {
        match what.as_str() {
            "claimed" => claims.entry(id).or_default().push(*fence),
            "acked" => acks.entry(id).or_default().push(*fence),
            _ => {}
        }
    }
    assert_eq!(claims.len(), TASKS, "some tasks were never claimed");
    for (id, fences) in &claims {
        let last = fences.iter().max().unwrap();
        let acked = acks.get(id).cloned().unwrap_or_default();
        // If a process was killed just after its ack, then it printed no line. A second ack, or an ack of an earlier
        // claim, would be an error.
        assert!(acked.len() <= 1, "task {id} was acked by {acked:?}");
        assert!(acked.iter().all(|fence| fence == last), "task {id} was acked by {acked:?}, claimed by {fences:?}");
        let mut distinct = fences.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), fences.len(), "task {id} was claimed twice by one fence: {fences:?}");
    }
    let untold = claims.keys().filter(|id| !acks.contains_key(**id)).count();
    assert!(untold <= 4 * KILLS, "no process printed the ack of {untold} tasks");
}
