//! One server without a transport: it executes the calls of mutexes. It knows what was sent, and in which order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::yield_now;

use crate::clock::Tick;
use crate::protocol::reply::{Executed, Failure, FailureKind, PerNode, Value};
use crate::protocol::script::{ACQUIRE, Call, EXTEND, HELD, RELEASE};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, thread};
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

/// The keys and the arguments of a call.
struct Words {
    keys: Vec<String>,
    args: Vec<String>,
}

/// The key of a mutex.
#[derive(Default)]
struct Stored {
    token: String,
    until: Tick,
    /// No other token may get the lock before this time.
    kept: Tick,
}

#[derive(Default)]
pub(crate) struct Server {
    stored: Mutex<BTreeMap<String, Stored>>,
    /// Each call with the time at which it was sent.
    sent: Mutex<Vec<(Tick, Sent)>>,
    was_sent: Condvar,
    /// Extensions of this token wait until the server answers all.
    hangs: Mutex<Option<String>>,
    answers: Condvar,
    /// An extension is executed or not, and is not answered.
    pub(crate) is_unreliable: AtomicBool,
    /// How often a look was told that a token is gone.
    pub(crate) missed: AtomicUsize,
}

fn rounds_of(sent: &[(Tick, Sent)], token: &str) -> Vec<Tick> {
    let is_round = |sent: &Sent| sent.token() == token && !matches!(sent, Sent::Release(_));
    sent.iter().filter(|(_, sent)| is_round(sent)).map(|(at, _)| *at).collect()
}

impl Server {
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().iter().map(|(_, sent)| sent.clone()).collect()
    }

    /// The times at which this token was acquired and extended.
    pub(crate) fn rounds(&self, token: &str) -> Vec<Tick> {
        rounds_of(&self.sent.lock(), token)
    }

    /// Waits until there are this many of them. Lets no time pass.
    pub(crate) fn until_rounds(&self, token: &str, rounds: usize) {
        let mut sent = self.sent.lock();
        while rounds_of(&sent, token).len() < rounds {
            self.was_sent.wait(&mut sent);
        }
    }

    pub(crate) fn delete_key(&self) {
        self.stored.lock().clear();
    }

    /// The holder of the lock has it for that long at least.
    pub(crate) fn keep(&self, until: Tick) {
        self.stored.lock().values_mut().for_each(|stored| stored.kept = until);
    }

    /// Does not answer the extensions of this token any more.
    pub(crate) fn hang_up_on(&self, token: &str) {
        *self.hangs.lock() = Some(token.to_owned());
    }

    pub(crate) fn answer_all(&self) {
        *self.hangs.lock() = None;
        self.answers.notify_all();
    }

    fn send(&self, call: &Call) -> Words {
        let now = world::now();
        let mut bytes = Vec::new();
        call.write_to(&mut bytes, false);
        let mut words = command(&bytes).expect("a whole call").0;
        let args = words.split_off(3 + words[2].parse::<usize>().unwrap());
        let keys = words.split_off(3);
        // It reads only, and can come after the end of the lease.
        if words[1] != HELD.sha {
            let token = args[0].clone();
            let sent = match &words[1] {
                sha if *sha == ACQUIRE.sha => Sent::Acquire(token),
                sha if *sha == EXTEND.sha => Sent::Extend(token),
                sha if *sha == RELEASE.sha => Sent::Release(token),
                _ => panic!("{words:?}"),
            };
            self.sent.lock().push((now, sent));
            self.was_sent.notify_all();
        }
        Words { keys, args }
    }

    fn execute(&self, call: &Call, Words { keys, args }: &Words) -> Result<Value, Failure> {
        if call.script.sha == EXTEND.sha {
            let mut hangs = self.hangs.lock();
            while hangs.as_ref() == Some(&args[0]) {
                self.answers.wait(&mut hangs);
            }
        }
        let is_answered = call.script.sha != EXTEND.sha || !self.is_unreliable.load(Ordering::SeqCst);
        if !is_answered && thread_rng().r#gen() {
            return Err(Failure::new(FailureKind::TimedOut, Executed::Maybe, "no answer"));
        }
        let now = world::now();
        let token = &*args[0];
        let time = |i: usize| Duration::from_millis(args.get(i).map_or(0, |ms| ms.parse().unwrap()));
        let mut all = self.stored.lock();
        all.retain(|_, stored| stored.until > now || stored.kept > now);
        all.values_mut().filter(|stored| stored.until <= now).for_each(|stored| stored.token.clear());
        let stored = all.entry(keys[0].clone()).or_default();
        let reply = if call.script.sha == HELD.sha {
            let has = |key, asked: &String| {
                all.get(key).is_some_and(|stored: &Stored| asked.strip_prefix('=') == Some(&*stored.token))
            };
            let places = (1..).zip(keys.iter().zip(args));
            let gone: Vec<Value> =
                places.filter(|(_, (key, asked))| !has(*key, asked)).map(|(place, _)| Value::Int(place)).collect();
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
            let words = self.server.send(call);
            self.server.execute(call, &words)
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
        let words = server.send(&call);
        posted.fetch_add(1, Ordering::SeqCst);
        spawn(move || {
            let results = [server.execute(&call, &words)].into();
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
