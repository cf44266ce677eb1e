//! Programs of other libraries that poll the lock while clients of ours pass it on among themselves: each gets its turn.
//!
//! The bench `load` has the same with processes, for longer, and with higher bars.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::Server;
use redlock_tests::foreign::{Library, Work};

const OURS: usize = 4;
const BRIEF: Duration = Duration::from_millis(2);
/// Within 13 s a pause is long enough to meet any of them.
const SPAN: Duration = Duration::from_secs(20);
/// Of all acquisitions, in per cent.
const SHARE: usize = 2;
/// After the first turn, by which ours see that there is another program.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

fn gets_its_turn(library: Library) {
    // One at a time: it is about time.
    static GATE: Mutex<()> = Mutex::new(());
    let _alone = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let mut program = library.start(&server.url(), super::KEY, Work { span: SPAN, hold: BRIEF, pause: BRIEF });
    let enough = AtomicBool::new(false);
    let (turns, ours) = thread::scope(|scope| {
        let ours: Vec<_> = (0..OURS).map(|_| scope.spawn(|| pass_on(&server.url(), &enough))).collect();
        thread::sleep(SPAN / 20);
        program.go();
        thread::sleep(SPAN);
        enough.store(true, Ordering::Relaxed);
        let ours: usize = ours.into_iter().map(|thread| thread.join().unwrap()).sum();
        (program.turns(), ours)
    });
    let in_time: Vec<_> = turns.into_iter().filter(|(_, got)| *got < SPAN).collect();
    let (name, theirs) = (library.name(), in_time.len());
    let last = in_time.last().map_or(Duration::ZERO, |(_, got)| *got);
    let waits = in_time.into_iter().skip(1).chain([(last, SPAN)]).map(|(wanted, got)| got.saturating_sub(wanted));
    let longest = waits.max().unwrap_or_default();
    println!("{name}: {theirs} times beside {ours} of ours, longest wait {longest:?}");
    assert!(theirs * 100 >= SHARE * (theirs + ours), "{name} got the lock {theirs} times beside {ours}");
    assert!(longest <= LONGEST_WAIT, "{name} waited {longest:?}");
}

/// How often a client of ours had the lock.
fn pass_on(url: &str, enough: &AtomicBool) -> usize {
    let builder = Redlock::builder().node(url).node_timeout(Duration::from_secs(2));
    let lock = builder.build().unwrap().mutex(super::KEY);
    let mut count = 0;
    while !enough.load(Ordering::Relaxed) {
        let guard = lock.lock().unwrap();
        thread::sleep(BRIEF);
        guard.unlock().unwrap();
        thread::sleep(BRIEF);
        count += 1;
    }
    count
}

#[test]
fn redis_py_gets_its_turn() {
    gets_its_turn(Library::RedisPy);
}

#[test]
fn node_redlock_4_gets_its_turn() {
    gets_its_turn(Library::NodeRedlock4);
}

#[test]
fn node_redlock_5_gets_its_turn() {
    gets_its_turn(Library::NodeRedlock5);
}

#[test]
fn rslock_gets_its_turn() {
    gets_its_turn(Library::Rslock);
}
