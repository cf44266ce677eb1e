//! A node in memory behaves like a server: the same calls have the same replies, messages and data on both. The
//! simulation and the tests in memory rely on this. What a lock must do is said by `tests/it/contract`, at each place.
//!
//! 1. `sides.rs`: the node in memory and the server, and one call on both.
//! 2. `texts.rs`: replies and messages as texts, without what depends on the time.
//! 3. `mutex.rs`, `read_write.rs`, `semaphore.rs`, `task_queue.rs`: random calls of each kind, and scenarios with
//!    expected replies.
//! 4. `semaphore_model.rs`: a reference for the scripts of a semaphore.
//! 5. `only_in_memory.rs`: what a test cannot have a server do.

mod mutex;
mod only_in_memory;
mod read_write;
mod semaphore;
mod semaphore_model;
mod sides;
mod task_queue;
mod texts;

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use self::sides::{Pair, Run, repeat};
use crate::key::Key;
use crate::protocol::script::{Arg, Call, Script};
use crate::protocol::{AcquireArgs, Grant, LeaseCalls, Next, Protocol, QueuePolicy, ReleaseArgs, WaitArgs};
use crate::token::LockId;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
/// A time in which a lease of 1 ms ends.
const MOMENT: Duration = Duration::from_millis(4);
/// The factor for the number of random runs. A debug build is slow and makes a quarter of them.
const FACTOR: u64 = if cfg!(debug_assertions) { 1 } else { 4 };
/// The channel on which a client listens.
const CHANNEL: &str = "redlock-sync:1";
/// The ids of two waits whose client listens, and of one whose client is gone.
const ALIVE: &str = "redlock-sync:1/2";
const SECOND_ALIVE: &str = "redlock-sync:1/3";
const DEAD: &str = "redlock-sync:0/1";
/// The ids of waits that poll.
const POLLS: &str = "-1";
const POLLS_WITH_A_MARK: &str = "-60000:1";
const WAITS: [&str; 5] = [ALIVE, SECOND_ALIVE, DEAD, POLLS, POLLS_WITH_A_MARK];

/// A kind of lock, or a queue of tasks, under the name `k`.
trait Kind {
    /// The fields to read where a key is a hash.
    const FIELDS: &[&str] = &[];

    fn of_run(seed: u64) -> Self;
    /// The keys. No other ones are used.
    fn keys() -> Vec<String>;
    /// Draws a call. All calls use few tokens and waits, so that they collide.
    fn draw(&mut self) -> Drawn;
}

/// A call, and the time that has to pass after it on both sides.
struct Drawn {
    call: Arc<Call>,
    pause: Duration,
}

impl From<Arc<Call>> for Drawn {
    fn from(call: Arc<Call>) -> Drawn {
        Drawn { call, pause: Duration::ZERO }
    }
}

fn random_calls_are_alike<K: Kind>(runs: u64, calls: usize) {
    let mut pair = Pair::start();
    for seed in 0..runs * FACTOR {
        repeat(|run| {
            fastrand::seed(seed);
            pair.call(&clear::<K>(), "", run);
            let mut kind = K::of_run(seed);
            let mut done = String::new();
            for _ in 0..calls {
                let Drawn { call, pause } = kind.draw();
                _ = writeln!(done, "{} {:?}", name(&call), call.args());
                let what = format!("seed {seed}, after\n{done}");
                pair.call(&call, &what, run);
                pair.pass(pause);
                pair.call(&dump::<K>(), &what, run);
            }
        });
    }
}

/// The name of a scenario, and its steps. Each call has its expected reply on both sides, and leaves the same data.
type Scenario = (&'static str, Vec<(Arc<Call>, &'static str)>);

fn scenarios_are_followed<K: Kind>(scenarios: Vec<Scenario>) {
    let mut pair = Pair::start();
    for (name_of_scenario, steps) in scenarios {
        repeat(|run: &mut Run| {
            pair.call(&clear::<K>(), "", run);
            for (i, (call, expected)) in steps.iter().enumerate() {
                let what = format!("{name_of_scenario}, step {}, {}", i + 1, name(call));
                assert_eq!(pair.call(call, &what, run), *expected, "{what}");
                pair.call(&dump::<K>(), &what, run);
            }
        });
    }
}

fn name(call: &Call) -> &'static str {
    if call.script.file.is_empty() { call.script.operation } else { call.script.file }
}

/// A call of a script of the tests, with all keys.
fn own<K: Kind>(script: &'static Script, args: &[Arg<'_>]) -> Arc<Call> {
    let keys = K::keys();
    Call::new(script, &keys.iter().map(String::as_str).collect::<Vec<_>>(), args)
}

macro_rules! script {
    ($name:literal, $text:expr) => {{
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new($name, $text));
        &*SCRIPT
    }};
}
use script;

fn clear<K: Kind>() -> Arc<Call> {
    own::<K>(script!("clear", "for _, key in ipairs(KEYS) do redis.call('DEL', key) end return 1"), &[])
}

