//! Leaders: one at a time, and what follows the end of a term.
//!
//! 1. This file: the contract, at each place.
//! 2. `faults`: processes that are killed and stopped, and the cost of candidates.

mod faults;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Cancel, Error, Event, LeaderHandle, Lease, Observer, Redlock};
use redlock_tests::eventually;

use crate::place::{Place, each_place};

const KEY: &str = "scheduler";
/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

fn client<P: Place>(nodes: &[P]) -> Redlock {
    P::client(nodes, Redlock::builder().node_timeout(Duration::from_secs(5)))
}

/// A body that works until it no longer leads.
fn until_the_end(lease: &Lease) -> Result<(), Error> {
    loop {
        lease.check()?;
        thread::sleep(Duration::from_millis(1));
    }
}

fn one_leads_until_it_resigns<P: Place>() {
    for count in [1, 3] {
        let nodes = P::start(count);
        let candidates: Vec<_> =
            (0..3).map(|_| client(&nodes).leader(KEY).pause(PAUSE).spawn(until_the_end).unwrap()).collect();
        for _ in 0..3 {
            let leads = || candidates.iter().filter(|candidate| candidate.is_leader()).count();
            eventually("one leads", SOON, || leads() == 1);
            let leader = candidates.iter().find(|candidate| candidate.is_leader()).unwrap();
            leader.resign();
            assert!(!leader.is_leader());
        }
        for candidate in candidates {
            candidate.join().unwrap();
        }
        assert!(!client(&nodes).mutex(KEY).is_locked().unwrap());
    }
}

/// Runs four terms, whose bodies return `end`. Returns when each term began.
fn terms<P: Place>(end: fn(usize) -> Result<(), Error>) -> Vec<Instant> {
    let nodes = P::start(1);
    let (began, cancel) = (Mutex::new(Vec::new()), Cancel::new());
    let outcome = client(&nodes).leader(KEY).pause(PAUSE).cancel(&cancel).run(|lease| {
        lease.check()?;
        let count = {
            let mut began = began.lock().unwrap_or_else(PoisonError::into_inner);
            began.push(Instant::now());
            began.len()
        };
        if count == 4 {
            cancel.cancel();
        }
        end(count)
    });
    assert_eq!(outcome, Ok(()));
    assert!(!client(&nodes).mutex(KEY).is_locked().unwrap());
    began.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn built_13_a_pause_follows_each_term<P: Place>() {
    let ends: [fn(usize) -> Result<(), Error>; 3] =
        [|_| Ok(()), |_| Err(Error::Closed), |count| if count < 4 { panic!("of the body") } else { Ok(()) }];
    for end in ends {
        let began = terms::<P>(end);
        assert_eq!(began.len(), 4);
        assert!(began.windows(2).all(|pair| pair[1].duration_since(pair[0]) >= PAUSE / 2), "{began:?}");
    }
}

/// A cancelled candidate ends its wait. A candidate that leads ends after its term.
fn a_candidate_can_be_cancelled<P: Place>() {
    let nodes = P::start(1);
    let (held, cancel) = (client(&nodes).mutex(KEY).lock().unwrap(), Cancel::new());
    let waiting = client(&nodes).leader(KEY).cancel(&cancel).spawn(until_the_end).unwrap();
    eventually("the wait is queued", SOON, || nodes[0].waits() > 0);
    assert!(!waiting.is_leader());
    cancel.cancel();
    waiting.join().unwrap();
    assert_eq!(nodes[0].waits(), 0);
    held.unlock().unwrap();
}

fn built_14_a_leader_learns_of_a_loss_and_leads_again<P: Place>() {
    let nodes = P::start(1);
    let (terms, other) = (Arc::new(AtomicUsize::new(0)), client(&nodes));
    let counted = Arc::clone(&terms);
    let locks = P::client(&nodes, Redlock::builder().node_timeout(P::LEASE / 3).lease(P::LEASE));
    let leading = locks.leader(KEY).pause(PAUSE).spawn(move |lease| {
        counted.fetch_add(1, Ordering::SeqCst);
        until_the_end(lease)
    });
    let leading = leading.unwrap();
    eventually("the candidate leads", SOON, || leading.is_leader());
    nodes[0].del(KEY);
    // If the thread is late, the time that passes ends the second term too.
    let leads_again = || terms.load(Ordering::SeqCst) > 1 && other.mutex(KEY).is_locked().unwrap();
    nodes[0].until("the candidate leads again", leads_again);
    leading.resign();
    leading.join().unwrap();
}

fn an_error_that_stays_ends_it<P: Place>() {
    let nodes = P::start(1);
    let locks = client(&nodes);
    let leading = locks.leader(KEY).spawn(until_the_end).unwrap();
    eventually("the candidate leads", SOON, || leading.is_leader());
    locks.shutdown(Duration::ZERO).unwrap();
    assert_eq!(leading.join(), Err(Error::Closed));
    let without_name = client(&nodes).leader("").run(until_the_end);
    assert!(matches!(without_name, Err(Error::Config { .. })));
}

fn a_pause_outside_of_its_limits_is_refused<P: Place>() {
    let nodes = P::start(1);
    let (locks, day) = (client(&nodes), Duration::from_secs(24 * 3600));
    let is_refused = |outcome| matches!(outcome, Err(Error::Config { message, .. }) if message.contains("pause = "));
    for pause in [Duration::ZERO, Duration::from_millis(9), day + Duration::from_millis(1), Duration::MAX] {
        assert!(is_refused(locks.leader(KEY).pause(pause).run(until_the_end)), "{pause:?}");
        assert!(is_refused(locks.leader(KEY).pause(pause).spawn(until_the_end).unwrap().join()), "{pause:?}");
    }
    let cancel = Cancel::new();
    cancel.cancel();
    for pause in [Duration::from_millis(10), day] {
        assert_eq!(locks.leader(KEY).pause(pause).cancel(&cancel).run(until_the_end), Ok(()));
    }
}

/// Records the events, except renewals.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn event(&self, event: &Event<'_>) {
        let (lock, what) = match *event {
            Event::Acquired { lock, .. } => (lock, "leads"),
            Event::Lost { lock, .. } => (lock, "lost"),
            Event::Released { lock, .. } => (lock, "released"),
            _ => return,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {what}", lock.label));
    }
}

