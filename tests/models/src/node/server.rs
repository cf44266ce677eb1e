//! One server without a transport: it executes the calls of a mutex. It knows what was sent, and in which order.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::yield_now;

use crate::clock::Tick;
use crate::protocol::reply::{Executed, Failure, FailureKind, PerNode, Value};
use crate::protocol::script::{ACQUIRE, Call, EXTEND, HELD, RELEASE};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, thread};
use crate::wire::command;
use crate::world;

pub(crate) type NodeFilter<'a> = &'a dyn Fn(usize) -> bool;

pub(crate) struct Answers {
    pub(crate) results: PerNode<Result<Value, Failure>>,
    pub(crate) started: Tick,
    pub(crate) duplicate: bool,
}

/// What a client sent about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Acquire(String),
    Extend(String),
    Release(String),
}

impl Sent {
    pub(crate) fn token(&self) -> &str {
        let (Sent::Acquire(token) | Sent::Extend(token) | Sent::Release(token)) = self;
        token
    }
}

/// The key of the mutex.
#[derive(Default)]
struct Stored {
    token: String,
    until: Tick,
    /// No other token may get the lock before this time.
    kept: Tick,
}

#[derive(Default)]
pub(crate) struct Server {
    stored: Mutex<Stored>,
    sent: Mutex<Vec<Sent>>,
    /// An extension is executed or not, and is not answered.
    pub(crate) is_unreliable: AtomicBool,
    /// How often a look was told that a token is gone.
    pub(crate) missed: AtomicUsize,
}

impl Server {
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().clone()
    }

    pub(crate) fn delete_key(&self) {
        *self.stored.lock() = Stored::default();
    }

    /// The holder of the lock has it for that long at least.
    pub(crate) fn keep(&self, until: Tick) {
        self.stored.lock().kept = until;
    }

    fn send(&self, call: &Call) -> Vec<String> {
        let mut bytes = Vec::new();
        call.write_to(&mut bytes, false);
        let mut words = command(&bytes).expect("a whole call").0;
        let args = words.split_off(3 + words[2].parse::<usize>().unwrap());
        let token = args[0].clone();
        // It reads only, and can come after the end of the lease.
        if words[1] == HELD.sha {
            return args;
        }
        self.sent.lock().push(match &words[1] {
            sha if *sha == ACQUIRE.sha => Sent::Acquire(token),
            sha if *sha == EXTEND.sha => Sent::Extend(token),
            sha if *sha == RELEASE.sha => Sent::Release(token),
            _ => panic!("{words:?}"),
        });
        args
    }

    fn execute(&self, call: &Call, args: &[String]) -> Result<Value, Failure> {
        let is_answered = call.script.sha != EXTEND.sha || !self.is_unreliable.load(Ordering::SeqCst);
        if !is_answered && thread_rng().r#gen() {
            return Err(Failure::new(FailureKind::TimedOut, Executed::Maybe, "no answer"));
        }
        let now = world::now();
        let token = &*args[0];
        let time = |i: usize| Duration::from_millis(args.get(i).map_or(0, |ms| ms.parse().unwrap()));
        let mut stored = self.stored.lock();
        if stored.until <= now {
            stored.token.clear();
        }
        let reply = if call.script.sha == HELD.sha {
            let is_gone = |(_, asked): &(_, &String)| asked.strip_prefix('=') != Some(&*stored.token);
            let gone: Vec<Value> = (1..).zip(args).filter(is_gone).map(|(place, _)| Value::Int(place)).collect();
            self.missed.fetch_add(gone.len(), Ordering::SeqCst);
            Value::List([vec![Value::Int(1)], gone].concat())
        } else if call.script.sha == ACQUIRE.sha {
            if stored.token.is_empty() {
                assert!(now >= stored.kept, "taken before the end of a minimum hold");
                *stored = Stored { token: token.to_owned(), until: now.after(time(1)), kept: Tick::ZERO };
                Value::Int(1)
            } else {
                let holder = Value::Text(stored.token.clone().into());
                Value::List(vec![Value::Int(0), Value::Int(1000), holder, Value::Int(0)])
            }
        } else if stored.token != token {
            Value::Int(if stored.token.is_empty() { -1 } else { 0 })
        } else if call.script.sha == EXTEND.sha {
            stored.until = stored.until.max(now.after(time(1)));
            Value::Int(1)
        } else {
            stored.until = now.after(time(3));
            Value::Int(1)
        };
        if is_answered { Ok(reply) } else { Err(Failure::new(FailureKind::TimedOut, Executed::Maybe, "no answer")) }
    }
}

