//! The scripts of a read-write lock: random calls and scenarios have the same results in memory and on a server.

use super::*;
use crate::options::Mode;
use crate::protocol::ReadWrite;
use crate::protocol::script::Purpose;

/// Waits of other kinds than mutexes.
const ALIVE: &str = "redlock-sync:1/2";
const SECOND_ALIVE: &str = "redlock-sync:1/3";
const DEAD: &str = "redlock-sync:0/1";

const CALLS: usize = 60;

fn side(mode: Mode, several: bool) -> ReadWrite {
    ReadWrite::new(Key::new("", "k").unwrap(), mode, several)
}

fn ask<'a>(mode: Mode, token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    ask_with(mode, false, token, wait.into(), None, QueuePolicy::FastPath)
}

fn ask_with(
    mode: Mode,
    several: bool,
    token: &str,
    wait: Option<WaitArgs<'_>>,
    fence: Option<u64>,
    policy: QueuePolicy,
) -> Arc<Call> {
    let id = id(token);
    side(mode, several).acquire(&AcquireArgs { id: &id, lease: LEASE, fence, wait, policy, take_over: &[] }).call
}

fn read<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    ask(Mode::Shared, token, wait)
}

fn write<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    ask(Mode::Exclusive, token, wait)
}

fn end(mode: Mode, several: bool, token: Option<&str>, wait: Option<&str>, keep: Duration) -> Arc<Call> {
    let token = token.map(id);
    side(mode, several).release(&ReleaseArgs { id: token.as_ref(), keep, wait, next: grant(false, several) }).call
}

fn unread(token: &str) -> Arc<Call> {
    end(Mode::Shared, false, Some(token), None, Duration::ZERO)
}

fn unwrite(token: &str) -> Arc<Call> {
    end(Mode::Exclusive, false, Some(token), None, Duration::ZERO)
}

fn inspect() -> Arc<Call> {
    Protocol::ReadWrite(side(Mode::Shared, false)).inspect().call
}

fn script(operation: &'static str, source: &'static str) -> Arc<Call> {
    let script = Box::leak(Box::new(Script::new(operation, source)));
    let key = exclusive().key;
    let [readers, writers] = key.rw_queues();
    let keys = [key.as_str(), &readers, key.fence(), &writers];
    Call::new(script, &keys, &[])
}

fn clear() -> Arc<Call> {
    script("clear", "for i = 1, 4 do redis.call('DEL', KEYS[i]) end return 1")
}

/// Reads all that is stored for the lock. Times are shown as the time that remains.
fn dump() -> Arc<Call> {
    let source = "local time, all = redis.call('TIME'), {}\n\
                  local now = time[1] * 1000 + math.floor(time[2] / 1000)\n\
                  for i = 1, 4 do all[i] = redis.call('PTTL', KEYS[i]) end\n\
                  for _, i in ipairs({1, 2, 4}) do\n\
                    local members = redis.pcall('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')\n\
                    if members.err then members = {'error', 0} end\n\
                    for j = 1, #members, 2 do\n\
                      all[#all + 1] = members[j]\n\
                      local score = tonumber(members[j + 1])\n\
                      all[#all + 1] = i > 1 and score < 1000000 and string.format('%d', score) or score >= now and score - now or -1\n\
                    end\n\
                    all[#all + 1] = '|'\n\
                  end\n\
                  local fence = redis.pcall('GET', KEYS[3])\n\
                  all[#all + 1] = type(fence) == 'table' and 'error' or fence or 'none'\n\
                  return all";
    script("dump", source)
}

/// Ends the hold that ends first, or the hold that ends last.
fn lapse(is_first: bool) -> Arc<Call> {
    let first =
        "local one = redis.pcall('ZRANGE', KEYS[1], 0, 0)[1] return one and redis.call('ZADD', KEYS[1], 7, one) or 0";
    let last = "local one = redis.pcall('ZREVRANGE', KEYS[1], 0, 0)[1] return one and redis.call('ZADD', KEYS[1], 7, one) or 0";
    script("lapse", if is_first { first } else { last })
}

fn spoil(key: usize) -> Arc<Call> {
    let sources = [
        "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')",
        "redis.call('DEL', KEYS[2]) return redis.call('RPUSH', KEYS[2], 'x')",
        "redis.call('DEL', KEYS[3]) return redis.call('RPUSH', KEYS[3], 'x')",
        "redis.call('DEL', KEYS[4]) return redis.call('RPUSH', KEYS[4], 'x')",
    ];
    script("spoil", sources[key])
}

