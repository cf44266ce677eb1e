//! Makes the same calls to an in-memory node and to a server, and compares the results: the simulation must behave like
//! a server.

mod queue;
mod rw;
mod scenarios;
mod semaphores;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use redlock_tests::Server;

use super::scripts;
use crate::clock::{Clock, SystemClock, Tick};
use crate::key::Key;
use crate::node::memory::{Rule, Store};
use crate::node::{Executed, Failure, FailureKind, Heard, NodeUrl, Nodes, Subscriber, Value};
use crate::options::ClientOptions;
use crate::protocol::Exclusive;
use crate::protocol::list::{Page, more, page};
use crate::protocol::reply::Reply;
use crate::protocol::script::{Arg, Call, Script};
use crate::protocol::{AcquireArgs, Grant, Next, Protocol, QueuePolicy, ReleaseArgs, TypedCall, WaitArgs};
use crate::token::LockId;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
/// The factor for the number of random runs. A debug build is slow and makes a quarter of them.
const FACTOR: u64 = if cfg!(debug_assertions) { 1 } else { 4 };
const TIMEOUT: Duration = Duration::from_secs(10);
const CHANNEL: &str = "redlock-sync:1";
/// Waits. The client of the first two listens, and the client of the last one is gone.
const ALIVE: &str = "redlock-sync:1/2 0123456789abcdef0123456789abcdef";
const SECOND_ALIVE: &str = "redlock-sync:1/3 0123456789abcdef0123456789abcdef";
const DEAD: &str = "redlock-sync:0/1 0123456789abcdef0123456789abcdef";
/// Waits that poll.
const POLLS: &str = "-1 0123456789abcdef0123456789abcdef";
const POLLS_WITH_A_MARK: &str = "-60000:1 0123456789abcdef0123456789abcdef";
const RANDOM: &str = "0123456789abcdef0123456789abcdef";

/// One side of the comparison, which runs calls.
trait Side {
    fn call(&mut self, call: &Arc<Call>) -> Result<Value, Failure>;
    /// Subscribes a client to a channel.
    fn listen(&mut self, channel: &str);
    /// The messages that were published on the channel since the last call, in order.
    fn heard(&mut self) -> Vec<String>;
    fn pass(&mut self, time: Duration);
}

impl Side for Store {
    fn call(&mut self, call: &Arc<Call>) -> Result<Value, Failure> {
        scripts::run(self, call.script, &call.keys(), &call.args())
    }

    fn listen(&mut self, channel: &str) {
        self.listeners.insert(channel.as_bytes().to_vec(), 1);
    }

    fn heard(&mut self) -> Vec<String> {
        let text = |(_, text): (Vec<u8>, Vec<u8>)| String::from_utf8(text).unwrap();
        std::mem::take(&mut self.published).into_iter().map(text).collect()
    }

    fn pass(&mut self, time: Duration) {
        self.clock += u64::try_from(time.as_micros()).unwrap();
    }
}

/// A server that is called by the library's own node layer.
struct Remote {
    nodes: Nodes,
    listener: Option<Box<dyn Subscriber>>,
    _server: Server,
}

impl Remote {
    fn start() -> Remote {
        let server = Server::start();
        let settings = ClientOptions { node_timeout: TIMEOUT, ..ClientOptions::default() };
        let clock: std::sync::Arc<dyn Clock> = std::sync::Arc::new(SystemClock);
        let nodes = Nodes::new(&[NodeUrl::parse(&server.url()).unwrap()], &settings, &clock).unwrap();
        Remote { nodes, listener: None, _server: server }
    }
}

impl Side for Remote {
    fn call(&mut self, call: &Arc<Call>) -> Result<Value, Failure> {
        let by = SystemClock.now().after(TIMEOUT);
        self.nodes.call(call, by, &|_| true, 1).results.remove(0)
    }

    fn listen(&mut self, channel: &str) {
        let by = SystemClock.now().after(TIMEOUT);
        self.listener = Some(self.nodes.members().next().unwrap().subscribe(channel, by).unwrap());
    }