/// Replaces the key with this number by a list.
fn spoil<K: Kind>(number: usize) -> Arc<Call> {
    const TEXT: &str = "local key = KEYS[tonumber(ARGV[1])]\n\
                        redis.call('DEL', key)\n\
                        return redis.call('RPUSH', key, 'x')";
    own::<K>(script!("spoil", TEXT), &[Arg::Number(number as u64)])
}

fn spoil_any<K: Kind>() -> Arc<Call> {
    spoil::<K>(fastrand::usize(0..K::keys().len()) + 1)
}

/// Adds a member to the sorted set of the holders.
fn lend<K: Kind>(ends: &str, member: &str) -> Arc<Call> {
    const TEXT: &str = "return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
    own::<K>(script!("lend", TEXT), &[Arg::Text(ends), Arg::Text(member)])
}

/// Ends the hold that ends first, or the one that ends last.
fn lapse<K: Kind>(is_first: bool) -> Arc<Call> {
    const TEXT: &str = "local one = redis.pcall(ARGV[1], KEYS[1], 0, 0)[1]\n\
                return one and redis.call('ZADD', KEYS[1], 7, one) or 0";
    own::<K>(script!("lapse", TEXT), &[Arg::Text(if is_first { "ZRANGE" } else { "ZREVRANGE" })])
}

/// Reads all that is stored. Scores that are times are shown as the time that remains.
fn dump<K: Kind>() -> Arc<Call> {
    const TEXT: &str = "local time, all = redis.call('TIME'), {}\n\
                local now = time[1] * 1000 + math.floor(time[2] / 1000)\n\
                local function add(item) all[#all + 1] = item end\n\
                local function score(text)\n\
                  local n = tonumber(text)\n\
                  if math.abs(n) < 1e12 then return string.format('%g', n + 0) end\n\
                  if n < 0 or n > 1e14 then return 'time' end\n\
                  return n >= now and n - now or -1\n\
                end\n\
                for _, key in ipairs(KEYS) do\n\
                  add(redis.call('PTTL', key))\n\
                  local text, set = redis.pcall('GET', key), redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')\n\
                  if type(text) == 'string' then\n\
                    add(text)\n\
                  elseif not set.err then\n\
                    for i = 1, #set, 2 do add(set[i]) add(score(set[i + 1])) end\n\
                  else\n\
                    for _, field in ipairs(ARGV) do\n\
                      local found = redis.pcall('HGET', key, field)\n\
                      add(type(found) == 'table' and 'error' or found or 'none')\n\
                    end\n\
                  end\n\
                  add('|')\n\
                end\n\
                return all";
    let fields: Vec<Arg<'_>> = K::FIELDS.iter().map(|field| Arg::Text(field)).collect();
    own::<K>(script!("dump", TEXT), &fields)
}

fn any<T: Copy>(all: &[T]) -> T {
    all[fastrand::usize(0..all.len())]
}

fn id(token: &str) -> LockId {
    LockId::from_server(token)
}

fn key() -> Key {
    Key::new("", "k").unwrap()
}

/// The wait enters the queue.
fn enters(id: &str) -> WaitArgs<'_> {
    WaitArgs { id, stays: 6 * SECOND }
}

/// The wait leaves the queue.
fn leaves(id: &str) -> WaitArgs<'_> {
    WaitArgs { id, stays: Duration::ZERO }
}

fn any_entry(wait: &str) -> Option<WaitArgs<'_>> {
    any(&[None, Some(enters(wait)), Some(enters(wait)), Some(leaves(wait))])
}

/// The release grants the lock to the first wait.
fn grant(with_fence: bool, several: bool) -> Next {
    Next::First(Grant { lease: 5 * SECOND, with_fence, several, threads_wait: false })
}

/// A lock of this kind, and the calls that random runs and scenarios make.
#[derive(Clone)]
struct Lock(Protocol);

impl Lock {
    fn attempt(
        &self,
        token: &str,
        fence: Option<u64>,
        wait: Option<WaitArgs<'_>>,
        policy: QueuePolicy,
        take_over: &[&str],
    ) -> Arc<Call> {
        let take_over: Vec<LockId> = take_over.iter().map(|from| id(from)).collect();
        let id = id(token);
        self.0.acquire(&AcquireArgs { id: &id, lease: LEASE, fence, wait, policy, take_over: &take_over }).call
    }

    fn extend(&self, token: &str, lease: Duration) -> Arc<Call> {
        self.0.extend(&id(token), lease).call
    }

    /// For a mutex or a read-write lock.
    fn count(&self, token: &str, lease: Duration) -> Arc<Call> {
        self.0.extend_and_count(&id(token), lease).unwrap().call
    }

    fn fence(&self, token: &str, fence: Option<u64>) -> Arc<Call> {
        self.0.fence(&id(token), fence).call
    }

    fn release(&self, token: Option<&str>, keep: Duration, wait: Option<&str>, next: Next) -> Arc<Call> {
        let token = token.map(id);
        self.0.release(&ReleaseArgs { id: token.as_ref(), keep, wait, next }).call
    }

    /// A release that grants the lock to no wait.
    fn free(&self, token: &str) -> Arc<Call> {
        self.release(Some(token), Duration::ZERO, None, Next::Anybody)
    }

    fn inspect(&self) -> Arc<Call> {
        self.0.inspect().call
    }
}