fn extend(mode: Mode, token: &str) -> Arc<Call> {
    side(mode, false).extend_and_count(&id(token), 2 * LEASE).call
}

/// Replaces `SEAT` in an expected reply by the token of a reservation, up to the client that it is for.
fn seats(what: &str) -> &'static str {
    Box::leak(what.replace("SEAT", "00000000000000000000000000000000:granted:redlock-sync:1/").into_boxed_str())
}

fn scenarios() -> Vec<Scenario> {
    vec![
        (
            "readers share it, a writer has it alone",
            vec![
                (read("a", None), "1"),
                (read("a", None), "1"),
                (read("b", None), "1"),
                (write("c", None), "[0, 30s, b, 0]"),
                (extend(Mode::Shared, "a"), "[1, 0]"),
                (extend(Mode::Exclusive, "a"), "0"),
                (inspect(), "[1, ra, 60s, rb, 30s]"),
                (unread("b"), "1"),
                (unread("b"), "-1"),
                (unwrite("a"), "0"),
                (unread("a"), "1"),
                (write("c", None), "1"),
                (write("c", None), "1"),
                (read("a", None), "[0, 30s, c, 0]"),
                (write("d", None), "[0, 30s, c, 0]"),
                (unread("a"), "0"),
                (extend(Mode::Shared, "a"), "0"),
                (unwrite("c"), "1"),
                (inspect(), "[0]"),
                (dump(), "[-2, -2, -2, -2, |, |, |, none]"),
            ],
        ),
        (
            "a writer that waits keeps readers out and is next; the readers are next after that",
            vec![
                (read("a", None), "1"),
                (write("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (write("b", enters(ALIVE)), "[0, 30s, a, 2]"),
                (read("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (read("c", None), "[0, 30s, a, 0]"),
                (extend(Mode::Shared, "a"), "[1, 2]"),
                (unread("a"), "1"),
                (inspect(), seats("[1, wSEAT2, 5s]")),
                (read("c", None), seats("[0, 5s, SEAT2, 0]")),
                (write("b", enters(ALIVE)), "1"),
                (write("d", enters(ALIVE)), "[0, 30s, b, 1]"),
                (unwrite("b"), "1"),
                (inspect(), seats("[1, rSEAT3, 5s]")),
                (write("d", enters(ALIVE)), seats("[0, 5s, SEAT3, 2]")),
                (read("c", enters(SECOND_ALIVE)), "1"),
                (read("e", None), "[0, 30s, c, 0]"),
                (unread("c"), "1"),
                (write("d", enters(ALIVE)), "1"),
                (unwrite("d"), "1"),
                (dump(), "[-2, -2, -2, -2, |, |, |, none]"),
            ],
        ),
        (
            "a writer that leaves lets the readers in, and one that is gone keeps none out",
            vec![
                (read("a", None), "1"),
                (write("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (read("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (end(Mode::Exclusive, false, None, Some(ALIVE), Duration::ZERO), "0"),
                (read("c", enters(SECOND_ALIVE)), "1"),
                (write("b", enters(DEAD)), "[0, 30s, c, 1]"),
                (read("d", None), "1"),
                (write("b", enters(ALIVE)), "[0, 30s, d, 1]"),
                (read("e", enters(SECOND_ALIVE)), "[0, 30s, d, 1]"),
                (write("b", leaves(ALIVE)), "[0, 30s, d, 0]"),
                (inspect(), seats("[1, rd, 30s, rc, 30s, ra, 30s, rSEAT3, 5s]")),
            ],
        ),
    ]
}

fn more_scenarios() -> Vec<Scenario> {
    let lock = |mode| side(mode, false);
    vec![
        (
            "what has ended is not there",
            vec![
                (read("a", None), "1"),
                (lapse(true), "0"),
                (read("b", None), "1"),
                (inspect(), "[1, rb, 30s]"),
                (extend(Mode::Shared, "a"), "-1"),
                (lock(Mode::Shared).fence(&id("a"), None).call, "-1"),
                (unread("b"), "1"),
                (write("c", None), "1"),
                (lapse(true), "0"),
                (extend(Mode::Exclusive, "c"), "-1"),
                (read("d", None), "1"),
                (lock(Mode::Exclusive).fence(&id("c"), None).call, "0"),
                (unwrite("c"), "0"),
            ],
        ),
        (
            "a minimum hold and fences",
            vec![
                (ask_with(Mode::Exclusive, false, "a", None, Some(0), QueuePolicy::FastPath), "[1, now]"),
                (end(Mode::Exclusive, false, Some("a"), None, 5 * SECOND), "1"),
                (inspect(), "[1, wa, 5s]"),
                (read("b", None), "[0, 5s, a, 0]"),
                (unwrite("a"), "1"),
                (
                    ask_with(Mode::Shared, false, "b", None, Some(8_000_000_000_000_000), QueuePolicy::FastPath),
                    "[1, 8000000000000000]",
                ),
                (lock(Mode::Shared).fence(&id("b"), None).call, "[1, 8000000000000001]"),
                (lock(Mode::Shared).fence(&id("b"), Some(8_000_000_000_000_007)).call, "[1, 8000000000000007]"),
                (lock(Mode::Shared).fence(&id("b"), Some(7)).call, "[1, 8000000000000007]"),
            ],
        ),
        (
            "on several nodes any writer may take it, and a holder goes before those that wait",
            vec![
                (ask_with(Mode::Shared, true, "a", None, None, QueuePolicy::None), "1"),
                (ask_with(Mode::Exclusive, true, "b", Some(enters(DEAD)), None, QueuePolicy::None), "[0, 30s, a, 1]"),
                (ask_with(Mode::Shared, true, "c", Some(enters(ALIVE)), None, QueuePolicy::None), "[0, 30s, a, 1]"),
                (ask_with(Mode::Shared, true, "d", None, None, QueuePolicy::Holder), "1"),
                (end(Mode::Shared, true, Some("a"), None, Duration::ZERO), "1"),
                (end(Mode::Shared, true, Some("d"), None, Duration::ZERO), "1"),
                (ask_with(Mode::Exclusive, true, "e", None, None, QueuePolicy::None), "1"),
                (end(Mode::Exclusive, true, Some("e"), None, Duration::ZERO), "1"),
                (inspect(), seats("[1, rSEAT2, 5s]")),
                (ask_with(Mode::Shared, true, "c", Some(enters(ALIVE)), None, QueuePolicy::None), "1"),
            ],
        ),
        ("a key of another type is left alone", left_alone(spoil(0))),
        ("a semaphore is left alone", left_alone(script("spoil", "return redis.call('ZADD', KEYS[1], 9e15, '0 a')"))),
        (
            "a latch is left alone",
            left_alone(script("spoil", "return redis.call('ZADD', KEYS[1], '9000000000000002', '=ra')")),
        ),
    ]
}

/// The expected replies if a key is not a read-write lock.
fn left_alone(spoil: Arc<Call>) -> Vec<(Arc<Call>, &'static str)> {
    vec![
        (spoil, "1"),
        (read("a", enters(ALIVE)), "WrongType No"),
        (read("a", None), "WrongType No"),
        (write("a", enters(ALIVE)), "WrongType No"),
        (write("a", None), "WrongType No"),
        (unread("a"), "WrongType No"),
        (extend(Mode::Shared, "a"), "WrongType No"),
        (side(Mode::Shared, false).fence(&id("a"), None).call, "WrongType No"),
        (inspect(), "WrongType No"),
    ]
}

fn follow_rw(side: &mut dyn Side) {
    side.listen(CHANNEL);
    for (name, steps) in scenarios().into_iter().chain(more_scenarios()) {
        side.call(&clear()).unwrap();
        for (i, (call, expected)) in steps.iter().enumerate() {
            let said = shown(&side.call(call));
            assert_eq!(said, *expected, "{name}, step {}: {}.lua", i + 1, scripts::name(call.script));
        }
        side.heard();
    }
}

#[test]
fn scenarios_of_a_read_write_lock_in_memory() {
    follow_rw(&mut in_memory());
}

#[test]
fn scenarios_of_a_read_write_lock_on_a_server() {
    follow_rw(&mut Remote::start());
}

fn random_call(several: bool) -> Arc<Call> {
    let tokens = ["a", "b", "c", "d"];
    let any = || tokens[fastrand::usize(0..tokens.len())];
    let mode = || if fastrand::bool() { Mode::Shared } else { Mode::Exclusive };
    let waits = [ALIVE, SECOND_ALIVE, DEAD, "-1"];
    let wait = waits[fastrand::usize(0..waits.len())];
    let an_entry = [None, Some(enters(wait)), Some(enters(wait)), Some(leaves(wait))][fastrand::usize(0..4)];
    match fastrand::u32(0..30) {
        0..14 => {
            let fence = [None, None, Some(0), Some(8_000_000_000_000_000)][fastrand::usize(0..4)];
            let policy = if fastrand::u32(0..8) == 0 { QueuePolicy::Holder } else { QueuePolicy::None };
            ask_with(mode(), several, any(), an_entry, fence, policy)
        }
        14..16 => side(mode(), several).extend_and_count(&id(any()), SECOND * 5 * fastrand::u32(1..9)).call,
        16..20 => end(mode(), several, Some(any()), fastrand::bool().then_some(wait), Duration::ZERO),
        20 | 21 => {
            let id = id(any());
            let args = ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
            side(mode(), several).release(&args).call
        }
        22 => end(mode(), several, None, Some(wait), Duration::ZERO),
        23 => end(mode(), several, Some(any()), None, 5 * SECOND),
        24 => side(mode(), several).fence(&id(any()), [None, Some(7)][fastrand::usize(0..2)]).call,
        25 if fastrand::u32(0..6) == 0 => spoil(fastrand::usize(0..4)),
        26 | 27 => lapse(fastrand::bool()),
        _ => inspect(),
    }
}

/// Checks that there is either one writer or only readers, and that the key ends with the last of them.
fn excludes(said: &str) {
    let holders = said.split(", |").next().unwrap_or_default();
    let live: Vec<&str> = holders.split(", ").skip(4).collect();
    let live: Vec<&str> =
        live.chunks(2).filter(|pair| pair.get(1).is_some_and(|left| left.ends_with('s'))).map(|pair| pair[0]).collect();
    let writers = live.iter().filter(|member| member.starts_with('w')).count();
    assert!(writers == 0 || writers == 1 && live.len() == 1, "{said}");
}

#[test]
fn random_calls_on_a_read_write_lock_have_the_same_replies() {
    let (mut memory, mut remote) = (in_memory(), Remote::start());
    memory.listen(CHANNEL);
    remote.listen(CHANNEL);
    // The pause between calls. Without it, two holds could end in the same millisecond, and their order would depend on
    // their names.
    let moment = Duration::from_millis(2);
    for seed in 0..15 * FACTOR {
        repeat(|run| {
            fastrand::seed(seed);
            assert_eq!(memory.call(&clear()).is_ok(), remote.call(&clear()).is_ok());
            let mut done = String::new();
            for _ in 0..CALLS {
                let call = random_call(seed % 3 == 0);
                _ = writeln!(done, "{} {:?}", scripts::name(call.script), call.args());
                excludes(&same(&mut memory, &mut remote, &call, &format!("seed {seed}, after\n{done}"), run));
                memory.pass(moment);
                remote.pass(moment);
            }
        });
    }
}

/// A call that is executed a second time takes nothing from other holders. It removes no other token, and adds none but
/// reservations.
#[test]
fn a_second_copy_of_a_call_takes_nothing_from_others() {
    let holders = |memory: &mut Store| {
        let all = shown(&memory.call(&inspect()));
        let tokens = all.trim_matches(['[', ']']).split(", ").filter(|word| word.starts_with(['r', 'w']));
        tokens.filter(|token| !token.contains(":granted:")).map(str::to_owned).collect::<Vec<_>>()
    };
    for seed in 0..100 * FACTOR {
        fastrand::seed(seed);
        let mut memory = in_memory();
        memory.listen(CHANNEL);
        for _ in 0..CALLS {
            let call = random_call(seed % 3 == 0);
            drop(memory.call(&call));
            let before = holders(&mut memory);
            drop(memory.call(&call));
            excludes(&shown(&memory.call(&dump())));
            let after = holders(&mut memory);
            let is_attempt = call.script.purpose == Purpose::Acquire;
            // The copy of a refused attempt may find the lock free.
            let own = call.token.as_ref().map_or("", LockId::as_str);
            let takes_away = ["lapse", "spoil"].contains(&call.script.operation);
            let lost = before.iter().find(|token| !takes_away && !after.contains(token));
            let may_be_new = |token: &String| is_attempt && token.ends_with(own);
            let new = after.iter().find(|token| !before.contains(token) && !may_be_new(token));
            assert_eq!((lost, new), (None, None), "seed {seed}: {:?}", call.args());
        }
    }
}
