//! The fixtures of the models of `node/transport`: a server that executes calls in their order, a connection to it,
//! threads that call, and passing time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use crate::clock::{Clock, Tick};
use crate::node::transport::call_queue::{Form, Payload, Progress};
use crate::node::transport::connection::{Connection, Setting};
use crate::node::transport::drain::Drain;
use crate::node::transport::framer::WireReply;
use crate::node::transport::halves::{Broken, Halves, Sink, Source};
use crate::node::transport::round::{Outcome, Recipient, Round};
use crate::node::transport::waiting::{SentCall, wait};
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
    Ping,
    /// `WAIT`: the server executes no later command before replicas have acknowledged the earlier ones.
    Wait,
}

/// What the socket accepts.
#[derive(Clone, Copy, Default, PartialEq)]
enum Room {
    #[default]
    All,
    /// A few bytes of each write.
    Little,
    Nothing,
}

#[derive(Default)]
struct Line {
    /// The commands that were written and not executed.
    sent: VecDeque<Said>,
    /// The begin of the next one.
    part: Vec<u8>,
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
    pub(crate) fn new() -> Arc<Server> {
        Arc::new(Server { line: Mutex::default(), moved: Arc::new(Condvar::new()) })
    }

    /// Its connection.
    pub(crate) fn halves(self: &Arc<Self>) -> Halves {
        let door = Arc::clone(self);
        Halves {
            sink: Box::new(Front(Arc::clone(self))),
            source: Box::new(Back(Arc::clone(self))),
            shut: Box::new(move || door.cut()),
        }
    }

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
                Said::Ping => "+PONG\r\n".to_owned(),
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

    /// The socket accepts a few bytes at a time.
    pub(crate) fn be_narrow(&self) {
        self.line.lock().room = Room::Little;
    }

    pub(crate) fn be_full(&self) {
        self.line.lock().room = Room::Nothing;
    }

    /// Sends a reply for which there was no call.
    pub(crate) fn send_too_much(&self) {
        self.line.lock().replies.extend(b":666\r\n");
        self.moved.notify_all();
    }

    pub(crate) fn executed(&self) -> Vec<Said> {
        self.line.lock().executed.clone()
    }
}

struct Front(Arc<Server>);
struct Back(Arc<Server>);

impl Sink for Front {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut line = self.0.line.lock();
        if line.is_cut {
            return Err(Broken::Closed("cut".into()));
        }
        let most = match line.room {
            Room::All => bytes.len(),
            Room::Little => bytes.len().min(40),
            Room::Nothing => 0,
        };
        line.part.extend_from_slice(&bytes[..most]);
        let whole = std::mem::take(&mut line.part);
        let (found, rest) = commands(&whole);
        line.part = whole[rest..].to_vec();
        line.sent.extend(found);
        let waits = line.sent.iter().filter(|said| **said == Said::Wait).count();
        assert!(waits <= 1, "a `WAIT` was written behind another one: {:?}", line.sent);
        self.0.moved.notify_all();
        Ok(most)
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

/// The whole commands at the begin of these bytes, and where the rest begins.
fn commands(bytes: &[u8]) -> (Vec<Said>, usize) {
    let (mut found, mut rest) = (Vec::new(), 0);
    while let Some((words, behind)) = command(&bytes[rest..]) {
        let token = || words.last().unwrap().clone();
        found.push(match &*words[0] {
            "PING" => Said::Ping,
            "WAIT" => Said::Wait,
            "EVALSHA" if words[1] == INSPECT.sha => Said::Number(words.last().unwrap().parse().unwrap()),
            "EVALSHA" if words[1] == ACQUIRE.sha => Said::Acquire(token()),
            _ => Said::Release(token()),
        });
        rest += behind;
    }
    (found, rest)
}

/// The words of the first command, and its length. `None` if it is not whole.
pub(crate) fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let (words, mut at) = length(bytes, 0, b'*')?;
    let mut found = Vec::new();
    for _ in 0..words {
        let (long, from) = length(bytes, at, b'$')?;
        at = from + long + 2;
        found.push(String::from_utf8(bytes.get(..at)?[from..from + long].to_vec()).unwrap());
    }
    Some((found, at))
}

fn length(bytes: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.iter().position(|byte| *byte == b'\n')?;
    assert_eq!(line[0], mark, "calls are mixed up");
    Some((std::str::from_utf8(&line[1..end - 1]).unwrap().parse().unwrap(), at + end + 1))
}

/// The place of a connection in the pool. A thread that finds the connection closed requests another one, so the place
/// must be free by then.
struct Place(Arc<OnceLock<Weak<Connection>>>);

impl Drop for Place {
    fn drop(&mut self) {
        let connection = self.0.get().and_then(Weak::upgrade);
        assert!(connection.is_none_or(|one| !one.is_closed()), "closed while the pool has no room");
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

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) connection: Arc<Connection>,
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

    /// A connection whose acquires wait for a replica.
    pub(crate) fn with_replica(clock: Arc<dyn Clock>) -> Rig {
        Rig::with(clock, "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$2\r\n62\r\n")
    }

    fn with(clock: Arc<dyn Clock>, wait: &str) -> Rig {
        let server = Server::new();
        let itself = Arc::new(OnceLock::new());
        let place = Box::new(Place(Arc::clone(&itself)));
        let setting = Setting {
            clock: Arc::clone(&clock),
            node_timeout: PATIENCE,
            wait: wait.into(),
            drain: Arc::new(Drain::new(&clock)),
            on_reply: Box::new(|_, _| {}),
            master_changes: 0,
            validity: None,
        };
        let connection = Connection::new(server.halves(), place, setting);
        _ = itself.set(Arc::downgrade(&connection));
        Rig { connection, server, clock }
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

    /// Sends a call of a round.
    pub(crate) fn send(&self, round: &Arc<Round>, index: usize, payload: &Payload, more: bool) -> SentCall {
        let number = self.connection.send(payload, round.recipient(index), more);
        SentCall { index, connection: Arc::clone(&self.connection), number }
    }

    /// Makes a call, and waits for it until `by`.
    pub(crate) fn call(&self, payload: &Payload, by: Tick) -> End {
        let round = Round::new(1);
        let sent = [self.send(&round, 0, payload, false)];
        if !wait(&round, &sent, false, by, &*self.clock) && round.give_up(0) {
            return End::Left(self.connection.abandon(sent[0].number));
        }
        outcome(&round, 0)
    }

    /// Sends a release for which no thread waits.
    pub(crate) fn post(&self, token: &str, callback: impl FnOnce(Option<Outcome>) + Send + 'static) {
        self.connection.send(&release(token), Recipient::Callback(Box::new(callback)), false);
    }

    /// Makes a call to which the server replies with this number.
    pub(crate) fn number(&self, n: u64, by: Tick) -> End {
        self.call(&number(n), by)
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
        assert!(!self.connection.is_busy(), "a call is left");
        self.connection.close(Broken::Closed("the end".into()));
    }
}

pub(crate) fn outcome(round: &Round, index: usize) -> End {
    end(round.take(index).expect("it has an outcome"))
}

pub(crate) fn end(outcome: Outcome) -> End {
    match outcome {
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
