//! Models of the threads that read the push connection in turn: `ear/`.
//!
//! Unless a model lets the time pass, a push is heard only if a thread reads, so a connection that was left unread is a deadlock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread::{self, JoinHandle};

use crate::clock::Tick;
use crate::ear::desk::{Arrived, Errand, Woken};
use crate::ear::line::{Place, Pulse};
use crate::ear::pushed::Pushed;
use crate::ear::turns::Turns;
use crate::node::{Heard, Push};
use crate::sync::{self, Condvar, Mutex};
use crate::world::{self, ModelClock};

const TIMEOUT: Duration = Duration::from_millis(250);

/// One connection, as the server sees it.
struct Socket {
    channel: Arc<str>,
    inbox: Mutex<Inbox>,
    came: Condvar,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<String>,
    is_cut: bool,
    /// Nothing arrives, and the client is not told.
    is_mute: bool,
}

/// The client's end.
struct FakePush(Arc<Socket>);

impl Push for FakePush {
    fn receive(&mut self, patience: Duration) -> Heard {
        let until = world::now().after(patience);
        let mut inbox = self.0.inbox.lock();
        loop {
            if let Some(message) = inbox.messages.pop_front() {
                return Heard::Message(message.into_bytes());
            }
            if inbox.is_cut {
                return Heard::Broken("cut".into());
            }
            let left = until.since(world::now());
            if left.is_zero() {
                return Heard::Nothing;
            }
            self.0.came.wait_for(&mut inbox, left);
        }
    }
}

impl Drop for FakePush {
    fn drop(&mut self) {
        self.0.inbox.lock().is_cut = true;
    }
}

impl fmt::Debug for FakePush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakePush")
    }
}

/// A client and its server.
struct Rig {
    turns: Turns,
    this: Weak<Rig>,
    /// The last connection that was made.
    socket: Mutex<Option<Arc<Socket>>>,
    channels: Mutex<u32>,
    /// Errands for later.
    rests: Mutex<u32>,
}

impl Rig {
    fn new() -> Arc<Rig> {
        Arc::new_cyclic(|this: &Weak<Rig>| {
            let rig = this.clone();
            let errands = Box::new(move |errand| rig.upgrade().unwrap().run(errand));
            let (socket, channels, rests) = (Mutex::new(None), Mutex::new(0), Mutex::new(0));
            Rig {
                turns: Turns::new(Arc::new(ModelClock), TIMEOUT, errands),
                this: this.clone(),
                socket,
                channels,
                rests,
            }
        })
    }

    /// On a thread of its own, at any moment from now on.
    fn run(&self, errand: Errand) {
        let rig = self.this.upgrade().unwrap();
        let job: Box<dyn FnOnce() + Send> = match errand {
            Errand::Connect(_) => Box::new(move || rig.connect()),
            Errand::Beat(place) => Box::new(move || rig.beat(&place)),
            Errand::Rest(_) => {
                *rig.rests.lock() += 1;
                return;
            }
        };
        sync::thread::Builder::new().spawn(job).unwrap();
    }

    fn connect(&self) {
        if !self.turns.attempt() {
            return;
        }
        let channel = self.turns.channel().unwrap_or_else(|| {
            let mut channels = self.channels.lock();
            *channels += 1;
            let channel: Arc<str> = format!("channel{}", *channels).into();
            self.turns.name_channel(Arc::clone(&channel));
            channel
        });
        let socket = Arc::new(Socket { channel: Arc::clone(&channel), inbox: Mutex::default(), came: Condvar::new() });
        *self.socket.lock() = Some(Arc::clone(&socket));
        let conn = Box::new(FakePush(socket));
        self.turns.install(0, &channel, Arrived { conn, first: b"0".to_vec(), looks_around: false });
    }

    fn beat(&self, place: &Place) {
        let pulse = if self.publish(&place.channel, "0") { Pulse::Sent(world::now()) } else { Pulse::Deaf };
        self.turns.beaten(place.since, pulse);
    }