    /// Reads messages up to a mark. All earlier messages have arrived by then.
    fn heard(&mut self) -> Vec<String> {
        const MARK: &str = "that is all";
        self.call(&Call::publish(CHANNEL, MARK)).unwrap();
        let listener = self.listener.as_mut().unwrap();
        let next = || match listener.receive(TIMEOUT) {
            Heard::Message(text) => Some(String::from_utf8(text).unwrap()).filter(|text| text != MARK),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(next).collect()
    }

    fn pass(&mut self, time: Duration) {
        SystemClock.sleep(time);
    }
}

fn in_memory() -> Store {
    let mut store = Store::default();
    store.clock = 1_700_000_000_000_000;
    store
}

/// A reply as text, without the parts that depend on the time. Times to live are rounded to multiples of five seconds.
/// Numbers that are the server's time become `now`.
fn shown(reply: &Result<Value, Failure>) -> String {
    fn text(bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let word = |word: &str| match word.parse::<u64>() {
            Ok(1_500_000_000_000_000..2_500_000_000_000_000 | 1_500_000_000_000..2_500_000_000_000) => "now".to_owned(),
            _ => word.to_owned(),
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
    fn value(whole: &Value) -> String {
        match whole {
            Value::Nil => "nil".to_owned(),
            Value::Okay => "OK".to_owned(),
            Value::Int(n @ ..=4) => n.to_string(),
            // A counter that is ahead of the clock stays until the clock has passed it.
            Value::Int(1_000_000_000_000..) => "far".to_owned(),
            Value::Int(ms) => format!("{}s", (ms + 4999) / 5000 * 5),
            Value::Text(bytes) => text(bytes),
            Value::List(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
        }
    }
    match reply {
        Ok(reply) => value(reply),
        Err(Failure { kind, executed, .. }) => format!("{kind:?} {executed:?}"),
    }
}

fn exclusive() -> Exclusive {
    Exclusive { key: Key::new("", "k").unwrap() }
}

fn inspect_exclusive() -> Arc<Call> {
    Protocol::Mutex(exclusive()).inspect().call
}

fn id(token: &str) -> LockId {
    LockId::from_server(token)
}

fn attempt<'a>(
    token: &str,
    fence: Option<u64>,
    wait: impl Into<Option<WaitArgs<'a>>>,
    policy: QueuePolicy,
    take_over: &[&str],
) -> Arc<Call> {
    let take_over: Vec<LockId> = take_over.iter().map(|from| id(from)).collect();
    let (id, wait) = (id(token), wait.into());
    exclusive().acquire(&AcquireArgs { id: &id, lease: LEASE, fence, wait, policy, take_over: &take_over }).call
}

fn adopt(token: &str, former: &str, fenced: bool) -> Arc<Call> {
    exclusive().adopt(&id(token), 2 * LEASE, &id(former), fenced).call
}

fn count(id: &LockId, lease: Duration) -> Arc<Call> {
    exclusive().extend_and_count(id, lease).call
}

fn take(token: &str) -> Arc<Call> {
    attempt(token, None, None, QueuePolicy::FastPath, &[])
}

fn acquire<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    attempt(token, None, wait, QueuePolicy::First { lease: 5 * SECOND }, &[])
}

fn enters(id: &str) -> WaitArgs<'_> {
    WaitArgs { id, stays: 6 * SECOND }
}

fn leaves(id: &str) -> WaitArgs<'_> {
    WaitArgs { id, stays: Duration::ZERO }
}

fn release_with(token: Option<&str>, keep: Duration, wait: Option<&str>, next: Next) -> Arc<Call> {
    let token = token.map(id);
    exclusive().release(&ReleaseArgs { id: token.as_ref(), keep, wait, next }).call
}

fn free(token: &str) -> Arc<Call> {
    release_with(Some(token), Duration::ZERO, None, Next::Anybody)
}

fn grant(with_fence: bool, several: bool) -> Next {
    Next::First(Grant { lease: 5 * SECOND, with_fence, several, threads_wait: false })
}

fn release(token: &str) -> Arc<Call> {
    release_with(Some(token), Duration::ZERO, None, grant(false, false))
}

fn keep(token: &str) -> Arc<Call> {
    release_with(Some(token), 5 * SECOND, None, Next::Anybody)
}

