//! The fixtures of the models of `node/pipes`: a server that executes calls in their order, a connection to it,
//! threads that call, and passing time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use crate::clock::{Clock, Tick};
use crate::node::pipes::command::{Form, Outcome, Outcomes, Payload, Progress};
use crate::node::pipes::framer::WireReply;
use crate::node::pipes::halves::{Broken, Halves, Sink, Source};
use crate::node::pipes::pipe::Pipe;
use crate::node::pipes::waiting;
use crate::protocol::script::{ACQUIRE, Arg, Call, INSPECT, RELEASE};
use crate::sync::{Condvar, Mutex};
use crate::token::LockId;
use crate::world::{self, ModelClock};

/// The time that a call has. It is as long as a node timeout.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// A command. It determines the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Number(u64),
    Acquire(String),
    Release(String),
    /// `WAIT`: the server executes no later command before replicas have acknowledged the earlier ones.
    Wait,
}

/// The part of a packet that the socket accepts.
#[derive(Default, PartialEq)]
enum Room {
    #[default]
    All,
    /// The socket accepts a part of the next packet, and nothing more until the time of the writer is up.
    Part,
    /// The socket accepts nothing, because it has that part.
    Nothing,
}

#[derive(Default)]
struct Line {
    /// The commands that were written and not executed.
    sent: VecDeque<Said>,
    executed: Vec<Said>,
    /// The bytes of replies that were not read.
    replies: VecDeque<u8>,
    is_cut: bool,
    is_done: bool,
    room: Room,
}

/// A server with one connection.
pub(crate) struct Server {
    line: Mutex<Line>,
    moved: Arc<Condvar>,
}

impl Server {
    /// Waits for commands and executes all of them, or all up to a `WAIT`. Returns false if no more commands can come.
    pub(crate) fn execute(&self) -> bool {
        let mut line = self.line.lock();
        while line.sent.is_empty() {
            if line.is_done || line.is_cut {
                return false;
            }
            self.moved.wait(&mut line);
        }
        while let Some(said) = line.sent.pop_front() {
            let reply = match &said {
                Said::Number(n) => format!(":{n}\r\n"),
                Said::Acquire(_) => "+OK\r\n".to_owned(),
                Said::Release(_) => "*1\r\n:1\r\n".to_owned(),
                Said::Wait => ":1\r\n".to_owned(),
            };
            line.replies.extend(reply.as_bytes());
            line.executed.push(said);
            // The reply to a `WAIT` comes later than the others.
            if line.sent.front() == Some(&Said::Wait) {
                break;
            }
        }
        self.moved.notify_all();
        true
    }

    pub(crate) fn cut(&self) {
        self.line.lock().is_cut = true;
        self.moved.notify_all();
    }

    pub(crate) fn wait_until_executed(&self, calls: usize) {
        let mut line = self.line.lock();
        while line.executed.len() < calls {
            self.moved.wait(&mut line);
        }
    }

    pub(crate) fn be_full(&self) {
        self.line.lock().room = Room::Part;
    }

    pub(crate) fn executed(&self) -> Vec<Said> {
        self.line.lock().executed.clone()
    }
}

struct Front(Arc<Server>);
struct Back(Arc<Server>);

impl Sink for Front {
    fn write(&mut self, bytes: &[u8], _: Tick) -> Result<(), Broken> {
        let mut line = self.0.line.lock();
        if line.is_cut {
            return Err(Broken::Closed("cut".into()));
        }
        assert!(line.room != Room::Nothing, "written behind a part of a packet");
        if line.room == Room::Part {
            line.room = Room::Nothing;
            return Err(Broken::TimedOut);
        }
        line.sent.extend(commands(bytes));
        let waits = line.sent.iter().filter(|said| **said == Said::Wait).count();
        assert!(waits <= 1, "a `WAIT` was written behind another one: {:?}", line.sent);
        self.0.moved.notify_all();
        Ok(())
    }
}

impl Source for Back {
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        let mut line = self.0.line.lock();
        while line.replies.is_empty() {
            if line.is_cut {
                return Err(Broken::Closed("cut".into()));
            }
            if world::now() >= until {
                return Ok(0);
            }
            (&ModelClock as &dyn Clock).wait_until(&self.0.moved, &mut line, until);
        }
        // A read returns only a few bytes, so replies come in pieces.
        let read = line.replies.len().min(5).min(room.len());
        for (byte, room) in line.replies.drain(..read).zip(room) {
            *room = byte;
        }
        Ok(read)
    }
}

/// The commands in a packet.
fn commands(bytes: &[u8]) -> Vec<Said> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let mut found = Vec::new();
    while let Some(head) = lines.next().and_then(|line| line.strip_prefix('*')) {
        let words: usize = head.parse().unwrap();
        let words: Vec<&str> = (0..words).map(|_| lines.nth(1).unwrap()).collect();
        let token = || (*words.last().unwrap()).to_owned();
        found.push(match *words.first().unwrap() {
            "WAIT" => Said::Wait,
            "EVALSHA" if words.get(1) == Some(&&*INSPECT.sha) => Said::Number(words.last().unwrap().parse().unwrap()),
            "EVALSHA" if words.get(1) == Some(&&*ACQUIRE.sha) => Said::Acquire(token()),
            _ => Said::Release(token()),
        });
    }
    found
}

/// The place of a connection in the pool. A thread that finds the connection closed requests another one, so the place
/// must be free by then.
struct Place(Arc<OnceLock<Weak<Pipe>>>);

