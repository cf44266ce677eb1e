//! Replies that come too late.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redlock_tests::eventually;

use super::super::outbox::InFlight;
use super::super::pipe::MANY_CALLS;
use super::peer::Peer;
use super::*;
use crate::clock::Waiting;
use crate::sync::Condvar;

const SHORT: Duration = Duration::from_millis(20);

/// The peer is silent for a while, and then sends all replies at once. Each reply goes to its own call, even behind
/// calls that were given up.
#[test]
fn silence_and_then_all_replies() {
    let peer = Peer::start();
    let pipe = peer.pipe();
    peer.fall_silent();
    thread::scope(|scope| {
        let patient: Vec<_> = (0..4)
            .map(|n| {
                let pipe = &pipe;
                scope.spawn(move || ask(pipe, n, soon()))
            })
            .collect();
        eventually("all are on their way", SOON, || pipe.len() == 4);
        let hurried: Vec<_> = (10..14)
            .map(|n| {
                let pipe = &pipe;
                scope.spawn(move || ask(pipe, n, now().after(SHORT)))
            })
            .collect();
        for call in hurried {
            assert!(matches!(call.join().unwrap(), End::Abandoned(Progress::Sent | Progress::Unsent)));
        }
        peer.go_on();
        for (n, call) in (0..).zip(patient) {
            assert_eq!(call.join().unwrap(), answer(n));
        }
    });
    assert_eq!(ask(&pipe, 99, soon()), answer(99));
    eventually("what was left is read", SOON, || pipe.len() == 0);
}

/// Thousands of calls time out, and each is undone by a release. Each release is executed after its acquire.
#[test]
fn thousands_of_calls_that_time_out() {
    let peer = Peer::start();
    let pipe = peer.pipe();
    peer.fall_silent();
    thread::scope(|scope| {
        for t in 0..8 {
            let pipe = &pipe;
            scope.spawn(move || {
                for n in 0..150 {
                    let token = format!("{t}/{n}");
                    let left =
                        call(pipe, script(Purpose::Acquire, &token), false, now().after(Duration::from_micros(200)));
                    if left != End::Abandoned(Progress::Unsent) {
                        call(pipe, script(Purpose::Release, &token), true, now().after(Duration::from_micros(200)));
                    }
                }
            });
        }
    });
    peer.go_on();
    assert_eq!(ask(&pipe, 7, soon()), answer(7));
    eventually("all is read", SOON, || pipe.len() == 0);
    let (mut open, mut acquired) = (HashSet::new(), 0);
    for said in peer.log() {
        match said.split_at(1) {
            ("+", token) => {
                assert!(open.insert(token.to_owned()), "{token} twice");
                acquired += 1;
            }
            ("-", token) => assert!(open.remove(token), "{token} was given up before it was taken"),
            _ => {}
        }
    }
    assert!(open.is_empty() && acquired > 0, "never given up: {open:?}, of {acquired}");
}

/// The peer does not even read. The socket takes as many calls as fit, and all calls return in time.
#[test]
fn a_server_that_does_not_read() {
    let peer = Peer::start();
    peer.be_deaf();
    let pipe = peer.connect(Arc::new(SystemClock), Duration::from_millis(100));
    let body = "x".repeat(256 << 10);
    let long = payload(Call::new(&INSPECT, &[], &[Arg::Text(&body)]));
    let mut calls = 0;
    while !pipe.is_closed() {
        calls += 1;
        assert!(calls < 1000, "the socket takes everything");
        let end = call(&pipe, long.clone(), false, now().after(Duration::from_millis(1)));
        // On a busy machine a call may time out before it is written.
        assert!(matches!(end, End::Abandoned(_) | End::Disconnected { .. }), "{end:?}");
    }
    assert_eq!(ask(&pipe, 1, soon()), End::Disconnected { was_written: false });
    peer.go_on();
}

/// A clock whose pump gets no processor time, from its first sleep until the flag is cleared.
struct Starving(AtomicBool);

impl fmt::Debug for Starving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Starving")
    }
}

impl Clock for Starving {
    fn now(&self) -> Tick {
        SystemClock.now()
    }

    fn sleep(&self, d: Duration) {
        SystemClock.sleep(d);
    }

    fn wait(&self, condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick, is_idle: bool) {
        SystemClock.wait(condvar, waiting, until, is_idle);
        if !is_idle {
            return;
        }
        waiting.unlocked(&mut || {
            while self.0.load(Ordering::SeqCst) {
                SystemClock.sleep(Duration::from_millis(1));
            }
        });
    }
}

