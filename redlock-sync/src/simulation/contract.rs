//! The same calls for an in-memory node and for a server: what is simulated must be what servers do.

use std::fmt::Write as _;
use std::time::Duration;

use redlock_tests::Server;

use super::lua;
use super::store::Store;
use crate::clock::{Clock, SystemClock};
use crate::key::Key;
use crate::lock::plain::Plain;
use crate::node::{Executed, Failure, Lane, NodeSettings, NodeUrl, Nodes, Popped, Trouble, Value};
use crate::primitive::{Attempt, GiveUp, Grant, Primitive, Waiter};
use crate::script::{Arg, Call, Purpose, Script};
use crate::token::LockId;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

/// Something that runs calls.
trait Side {
    fn call(&mut self, call: &Call) -> Result<Value, Failure>;
    fn pop(&mut self, list: &str) -> Option<Vec<u8>>;
    fn pass(&mut self, time: Duration);
}

impl Side for Store {
    fn call(&mut self, call: &Call) -> Result<Value, Failure> {
        lua::run(self, call.script, &call.keys(), &call.args(false))
    }

    fn pop(&mut self, list: &str) -> Option<Vec<u8>> {
        Store::pop(self, list)
    }

    fn pass(&mut self, time: Duration) {
        self.clock += u64::try_from(time.as_micros()).unwrap();
    }
}

/// A server behind the library's own node layer.
struct Remote {
    nodes: Nodes,
    _server: Server,
}

impl Remote {
    fn start() -> Remote {
        let server = Server::start();
        let settings = NodeSettings { node_timeout: PATIENCE, ..NodeSettings::default() };
        let clock: std::sync::Arc<dyn Clock> = std::sync::Arc::new(SystemClock);
        let nodes = Nodes::new(&[NodeUrl::parse(&server.url()).unwrap()], settings, &clock).unwrap();
        Remote { nodes, _server: server }
    }
}

impl Side for Remote {
    fn call(&mut self, call: &Call) -> Result<Value, Failure> {
        let by = SystemClock.now().after(PATIENCE);
        self.nodes.round(call, Lane::Ordinary, by, &[true], 1).results.remove(0)
    }

    fn pop(&mut self, list: &str) -> Option<Vec<u8>> {
        match self.nodes.members().next().unwrap().pop(list, Duration::from_millis(1), Duration::from_secs(5)) {
            Popped::Pushed(bytes) => Some(bytes),
            Popped::Nothing => None,
            Popped::Unavailable => panic!("no connection to wait on"),
        }
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

/// A reply as text. What depends on the moment is left out: times to live count in whole fives of seconds, and `now` stands for numbers
/// that are the server's time.
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
            Value::Int(n @ ..=2) => n.to_string(),
            // A counter that is ahead of the clock stays until the clock has passed it.
            Value::Int(1_000_000_000_000..) => "far".to_owned(),
            Value::Int(ms) => format!("{}s", (ms + 4999) / 5000 * 5),
            Value::Text(bytes) => text(bytes),
            Value::List(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
        }
    }
    match reply {
        Ok(reply) => value(reply),
        Err(Failure { trouble, executed, .. }) => format!("{trouble:?} {executed:?}"),
    }
}

fn plain() -> Plain {
    Plain { key: Key::new("", "k", 100).unwrap() }
}

fn id(token: &str) -> LockId {
    LockId::from_server(token)
}

fn take(token: &str) -> Call {
    plain().acquire(&Attempt { id: &id(token), lease: LEASE, fence: None, waiter: None, tickets: &[] })
}

fn acquire(token: &str, fence: Option<u64>, waiter: Option<Waiter<'_>>, tickets: &[&str]) -> Call {
    let tickets: Vec<LockId> = tickets.iter().map(|ticket| id(ticket)).collect();
    plain().acquire(&Attempt { id: &id(token), lease: LEASE, fence, waiter, tickets: &tickets })
}

fn waiter(id: &str, stays: Duration, was_marked: bool) -> Waiter<'_> {
    Waiter { id, stays, was_marked }
}

fn release(token: &str, waiter: Option<&str>, next: Option<&str>, with_fence: bool) -> Call {
    release_in(0, token, waiter, next, with_fence)
}