impl Drop for Place {
    fn drop(&mut self) {
        let pipe = self.0.get().and_then(Weak::upgrade);
        assert!(pipe.is_none_or(|pipe| !pipe.is_closed()), "closed while the pool has no room");
    }
}

/// A clock with which no thread can be started.
#[derive(Debug)]
pub(crate) struct Threadless;

impl Clock for Threadless {
    fn now(&self) -> Tick {
        ModelClock.now()
    }

    fn sleep(&self, time: Duration) {
        ModelClock.sleep(time);
    }

    fn start(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// A pipe to a server.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) pipe: Arc<Pipe>,
    pub(crate) server: Arc<Server>,
    clock: Arc<dyn Clock>,
}

/// The way in which a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Reply(WireReply),
    Cut { was_written: bool },
    Left(Progress),
}

impl Rig {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Rig {
        Rig::with(clock, "")
    }

    /// A pipe whose acquires wait for a replica.
    pub(crate) fn with_replica(clock: Arc<dyn Clock>) -> Rig {
        Rig::with(clock, "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$2\r\n62\r\n")
    }

    fn with(clock: Arc<dyn Clock>, wait: &str) -> Rig {
        let server = Arc::new(Server { line: Mutex::default(), moved: Arc::new(Condvar::new()) });
        let door = Arc::clone(&server);
        let halves = Halves {
            sink: Box::new(Front(Arc::clone(&server))),
            source: Box::new(Back(Arc::clone(&server))),
            shut: Box::new(move || door.cut()),
        };
        let of_pipe = Arc::new(OnceLock::new());
        let place = Box::new(Place(Arc::clone(&of_pipe)));
        let pipe = Pipe::new(halves, place, Box::new(|_| {}), Arc::clone(&clock), PATIENCE, wait.into());
        _ = of_pipe.set(Arc::downgrade(&pipe));
        Rig { pipe, server, clock }
    }

    /// Starts a thread that lets the server answer. The scheduler chooses the times.
    pub(crate) fn serve(&self) -> JoinHandle<()> {
        let server = Arc::clone(&self.server);
        thread::spawn(move || while server.execute() {})
    }

    pub(crate) fn spawn<T: Send + 'static>(&self, run: impl FnOnce(Rig) -> T + Send + 'static) -> JoinHandle<T> {
        let rig = self.clone();
        thread::spawn(move || run(rig))
    }

    /// Makes a call, and waits for it until `by`.
    pub(crate) fn call(&self, payload: Payload, is_release: bool, by: Tick) -> End {
        let outcomes = Outcomes::new(1, None);
        self.pipe.send(outcomes.command(0, payload, None));
        if waiting::wait(&outcomes, &[(0, Arc::clone(&self.pipe))], by, &*self.clock) {
            return outcome(&outcomes, 0);
        }
        self.pipe.give_up(&outcomes, 0, is_release).map_or_else(|| outcome(&outcomes, 0), End::Left)
    }

    /// Makes a call to which the server replies with this number.
    pub(crate) fn number(&self, n: u64, by: Tick) -> End {
        self.call(number(n), false, by)
    }

    /// Returns when everything that was written before has been executed and answered.
    pub(crate) fn flush(&self) {
        assert_eq!(self.number(0, Tick::NEVER), End::Reply(WireReply::Int(0)));
    }

    /// Ends the connection, and asserts that no call and no thread is left.
    pub(crate) fn end(self) {
        self.stop();
        world::until_all_threads_ended();
    }

    pub(crate) fn stop(self) {
        self.server.line.lock().is_done = true;
        self.server.moved.notify_all();
        assert_eq!(self.pipe.len(), 0, "a call is left");
        self.pipe.close(Broken::Closed("the end".into()));
    }
}

pub(crate) fn outcome(outcomes: &Outcomes, index: usize) -> End {
    match outcomes.take(index).expect("it has an outcome") {
        Outcome::Replied(reply) | Outcome::Acknowledged { reply, .. } => End::Reply(reply),
        Outcome::Disconnected { was_written, .. } => End::Cut { was_written },
    }
}

pub(crate) fn number(n: u64) -> Payload {
    script(Call::new(&INSPECT, &[], &[Arg::Number(n)]))
}

fn script(call: Arc<Call>) -> Payload {
    Payload { call, checks: false, form: Form::Digest, asks: false }
}

pub(crate) fn acquire(token: &str) -> Payload {
    let id = LockId::from_server(token);
    script(Call::of_token(&ACQUIRE, Some(&id), &["k"], &[Arg::Text(token)]))
}

/// The token is the last argument. This also holds for a call with the source of the script.
pub(crate) fn release(token: &str) -> Payload {
    let id = LockId::from_server(token);
    script(Call::of_token(&RELEASE, Some(&id), &["k"], &[Arg::Text(token)]))
}

/// Lets time pass in steps of this length, until it is stopped.
pub(crate) struct Passing(Arc<Mutex<bool>>, JoinHandle<()>);

impl Passing {
    pub(crate) fn start(step: Duration) -> Passing {
        let is_over = Arc::new(Mutex::new(false));
        let passes = {
            let is_over = Arc::clone(&is_over);
            move || {
                while !*is_over.lock() {
                    world::pass(step);
                    thread::yield_now();
                }
            }
        };
        Passing(is_over, thread::spawn(passes))
    }

    pub(crate) fn stop(self) {
        *self.0.lock() = true;
        self.1.join().unwrap();
    }
}