/// Replaces the library's nodes by this server.
pub(crate) struct Nodes {
    pub(crate) server: Arc<Server>,
    /// The posted calls that were not executed.
    posted: Arc<AtomicUsize>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nodes")
    }
}

/// Never made: the server does not report anything about itself.
#[derive(Debug)]
pub(crate) enum Node {}

impl Node {
    pub(crate) fn outage(&self) -> Option<()> {
        match *self {}
    }

    pub(crate) fn run_id(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn uptime(&self) -> Option<Duration> {
        match *self {}
    }

    pub(crate) fn address(&self) -> Cow<'_, str> {
        match *self {}
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().spawn(run).is_ok()
}

/// Each job is a thread of its own, which the scheduler starts whenever it wants.
pub(crate) struct Background;

impl Background {
    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn after(&self, _delay: Duration, job: impl FnOnce() + Send + 'static) -> bool {
        spawn(job)
    }
}

#[allow(clippy::unused_self, reason = "as the real ones")]
impl Nodes {
    pub(crate) fn new() -> Nodes {
        Nodes { server: Arc::default(), posted: Arc::new(AtomicUsize::new(0)) }
    }

    pub(crate) fn call(&self, call: &Arc<Call>, _by: Tick, ask: NodeFilter<'_>, _need: usize) -> Answers {
        let started = world::now();
        let result = if ask(0) {
            let args = self.server.send(call);
            self.server.execute(call, &args)
        } else {
            Err(Failure::unsent(FailureKind::LeftOut, "not asked"))
        };
        Answers { results: [result].into(), started, duplicate: false }
    }

    pub(crate) fn quick_call(&self, call: &Arc<Call>, by: Tick, need: usize, _votes: NodeFilter<'_>) -> Answers {
        self.call(call, by, &|_| true, need)
    }

    pub(crate) fn quick_calls(&self, calls: &[Arc<Call>], by: Tick, need: usize) -> Vec<Answers> {
        self.calls(calls, by, &|_| true, need)
    }

    pub(crate) fn calls(&self, calls: &[Arc<Call>], by: Tick, ask: NodeFilter<'_>, need: usize) -> Vec<Answers> {
        calls.iter().map(|call| self.call(call, by, ask, need)).collect()
    }

    pub(crate) fn two_calls(&self, first: &Arc<Call>, second: &Arc<Call>, by: Tick) -> (Answers, Answers) {
        (self.call(first, by, &|_| true, 1), self.call(second, by, &|_| true, 1))
    }

    /// The call is executed some time later. So calls that are sent later can overtake it.
    pub(crate) fn post(&self, call: &Arc<Call>, tell: Box<dyn FnOnce(Answers) + Send>) {
        let (server, call, posted) = (Arc::clone(&self.server), Arc::clone(call), Arc::clone(&self.posted));
        let started = world::now();
        let args = server.send(&call);
        posted.fetch_add(1, Ordering::SeqCst);
        spawn(move || {
            let results = [server.execute(&call, &args)].into();
            posted.fetch_sub(1, Ordering::SeqCst);
            tell(Answers { results, started, duplicate: false });
        });
    }

    pub(crate) fn finish(&self, _until: Tick) {
        while self.posted.load(Ordering::SeqCst) > 0 {
            yield_now();
        }
    }

    pub(crate) fn background(&self) -> &Background {
        &Background
    }

    pub(crate) fn len(&self) -> usize {
        1
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Node> {
        std::iter::empty()
    }

    /// The server is not in a Sentinel group.
    pub(crate) fn master_changes(&self) -> Option<u64> {
        None
    }

    pub(crate) fn are_in_slots(&self) -> bool {
        false
    }

    pub(crate) fn conflict(&self) -> Option<String> {
        None
    }
}
