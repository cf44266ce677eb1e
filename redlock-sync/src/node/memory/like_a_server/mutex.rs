//! The scripts of a mutex.

use super::*;
use crate::options::Mode;
use crate::protocol::held::ask_for;
use crate::protocol::permits::Permits;
use crate::protocol::{Exclusive, ReadWrite};

/// The waits of a mutex bring a random part of their own.
pub(super) const ALIVE: &str = "redlock-sync:1/2 0123456789abcdef0123456789abcdef";
pub(super) const SECOND_ALIVE: &str = "redlock-sync:1/3 0123456789abcdef0123456789abcdef";
const DEAD: &str = "redlock-sync:0/1 0123456789abcdef0123456789abcdef";
const POLLS: &str = "-1 0123456789abcdef0123456789abcdef";
const POLLS_WITH_A_MARK: &str = "-60000:1 0123456789abcdef0123456789abcdef";
const WAITS: [&str; 5] = [ALIVE, SECOND_ALIVE, DEAD, POLLS, POLLS_WITH_A_MARK];
const TOKENS: [&str; 5] =
    ["a", "b", "c", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2"];

struct Mutex {
    several: bool,
}

impl Kind for Mutex {
    fn of_run(seed: u64) -> Mutex {
        Mutex { several: seed.is_multiple_of(3) }
    }

    fn keys() -> Vec<String> {
        let key = key();
        [key.as_str(), key.queue(), key.fence()].map(str::to_owned).into()
    }

    fn draw(&mut self) -> Drawn {
        let several = self.several;
        let token = any(&TOKENS);
        let wait = any(&WAITS);
        let entry = any_entry(wait);
        let call = match fastrand::u32(0..33) {
            0..3 => take(token),
            3..8 if !several => acquire(token, entry),
            3..12 => {
                let take_over: Vec<&str> = (0..fastrand::usize(0..3)).map(|_| any(&TOKENS)).collect();
                let fence = any(&[None, Some(0), Some(8_000_000_000_000_000)]);
                let policy = if several { QueuePolicy::None } else { QueuePolicy::First { lease: 5 * SECOND } };
                mutex().attempt(token, fence, entry, policy, &take_over)
            }
            12..15 => {
                let lease = SECOND * 5 * fastrand::u32(1..9);
                if fastrand::bool() { mutex().count(token, lease) } else { mutex().extend(token, lease) }
            }
            15..17 => mutex().free(token),
            17..21 => {
                let own = fastrand::bool().then_some(wait);
                mutex().release(Some(token), Duration::ZERO, own, grant(fastrand::bool(), several))
            }
            21 => mutex().release(None, Duration::ZERO, Some(wait), grant(fastrand::bool(), several)),
            22 => contend(),
            23 => keep(token),
            24 | 25 => mutex().fence(token, any(&[None, Some(7)])),
            26 => exclusive().unreserve(token).call,
            27 if fastrand::u32(0..4) == 0 => spoil_any::<Mutex>(),
            28 => return Drawn { call: expire(fastrand::usize(1..3)), pause: MOMENT },
            29..32 => adopt(token, any(&TOKENS), fastrand::bool()),
            _ => mutex().inspect(),
        };
        call.into()
    }
}

fn exclusive() -> Exclusive {
    Exclusive { key: key() }
}

fn mutex() -> Lock {
    Lock(Protocol::Mutex(exclusive()))
}

pub(super) fn take(token: &str) -> Arc<Call> {
    mutex().attempt(token, None, None, QueuePolicy::FastPath, &[])
}

pub(super) fn acquire<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    mutex().attempt(token, None, wait.into(), QueuePolicy::First { lease: 5 * SECOND }, &[])
}

/// An attempt on one of several nodes.
fn acquire_one<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    mutex().attempt(token, None, wait.into(), QueuePolicy::None, &[])
}