/// Makes a long pause due. Another program seems to have had the lock lately.
fn contend() -> Arc<Call> {
    let source = "local time = redis.call('TIME')\n\
                  local met = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))\n\
                  local first = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]\n\
                  if string.sub(first or '', 1, 1) == '*' then redis.call('ZREM', KEYS[2], first) end\n\
                  redis.pcall('ZADD', KEYS[2], -1, '*2 1 ' .. met)\n\
                  return redis.call('PEXPIRE', KEYS[2], 6000)";
    own("contend", source)
}

/// Enters a record of the next layout.
fn newer() -> Arc<Call> {
    let source = "redis.call('ZREM', KEYS[2], redis.call('ZRANGE', KEYS[2], 0, 0)[1])\n\
                  return redis.call('ZADD', KEYS[2], 0, '*3 something new')";
    own("newer", source)
}

/// A call of a script of the test, with all keys of the lock.
fn own(operation: &'static str, source: &'static str) -> Arc<Call> {
    let script = Box::leak(Box::new(Script::new(operation, source)));
    let key = exclusive().key;
    let keys = [key.as_str(), key.queue(), key.fence()];
    Call::new(script, &keys, &[])
}

fn clear() -> Arc<Call> {
    own("clear", "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])")
}

/// Acquires a lock in the way of other libraries.
fn take_as_others_do(token: &str) -> Arc<Call> {
    let source = "return redis.call('SET', KEYS[1], 'x', 'NX', 'PX', 30000) and 1 or 0";
    assert_eq!(token, "x");
    own("take", source)
}

/// Reads all data that are stored for the lock.
fn dump() -> Arc<Call> {
    let source = "local all = {}\n\
                  for i = 1, 3 do all[i] = redis.call('PTTL', KEYS[i]) end\n\
                  local function text(reply)\n\
                    if type(reply) == 'table' then return reply.err and 'error' or table.concat(reply, '|') end\n\
                    return reply and '' .. reply or 'none'\n\
                  end\n\
                  all[4] = text(redis.pcall('GET', KEYS[1]))\n\
                  all[5] = text(redis.pcall('GET', KEYS[3]))\n\
                  local function record(met) return '*' .. (met == '0' and '' or 'm') end\n\
                  local queue = text(redis.pcall('ZRANGE', KEYS[2], 0, -1))\n\
                  all[6] = string.gsub(queue, '%*2 %d+ (%d+)', record)\n\
                  return all";
    own("dump", source)
}

/// Replaces one of the keys by a list.
fn spoil(key: usize) -> Arc<Call> {
    let sources = [
        "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')",
        "redis.call('DEL', KEYS[2]) return redis.call('RPUSH', KEYS[2], 'x')",
        "redis.call('DEL', KEYS[3]) return redis.call('RPUSH', KEYS[3], 'x')",
    ];
    own("spoil", sources[key])
}

fn expire(key: usize) -> Arc<Call> {
    let sources = ["return redis.call('PEXPIRE', KEYS[1], 1)", "return redis.call('PEXPIRE', KEYS[2], 1)"];
    own("expire", sources[key])
}

/// The name of a scenario, and its steps. Each step has its expected result on both sides.
type Scenario = (&'static str, Vec<(Arc<Call>, &'static str)>);

fn follow(side: &mut dyn Side) {
    side.listen(CHANNEL);
    for (name, steps) in scenarios::all() {
        // A pause can end if the machine is too slow.
        repeat(|run| {
            side.call(&clear()).unwrap();
            for (i, (call, expected)) in steps.iter().enumerate() {
                let said = shown(&side.call(call));
                if said != *expected {
                    run.differs(&format!("{name}, step {}, {}.lua: {said}", i + 1, scripts::name(call.script)));
                    return;
                }
                for told in side.heard() {
                    assert!(told.starts_with("redlock-sync:1/"), "{told}");
                }
            }
        });
    }
}

#[test]
fn scenarios_in_memory() {
    follow(&mut in_memory());
}

#[test]
fn scenarios_on_a_server() {
    follow(&mut Remote::start());
}