    /// True if a connection receives it.
    fn publish(&self, channel: &str, text: &str) -> bool {
        let socket = self.socket.lock().clone();
        let Some(socket) = socket.filter(|socket| *socket.channel == *channel) else { return false };
        let mut inbox = socket.inbox.lock();
        if inbox.is_cut {
            return false;
        }
        if !inbox.is_mute {
            inbox.messages.push_back(text.to_owned());
        }
        drop(inbox);
        socket.came.notify_all();
        true
    }

    /// Pushes to that wait, until it is received: a release would grant to another one, and come again.
    fn push(&self, number: u64, channel: &str) -> bool {
        self.publish(channel, &format!("{channel}/{number} {number} 300 0 0 abc"))
    }

    fn cut(&self) {
        let socket = self.socket.lock().clone().unwrap();
        socket.inbox.lock().is_cut = true;
        socket.came.notify_all();
    }

    fn close(&self) {
        if let Some(place) = self.turns.close() {
            self.publish(&place.channel, "closed");
        }
    }

    fn spawn<R: Send + 'static>(&self, run: impl FnOnce(&Rig) -> R + Send + 'static) -> JoinHandle<R> {
        let rig = self.this.upgrade().unwrap();
        thread::spawn(move || run(&rig))
    }

    /// The time of planned rests has come.
    fn rest(&self) {
        let rests = std::mem::take(&mut *self.rests.lock());
        (0..rests).for_each(|_| self.turns.rest());
    }

    /// Nobody hears anything any more.
    fn assert_deaf(&self) {
        let socket = self.socket.lock().clone();
        assert!(socket.is_none_or(|socket| socket.inbox.lock().is_cut), "a connection is left");
    }
}

/// A wait, as the library has it.
struct Wait<'a> {
    rig: &'a Rig,
    number: u64,
}

impl Rig {
    fn begin(&self) -> Wait<'_> {
        Wait { rig: self, number: self.turns.begin() }
    }
}

impl Wait<'_> {
    fn sleep(&self, until: Tick) -> Woken {
        self.rig.turns.sleep(self.number, until)
    }

    /// Sleeps until it knows where it listens.
    fn place(&self) -> Place {
        loop {
            if let Some(place) = self.rig.turns.place(self.number) {
                return place;
            }
            assert_eq!(self.sleep(Tick::NEVER), Woken::Connected);
        }
    }

    /// Sleeps until it is pushed to.
    fn heard(&self) {
        match self.sleep(Tick::NEVER) {
            Woken::Push(pushed) => self.assert_mine(&pushed),
            other => panic!("{other:?}"),
        }
    }

    fn assert_mine(&self, pushed: &Pushed) {
        assert_eq!(pushed.fence, self.number, "a push for another wait");
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.rig.turns.end(self.number);
    }
}

/// Those who wait, with their channels, for those who push.
#[derive(Clone)]
struct Board(Arc<Notes>);

struct Notes {
    waits: Mutex<Vec<(u64, Arc<str>)>>,
    changed: Condvar,
}

impl Board {
    fn new() -> Board {
        Board(Arc::new(Notes { waits: Mutex::new(Vec::new()), changed: Condvar::new() }))
    }

    fn put(&self, wait: &Wait<'_>, place: Place) {
        self.0.waits.lock().push((wait.number, place.channel));
        self.0.changed.notify_all();
    }

    /// Any of them, once there is one.
    fn take(&self) -> (u64, Arc<str>) {
        let mut waits = self.0.waits.lock();
        while waits.is_empty() {
            self.0.changed.wait(&mut waits);
        }
        let any = thread_rng().gen_range(0..waits.len());
        waits.swap_remove(any)
    }
}

