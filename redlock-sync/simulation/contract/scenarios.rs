//! Scenarios: steps with their expected results.

use super::*;
use crate::options::Mode;
use crate::protocol::ReadWrite;
use crate::protocol::held::ask_for;
use crate::protocol::permits::Permits;

/// How `shown` shows the reply 6 of a release.
const PAUSED: &str = "5s";
/// A token of another holder.
const OTHER: &str = "00000000000000000000000000000001:x";

pub(super) fn all() -> Vec<Scenario> {
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
                (count(&id("b"), LEASE), "0"),
                (exclusive().extend(&id("a"), 2 * LEASE).call, "1"),
                (take("b"), "[0, 60s, a, 0]"),
                (release("b"), "0"),
                (release("a"), "1"),
                (free("a"), "-1"),
                (count(&id("a"), LEASE), "-1"),
                (inspect_exclusive(), "[0]"),
                (dump(), "[-2, -2, -2, none, none, ]"),
            ],
        ),
        (
            "waits keep their places, and a release grants to the first that is alive",
            vec![
                (attempt("a", Some(0), None, QueuePolicy::None, &[]), "[1, now]"),
                (acquire("b", enters(DEAD)), "[0, 30s, a, 1]"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (acquire("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (acquire("d", enters(ALIVE)), "[0, 30s, a, 2]"),
                (count(&id("a"), LEASE), "[1, 3]"),
                (release_with(Some("a"), Duration::ZERO, None, grant(true, false)), "2"),
                (
                    dump(),
                    "[5s, 3600s, 1200s, 0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2, now, *m|redlock-sync:1/3 0123456789abcdef0123456789abcdef]",
                ),
                (take("e"), "[0, 5s, 0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2, 0]"),
                (acquire("e", enters(ALIVE)), "1"),
                (acquire("f", leaves(SECOND_ALIVE)), "[0, 30s, e, 0]"),
                (dump(), "[30s, 5s, 1200s, e, now, *m]"),
            ],
        ),
        (
            "a wait that leaves passes on what was granted to it",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (acquire("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (release("a"), "2"),
                (release_with(None, Duration::ZERO, Some(ALIVE), grant(false, false)), "2"),
                (release_with(None, Duration::ZERO, Some(ALIVE), grant(false, false)), "0"),
                (release_with(None, Duration::ZERO, Some(SECOND_ALIVE), grant(false, false)), "1"),
                (release_with(None, Duration::ZERO, Some(SECOND_ALIVE), grant(false, false)), "-1"),
                (dump(), "[-2, 5s, -2, none, none, *m]"),
            ],
        ),
        (
            "an attempt takes over only what begins with a text that it names",
            vec![
                (take("abc"), "1"),
                (attempt("b", None, None, QueuePolicy::None, &["x", "ab"]), "1"),
                (attempt("c", None, None, QueuePolicy::None, &["x", "ab"]), "[0, 30s, b, 0]"),
            ],
        ),
        (
            "a lock that is free is for the first wait whose client listens",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(DEAD)), "[0, 30s, a, 1]"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (free("a"), "1"),
                (take("c"), "[0, 0, , 0]"),
                (
                    acquire("c", enters(SECOND_ALIVE)),
                    "[0, 5s, 0123456789abcdef0123456789abcdef:granted:redlock-sync:1/2, 1]",
                ),
                (acquire("d", enters(ALIVE)), "1"),
                (free("d"), "1"),
                (attempt("e", None, None, QueuePolicy::None, &[]), "1"),
                (dump(), "[30s, 10s, -2, e, none, *m|redlock-sync:1/3 0123456789abcdef0123456789abcdef]"),
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
                (release_with(Some(OTHER), Duration::ZERO, None, grant(false, true)), "3"),
                (inspect_exclusive(), "[1, 00000000000000000000000000000001:granted:redlock-sync:0/1, 5s]"),
                (exclusive().unreserve("other").call, "0"),
                (exclusive().unreserve(&OTHER[..32]).call, "1"),
                (exclusive().unreserve(&OTHER[..32]).call, "-1"),
                (dump(), "[-2, 10s, -2, none, none, *]"),
                (take(OTHER), "1"),
                (acquire("b", enters(DEAD)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (acquire("b", enters(ALIVE)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (acquire("b", enters(SECOND_ALIVE)), "[0, 30s, 00000000000000000000000000000001:x, 1]"),
                (release_with(Some(OTHER), Duration::ZERO, None, grant(false, true)), "2"),
                (
                    dump(),
                    "[5s, 10s, -2, 00000000000000000000000000000001:granted:redlock-sync:1/2, none, \
                     *|redlock-sync:1/3 0123456789abcdef0123456789abcdef]",
                ),
                (
                    attempt(
                        "b",
                        None,
                        enters(SECOND_ALIVE),
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
                (exclusive().fence(&id("a"), None).call, "[1, now]"),
                (exclusive().fence(&id("a"), Some(7)).call, "[1, now]"),
                (exclusive().fence(&id("a"), Some(8_000_000_000_000_000)).call, "[1, 8000000000000000]"),
                (exclusive().fence(&id("a"), None).call, "[1, 8000000000000001]"),
                (exclusive().fence(&id("b"), None).call, "0"),
                (keep("a"), "1"),
                (inspect_exclusive(), "[1, a, 5s]"),
                (free("a"), "1"),
                (attempt("b", Some(0), None, QueuePolicy::None, &[]), "[1, 8000000000000002]"),
            ],
        ),
        (
            "a key of another type is left alone",
            vec![
                (spoil(0), "1"),
                (take("a"), "WrongType No"),
                (attempt("a", Some(0), enters(ALIVE), QueuePolicy::None, &["x"]), "WrongType No"),
                (count(&id("a"), LEASE), "WrongType No"),
                (release("a"), "WrongType No"),
                (exclusive().fence(&id("a"), None).call, "WrongType No"),
                (inspect_exclusive(), "WrongType No"),
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
                (count(&id("a"), LEASE), "[1, 2]"),
                (release("a"), PAUSED),
                (take("c"), "[0, 5s, , 0]"),
                (acquire("b", enters(ALIVE)), "[0, 1, , 2]"),
                (acquire("c", enters(SECOND_ALIVE)), "[0, 5s, , 1]"),
                (acquire("c", leaves(SECOND_ALIVE)), "[0, 5s, , 0]"),
                (dump(), "[-2, 10s, -2, none, none, *m|redlock-sync:1/2 0123456789abcdef0123456789abcdef]"),
                (take_as_others_do("x"), "1"),
                (release("x"), PAUSED),
                (take_as_others_do("x"), "1"),
                (free("x"), "1"),
                (clear(), "1"),
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
                (release_with(Some("a"), Duration::ZERO, None, grant(false, true)), PAUSED),
                (attempt("b", None, enters(DEAD), QueuePolicy::None, &[]), "[0, 1, , 2]"),
                (attempt("c", None, None, QueuePolicy::None, &[]), "1"),
                (release_with(Some("c"), Duration::ZERO, None, grant(false, true)), PAUSED),
                (attempt("b", None, leaves(DEAD), QueuePolicy::None, &[]), "[0, 1, , 0]"),
                (attempt("c", None, None, QueuePolicy::None, &[]), "1"),
            ],
        ),
        (
            "a wait that meets another program makes the next pauses long",
            vec![
                (take_as_others_do("x"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, x, 1]"),
                (dump(), "[30s, 10s, -2, x, none, *m|redlock-sync:1/2 0123456789abcdef0123456789abcdef]"),
                (free("x"), "1"),
                (acquire("b", enters(ALIVE)), "1"),
                (dump(), "[30s, 10s, -2, b, none, *m]"),
                (release("b"), "1"),
                (dump(), "[-2, 5s, -2, none, none, *m]"),
            ],
        ),
        (
            "threads of one process that hand the lock to each other leave a record",
            vec![
                (take("a"), "1"),
                (count(&id("a"), LEASE), "[1, 0]"),
                (dump(), "[30s, 3600s, -2, a, none, *]"),
                (contend(), "1"),
                (count(&id("a"), LEASE), "[1, 1]"),
                (release_with(Some("a"), Duration::ZERO, None, threads()), PAUSED),
                (dump(), "[-2, 3600s, -2, none, none, *m]"),
            ],
        ),
        (
            "a newer layout is refused, but a holder ends",
            vec![
                (take("a"), "1"),
                (acquire("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (newer(), "1"),
                (acquire("b", enters(SECOND_ALIVE)), "Misuse No"),
                (count(&id("a"), LEASE), "[1, 1]"),
                (release("a"), PAUSED),
                (take("c"), "Misuse No"),
                (
                    dump(),
                    "[-2, 10s, -2, none, none, *3 something new|redlock-sync:1/2 0123456789abcdef0123456789abcdef]",
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
            (inspect_exclusive(), "[1, b, 60s]"),
            (adopt("c", "a", true), "[0, 60s, b, 0]"),
            (adopt("c", "b", true), "[1, now]"),
            (inspect_exclusive(), "[1, c, 60s]"),
            (free("c"), "1"),
        ],
    )
}

/// The places of the tokens that are gone.
fn look() -> Scenario {
    let key = exclusive().key;
    let side = |mode| Protocol::ReadWrite(ReadWrite::new(key.clone(), mode, false));
    let (mutex, writer, reader) = (Protocol::Mutex(exclusive()), side(Mode::Exclusive), side(Mode::Joint));
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
    let lend = |member: &str, ends: &str| {
        let source = "return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
        let script = Box::leak(Box::new(Script::new("lend", source)));
        Call::new(script, &[key.as_str()], &[Arg::Text(ends), Arg::Text(member)])
    };
    let acquire = |lock: &Protocol| {
        let (id, policy) = (id("a"), QueuePolicy::None);
        let args = AcquireArgs { id: &id, lease: LEASE, fence: None, wait: None, policy, take_over: &[] };
        lock.acquire(&args).call
    };
    (
        "a look finds the tokens that are gone",
        vec![
            (asked(&[(&mutex, "a")]), "[1, 1]"),
            (take("a"), "1"),
            (asked(&[(&mutex, "a")]), "[1]"),
            (asked(&[(&mutex, "b"), (&writer, "a"), (&mutex, "a")]), "[1, 2, 1]"),
            (clear(), "1"),
            (acquire(&writer), "1"),
            (asked(&[(&writer, "a"), (&reader, "a"), (&writer, "b")]), "[1, 2, 3]"),
            (clear(), "1"),
            (lend("0 a", "9000000000000000"), "1"),
            (lend("4 a", "1"), "1"),
            (asked(&[(&permits, "a"), (&permits, "b")]), "[1, 2, 3, 4]"),
            (spoil(0), "1"),
            (asked(&[(&mutex, "a"), (&writer, "a")]), "[1, 2, 1]"),
        ],
    )
}