/// Draws a call. All calls use one lock and few tokens, so that they collide.
fn random_call(several: bool) -> Arc<Call> {
    let tokens = ["a", "b", "c", RANDOM, "0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2"];
    let any = || tokens[fastrand::usize(0..tokens.len())];
    let waits = [ALIVE, SECOND_ALIVE, DEAD, POLLS, POLLS_WITH_A_MARK];
    let wait = waits[fastrand::usize(0..waits.len())];
    let an_entry = [None, Some(enters(wait)), Some(enters(wait)), Some(leaves(wait))][fastrand::usize(0..4)];
    let own = fastrand::bool().then_some(wait);
    match fastrand::u32(0..33) {
        0..3 => take(any()),
        3..8 if !several => acquire(any(), an_entry),
        3..12 => {
            let take_over: Vec<&str> = (0..fastrand::usize(0..3)).map(|_| any()).collect();
            let fence = [None, Some(0), Some(8_000_000_000_000_000)][fastrand::usize(0..3)];
            let policy = if several { QueuePolicy::None } else { QueuePolicy::First { lease: 5 * SECOND } };
            attempt(any(), fence, an_entry, policy, &take_over)
        }
        12..15 => {
            let (id, lease) = (id(any()), SECOND * 5 * fastrand::u32(1..9));
            if fastrand::bool() { count(&id, lease) } else { exclusive().extend(&id, lease).call }
        }
        15..17 => free(any()),
        17..21 => release_with(Some(any()), Duration::ZERO, own, grant(fastrand::bool(), several)),
        21 => release_with(None, Duration::ZERO, Some(wait), grant(fastrand::bool(), several)),
        22 => contend(),
        23 => keep(any()),
        24 | 25 => exclusive().fence(&id(any()), [None, Some(7)][fastrand::usize(0..2)]).call,
        26 => exclusive().unreserve(any()).call,
        27 if fastrand::u32(0..4) == 0 => spoil(fastrand::usize(0..3)),
        28 => expire(fastrand::usize(0..2)),
        29..32 => adopt(any(), any(), fastrand::bool()),
        _ => inspect_exclusive(),
    }
}

#[test]
fn random_calls_have_the_same_replies() {
    let (mut memory, mut remote) = (in_memory(), Remote::start());
    memory.listen(CHANNEL);
    remote.listen(CHANNEL);
    for seed in 0..30 * FACTOR {
        repeat(|run| {
            fastrand::seed(seed);
            assert_eq!(memory.call(&clear()).is_ok(), remote.call(&clear()).is_ok());
            let mut done = String::new();
            for _ in 0..40 {
                let call = random_call(seed % 3 == 0);
                _ = writeln!(done, "{} {:?}", scripts::name(call.script), call.args());
                same(&mut memory, &mut remote, &call, &format!("seed {seed}, after\n{done}"), run);
            }
        });
    }
}

/// The shortest time on the server: that of a long pause. In memory no time passes, so a difference that shows later
/// proves nothing.
const SHORTEST: Duration = Duration::from_millis(200);

/// One run of a comparison.
struct Run {
    start: Tick,
    /// A difference has shown after [`SHORTEST`].
    is_void: bool,
}

impl Run {
    fn differs(&mut self, how: &str) {
        assert!(SystemClock.now().since(self.start) > SHORTEST, "{how}");
        self.is_void = true;
    }
}

/// Repeats the run until it is not void.
fn repeat(mut run: impl FnMut(&mut Run)) {
    let is_done = || {
        let mut this = Run { start: SystemClock.now(), is_void: false };
        run(&mut this);
        !this.is_void
    };
    assert!(std::iter::repeat_with(is_done).take(200).any(|is_done| is_done), "the machine is too slow for this test");
}

/// Makes a call on both sides. Compares the replies, the messages and the stored data, and returns the stored data.
fn same(memory: &mut Store, remote: &mut Remote, call: &Arc<Call>, what: &str, run: &mut Run) -> String {
    let replies = (shown(&memory.call(call)), shown(&remote.call(call)));
    let told = (said(&memory.heard()), said(&remote.heard()));
    if call.script.operation == "expire" {
        let moment = Duration::from_millis(4);
        memory.pass(moment);
        remote.pass(moment);
    }
    let stored = (shown(&memory.call(&dump())), shown(&remote.call(&dump())));
    if !(is_alike(&replies) && told.0 == told.1 && is_alike(&stored)) {
        run.differs(&format!(
            "replies {replies:?}, published {told:?}, stored {stored:?} in memory, on a server: {what}"
        ));
    }
    stored.0
}

