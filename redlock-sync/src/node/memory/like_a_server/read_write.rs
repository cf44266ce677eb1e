//! The scripts of a read-write lock.

use super::sides::{call_in_memory, in_memory, listen_in_memory};
use super::texts::shown;
use super::*;
use crate::node::memory::Store;
use crate::options::Mode;
use crate::protocol::ReadWrite as Side;
use crate::protocol::script::Purpose;

const CALLS: usize = 60;
const WAITS: [&str; 4] = [ALIVE, SECOND_ALIVE, DEAD, POLLS];

struct ReadWrite {
    several: bool,
}

impl Kind for ReadWrite {
    fn of_run(seed: u64) -> ReadWrite {
        ReadWrite { several: seed.is_multiple_of(3) }
    }

    fn keys() -> Vec<String> {
        let key = key();
        let [readers, writers] = key.rw_queues();
        [key.as_str(), &readers, key.fence(), &writers].map(str::to_owned).into()
    }

    fn draw(&mut self) -> Drawn {
        let token = any(&["a", "b", "c", "d"]);
        let wait = any(&WAITS);
        let entry = any_entry(wait);
        let lock = side(any(&[Mode::Shared, Mode::Exclusive]), self.several);
        let next = grant(false, self.several);
        let call = match fastrand::u32(0..30) {
            0..14 => {
                let fence = any(&[None, None, Some(0), Some(8_000_000_000_000_000)]);
                let policy = if fastrand::u32(0..8) == 0 { QueuePolicy::Holder } else { QueuePolicy::None };
                lock.attempt(token, fence, entry, policy, &[])
            }
            14..16 => lock.count(token, SECOND * 5 * fastrand::u32(1..9)),
            16..20 => lock.release(Some(token), Duration::ZERO, fastrand::bool().then_some(wait), next),
            20 | 21 => lock.free(token),
            22 => lock.release(None, Duration::ZERO, Some(wait), next),
            23 => lock.release(Some(token), 5 * SECOND, None, next),
            24 => lock.fence(token, any(&[None, Some(7)])),
            25 if fastrand::u32(0..6) == 0 => spoil_any::<ReadWrite>(),
            26 | 27 => lapse::<ReadWrite>(fastrand::bool()),
            _ => lock.inspect(),
        };
        // Without a pause, two holds could end in the same millisecond, and their order would depend on their names.
        Drawn { call, pause: MOMENT / 2 }
    }
}

fn side(mode: Mode, several: bool) -> Lock {
    Lock(Protocol::ReadWrite(Side::new(key(), mode, several)))
}

fn ask<'a>(mode: Mode, token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    side(mode, false).attempt(token, None, wait.into(), QueuePolicy::FastPath, &[])
}

/// An attempt on one of several nodes.
fn ask_one<'a>(mode: Mode, token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    side(mode, true).attempt(token, None, wait.into(), QueuePolicy::None, &[])
}

fn read<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    ask(Mode::Shared, token, wait)
}

fn write<'a>(token: &str, wait: impl Into<Option<WaitArgs<'a>>>) -> Arc<Call> {
    ask(Mode::Exclusive, token, wait)
}

fn end(mode: Mode, several: bool, token: &str) -> Arc<Call> {
    side(mode, several).release(Some(token), Duration::ZERO, None, grant(false, several))
}

fn unread(token: &str) -> Arc<Call> {
    end(Mode::Shared, false, token)
}

fn unwrite(token: &str) -> Arc<Call> {
    end(Mode::Exclusive, false, token)
}

fn inspect() -> Arc<Call> {
    side(Mode::Shared, false).inspect()
}

fn extend(mode: Mode, token: &str) -> Arc<Call> {
    side(mode, false).count(token, 2 * LEASE)
}

#[test]
fn random_calls_on_a_read_write_lock_are_alike() {
    random_calls_are_alike::<ReadWrite>(15, CALLS);
}

#[test]
fn scenarios_of_a_read_write_lock() {
    scenarios_are_followed::<ReadWrite>(scenarios().into_iter().chain(more_scenarios()).collect());
}

/// Replaces `SEAT` in an expected reply by the token of a reservation, up to the client that it is for.
fn seats(what: &str) -> &'static str {
    Box::leak(what.replace("SEAT", "00000000000000000000000000000000:granted:redlock-sync:1/").into_boxed_str())
}

