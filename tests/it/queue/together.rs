//! Processes call all operations at once with the same tasks, without a lock around their calls. Their outcomes must be
//! possible for some sequential order of the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use redlock_tests::Server;

use super::rig::{assert_empty, queue, task};

const PROCESSES: usize = 8;
const OPERATIONS: usize = 120;
/// A task that was pushed for later. No process pops or removes it.
const SENTRY: &str = "sentry";

/// One call as a process prints it: `WHAT ID FROM TO FENCE`. All processes share the clock of the times.
#[derive(Debug)]
struct Told {
    what: String,
    id: String,
    from: u64,
    to: u64,
    fence: u64,
}

impl Told {
    fn read(line: &str) -> Told {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, id, from, to, fence] = words[..] else { panic!("cannot read `{line}`") };
        let number = |word: &str| word.parse().unwrap();
        Told { what: what.into(), id: id.into(), from: number(from), to: number(to), fence: number(fence) }
    }
}

fn run(url: &str, seed: usize) -> Vec<Told> {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_agent"));
    let agent = agent.args(["queue-all", url, &seed.to_string(), &OPERATIONS.to_string()]);
    let mut process = agent.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let told = lines.map(|line| Told::read(&line.unwrap())).collect();
    assert!(process.wait().unwrap().success());
    told
}

#[test]
fn queue_use_07_calls_need_no_lock_around_them() {
    let server = Server::start();
    let mails = queue(&server.url());
    mails.push(task(SENTRY).after(std::time::Duration::from_secs(3600))).unwrap();
    let url = server.url();
    let told: Vec<Told> = thread::scope(|scope| {
        let url = &url;
        let processes: Vec<_> = (0..PROCESSES).map(|seed| scope.spawn(move || run(url, seed))).collect();
        processes.into_iter().flat_map(|process| process.join().unwrap()).collect()
    });
    assert_eq!(mails.peek(9).unwrap().iter().map(redlock_sync::TaskInfo::id).collect::<Vec<_>>(), [SENTRY]);
    assert!(mails.remove(SENTRY).unwrap());
    assert_empty(&server);
    check(&told);
}

fn check(told: &[Told]) {
    let mut fences = BTreeSet::new();
    let mut of_ids: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
    for one in told {
        of_ids.entry(&one.id).or_default().push(one);
        assert!(one.what != "claimed" || fences.insert(one.fence), "two claims have the fence of {one:?}");
    }
    for (id, calls) in of_ids {
        let count = |what: &[&str]| calls.iter().filter(|told| what.contains(&told.what.as_str())).count();
        let (pushed, again) = (count(&["new"]), count(&["again"]));
        let gone = count(&["acked", "popped", "removed"]);
        assert!(
            (pushed..=pushed + again).contains(&gone),
            "task {id} was pushed {pushed} times, again {again}, and went {gone} times"
        );
        let mut claims: Vec<&&Told> = calls.iter().filter(|told| told.what == "claimed").collect();
        claims.sort_unstable_by_key(|told| told.fence);
        for two in claims.windows(2) {
            // When the second claim returned, the first one had ended or its task had been removed.
            let ends = |told: &&&Told| told.fence == two[0].fence && !["claimed", "lost"].contains(&told.what.as_str());
            let removes = |told: &&&Told| told.what == "removed" && told.to >= two[0].from;
            let is_over = calls.iter().any(|told| (ends(&told) || removes(&told)) && told.from <= two[1].to);
            assert!(is_over, "two claims of task {id} at once: {two:?}");
        }
    }
}

#[test]
fn the_checker_notices() {
    let told = |lines: &[&str]| {
        let told: Vec<Told> = lines.iter().map(|line| Told::read(line)).collect();
        std::panic::catch_unwind(|| check(&told)).is_ok()
    };
    let good = ["new a 1 2 0", "claimed a 3 4 7", "retried a 5 6 7", "claimed a 6 8 9", "acked a 9 10 9"];
    assert!(told(&good));
    assert!(!told(&good[..4]), "the task is lost");
    assert!(!told(&["new a 1 2 0", "claimed a 3 4 7", "claimed a 6 8 9", "acked a 9 10 9", "lost a 9 11 7"]));
    assert!(told(&[
        "new a 1 2 0",
        "claimed a 3 4 7",
        "removed a 4 5 0",
        "new a 5 6 0",
        "claimed a 6 8 9",
        "acked a 9 10 9"
    ]));
    assert!(!told(&["new a 1 2 0", "claimed a 3 4 7", "acked a 5 6 7", "popped a 6 7 0"]), "the task ended twice");
    assert!(!told(&["new a 1 2 0", "claimed a 3 4 7", "retried a 5 6 7", "claimed a 6 8 7", "acked a 9 10 7"]));
}