/// Compares two texts. No time passes in memory, and less than five seconds on the server, so a remaining time there
/// can be one unit less.
fn is_alike((memory, remote): &(String, String)) -> bool {
    let parts = |text: &str| text.split([' ', ',']).map(str::to_owned).collect::<Vec<_>>();
    let left = |word: &str| word.trim_matches(['[', ']']).strip_suffix('s').and_then(|left| left.parse::<i64>().ok());
    let (memory, remote) = (parts(memory), parts(remote));
    // A number up to 4 is shown unchanged. If it is a remaining time, that time is nearly over.
    let over = |word: &str| word.trim_matches(['[', ']']).parse::<u8>().ok().filter(|ms| *ms <= 4).map(|_| 0);
    let are_alike = |(in_memory, on_server): (&String, &String)| match left(in_memory) {
        Some(long) => left(on_server).or(over(on_server)).is_some_and(|left| (0..=5).contains(&(long - left))),
        None => in_memory == on_server,
    };
    memory.len() == remote.len() && memory.iter().zip(&remote).all(are_alike)
}

/// The published messages, without values that depend on time.
fn said(texts: &[String]) -> Vec<String> {
    let word = |word: &str| match word.parse::<u64>() {
        // This is the remaining time of a pause.
        Ok(1..=250) => "250".to_owned(),
        _ => word.to_owned(),
    };
    let text = |text: &String| text.split(' ').map(word).collect::<Vec<_>>().join(" ");
    texts.iter().map(|said| shown(&Ok(Value::Text(text(said).into_bytes())))).collect()
}

#[test]
fn an_in_memory_node_says_how_it_fails() {
    let mut memory = in_memory();
    memory.call(&spoil(0)).unwrap();
    let failure = memory.call(&take("a")).unwrap_err();
    assert_eq!((failure.kind, failure.executed), (FailureKind::WrongType, Executed::No));
}

/// The client publishes what its script could not. A grant is for a moment then, and the wait makes an attempt.
#[test]
fn what_a_server_does_not_publish_is_added_to_the_reply() {
    let mut memory = in_memory();
    memory.rules = vec![Rule::NoPublishInScripts];
    let said = |memory: &mut Store, call| shown(&memory.call(&call));
    assert_eq!(said(&mut memory, take("a")), "1");
    assert_eq!(said(&mut memory, acquire("b", enters(ALIVE))), "[0, 30s, a, 1]");
    assert_eq!(said(&mut memory, release("a")), "[untold, 2, [redlock-sync:1/2 0 0 ]]");
    assert_eq!(said(&mut memory, acquire("b", enters(ALIVE))), "1");
    // A user who may not publish could not do it either.
    memory.refuses = true;
    memory.rules = Vec::new();
    assert_eq!(said(&mut memory, acquire("c", enters(SECOND_ALIVE))), "[0, 30s, b, 1]");
    assert_eq!(said(&mut memory, release("b")), "4");
}

/// Each command takes 100 µs. The test requests the keys that a page leaves out by name, until it has read all keys.
#[test]
fn a_page_of_all_keys_stops_soon_and_names_the_rest() {
    let mut store = in_memory();
    let token = |i: u32| format!("{i:032x}:owner");
    for i in 0..50 {
        let held = store.lasting(&token(i), 30_000);
        store.replace(format!("order:{i:02}").as_bytes(), Some(held));
    }
    store.microseconds_per_command = 100;
    let mut read = |call: TypedCall<Page>| {
        let before = store.clock;
        let page = Page::read(&store.call(&call.call).unwrap()).unwrap();
        assert!(store.clock - before < 4000, "{page:?}");
        page
    };
    let mut page = read(page("0", &["*".to_owned()], None));
    let (mut calls, mut all) = (1, page.listed.len());
    while let Some((told, keys)) = page.more.pop_first() {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        page = read(more(&keys, false, told));
        (calls, all) = (calls + 1, all + page.listed.len());
    }
    assert!(all == 50 && calls > 4, "{all} in {calls} calls");
}
