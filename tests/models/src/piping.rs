//! What the models of `node/pipes` have: a server that executes calls in their order, the ends of a connection to it, and threads that call.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use crate::clock::{Clock, Tick};
use crate::node::pipes::command::{Abandoned, Form, Outcome, Outcomes, Payload, WaitStatus};
use crate::node::pipes::framer::WireReply;
use crate::node::pipes::halves::{Broken, Halves, ReplyObserver, Shut, Sink, Source};
use crate::node::pipes::pipe::Pipe;
use crate::node::pipes::waiting;
use crate::protocol::script::{ACQUIRE, Arg, Call, Note, Purpose, RELEASE};
use crate::sync::{Condvar, Mutex};
use crate::token::LockId;
use crate::world::{self, ModelClock};

/// As long as a node timeout.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// A command, and what its reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Number(u64),
    Acquire(String),
    Release(String),
}

/// What the socket takes of a packet.
#[derive(Default, PartialEq)]
enum Room {
    #[default]
    All,
    /// A part of the next one, and no more until the time of its writer is up.
    Part,
    /// It has that part.
    Nothing,
}

#[derive(Default)]
struct Line {
    /// What was written and not executed.
    sent: VecDeque<Said>,
    executed: Vec<Said>,
    /// What was answered and not read.
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
    /// Executes what was written so far, or what is written next. False when there will be no more.
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
            };
            line.replies.extend(reply.as_bytes());
            line.executed.push(said);
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
struct Door(Arc<Server>);

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
        // A few bytes at a time: replies come in pieces.
        let read = line.replies.len().min(5).min(room.len());
        for (byte, room) in line.replies.drain(..read).zip(room) {
            *room = byte;
        }
        Ok(read)
    }
}

impl Shut for Door {
    fn shut(&self) {
        self.0.cut();
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
            "ECHO" => Said::Number(words.last().unwrap().parse().unwrap()),
            "EVALSHA" if words.get(1) == Some(&&*ACQUIRE.sha) => Said::Acquire(token()),
            _ => Said::Release(token()),
        });
    }
    found
}

/// The server has answered.
struct Unheard;

impl ReplyObserver for Unheard {
    fn on_reply(&self, _: Tick) {}
}

/// The place of a connection in the pool. A thread that sees that the connection is closed orders another one, so the
/// place must be free by then.
struct Place(Arc<OnceLock<Weak<Pipe>>>);

impl Drop for Place {
    fn drop(&mut self) {
        let pipe = self.0.get().and_then(Weak::upgrade);
        assert!(pipe.is_none_or(|pipe| !pipe.is_closed()), "closed while the pool has no room");
    }
}

/// A clock whose system starts no thread.
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

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Reply(WireReply),
    Cut { was_written: bool },
    Left(Abandoned),
}

impl Rig {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Rig {
        let server = Arc::new(Server { line: Mutex::default(), moved: Arc::new(Condvar::new()) });
        let halves = Halves {
            sink: Box::new(Front(Arc::clone(&server))),
            source: Box::new(Back(Arc::clone(&server))),
            shut: Box::new(Door(Arc::clone(&server))),
        };
        let of_pipe = Arc::new(OnceLock::new());
        let place = Box::new(Place(Arc::clone(&of_pipe)));
        let pipe = Pipe::new(halves, place, Arc::new(Unheard), Arc::clone(&clock), PATIENCE, Vec::new());
        _ = of_pipe.set(Arc::downgrade(&pipe));
        Rig { pipe, server, clock }
    }

    /// Has the server answer from now on, at whatever times the scheduler chooses.
    pub(crate) fn serve(&self) -> JoinHandle<()> {
        let server = Arc::clone(&self.server);
        thread::spawn(move || while server.execute() {})
    }

    pub(crate) fn spawn<T: Send + 'static>(&self, run: impl FnOnce(Rig) -> T + Send + 'static) -> JoinHandle<T> {
        let rig = self.clone();
        thread::spawn(move || run(rig))
    }

    /// A call of one thread, until then.
    pub(crate) fn call(&self, payload: Payload, is_release: bool, by: Tick) -> End {
        let outcomes = Outcomes::new(1, None);
        self.pipe.send(outcomes.command(0, payload, is_release, None));
        match waiting::wait(&outcomes, &[(0, Arc::clone(&self.pipe))], by, &*self.clock) {
            WaitStatus::Pending => match self.pipe.give_up(&outcomes, 0, is_release) {
                Abandoned::Answered => outcome(&outcomes, 0),
                abandoned => End::Left(abandoned),
            },
            WaitStatus::Done | WaitStatus::Disconnected => outcome(&outcomes, 0),
        }
    }

    /// A call to which the server answers with that number.
    pub(crate) fn number(&self, n: u64, by: Tick) -> End {
        self.call(number(n), false, by)
    }

    /// Is over when all that was written before is executed and answered.
    pub(crate) fn flush(&self) {
        assert_eq!(self.number(0, Tick::NEVER), End::Reply(WireReply::Int(0)));
    }

    /// Nothing is left to do.
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
    let n = n.to_string();
    Payload::Plain(Cow::Owned(format!("*2\r\n$4\r\nECHO\r\n${}\r\n{n}\r\n", n.len()).into_bytes()))
}

fn script(call: Arc<Call>) -> Payload {
    Payload::Script { call, note: Note::Nothing, form: Form::Digest, asks: false }
}

pub(crate) fn acquire(token: &str) -> Payload {
    let id = LockId::from_server(token);
    script(Call::new(&ACQUIRE, Purpose::Acquire, Some(&id), PATIENCE, &["k"], &[Arg::Text(token)]))
}

/// With its source it is the same: the token comes last.
pub(crate) fn release(token: &str) -> Payload {
    let id = LockId::from_server(token);
    script(Call::new(&RELEASE, Purpose::Release, Some(&id), PATIENCE, &["k"], &[Arg::Text(token)]))
}
