//! Replies that come too late.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redlock_tests::eventually;

use super::super::halves::{Broken, Sink, Source};
use super::peer::Peer;
use super::*;
use crate::clock::Waiting;
use crate::node::stream::TimedSocket;
use crate::sync::Condvar;

const MANY: usize = 20;
const MOMENT: Duration = Duration::from_micros(200);
const SHORT: Duration = Duration::from_millis(20);

/// The peer is silent for a while, and then sends all replies at once. Each reply goes to its own call, even behind
/// calls that were given up.
#[test]
fn silence_and_then_all_replies() {
    let peer = Peer::start();
    let connection = peer.connected();
    peer.fall_silent();
    thread::scope(|scope| {
        let patient: Vec<_> = (0..4)
            .map(|n| {
                let connection = &connection;
                scope.spawn(move || ask(connection, n, soon()))
            })
            .collect();
        eventually("all are on their way", SOON, || connection.unanswered() == 4);
        let hurried: Vec<_> = (10..14)
            .map(|n| {
                let connection = &connection;
                scope.spawn(move || ask(connection, n, now().after(SHORT)))
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
    assert_eq!(ask(&connection, 99, soon()), answer(99));
    eventually("what was left is read", SOON, || !connection.is_busy());
}

/// Thousands of calls time out, and each is undone by a release. Each release is executed after its acquire.
#[test]
fn thousands_of_calls_that_time_out() {
    let peer = Peer::start();
    let connection = peer.connected();
    peer.fall_silent();
    thread::scope(|scope| {
        for t in 0..8 {
            let connection = &connection;
            scope.spawn(move || {
                for n in 0..150 {
                    let token = format!("{t}/{n}");
                    let left = call(connection, &script(Purpose::Acquire, &token), now().after(MOMENT));
                    if left != End::Abandoned(Progress::Unsent) {
                        call(connection, &script(Purpose::Release, &token), now().after(MOMENT));
                    }
                }
            });
        }
    });
    peer.go_on();
    assert_eq!(ask(&connection, 7, soon()), answer(7));
    eventually("all is read", SOON, || !connection.is_busy());
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
    let connection = peer.connect(Arc::new(SystemClock), Duration::from_millis(100));
    let body = "x".repeat(256 << 10);
    let long = payload(Call::new(&INSPECT, &[], &[Arg::Text(&body)]));
    let mut calls = 0;
    while !connection.is_closed() {
        calls += 1;
        assert!(calls < 1000, "the socket takes everything");
        let end = call(&connection, &long, now().after(SHORT / 2));
        // On a busy machine a call may time out before it is written.
        assert!(matches!(end, End::Abandoned(_) | End::Disconnected { .. }), "{end:?}");
    }
    assert_eq!(ask(&connection, 1, soon()), End::Disconnected { was_written: false });
    peer.go_on();
}

/// A clock whose drain thread gets no processor time, from its first sleep until the flag is cleared.
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

/// Like the next test, but behind so many calls that the thread first lets the drain thread read.
#[test]
fn a_call_behind_many_and_a_drain_thread_that_gets_no_processor_time() {
    let (peer, clock) = (Peer::start(), Arc::new(Starving(AtomicBool::new(false))));
    let connection = peer.connect(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_millis(400));
    let release = || post(&connection, "a");
    release();
    eventually("the drain thread is idle", SOON, || !connection.is_busy());
    clock.0.store(true, Ordering::SeqCst);
    (0..MANY).for_each(|_| release());
    assert_eq!(ask(&connection, 1, soon()), answer(1));
    clock.0.store(false, Ordering::SeqCst);
}

#[test]
fn a_drain_thread_that_gets_no_processor_time() {
    let (peer, clock) = (Peer::start(), Arc::new(Starving(AtomicBool::new(false))));
    let connection = peer.connect(Arc::clone(&clock) as Arc<dyn Clock>, SOON);
    post(&connection, "a");
    eventually("the drain thread is idle", SOON, || !connection.is_busy());
    clock.0.store(true, Ordering::SeqCst);
    // A single thread needs no drain thread.
    for n in 0..20 {
        assert_eq!(ask(&connection, n, soon()), answer(n));
    }
    // Several threads return in time, with any result.
    let began = now();
    thread::scope(|scope| {
        for t in 0..6 {
            let connection = &connection;
            scope.spawn(move || {
                for n in 0..5 {
                    let end = ask(connection, t * 100 + n, now().after(SHORT));
                    assert!(end == answer(t * 100 + n) || matches!(end, End::Abandoned(_)), "{end:?}");
                }
            });
        }
    });
    assert!(now().since(began) < SOON, "a call waited for the drain thread");
    clock.0.store(false, Ordering::SeqCst);
    assert_eq!(ask(&connection, 77, soon()), answer(77));
    eventually("nothing is left", SOON, || !connection.is_busy());
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
fn without_a_drain_thread_threads_look_after_themselves() {
    let peer = Peer::start();
    let connection = peer.connect(Arc::new(Threadless), SOON);
    thread::scope(|scope| {
        for t in 0..6 {
            let connection = &connection;
            scope.spawn(move || {
                for n in 0..50 {
                    assert_eq!(ask(connection, t * 100 + n, soon()), answer(t * 100 + n));
                }
            });
        }
    });
    assert!(!connection.is_busy());
}

/// Without a drain thread, a thread reads for itself even behind [`MANY`] calls.
#[test]
fn without_a_drain_thread_a_call_behind_many() {
    let peer = Peer::start();
    let connection = peer.connect(Arc::new(Threadless), SOON);
    for _ in 0..MANY {
        post(&connection, "a");
    }
    assert_eq!(ask(&connection, 1, soon()), answer(1));
}

/// A half that panics at each use.
struct Panicking;

impl Sink for Panicking {
    fn write(&mut self, _: &[u8]) -> Result<usize, Broken> {
        panic!("the half of a test")
    }
}

impl Source for Panicking {
    fn read(&mut self, _: &mut [u8], _: Tick) -> Result<usize, Broken> {
        panic!("the half of a test")
    }
}

/// A thread panics while it has a half. The connection is closed, and no other thread waits for the half.
#[test]
fn a_panic_with_a_half() {
    let (listener, shut) =
        (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), || Box::new(|| {}) as Box<dyn Fn() + Send + Sync>);
    let socket = || {
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        TimedSocket::new(socket).split()
    };
    let writes = Halves { sink: Box::new(Panicking), source: socket().source, shut: shut() };
    let reads = Halves { sink: socket().sink, source: Box::new(Panicking), shut: shut() };
    for halves in [writes, reads] {
        let broken = connection(halves, Arc::new(SystemClock), SOON);
        let is_told = thread::scope(|scope| {
            let call = |n| {
                let broken = &broken;
                scope.spawn(move || ask(broken, n, soon()))
            };
            let calls = [1, 2, 3].map(call).map(thread::ScopedJoinHandle::join);
            calls.into_iter().flatten().all(|end| matches!(end, End::Disconnected { .. }))
        });
        assert!(is_told && broken.is_closed());
    }
}

/// A thread has the reading half, and gets no processor time before it writes what has gathered. The thread of the call
/// writes it.
#[test]
fn a_reader_that_gets_no_processor_time() {
    let peer = Peer::start();
    let connection = peer.connected();
    let reader = connection.take_reader().unwrap();
    connection.state.lock().at_work = Some(now());
    let end = ask(&connection, 1, now().after(Duration::from_secs(2)));
    connection.bring_back(reader);
    assert_eq!(end, End::Abandoned(Progress::Sent));
}

/// A call is given up before it is written, and a `PING` takes its place. Somebody reads the reply. Otherwise the
/// connection would look late for ever.
#[test]
fn a_call_that_was_given_up_and_that_nobody_follows() {
    let peer = Peer::start();
    let connection = peer.connect(Arc::new(SystemClock), Duration::from_millis(200));
    let reader = connection.take_reader().unwrap();
    connection.state.lock().at_work = Some(now());
    let round = Round::new(1);
    let sent = connection.send(&number(1), round.recipient(0), false);
    assert!(round.give_up(0));
    assert_eq!(connection.abandon(sent), Progress::Unsent);
    connection.bring_back(reader);
    eventually("the reply to the `PING` is read", SOON, || !connection.is_busy());
    assert_eq!(peer.log(), ["PING"]);
}

/// The server sends a reply while no call is on its way. The next call must not take it for its own.
#[test]
fn a_reply_too_much_on_an_idle_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let stray = connection(TimedSocket::new(socket.try_clone().unwrap()).split(), Arc::new(SystemClock), SOON);
    std::io::Write::write_all(&mut theirs, b":666\r\n").unwrap();
    eventually("it has arrived", SOON, || socket.peek(&mut [0]).is_ok_and(|read| read > 0));
    assert_eq!(ask(&stray, 1, soon()), End::Disconnected { was_written: false });
}

/// A socket that gets room in large steps, with long pauses.
struct Steps {
    next: Tick,
    taken: Arc<std::sync::atomic::AtomicUsize>,
}

impl Sink for Steps {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        if now() < self.next {
            return Ok(0);
        }
        self.next = now().after(Duration::from_millis(300));
        let step = bytes.len().min(64 << 10);
        self.taken.fetch_add(step, Ordering::SeqCst);
        Ok(step)
    }
}

/// A body travels at 1.7 Mbit/s. The pauses between two steps are longer than a node timeout.
#[test]
fn a_slow_way_with_large_steps() {
    let (taken, node_timeout) = (Arc::default(), Duration::from_millis(100));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let Halves { source, shut, .. } = TimedSocket::new(socket).split();
    let sink = Box::new(Steps { next: Tick::ZERO, taken: Arc::clone(&taken) });
    let slow = connection(Halves { sink, source, shut }, Arc::new(SystemClock), node_timeout);
    let body = "x".repeat(200 << 10);
    let long = payload(Call::new(&INSPECT, &[], &[Arg::Text(&body)]));
    let round = Round::new(1);
    slow.send(&long, round.recipient(0), false);
    eventually("all of it is written", SOON, || taken.load(Ordering::SeqCst) > 200 << 10);
    assert!(!slow.is_closed());
}

/// Two threads sleep with a call on each of two connections. Another thread has the reading half of the first one. The
/// thread that is woken to read from the second one does so. It must not wake the other thread instead, which would
/// wake it again.
#[test]
fn a_thread_that_is_woken_reads() {
    let peers = [Peer::start(), Peer::start()];
    // After an eighth of the node timeout, any thread would read.
    let connections = peers.each_ref().map(|peer| peer.connect(Arc::new(SystemClock), 10 * SOON));
    let rounds = [1, 2].map(|n| {
        let round = Round::new(2);
        let sent = [0, 1].map(|index| {
            let connection = Arc::clone(&connections[index]);
            let number = connection.send(&number(n), round.recipient(index), false);
            SentCall { index, connection, number }
        });
        (round, sent)
    });
    let [away, read] = connections.each_ref().map(|connection| connection.take_reader().unwrap());
    for (round, sent) in &rounds {
        round.begin_sleep();
        assert!(sent.iter().all(|call| call.connection.may_sleep(call.number).is_some()));
    }
    connections[1].bring_back(read);
    let (round, sent) = &rounds[0];
    round.ends_after(1);
    assert!(wait(round, sent, false, soon(), &SystemClock), "nobody reads");
    assert!(matches!(round.take(1), Some(Outcome::Replied(WireReply::Int(1)))));
    drop(away);
}
