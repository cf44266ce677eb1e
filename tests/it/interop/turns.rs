//! Programs of other libraries that poll the lock while clients of ours pass it on among themselves: each gets its turn.
//!
//! The bench `load` has the same with processes, for longer, and with higher bars.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::Server;
use redlock_tests::bench::stats::float;
use redlock_tests::foreign::{Library, Work};

use super::{KEY, each_library};

const OURS: usize = 4;
const BRIEF: Duration = Duration::from_millis(2);
/// Each 12 s a pause is long enough to meet nearly any of them.
const SPAN: Duration = Duration::from_secs(30);
/// Of all acquisitions from its first turn on, in per cent.
const SHARE: f64 = 2.0;
/// After the first turn, by which ours see that there is another program.
const LONGEST_WAIT: Duration = Duration::from_secs(6);
/// Of one of ours.
const OUR_LONGEST_WAIT: Duration = Duration::from_secs(4);

each_library!(gets_its_turn);

fn gets_its_turn(library: Library) {
    // One at a time: it is about time.
    static GATE: Mutex<()> = Mutex::new(());
    let _alone = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    // On a busy machine all of the few long pauses can pass between two of its looks.
    if !has_turns_beside_ours(library) {
        assert!(has_turns_beside_ours(library), "{} got no turn, twice", library.name());
    }
}

/// False if it had none at all.
fn has_turns_beside_ours(library: Library) -> bool {
    let server = Server::start();
    let mut program = library.start(&server.url(), KEY);
    let enough = AtomicBool::new(false);
    let (turns, ours) = thread::scope(|scope| {
        let ours: Vec<_> = (0..OURS).map(|_| scope.spawn(|| pass_on(&server.url(), &enough))).collect();
        thread::sleep(SPAN / 20);
        program.begin(Work { span: SPAN, hold: BRIEF, pause: BRIEF });
        thread::sleep(SPAN);
        enough.store(true, Ordering::Relaxed);
        let ours: Vec<_> = ours.into_iter().map(|thread| thread.join().unwrap()).collect();
        (program.turns(), ours)
    });
    let in_time: Vec<_> = turns.into_iter().filter(|(_, got)| *got < SPAN).collect();
    let (name, theirs) = (library.name(), in_time.len());
    let (first, last) =
        (in_time.first().map_or(SPAN, |(_, got)| *got), in_time.last().map_or(Duration::ZERO, |(_, got)| *got));
    let waits = in_time.into_iter().skip(1).chain([(last, SPAN)]).map(|(wanted, got)| got.saturating_sub(wanted));
    let longest = waits.max().unwrap_or_default();
    let count: usize = ours.iter().map(|(count, _)| count).sum();
    let our_longest = ours.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    // Ours had the lock alone before.
    let beside = float(count as u64) * SPAN.saturating_sub(first).div_duration_f64(SPAN);
    let share = 100.0 * float(theirs as u64) / (float(theirs as u64) + beside).max(1.0);
    println!(
        "{name}: first turn after {first:?}, then {longest:?} at most, {share:.1} %; ours {our_longest:?} at most"
    );
    if theirs == 0 {
        return false;
    }
    assert!(share >= SHARE, "{name} got the lock {theirs} times beside {count}: {share:.1} %");
    assert!(longest <= LONGEST_WAIT, "{name} waited {longest:?}");
    assert!(our_longest <= OUR_LONGEST_WAIT, "ours waited {our_longest:?} beside {name}");
    true
}

/// How often a client of ours had the lock, and its longest wait. Each hold ends with the lock still its own.
fn pass_on(url: &str, enough: &AtomicBool) -> (usize, Duration) {
    let builder = Redlock::builder().node(url).node_timeout(Duration::from_secs(2));
    let lock = builder.build().unwrap().mutex(KEY);
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !enough.load(Ordering::Relaxed) {
        let wanted = Instant::now();
        let guard = lock.lock().unwrap();
        longest = longest.max(wanted.elapsed());
        thread::sleep(BRIEF);
        guard.unlock().unwrap();
        thread::sleep(BRIEF);
        count += 1;
    }
    (count, longest)
}