/// In a chain of grants that began at this server time.
fn release_in(chain: u64, token: &str, waiter: Option<&str>, next: Option<&str>, with_fence: bool) -> Call {
    let next = next.map(id);
    let grant = next.as_ref().map(|next| Grant { next, span: 5 * SECOND, chain, with_fence });
    plain().release(&GiveUp { id: &id(token), keep: Duration::ZERO, waiter, grant })
}

fn keep(token: &str) -> Call {
    plain().release(&GiveUp { id: &id(token), keep: 5 * SECOND, waiter: None, grant: None })
}

/// The call as it is sent a second time.
fn again(call: &Call) -> Call {
    let (keys, args) = (call.keys(), call.args(true));
    assert_eq!(args.last().map(String::as_str), Some("again"));
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let args: Vec<Arg<'_>> = args.iter().map(|arg| Arg::Text(arg)).collect();
    Call::new(call.script, call.purpose, None, call.lifetime, &keys, &args)
}

/// A script of the test's own, on all keys of the lock.
fn own(operation: &'static str, source: &'static str) -> Call {
    let sha = sha1_smol::Sha1::from(source).hexdigest();
    let script = Box::leak(Box::new(Script { operation, source, sha }));
    let key = plain().key;
    let keys = [key.as_str(), key.fence(), key.wake(), key.waiting()];
    Call::new(script, Purpose::Other, None, Duration::ZERO, &keys, &[])
}

fn clear() -> Call {
    own("clear", "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])")
}

/// All that is stored for the lock.
fn dump() -> Call {
    let source = "local all = {}\n\
                  for i = 1, 4 do\n\
                    all[i] = redis.call('EXISTS', KEYS[i])\n\
                    all[i + 4] = redis.call('PTTL', KEYS[i])\n\
                  end\n\
                  local function text(reply)\n\
                    if type(reply) == 'table' then return reply.err and 'error' or 'table' end\n\
                    return reply and '' .. reply or 'none'\n\
                  end\n\
                  all[9] = text(redis.pcall('GET', KEYS[1]))\n\
                  all[10] = text(redis.pcall('GET', KEYS[2]))\n\
                  all[11] = text(redis.pcall('LINDEX', KEYS[3], 0))\n\
                  all[12] = text(redis.pcall('ZCARD', KEYS[4]))\n\
                  return all";
    own("dump", source)
}

/// Puts a list in the place of one of the keys.
fn spoil(key: usize) -> Call {
    let sources = [
        "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')",
        "redis.call('DEL', KEYS[2]) return redis.call('RPUSH', KEYS[2], 'x')",
        "return redis.call('RPUSH', KEYS[3], 'not', 'ours')",
        "redis.call('DEL', KEYS[4]) return redis.call('RPUSH', KEYS[4], 'x')",
    ];
    own("spoil", sources[key])
}

fn expire(key: usize) -> Call {
    let sources = ["return redis.call('PEXPIRE', KEYS[1], 1)", "return redis.call('PEXPIRE', KEYS[3], 1)"];
    own("expire", sources[key])
}

/// What is done, and what must come of it on either side.
type Scenario = (&'static str, Vec<(Call, &'static str)>);