fn observers_are_told<P: Place>() {
    let (nodes, told, cancel) = (P::start(1), Arc::new(Told::default()), Cancel::new());
    let locks = P::client(&nodes, Redlock::builder().observer(Arc::clone(&told)));
    let body = |_: &Lease| {
        cancel.cancel();
        Ok::<_, Error>(())
    };
    locks.leader(KEY).label("the one").cancel(&cancel).run(body).unwrap();
    let leading = locks.leader(KEY).label("another").spawn(until_the_end).unwrap();
    eventually("the candidate leads", SOON, || leading.is_leader());
    leading.resign();
    leading.join().unwrap();
    let told = told.0.lock().unwrap().clone();
    assert_eq!(told, ["the one leads", "the one released", "another leads", "another lost"]);
}

/// An `on_lost` handler may use the leader's handle, and runs in the thread that calls `resign`.
fn a_handler_of_the_loss_may_resign_too<P: Place>() {
    let nodes = P::start(1);
    let (handle, calls) = (Arc::new(OnceLock::<LeaderHandle>::new()), Arc::new(AtomicUsize::new(0)));
    let (known, counted) = (Arc::clone(&handle), Arc::clone(&calls));
    let leading = client(&nodes).leader(KEY).spawn(move |lease| {
        let (known, counted) = (Arc::clone(&known), Arc::clone(&counted));
        counted.fetch_add(1, Ordering::SeqCst);
        lease.on_lost(move |_| {
            known.get().unwrap().resign();
            counted.fetch_add(1, Ordering::SeqCst);
        });
        until_the_end(lease)
    });
    handle.set(leading.unwrap()).unwrap();
    eventually("the candidate leads", SOON, || handle.get().unwrap().is_leader() && calls.load(Ordering::SeqCst) == 1);
    let resigning = thread::spawn({
        let handle = Arc::clone(&handle);
        move || handle.get().unwrap().resign()
    });
    eventually("resign returns", SOON, || resigning.is_finished());
    eventually("the handler was called", SOON, || calls.load(Ordering::SeqCst) == 2);
}

