//! Models of calls for which no thread waits: `node/transport/unattended.rs` and `node/transport/drain.rs`.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use crate::clock::Tick;
use crate::node::transport::framer::WireReply;
use crate::node::transport::round::Outcome;
use crate::node::transport::waiting;
use crate::sync::Mutex;
use crate::transport::{join, rig};
use crate::wire::{End, PATIENCE, Passing, Rig, Said, Threadless};
use crate::world::{self, ModelClock};

/// As at the end of a client.
fn finish(rig: &Rig, until: Tick) {
    waiting::finish(&|| vec![Arc::clone(&rig.connection)], until, &ModelClock);
}

/// Calls without a waiting thread are sent between other calls. All of them are written once, in the order of each
/// thread, and no other call gets their replies.
pub fn calls_for_which_no_thread_waits() {
    let rig = rig();
    let server = rig.serve();
    let threads = ["a", "b", "c"].map(|token| {
        rig.spawn(move |rig| {
            let n = u64::from(token.as_bytes()[0]);
            rig.post(token, |_| ());
            assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed())));
        })
    });
    join(threads);
    rig.flush();
    for token in ["a", "b", "c"] {
        let executed = rig.server.executed();
        let at = |said: Said| executed.iter().position(|other| *other == said).expect("executed");
        assert!(at(Said::Release(token.into())) < at(Said::Number(u64::from(token.as_bytes()[0]))), "{executed:?}");
        assert_eq!(executed.iter().filter(|said| **said == Said::Release(token.into())).count(), 1);
    }
    rig.end();
    server.join().unwrap();
}

/// Records the outcomes with which callbacks are called.
#[derive(Default)]
struct Told(Mutex<Vec<Option<Outcome>>>);

impl Told {
    fn release(self: &Arc<Self>, rig: &Rig, token: &str) {
        let told = Arc::clone(self);
        rig.post(token, move |outcome| told.0.lock().push(outcome));
    }

    fn wait_for(&self, calls: usize) {
        while self.0.lock().len() < calls {
            thread::yield_now();
        }
    }

    /// Returns how many callbacks got a reply, and how many were told that their call is late.
    fn counts(&self) -> (usize, usize) {
        let told = self.0.lock();
        (
            told.iter().flatten().filter(|outcome| matches!(outcome, Outcome::Replied(_))).count(),
            told.iter().filter(|one| one.is_none()).count(),
        )
    }
}

/// Guards are dropped while other threads wait for calls. Each release calls its callback once, at the latest when the
/// client ends.
pub fn each_callback_is_called_once() {
    let rig = rig();
    let (server, told) = (rig.serve(), Arc::new(Told::default()));
    let threads = ["a", "b", "c"].map(|token| {
        let told = Arc::clone(&told);
        rig.spawn(move |rig| {
            let n = u64::from(token.as_bytes()[0]);
            assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed())));
            told.release(&rig, token);
        })
    });
    join(threads);
    finish(&rig, Tick::NEVER);
    rig.flush();
    rig.end();
    server.join().unwrap();
    assert_eq!(told.counts(), (3, 0));
}

/// Callbacks are told that their calls are late. They are not called again when the server answers later.
pub fn a_late_callback_is_called_once() {
    let (rig, told) = (rig(), Arc::new(Told::default()));
    let threads = ["a", "b"].map(|token| {
        let told = Arc::clone(&told);
        rig.spawn(move |rig| told.release(&rig, token))
    });
    join(threads);
    let time = Passing::start(PATIENCE / 4);
    finish(&rig, world::now());
    time.stop();
    let server = rig.serve();
    rig.flush();
    rig.end();
    server.join().unwrap();
    assert_eq!(told.counts(), (0, 2));
}

/// A connection breaks. Each callback is called once then too.
pub fn a_callback_on_a_connection_that_breaks() {
    let (rig, told) = (rig(), Arc::new(Told::default()));
    let server = rig.serve();
    let threads = ["a", "b"].map(|token| {
        let told = Arc::clone(&told);
        rig.spawn(move |rig| {
            told.release(&rig, token);
            _ = rig.number(7, Tick::NEVER);
        })
    });
    rig.server.cut();
    join(threads);
    finish(&rig, Tick::NEVER);
    rig.end();
    server.join().unwrap();
    assert_eq!(told.0.lock().len(), 2);
}