fn adopt(token: &str, former: &str, fenced: bool) -> Arc<Call> {
    exclusive().adopt(&id(token), 2 * LEASE, &id(former), fenced).call
}

pub(super) fn release(token: &str) -> Arc<Call> {
    mutex().release(Some(token), Duration::ZERO, None, grant(false, false))
}

/// A release on one of several nodes.
fn release_one(token: &str) -> Arc<Call> {
    mutex().release(Some(token), Duration::ZERO, None, grant(false, true))
}

fn keep(token: &str) -> Arc<Call> {
    mutex().release(Some(token), 5 * SECOND, None, Next::Anybody)
}

/// Makes a long pause due. Another program seems to have had the lock lately.
fn contend() -> Arc<Call> {
    const TEXT: &str = "local time = redis.call('TIME')\n\
                local met = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))\n\
                local first = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]\n\
                if string.sub(first or '', 1, 1) == '*' then redis.call('ZREM', KEYS[2], first) end\n\
                redis.pcall('ZADD', KEYS[2], -1, '*2 1 ' .. met)\n\
                return redis.call('PEXPIRE', KEYS[2], 6000)";
    own::<Mutex>(script!("contend", TEXT), &[])
}

/// Enters a record of the next layout.
fn newer() -> Arc<Call> {
    const TEXT: &str = "redis.call('ZREM', KEYS[2], redis.call('ZRANGE', KEYS[2], 0, 0)[1])\n\
                return redis.call('ZADD', KEYS[2], 0, '*3 something new')";
    own::<Mutex>(script!("newer", TEXT), &[])
}

/// Acquires the lock for the token `x` in the way of other libraries.
fn take_as_others_do() -> Arc<Call> {
    const TEXT: &str = "return redis.call('SET', KEYS[1], 'x', 'NX', 'PX', 30000) and 1 or 0";
    own::<Mutex>(script!("take", TEXT), &[])
}

fn expire(number: usize) -> Arc<Call> {
    const TEXT: &str = "return redis.call('PEXPIRE', KEYS[tonumber(ARGV[1])], 1)";
    own::<Mutex>(script!("expire", TEXT), &[Arg::Number(number as u64)])
}

#[test]
fn random_calls_on_a_mutex_are_alike() {
    random_calls_are_alike::<Mutex>(30, 40);
}

/// How `shown` shows the reply 6 of a release.
const PAUSED: &str = "5s";
/// A token of another holder.
const OTHER: &str = "00000000000000000000000000000001:x";

#[test]
fn scenarios_of_a_mutex() {
    scenarios_are_followed::<Mutex>(all());
}

fn all() -> Vec<Scenario> {
    scenarios().into_iter().chain(more_scenarios()).chain(pauses()).chain([adoption(), look()]).collect()
}