fn candidates_may_have_one_cancel<P: Place>() {
    let (nodes, end) = (P::start(1), Cancel::new());
    let [one, other] =
        ["one", "other"].map(|name| client(&nodes).leader(name).cancel(&end).spawn(until_the_end).unwrap());
    eventually("both lead", SOON, || one.is_leader() && other.is_leader());
    let waiting = client(&nodes).leader("other").cancel(&end).spawn(until_the_end).unwrap();
    one.resign();
    one.join().unwrap();
    drop(client(&nodes).leader("other").cancel(&end).spawn(until_the_end).unwrap());
    assert!(!end.is_cancelled() && other.is_leader());
    end.cancel();
    waiting.join().unwrap();
    assert!(other.is_leader(), "the cancellation ended the term");
    other.resign();
    other.join().unwrap();
}

/// An error that panics when it is displayed.
struct Unshown;

impl fmt::Display for Unshown {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("of an error that is shown");
    }
}

/// A value that panics when it is dropped.
struct Undropped;

impl Drop for Undropped {
    fn drop(&mut self) {
        panic!("of what a body owns");
    }
}

fn a_panic_beside_the_body_keeps_no_thread_in_join<P: Place>() {
    let nodes = P::start(1);
    let (terms, owned) = (Arc::new(AtomicUsize::new(0)), Undropped);
    let counted = Arc::clone(&terms);
    let leading = client(&nodes).leader(KEY).pause(PAUSE).spawn(move |_| {
        let _used = &owned;
        counted.fetch_add(1, Ordering::SeqCst);
        Err(Unshown)
    });
    let leading = leading.unwrap();
    eventually("the candidate leads again", SOON, || terms.load(Ordering::SeqCst) > 1);
    leading.resign();
    let joining = thread::spawn(|| leading.join());
    eventually("join returns", SOON, || joining.is_finished());
    assert_eq!(joining.join().unwrap(), Ok(()));
    assert!(!client(&nodes).mutex(KEY).is_locked().unwrap());
}

each_place!(
    one_leads_until_it_resigns,
    built_13_a_pause_follows_each_term,
    a_candidate_can_be_cancelled,
    built_14_a_leader_learns_of_a_loss_and_leads_again,
    an_error_that_stays_ends_it,
    a_pause_outside_of_its_limits_is_refused,
    observers_are_told,
    a_handler_of_the_loss_may_resign_too,
    candidates_may_have_one_cancel,
    a_panic_beside_the_body_keeps_no_thread_in_join,
);

/// The leaders resign all the time. Still, no two bodies pass their check at the same time.
#[test]
fn no_two_lead_at_a_time() {
    let servers = redlock_tests::servers(3);
    let (at_work, terms, cancel) = (AtomicUsize::new(0), AtomicUsize::new(0), Cancel::new());
    thread::scope(|scope| {
        for _ in 0..5 {
            let candidate = client(&servers).leader(KEY).pause(Duration::from_millis(10)).cancel(&cancel);
            let (at_work, terms, cancel) = (&at_work, &terms, &cancel);
            scope.spawn(move || {
                let body = |lease: &Lease| {
                    lease.check()?;
                    assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "there are two leaders");
                    thread::sleep(Duration::from_millis(2));
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    if terms.fetch_add(1, Ordering::SeqCst) >= 50 {
                        cancel.cancel();
                    }
                    Ok::<_, Error>(())
                };
                candidate.run(body).unwrap();
            });
        }
    });
    assert_eq!(at_work.load(Ordering::SeqCst), 0);
}