/// Like the next test, but behind so many calls that the thread first lets the pump read.
#[test]
fn a_call_behind_many_and_a_pump_that_gets_no_processor_time() {
    let (peer, clock) = (Peer::start(), Arc::new(Starving(AtomicBool::new(false))));
    let pipe = peer.connect(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_millis(400));
    let release = || pipe.send(Outcomes::new(1, None).command(0, script(Purpose::Release, "a"), None).unattended());
    release();
    eventually("the pump is idle", SOON, || pipe.len() == 0);
    clock.0.store(true, Ordering::SeqCst);
    (0..MANY_CALLS).for_each(|_| release());
    assert_eq!(ask(&pipe, 1, soon()), answer(1));
    clock.0.store(false, Ordering::SeqCst);
}

#[test]
fn a_pump_that_gets_no_processor_time() {
    let (peer, clock) = (Peer::start(), Arc::new(Starving(AtomicBool::new(false))));
    let pipe = peer.connect(Arc::clone(&clock) as Arc<dyn Clock>, SOON);
    pipe.send(Outcomes::new(1, None).command(0, script(Purpose::Release, "a"), None).unattended());
    eventually("the pump is idle", SOON, || pipe.len() == 0);
    clock.0.store(true, Ordering::SeqCst);
    // A single thread needs no pump.
    for n in 0..20 {
        assert_eq!(ask(&pipe, n, soon()), answer(n));
    }
    // Several threads return in time, with any result.
    let began = now();
    thread::scope(|scope| {
        for t in 0..6 {
            let pipe = &pipe;
            scope.spawn(move || {
                for n in 0..5 {
                    let end = ask(pipe, t * 100 + n, now().after(SHORT));
                    assert!(end == answer(t * 100 + n) || matches!(end, End::Abandoned(_)), "{end:?}");
                }
            });
        }
    });
    assert!(now().since(began) < SOON, "a call waited for the pump");
    clock.0.store(false, Ordering::SeqCst);
    assert_eq!(ask(&pipe, 77, soon()), answer(77));
    eventually("nothing is left", SOON, || pipe.len() == 0);
}

/// A clock of a system that cannot start threads.
#[derive(Debug)]
struct Threadless;

impl Clock for Threadless {
    fn now(&self) -> Tick {
        SystemClock.now()
    }

    fn sleep(&self, d: Duration) {
        SystemClock.sleep(d);
    }

    fn start(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[test]
fn without_a_pump_threads_look_after_themselves() {
    let peer = Peer::start();
    let pipe = peer.connect(Arc::new(Threadless), SOON);
    thread::scope(|scope| {
        for t in 0..6 {
            let pipe = &pipe;
            scope.spawn(move || {
                for n in 0..50 {
                    assert_eq!(ask(pipe, t * 100 + n, soon()), answer(t * 100 + n));
                }
            });
        }
    });
    assert_eq!(pipe.len(), 0);
}

/// Without a pump, a thread reads for itself even behind [`MANY_CALLS`] calls.
#[test]
fn without_a_pump_a_call_behind_many() {
    let peer = Peer::start();
    let pipe = peer.connect(Arc::new(Threadless), SOON);
    for _ in 0..MANY_CALLS {
        pipe.send(Outcomes::new(1, None).command(0, script(Purpose::Release, "a"), None).unattended());
    }
    assert_eq!(ask(&pipe, 1, soon()), answer(1));
}

/// While a `WAIT` is unanswered, no other call with a `WAIT` is written, and its server is not late.
#[test]
fn one_wait_for_replicas_at_a_time() {
    let command = |purpose| Outcomes::new(1, None).command(0, script(purpose, "a"), None);
    let can_write = |in_flight: &InFlight, purpose| in_flight.accepts(&command(purpose));
    let (mut in_flight, mut packet) = (InFlight::new(b"WAIT".to_vec()), Vec::new());
    let (written, later) = (now(), now().after(SOON));
    for _ in 0..2 {
        assert!(can_write(&in_flight, Purpose::Acquire));
        let awaited = [command(Purpose::Acquire), command(Purpose::Acquire)];
        packet.clear();
        for command in awaited {
            assert!(in_flight.append(command, &mut packet, written));
        }
        in_flight.complete(&mut packet, written);
        assert!(packet.ends_with(b"WAIT"));
        assert!(in_flight.append(command(Purpose::Release), &mut packet, later));
        for replies_due in (1..=2).rev() {
            assert_eq!(in_flight.oldest(SOON), Some(written));
            let (completed, _) = in_flight.assign(WireReply::Int(1)).unwrap();
            assert_eq!(completed.len(), 0, "{replies_due}");
            assert!(!can_write(&in_flight, Purpose::Acquire) && can_write(&in_flight, Purpose::Release));
        }
        assert_eq!(in_flight.oldest(SOON), Some(written.after(SOON / 4 + Duration::from_millis(100))));
        assert_eq!(in_flight.assign(WireReply::Int(1)).unwrap().0.len(), 2);
        assert_eq!(in_flight.oldest(SOON), Some(later));
        assert_eq!(in_flight.assign(WireReply::Int(1)).unwrap().0.len(), 1);
    }
}