fn all<R>(threads: impl IntoIterator<Item = JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Time that passes in small steps while a model runs: what a thread sleeps is counted from when it begins to, which can be late.
struct Time {
    is_over: Arc<Mutex<bool>>,
    thread: JoinHandle<()>,
}

impl Time {
    fn passes(rig: &Rig) -> Time {
        let is_over = Arc::new(Mutex::new(false));
        let theirs = Arc::clone(&is_over);
        let thread = rig.spawn(move |_| {
            while !*theirs.lock() {
                world::pass(Duration::from_millis(100));
                thread::yield_now();
            }
        });
        Time { is_over, thread }
    }

    fn stop(self) {
        *self.is_over.lock() = true;
        self.thread.join().unwrap();
    }
}

/// Ends all, and sees that nothing is left.
fn end(rig: &Rig) {
    rig.close();
    world::until_all_threads_ended();
    rig.assert_deaf();
}

/// Each hears its own pushes, in whatever order they come, asleep or not. No time passes: each wake-up counts.
pub fn each_hears_its_own() {
    let (rig, board) = (Rig::new(), Board::new());
    let threads = [1, 2, 1].map(|pushes| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            let place = wait.place();
            for _ in 0..pushes {
                board.put(&wait, place.clone());
                wait.heard();
            }
        })
    });
    for _ in 0..4 {
        let (number, channel) = board.take();
        assert!(rig.push(number, &channel));
    }
    all(threads);
    end(&rig);
}

/// Two that sleep until some moment, and one that has time and hears its push all the same, whoever reads then.
pub fn readers_whose_time_is_up() {
    let (rig, board) = (Rig::new(), Board::new());
    let moment = world::now().after(Duration::from_millis(300));
    let hurried = [(); 2].map(|()| {
        rig.spawn(move |rig| {
            let wait = rig.begin();
            loop {
                match wait.sleep(moment) {
                    Woken::Timer => return assert!(world::now() >= moment, "before its time"),
                    other => assert_eq!(other, Woken::Connected),
                }
            }
        })
    });
    let patient = rig.spawn({
        let board = board.clone();
        move |rig| {
            let wait = rig.begin();
            board.put(&wait, wait.place());
            wait.heard();
        }
    });
    let time = Time::passes(&rig);
    let (number, channel) = board.take();
    assert!(rig.push(number, &channel));
    all(hurried);
    patient.join().unwrap();
    time.stop();
    end(&rig);
}

/// The push of one may come at the moment in which its time is up: it is returned, or kept, and the others hear theirs.
pub fn a_push_at_the_last_moment() {
    let (rig, board) = (Rig::new(), Board::new());
    let moment = world::now().after(Duration::from_millis(300));
    let threads = [moment, Tick::NEVER].map(|until| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            board.put(&wait, wait.place());
            match wait.sleep(until) {
                Woken::Push(pushed) => wait.assert_mine(&pushed),
                Woken::Timer => assert!(world::now() >= until, "before its time"),
                other => panic!("{other:?}"),
            }
        })
    });
    let time = Time::passes(&rig);
    for _ in 0..2 {
        let (number, channel) = board.take();
        rig.push(number, &channel);
    }
    all(threads);
    time.stop();
    end(&rig);
}

/// The connection breaks at any moment. Each learns that there is a new one, and hears its push there.
pub fn a_connection_that_breaks() {
    let (rig, board) = (Rig::new(), Board::new());
    let threads = [(); 3].map(|()| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            let mut place = wait.place();
            while place.since < 2 {
                assert_eq!(wait.sleep(Tick::NEVER), Woken::Connected);
                place = wait.place();
            }
            board.put(&wait, place);
            wait.heard();
        })
    });
    let breaker = rig.spawn(|rig| {
        let wait = rig.begin();
        wait.place();
        rig.cut();
    });
    for _ in 0..3 {
        let (number, channel) = board.take();
        assert!(rig.push(number, &channel));
    }
    all(threads);
    breaker.join().unwrap();
    end(&rig);
}