/// A connection breaks with a release of a dropped guard on it, and with an attempt. The callback is called before any
/// thread learns of the break. So a thread that asks again finds the token of that guard recorded.
pub fn callbacks_before_threads() {
    let rig = rig();
    let told = Arc::new(Told::default());
    told.release(&rig, "a");
    let threads = [1, 2].map(|n: u64| {
        let told = Arc::clone(&told);
        rig.spawn(move |rig| {
            if let End::Cut { .. } = rig.number(n, Tick::NEVER) {
                assert_eq!(told.0.lock().len(), 1, "the thread learned of the break first");
            }
        })
    });
    rig.server.cut();
    join(threads);
    finish(&rig, Tick::NEVER);
    rig.end();
}

/// A callback sends its call once more, on the connection whose reply it got.
pub fn a_callback_that_sends_again() {
    let rig = rig();
    let (server, told) = (rig.serve(), Arc::new(Told::default()));
    let threads = [1, 2].map(|n: u64| {
        let told = Arc::clone(&told);
        rig.spawn(move |rig| {
            let again = Rig::clone(&rig);
            rig.post("a", move |_| told.release(&again, "b"));
            assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed())));
        })
    });
    join(threads);
    finish(&rig, Tick::NEVER);
    rig.flush();
    rig.end();
    server.join().unwrap();
    assert_eq!(told.counts(), (2, 0));
}

/// The client ends while releases are on their way and threads wait. The `PING` at the end is answered behind them.
pub fn the_end_of_a_client() {
    let rig = rig();
    let (server, told) = (rig.serve(), Arc::new(Told::default()));
    told.release(&rig, "a");
    let other = rig.spawn(|rig| assert_eq!(rig.number(1, Tick::NEVER), End::Reply(WireReply::Int(1))));
    told.release(&rig, "b");
    finish(&rig, Tick::NEVER);
    assert_eq!(told.counts(), (2, 0));
    other.join().unwrap();
    rig.flush();
    rig.end();
    server.join().unwrap();
}

/// The system starts no thread. Callers read their replies themselves while time passes.
pub fn without_a_drain_thread() {
    let rig = Rig::new(Arc::new(Threadless));
    let server = rig.serve();
    let threads = [1, 2, 3].map(|n: u64| {
        rig.spawn(move |rig| {
            rig.post("a", |_| ());
            assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed())));
        })
    });
    let time = Passing::start(Duration::from_millis(1));
    join(threads);
    rig.flush();
    time.stop();
    rig.end();
    server.join().unwrap();
}

/// The drain thread reads replies that no thread waits for. Then it ends, and is started again later.
pub fn a_drain_thread_that_rests() {
    let rig = rig();
    let server = rig.serve();
    rig.post("a", |_| ());
    let time = thread::spawn(|| {
        for _ in 0..3 {
            world::pass(Duration::from_secs(5));
            thread::yield_now();
        }
    });
    let caller = rig.spawn(|rig| assert_eq!(rig.number(1, Tick::NEVER), End::Reply(WireReply::Int(1))));
    time.join().unwrap();
    caller.join().unwrap();
    rig.flush();
    rig.end();
    server.join().unwrap();
}

/// Nobody calls after a release that no thread waits for. The drain thread reads its reply.
pub fn a_release_that_nobody_follows() {
    let (rig, told) = (rig(), Arc::new(Told::default()));
    let server = rig.serve();
    told.release(&rig, "a");
    let time = Passing::start(PATIENCE / 16);
    told.wait_for(1);
    time.stop();
    rig.end();
    server.join().unwrap();
    assert_eq!(told.counts(), (1, 0));
}

/// The same, and the socket takes a few bytes at a time. The drain thread writes the rest.
pub fn a_release_that_does_not_fit() {
    let (rig, told) = (rig(), Arc::new(Told::default()));
    rig.server.be_narrow();
    let server = rig.serve();
    told.release(&rig, "a");
    // An eighth of the patience is the pause after which the drain thread looks for replies.
    let time = Passing::start(Duration::from_millis(1));
    told.wait_for(1);
    time.stop();
    rig.end();
    server.join().unwrap();
    assert_eq!(told.counts(), (1, 0));
}

/// The server is silent for a node timeout. The drain thread tells the callback, and nobody tells it again.
pub fn a_release_that_is_answered_late() {
    let (rig, told) = (rig(), Arc::new(Told::default()));
    told.release(&rig, "a");
    let time = Passing::start(PATIENCE / 4);
    told.wait_for(1);
    time.stop();
    let server = rig.serve();
    rig.flush();
    rig.end();
    server.join().unwrap();
    assert_eq!(told.counts(), (0, 1));
}