fn scenarios() -> Vec<Scenario> {
    let writer = side(Mode::Exclusive, false);
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
                (dump::<ReadWrite>(), "[-2, |, -2, |, -2, |, -2, |]"),
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
                (dump::<ReadWrite>(), "[-2, |, -2, |, -2, |, -2, |]"),
            ],
        ),
        (
            "a writer that leaves lets the readers in, and one that is gone keeps none out",
            vec![
                (read("a", None), "1"),
                (write("b", enters(ALIVE)), "[0, 30s, a, 1]"),
                (read("c", enters(SECOND_ALIVE)), "[0, 30s, a, 1]"),
                (writer.release(None, Duration::ZERO, Some(ALIVE), grant(false, false)), "0"),
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
    let reader = side(Mode::Shared, false);
    let writer = side(Mode::Exclusive, false);
    vec![
        (
            "what has ended is not there",
            vec![
                (read("a", None), "1"),
                (lapse::<ReadWrite>(true), "0"),
                (read("b", None), "1"),
                (inspect(), "[1, rb, 30s]"),
                (extend(Mode::Shared, "a"), "-1"),
                (reader.fence("a", None), "-1"),
                (unread("b"), "1"),
                (write("c", None), "1"),
                (lapse::<ReadWrite>(true), "0"),
                (extend(Mode::Exclusive, "c"), "-1"),
                (read("d", None), "1"),
                (writer.fence("c", None), "0"),
                (unwrite("c"), "0"),
            ],
        ),
        (
            "a minimum hold and fences",
            vec![
                (writer.attempt("a", Some(0), None, QueuePolicy::FastPath, &[]), "[1, now]"),
                (writer.release(Some("a"), 5 * SECOND, None, grant(false, false)), "1"),
                (inspect(), "[1, wa, 5s]"),
                (read("b", None), "[0, 5s, a, 0]"),
                (unwrite("a"), "1"),
                (
                    reader.attempt("b", Some(8_000_000_000_000_000), None, QueuePolicy::FastPath, &[]),
                    "[1, 8000000000000000]",
                ),
                (reader.fence("b", None), "[1, 8000000000000001]"),
                (reader.fence("b", Some(8_000_000_000_000_007)), "[1, 8000000000000007]"),
                (reader.fence("b", Some(7)), "[1, 8000000000000007]"),
            ],
        ),
        (
            "on several nodes any writer may take it, and a holder goes before those that wait",
            vec![
                (ask_one(Mode::Shared, "a", None), "1"),
                (ask_one(Mode::Exclusive, "b", enters(DEAD)), "[0, 30s, a, 1]"),
                (ask_one(Mode::Shared, "c", enters(ALIVE)), "[0, 30s, a, 1]"),
                (side(Mode::Shared, true).attempt("d", None, None, QueuePolicy::Holder, &[]), "1"),
                (end(Mode::Shared, true, "a"), "1"),
                (end(Mode::Shared, true, "d"), "1"),
                (ask_one(Mode::Exclusive, "e", None), "1"),
                (end(Mode::Exclusive, true, "e"), "1"),
                (inspect(), seats("[1, rSEAT2, 5s]")),
                (ask_one(Mode::Shared, "c", enters(ALIVE)), "1"),
            ],
        ),
        ("a key of another type is left alone", left_alone(spoil::<ReadWrite>(1))),
        ("a semaphore is left alone", left_alone(lend::<ReadWrite>("9000000000000000", "0 a"))),
        ("a latch is left alone", left_alone(lend::<ReadWrite>("9000000000000002", "=ra"))),
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
        (side(Mode::Shared, false).fence("a", None), "WrongType No"),
        (inspect(), "WrongType No"),
    ]
}

/// Checks that there is either one writer or only readers.
fn excludes(memory: &mut Store) {
    let holders = memory.holders("k");
    assert!(holders.len() < 2 || !holders.iter().any(|member| member.starts_with('w')), "{holders:?}");
}

/// A call that is executed a second time takes nothing from other holders. It removes no other token, and adds none but
/// reservations.
#[test]
fn a_second_copy_of_a_call_takes_nothing_from_others() {
    let holders = |memory: &mut Store| {
        let all = shown(call_in_memory(memory, &inspect()));
        let tokens = all.trim_matches(['[', ']']).split(", ").filter(|word| word.starts_with(['r', 'w']));
        tokens.filter(|token| !token.contains(":granted:")).map(str::to_owned).collect::<Vec<_>>()
    };
    for seed in 0..100 * FACTOR {
        fastrand::seed(seed);
        let mut kind = ReadWrite::of_run(seed);
        let mut memory = in_memory();
        listen_in_memory(&mut memory);
        for _ in 0..CALLS {
            let call = kind.draw().call;
            drop(call_in_memory(&mut memory, &call));
            let before = holders(&mut memory);
            drop(call_in_memory(&mut memory, &call));
            excludes(&mut memory);
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