/// Nothing arrives any more, and no error tells of it. After a beat the connection is made anew.
pub fn a_connection_that_falls_silent() {
    let rig = Rig::new();
    let threads = [(); 2].map(|()| {
        rig.spawn(|rig| {
            let wait = rig.begin();
            let place = wait.place();
            if let Some(socket) = rig.socket.lock().as_ref() {
                socket.inbox.lock().is_mute |= place.since == 1;
            }
            if place.since == 1 {
                assert_eq!(wait.sleep(Tick::NEVER), Woken::Connected);
            }
        })
    });
    let time = Time::passes(&rig);
    all(threads);
    time.stop();
    end(&rig);
}

/// The end of the client reaches all, the reader and those who come just then too. No time passes.
pub fn the_client_ends() {
    let rig = Rig::new();
    let threads = [(); 3].map(|()| {
        rig.spawn(|rig| {
            let wait = rig.begin();
            while wait.sleep(Tick::NEVER) != Woken::Closed {}
        })
    });
    rig.close();
    all(threads);
    end(&rig);
}

/// Waits that end and leave a ghost: what is pushed to it reaches it as long as others wait, and its channel ends with the last of them.
pub fn ghosts() {
    let rig = Rig::new();
    let haunted = Arc::new(Mutex::new(Vec::new()));
    let threads = [(); 2].map(|()| {
        let haunted = Arc::clone(&haunted);
        rig.spawn(move |rig| {
            let wait = rig.begin();
            let (number, channel) = (wait.number, wait.place().channel);
            let ghost = Box::new(move |pushed: Pushed| {
                assert_eq!(pushed.fence, number);
                haunted.lock().push(number);
            });
            if thread_rng().r#gen() {
                rig.turns.haunt(number, ghost);
                drop(wait);
            } else {
                drop(wait);
                rig.turns.haunt(number, ghost);
            }
            // A release that comes too late.
            rig.push(number, &channel);
            (number, channel)
        })
    });
    let alive = rig.begin();
    alive.place();
    let ghosts = all(threads);
    // Whatever came to a ghost that has the channel of the one that waits is read before its own push.
    let place = alive.place();
    let mut expected: Vec<u64> =
        ghosts.iter().filter(|(_, channel)| *channel == place.channel).map(|(n, _)| *n).collect();
    assert!(rig.push(alive.number, &place.channel));
    alive.heard();
    let mut haunted = std::mem::take(&mut *haunted.lock());
    haunted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(haunted, expected);
    drop(alive);
    world::until_all_threads_ended();
    if !expected.is_empty() {
        rig.assert_deaf();
        assert!(rig.turns.channel().is_none(), "the next connection has a new channel");
    }
}

/// As `ghosts`, while the channel is being subscribed to: that subscription is of no use, and there is another one.
pub fn a_ghost_before_there_is_a_connection() {
    let rig = Rig::new();
    let over = rig.begin();
    thread::yield_now();
    let before = rig.turns.channel();
    rig.turns.haunt(over.number, Box::new(drop));
    drop(over);
    let alive = rig.begin();
    let place = alive.place();
    assert!(before.is_none_or(|before| before != place.channel), "the ghost is heard again");
    assert!(rig.push(alive.number, &place.channel));
    alive.heard();
    drop(alive);
    end(&rig);
}

/// Waits that come and go. Their connection is closed some time after the last one, and made again for the next.
pub fn a_connection_that_rests() {
    let (rig, board) = (Rig::new(), Board::new());
    let threads = [(); 2].map(|()| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            board.put(&wait, wait.place());
            wait.heard();
        })
    });
    let time = rig.spawn(|rig| {
        for _ in 0..3 {
            world::pass(Duration::from_secs(5));
            rig.rest();
        }
    });
    for _ in 0..2 {
        let (number, channel) = board.take();
        // Meanwhile it can have been found silent, and be made again.
        while !rig.push(number, &channel) {
            thread::yield_now();
        }
    }
    all(threads);
    time.join().unwrap();
    world::until_all_threads_ended();
    world::pass(Duration::from_secs(11));
    rig.rest();
    rig.assert_deaf();
}