fn scenarios() -> Vec<Scenario> {
    let six = 6 * SECOND;
    vec![
        (
            "a free lock is taken, and freed",
            vec![
                (take("a"), "1"),
                (take("a"), "1"),
                (take("b"), "[0, 30s, a]"),
                (plain().extend(&id("b"), LEASE), "0"),
                (plain().extend(&id("a"), 2 * LEASE), "1"),
                (take("b"), "[0, 60s, a]"),
                (plain().free(&id("b")), "0"),
                (plain().free(&id("a")), "1"),
                (plain().free(&id("a")), "-1"),
                (plain().extend(&id("a"), LEASE), "-1"),
                (plain().inspect(), "[0]"),
                (dump(), "[0, 0, 0, 0, -2, -2, -2, -2, none, none, none, 0]"),
            ],
        ),
        (
            "who waits is granted the lock, and tells what he was granted",
            vec![
                (acquire("a", Some(0), None, &[]), "[1, now]"),
                (acquire("b", None, Some(waiter("w", six, false)), &[]), "[0, 30s, a]"),
                (plain().waiters(&id("a"), None), "[1, 1]"),
                (plain().waiters(&id("a"), Some("w")), "[1, 0]"),
                (plain().waiters(&id("b"), None), "0"),
                (plain().free(&id("a")), "2"),
                (release("a", None, Some("g"), true), "1"),
                (plain().inspect(), "[1, g, 5s]"),
                (dump(), "[1, 1, 1, 1, 5s, 1200s, 5s, 10s, g, now, now now 5000 g, 1]"),
                (plain().extend(&id("g"), LEASE), "1"),
                (release("g", Some("w"), Some("h"), false), "1"),
                (dump(), "[0, 1, 0, 0, -2, 1200s, -2, -2, none, now, none, 0]"),
            ],
        ),
        (
            "a grant that nobody took is free to whoever comes",
            vec![
                (take("a"), "1"),
                (acquire("b", None, Some(waiter("w", six, false)), &[]), "[0, 30s, a]"),
                (release("a", None, Some("g"), false), "1"),
                (take("c"), "[0, 5s, g]"),
                (acquire("c", None, Some(waiter("v", six, false)), &[]), "[1, 0]"),
                (dump(), "[1, 0, 0, 1, 30s, -2, -2, 10s, c, none, none, 1]"),
            ],
        ),
        (
            "a ticket opens only what stands on it",
            vec![
                (take("a"), "1"),
                (acquire("b", None, None, &["x", "a"]), "[1, 0]"),
                (acquire("c", None, None, &["x", "a"]), "[0, 30s, b]"),
            ],
        ),
        (
            "a release that is sent again grants nothing",
            vec![
                (take("a"), "1"),
                (acquire("b", None, Some(waiter("w", six, false)), &[]), "[0, 30s, a]"),
                (again(&plain().free(&id("a"))), "1"),
                (dump(), "[0, 0, 1, 1, -2, -2, 5s, 10s, none, none, 0 0 0 , 1]"),
                (take("a2"), "1"),
                (again(&release("a2", None, Some("g"), false)), "1"),
                (again(&release("a2", None, Some("g"), false)), "-1"),
                (dump(), "[0, 0, 1, 1, -2, -2, 5s, 10s, none, none, 0 0 0 , 1]"),
            ],
        ),
    ]
}

fn more_scenarios() -> Vec<Scenario> {
    let six = 6 * SECOND;
    vec![
        (
            "a minimum hold is told to who waits",
            vec![
                (take("a"), "1"),
                (acquire("b", None, Some(waiter("w", six, false)), &[]), "[0, 30s, a]"),
                (keep("a"), "1"),
                (keep("a"), "1"),
                (dump(), "[1, 0, 1, 1, 5s, -2, 10s, 10s, a, none, 0 0 5000 , 1]"),
            ],
        ),
        (
            "fences rise",
            vec![
                (take("a"), "1"),
                (plain().fence(&id("a"), None), "[1, now]"),
                (plain().fence(&id("a"), Some(7)), "[1, now]"),
                (plain().fence(&id("a"), Some(8_000_000_000_000_000)), "[1, 8000000000000000]"),
                (plain().fence(&id("a"), None), "[1, 8000000000000001]"),
                (plain().fence(&id("b"), None), "0"),
                (keep("a"), "1"),
                (plain().inspect(), "[1, a, 5s]"),
                (plain().free(&id("a")), "1"),
                (acquire("b", Some(0), None, &[]), "[1, 8000000000000002]"),
            ],
        ),
        (
            "a key of another type is left alone",
            vec![
                (spoil(0), "1"),
                (take("a"), "WrongType No"),
                (acquire("a", Some(0), Some(waiter("w", six, false)), &["x"]), "WrongType No"),
                (plain().extend(&id("a"), LEASE), "WrongType No"),
                (plain().free(&id("a")), "WrongType No"),
                (release("a", Some("w"), Some("g"), true), "WrongType No"),
                (plain().fence(&id("a"), None), "WrongType No"),
                (plain().inspect(), "WrongType No"),
                (plain().waiters(&id("a"), None), "WrongType No"),
            ],
        ),
    ]
}

