//! Ten thousand cycles must leave no more keys, threads or files than the first hundred. The cycles run in a separate
//! process, so that nothing else changes its threads and files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_tests::{Act, Proxy, Server, eventually, poll, rounds};

use super::rig::{SOON, locks_on, watched};
use crate::process::Process;

/// The process's report after each part.
#[derive(Debug)]
struct Report {
    threads: usize,
    files: usize,
    released: u64,
    busy: u64,
    failed: u64,
    /// The number of commands that were cut off during this part.
    cut: usize,
}

/// Reads the process's next report. Meanwhile it cuts connections in every way.
fn report(agent: &Process, proxy: &Proxy) -> Report {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let cutter = scope.spawn(|| cut(proxy, &done));
        let line = agent.lines.recv();
        done.store(true, Ordering::Relaxed);
        let line = line.expect("the agent reports");
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [threads, files, released, busy, failed] = numbers[..] else { panic!("the agent said `{line}`") };
        let [threads, files] = [threads, files].map(|n| usize::try_from(n).unwrap());
        Report { threads, files, released, busy, failed, cut: cutter.join().unwrap() }
    })
}

/// Cuts connections between, before, after and within commands, twice in a row because the library repeats a call once.
/// Returns the number of commands that were cut off.
fn cut(proxy: &Proxy, done: &AtomicBool) -> usize {
    let acts = [Act::ResetBefore, Act::ResetAfter, Act::CutReply(3)];
    let faults = ["acquire", "release"].into_iter().flat_map(|name| acts.clone().map(|act| (name, act)));
    let mut struck = 0;
    for (name, act) in faults.cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        for nth in [30, 1] {
            let fault = proxy.on_nth(name, nth, act.clone());
            // If the command disappears with another command's connection, the rule is used up but cuts nothing.
            let over = || (done.load(Ordering::Relaxed) || fault.hits() > 0).then_some(());
            _ = poll(Duration::from_secs(1), over);
            struck += fault.hits();
        }
        proxy.drop_connections();
    }
    proxy.heal();
    struck
}

/// Asserts that no key of a lock is left. A lock whose release was lost may last until its lease ends.
fn no_lock_is_left(server: &Server) {
    eventually("only fence counters are left", SOON + SOON, || locks_on(server).is_empty());
    assert!(server.keys().len() <= 3, "{:?}", server.keys());
}

/// The connections that the process's two clients may keep. Each has four connections, two that did not answer, and one
/// for notifications.
const KEPT: usize = 2 * (4 + 2 + 1);

const CYCLES: u64 = rounds(10_000);

#[test]
fn many_cycles_leave_nothing_behind() {
    let (server, proxy) = watched();
    let mut agent = Process::start(&["cycles"], &[server.url(), proxy.url(), CYCLES.to_string()]);
    let mut next = || {
        let report = report(&agent, &proxy);
        no_lock_is_left(&server);
        agent.tell("go on");
        report
    };
    let (before, first, last, after) = (next(), next(), next(), next());
    println!("{before:?}\n{first:?}\n{last:?}\n{after:?}");
    assert_eq!(last.released + last.busy + last.failed, CYCLES);
    assert!(last.released > CYCLES / 5 && last.busy > CYCLES / 20 && last.cut > 10, "too few of a kind: {last:?}");
    assert!(last.threads <= first.threads, "threads are left: {first:?}, {last:?}");
    // A client keeps as many connections as it needed at once, up to its limit. This can be more than in the first
    // hundred cycles.
    assert!(first.files <= before.files + KEPT, "{before:?}, {first:?}");
    assert!(last.files <= before.files + KEPT, "files are left: {first:?}, {last:?}");
    assert_eq!((after.threads, after.files), (before.threads, before.files), "threads or files are left");
    assert!(agent.wait().success());
}
