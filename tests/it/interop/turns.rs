//! Programs of other libraries poll the lock while our clients pass it to each other. Each program gets its turn.
//!
//! The bench `load` does the same with processes, for longer, and with stricter limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::Redlock;
use redlock_tests::bench::stats::float;
use redlock_tests::foreign::{Library, Work};
use redlock_tests::servers;

use super::{KEY, each_library, urls};

const OURS: usize = 4;
const BRIEF: Duration = Duration::from_millis(2);
/// About every 12 s, a pause between our holds is long enough for nearly any polling program.
const SPAN: Duration = Duration::from_secs(30);
/// The least share of all acquisitions from the program's first turn on, in per cent.
const SHARE: f64 = 2.0;
/// The longest wait of the program after its first turn. From then on, our clients know that there is another program.
const LONGEST_WAIT: Duration = Duration::from_secs(6);
/// The longest wait of our clients.
const OUR_LONGEST_WAIT: Duration = Duration::from_secs(4);

each_library!(gets_its_turn);

fn gets_its_turn(library: Library) {
    // The tests of the libraries run one at a time, because they measure time.
    static GATE: Mutex<()> = Mutex::new(());
    let _alone = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    for nodes in if library.knows_several_servers() { &[1, 3][..] } else { &[1] } {
        // On a busy machine, all of the few long pauses can fall between two attempts of the program. So the test runs
        // twice if needed.
        if !has_turns_beside_ours(library, *nodes) {
            assert!(has_turns_beside_ours(library, *nodes), "{} got no turn, twice", library.name());
        }
    }
}

/// Returns false if the program got no turn.
fn has_turns_beside_ours(library: Library, nodes: usize) -> bool {
    let servers = servers(nodes);
    let urls = urls(&servers);
    let mut program = library.start(&urls, KEY);
    let enough = AtomicBool::new(false);
    let (turns, ours) = thread::scope(|scope| {
        let ours: Vec<_> = (0..OURS).map(|_| scope.spawn(|| pass_on(&urls, &enough))).collect();
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
    // Before the first turn, our clients had the lock alone.
    let beside = float(count as u64) * SPAN.saturating_sub(first).div_duration_f64(SPAN);
    let share = 100.0 * float(theirs as u64) / (float(theirs as u64) + beside).max(1.0);
    println!(
        "{name}, {nodes}: first turn after {first:?}, then {longest:?} at most, {share:.1} %; ours {our_longest:?} at most"
    );
    if theirs == 0 {
        return false;
    }
    assert!(share >= SHARE, "{name} got the lock {theirs} times beside {count}: {share:.1} %");
    assert!(longest <= LONGEST_WAIT, "{name} waited {longest:?}");
    assert!(our_longest <= OUR_LONGEST_WAIT, "ours waited {our_longest:?} beside {name}");
    true
}

/// How often one of our clients had the lock, and its longest wait. Each hold must still be valid at its end.
fn pass_on(urls: &str, enough: &AtomicBool) -> (usize, Duration) {
    let builder = Redlock::builder().nodes(urls.split(',')).node_timeout(Duration::from_secs(2));
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