fn follow(side: &mut dyn Side) {
    for (name, steps) in scenarios().into_iter().chain(more_scenarios()) {
        side.call(&clear()).unwrap();
        for (i, (call, expected)) in steps.iter().enumerate() {
            assert_eq!(shown(&side.call(call)), *expected, "{name}, step {}: {}.lua", i + 1, lua::name(call.script));
        }
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

/// A call drawn at random, on one lock with few tokens, so that they meet.
fn random_call() -> Call {
    let tokens = ["a", "b", "c", "g", "h"];
    let any = || tokens[fastrand::usize(0..tokens.len())];
    let some = |text: &'static str| fastrand::bool().then_some(text);
    let a_waiter = [
        None,
        Some(waiter("w", 6 * SECOND, false)),
        Some(waiter("v", 10 * SECOND, true)),
        Some(waiter("w", Duration::ZERO, true)),
        Some(waiter("", Duration::ZERO, false)),
    ];
    match fastrand::u32(0..30) {
        0..3 => take(any()),
        3..12 => {
            let tickets: Vec<&str> = (0..fastrand::usize(0..3)).map(|_| any()).collect();
            let fence = [None, Some(0), Some(8_000_000_000_000_000)][fastrand::usize(0..3)];
            acquire(any(), fence, a_waiter[fastrand::usize(0..5)], &tickets)
        }
        12..15 => plain().extend(&id(any()), SECOND * 5 * fastrand::u32(1..9)),
        15..17 => plain().free(&id(any())),
        17 => again(&plain().free(&id(any()))),
        18 => release_in(1, any(), some("w"), some("g"), fastrand::bool()),
        19..22 => release(any(), some("w"), some("g"), fastrand::bool()),
        22 => again(&release(any(), some("w"), some("h"), fastrand::bool())),
        23 => keep(any()),
        24 | 25 => plain().fence(&id(any()), [None, Some(7)][fastrand::usize(0..2)]),
        26 => plain().waiters(&id(any()), some("w")),
        27 if fastrand::u32(0..4) == 0 => spoil(fastrand::usize(0..4)),
        28 => expire(fastrand::usize(0..2)),
        _ => plain().inspect(),
    }
}

#[test]
fn random_calls_have_the_same_replies() {
    let (mut memory, mut remote) = (in_memory(), Remote::start());
    for seed in 0..120 {
        fastrand::seed(seed);
        assert_eq!(memory.call(&clear()).is_ok(), remote.call(&clear()).is_ok());
        let mut done = String::new();
        for _ in 0..40 {
            if fastrand::u32(0..8) == 0 {
                // Of an empty list the server would tell a tenth of a second later.
                let list = plain().key.wake().to_owned();
                if let Some(here) = Side::pop(&mut memory, &list) {
                    let texts = (shown(&Ok(Value::Text(here))), shown(&Ok(value(remote.pop(&list)))));
                    assert_eq!(texts.0, texts.1, "seed {seed}: BLPOP after\n{done}");
                }
                continue;
            }
            let call = random_call();
            _ = writeln!(done, "{} {:?}", lua::name(call.script), call.args(false));
            let replies = (shown(&memory.call(&call)), shown(&remote.call(&call)));
            assert_eq!(replies.0, replies.1, "seed {seed}: in memory, on a server, after\n{done}");
            if call.script.operation == "expire" {
                let moment = Duration::from_millis(4);
                memory.pass(moment);
                remote.pass(moment);
            }
            let stored = (shown(&memory.call(&dump())), shown(&remote.call(&dump())));
            assert_eq!(stored.0, stored.1, "seed {seed}: stored in memory, on a server, after\n{done}");
        }
    }
}

fn value(popped: Option<Vec<u8>>) -> Value {
    popped.map_or(Value::Nil, Value::Text)
}

#[test]
fn an_in_memory_node_says_what_trouble_it_has() {
    let mut memory = in_memory();
    memory.call(&spoil(0)).unwrap();
    let failure = memory.call(&take("a")).unwrap_err();
    assert_eq!((failure.trouble, failure.executed), (Trouble::WrongType, Executed::No));
}