fn scenarios() -> Vec<Scenario> {
    vec![
        (
            "a free lock is taken, and freed",
            vec![
                (take("a"), "1"),
                (take("a"), "1"),
                (take("b"), "[0, 30s, a, 0]"),
                (mutex().count("b", LEASE), "0"),
                (mutex().extend("a", 2 * LEASE), "1"),
                (take("b"), "[0, 60s, a, 0]"),
                (release("b"), "0"),
                (release("a"), "1"),
                (mutex().free("a"), "-1"),
                (mutex().count("a", LEASE), "-1"),
                (mutex().inspect(), "[0]"),
                (dump::<Mutex>(), "[-2, |, -2, |, -2, |]"),
            ],
        ),
        (
            "waits keep their places, and a release grants to the first that is alive",
            vec![
                (mutex().attempt("a", Some(0), None, QueuePolicy::None, &[]), "[1, now]"),
                (acquire("b", enters(DEAD)), "[0, 30s, a, 1]"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (acquire("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (acquire("d", enters(ALIVE)), "[0, 30s, a, 2]"),
                (mutex().count("a", LEASE), "[1, 3]"),
                (mutex().release(Some("a"), Duration::ZERO, None, grant(true, false)), "2"),
                (
                    dump::<Mutex>(),
                    "[5s, 0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2, |, 3600s, *2 now now, time, \
                     redlock-sync:1/3 0123456789abcdef0123456789abcdef, 3, |, 1200s, now, |]",
                ),
                (take("e"), "[0, 5s, 0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2, 0]"),
                (acquire("e", enters(ALIVE)), "1"),
                (acquire("f", leaves(SECOND_ALIVE)), "[0, 30s, e, 0]"),
                (dump::<Mutex>(), "[30s, e, |, 5s, *2 now now, time, |, 1200s, now, |]"),
            ],
        ),
        (
            "a wait that leaves passes on what was granted to it",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (acquire("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (release("a"), "2"),
                (mutex().release(None, Duration::ZERO, Some(ALIVE), grant(false, false)), "2"),
                (mutex().release(None, Duration::ZERO, Some(ALIVE), grant(false, false)), "0"),
                (mutex().release(None, Duration::ZERO, Some(SECOND_ALIVE), grant(false, false)), "1"),
                (mutex().release(None, Duration::ZERO, Some(SECOND_ALIVE), grant(false, false)), "-1"),
                (dump::<Mutex>(), "[-2, |, 5s, *2 now now, time, |, -2, |]"),
            ],
        ),
        (
            "an attempt takes over only what begins with a text that it names",
            vec![
                (take("abc"), "1"),
                (mutex().attempt("b", None, None, QueuePolicy::None, &["x", "ab"]), "1"),
                (mutex().attempt("c", None, None, QueuePolicy::None, &["x", "ab"]), "[0, 30s, b, 0]"),
            ],
        ),
        (
            "a lock that is free is for the first wait whose client listens",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(DEAD)), "[0, 30s, a, 1]"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (mutex().free("a"), "1"),
                (take("c"), "[0, 0, , 0]"),
                (
                    acquire("c", enters(SECOND_ALIVE)),
                    "[0, 5s, 0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2, 1]",
                ),
                (acquire("d", enters(ALIVE)), "1"),
                (mutex().free("d"), "1"),
                (acquire_one("e", None), "1"),
                (
                    dump::<Mutex>(),
                    "[30s, e, |, 10s, *2 0 now, 0, redlock-sync:1/3 0123456789abcdef0123456789abcdef, 1, |, -2, |]",
                ),
            ],
        ),
    ]
}

fn more_scenarios() -> Vec<Scenario> {
    vec![
        (
            "one that polls is granted the lock for a moment",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(POLLS)), "[0, 30s, a, 1]"),
                (release("a"), "2"),
                (take("c"), "[0, 5s, 0123456789abcdef0123456789abcdef:granted:-1, 0]"),
                (acquire("b", enters(POLLS)), "1"),
            ],
        ),
        (
            "several nodes reserve a lock for those that listen elsewhere",
            vec![
                (take(OTHER), "1"),
                (acquire("b", enters(DEAD)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (release_one(OTHER), "3"),
                (mutex().inspect(), "[1, 00000000000000000000000000000001:granted:redlock-sync:0/1, 5s]"),
                (exclusive().unreserve("other").call, "0"),
                (exclusive().unreserve(&OTHER[..32]).call, "1"),
                (exclusive().unreserve(&OTHER[..32]).call, "-1"),
                (dump::<Mutex>(), "[-2, |, 10s, *2 now 0, time, |, -2, |]"),
                (take(OTHER), "1"),
                (acquire("b", enters(DEAD)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (acquire("b", enters(ALIVE)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (acquire("b", enters(SECOND_ALIVE)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (release_one(OTHER), "2"),
                (
                    dump::<Mutex>(),
                    "[5s, 00000000000000000000000000000001:granted:redlock-sync:1/2, |, 10s, *2 now 0, time, \
                     redlock-sync:1/3 0123456789abcdef0123456789abcdef, 3, |, -2, |]",
                ),
                (
                    mutex().attempt(
                        "b",
                        None,
                        Some(enters(SECOND_ALIVE)),
                        QueuePolicy::None,
                        &["00000000000000000000000000000001:granted:"],
                    ),
                    "1",
                ),
            ],
        ),
        (
            "fences rise",
            vec![
                (take("a"), "1"),
                (mutex().fence("a", None), "[1, now]"),
                (mutex().fence("a", Some(7)), "[1, now]"),
                (mutex().fence("a", Some(8_000_000_000_000_000)), "[1, 8000000000000000]"),
                (mutex().fence("a", None), "[1, 8000000000000001]"),
                (mutex().fence("b", None), "0"),
                (keep("a"), "1"),
                (mutex().inspect(), "[1, a, 5s]"),
                (mutex().free("a"), "1"),
                (mutex().attempt("b", Some(0), None, QueuePolicy::None, &[]), "[1, 8000000000000002]"),
            ],
        ),
        (
            "a key of another type is left alone",
            vec![
                (spoil::<Mutex>(1), "1"),
                (take("a"), "WrongType No"),
                (mutex().attempt("a", Some(0), Some(enters(ALIVE)), QueuePolicy::None, &["x"]), "WrongType No"),
                (mutex().count("a", LEASE), "WrongType No"),
                (release("a"), "WrongType No"),
                (mutex().fence("a", None), "WrongType No"),
                (mutex().inspect(), "WrongType No"),
                (exclusive().unreserve("a").call, "WrongType No"),
                (adopt("a", "b", true), "WrongType No"),
            ],
        ),
    ]
}

/// Threads of the process wait for the lock.
fn threads() -> Next {
    Next::First(Grant { lease: 5 * SECOND, with_fence: false, several: false, threads_wait: true })
}

fn pauses() -> Vec<Scenario> {
    vec![
        (
            "in a pause no wait gets it, and then the first",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (contend(), "1"),
                (mutex().count("a", LEASE), "[1, 2]"),
                (release("a"), PAUSED),
                (take("c"), "[0, 5s, , 0]"),
                (acquire("b", enters(ALIVE)), "[0, 1, , 2]"),
                (acquire("c", enters(SECOND_ALIVE)), "[0, 5s, , 1]"),
                (acquire("c", leaves(SECOND_ALIVE)), "[0, 5s, , 0]"),
                (
                    dump::<Mutex>(),
                    "[-2, |, 10s, *2 1 now, time, redlock-sync:1/2 0123456789abcdef0123456789abcdef, 1, |, -2, |]",
                ),
                (take_as_others_do(), "1"),
                (release("x"), PAUSED),
                (take_as_others_do(), "1"),
                (mutex().free("x"), "1"),
                (clear::<Mutex>(), "1"),
                (take("a"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (release("a"), "2"),
            ],
        ),
        (
            "several nodes give it to no wait in a pause",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(DEAD)), "[0, 30s, a, 1]"),
                (contend(), "1"),
                (release_one("a"), PAUSED),
                (acquire_one("b", enters(DEAD)), "[0, 1, , 2]"),
                (acquire_one("c", None), "1"),
                (release_one("c"), PAUSED),
                (acquire_one("b", leaves(DEAD)), "[0, 1, , 0]"),
                (acquire_one("c", None), "1"),
            ],
        ),
        (
            "a wait that meets another program makes the next pauses long",
            vec![
                (take_as_others_do(), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, x, 1]"),
                (
                    dump::<Mutex>(),
                    "[30s, x, |, 10s, *2 0 now, 0, redlock-sync:1/2 0123456789abcdef0123456789abcdef, 1, |, -2, |]",
                ),
                (mutex().free("x"), "1"),
                (acquire("b", enters(ALIVE)), "1"),
                (dump::<Mutex>(), "[30s, b, |, 10s, *2 0 now, 0, |, -2, |]"),
                (release("b"), "1"),
                (dump::<Mutex>(), "[-2, |, 5s, *2 0 now, 0, |, -2, |]"),
            ],
        ),
        (
            "threads of one process that hand the lock to each other leave a record",
            vec![
                (take("a"), "1"),
                (mutex().count("a", LEASE), "[1, 0]"),
                (dump::<Mutex>(), "[30s, a, |, 3600s, *2 now 0, time, |, -2, |]"),
                (contend(), "1"),
                (mutex().count("a", LEASE), "[1, 1]"),
                (mutex().release(Some("a"), Duration::ZERO, None, threads()), PAUSED),
                (dump::<Mutex>(), "[-2, |, 3600s, *2 1 now, time, |, -2, |]"),
            ],
        ),
        (
            "a newer layout is refused, but a holder ends",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (newer(), "1"),
                (acquire("b", enters(SECOND_ALIVE)), "Misuse No"),
                (mutex().count("a", LEASE), "[1, 1]"),
                (release("a"), PAUSED),
                (take("c"), "Misuse No"),
                (
                    dump::<Mutex>(),
                    "[-2, |, 10s, *3 something new, 0, redlock-sync:1/2 0123456789abcdef0123456789abcdef, 1, |, -2, |]",
                ),
            ],
        ),
    ]
}

fn adoption() -> Scenario {
    (
        "a lock passes from token to token",
        vec![
            (adopt("b", "a", false), "-1"),
            (take("a"), "1"),
            (adopt("b", "x", false), "[0, 30s, a, 0]"),
            (adopt("b", "a", false), "1"),
            (adopt("b", "a", false), "1"),
            (mutex().inspect(), "[1, b, 60s]"),
            (adopt("c", "a", true), "[0, 60s, b, 0]"),
            (adopt("c", "b", true), "[1, now]"),
            (mutex().inspect(), "[1, c, 60s]"),
            (mutex().free("c"), "1"),
        ],
    )
}

/// The places of the tokens that are gone.
fn look() -> Scenario {
    let key = key();
    let side = |mode| Protocol::ReadWrite(ReadWrite::new(key.clone(), mode, false));
    let mutex = Protocol::Mutex(exclusive());
    let writer = side(Mode::Exclusive);
    let reader = side(Mode::Joint);
    let permits = Permits {
        key: key.clone(),
        total: 5,
        many: 2,
        several: false,
        reservation: SECOND,
        first: None,
        slots: vec![0, 4],
    };
    let permits = Protocol::Semaphore(permits);
    let asked = |locks: &[(&Protocol, &str)]| {
        let tokens: Vec<_> = locks.iter().flat_map(|(lock, token)| lock.stored(&id(token))).collect();
        ask_for(&tokens).call
    };
    (
        "a look finds the tokens that are gone",
        vec![
            (asked(&[(&mutex, "a")]), "[1, 1]"),
            (take("a"), "1"),
            (asked(&[(&mutex, "a")]), "[1]"),
            (asked(&[(&mutex, "b"), (&writer, "a"), (&mutex, "a")]), "[1, 2, 1]"),
            (clear::<Mutex>(), "1"),
            (Lock(writer.clone()).attempt("a", None, None, QueuePolicy::None, &[]), "1"),
            (asked(&[(&writer, "a"), (&reader, "a"), (&writer, "b")]), "[1, 2, 3]"),
            (clear::<Mutex>(), "1"),
            (lend::<Mutex>("9000000000000000", "0 a"), "1"),
            (lend::<Mutex>("1", "4 a"), "1"),
            (asked(&[(&permits, "a"), (&permits, "b")]), "[1, 2, 3, 4]"),
            (spoil::<Mutex>(1), "1"),
            (asked(&[(&mutex, "a"), (&writer, "a")]), "[1, 2, 1]"),
        ],
    )
}
