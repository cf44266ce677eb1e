//! The scripts of a queue of tasks. Random calls have the same replies in memory and on a server, and leave the same
//! data.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::{
    ALIVE, CHANNEL, DEAD, FACTOR, Failure, Remote, SECOND_ALIVE, Side, Value, id, in_memory, is_alike, scripts, shown,
};
use crate::key::TaskQueue;
use crate::protocol::script::{Arg, Call, Script};
use crate::protocol::task_queue::{Claim, DeadLimit, Due, Ending, NewTask, TaskFilter};
use crate::protocol::{LeaseCalls, Next, ReleaseArgs};

const MOMENT: Duration = Duration::from_millis(4);
const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: DeadLimit = DeadLimit { most: 2, age: None };

fn keys() -> TaskQueue {
    TaskQueue::new("", "k").unwrap()
}

/// A call of a script of the test, with all keys of the queue.
fn on_all(source: &'static str, args: &[Arg<'_>]) -> Arc<Call> {
    let script = Box::leak(Box::new(Script::new("own", source)));
    let TaskQueue { due, tasks, claims, dead, waits, fence } = keys();
    let keys = [due.as_str(), &tasks, &claims, &dead, &waits, &fence];
    Call::new(script, &keys, args)
}

fn clear() -> Arc<Call> {
    on_all("for i = 1, 6 do redis.call('DEL', KEYS[i]) end return 1", &[])
}

/// Replaces one of the keys by a list.
fn spoil() -> Arc<Call> {
    let which = fastrand::u64(1..7);
    on_all(
        "local key = KEYS[tonumber(ARGV[1])] redis.call('DEL', key) return redis.call('RPUSH', key, 'x')",
        &[Arg::Number(which)],
    )
}

/// Reads all that is stored, without the digits of places, which depend on the time.
fn dump() -> Arc<Call> {
    let source = "local all = {}\n\
                  local function text(reply)\n\
                    if type(reply) == 'table' then return reply.err and 'error' or table.concat(reply, '|') end\n\
                    return reply and '' .. reply or 'none'\n\
                  end\n\
                  for i, key in ipairs({KEYS[1], KEYS[4], KEYS[5]}) do all[i] = text(redis.pcall('ZRANGE', key, 0, -1)) end\n\
                  for _, id in ipairs({'a', 'b', 'c', 'd'}) do\n\
                    for _, field in ipairs({'b:', 's:', 'n:'}) do\n\
                      all[#all + 1] = text(redis.pcall('HGET', KEYS[2], field .. id))\n\
                    end\n\
                  end\n\
                  all[#all + 1] = text(redis.pcall('HGET', KEYS[2], 'paused'))\n\
                  for _, token in ipairs({'t1', 't2', 't3'}) do\n\
                    all[#all + 1] = text(redis.pcall('HGET', KEYS[3], token))\n\
                  end\n\
                  all[#all + 1] = text(redis.pcall('GET', KEYS[6]))\n\
                  for i, text in ipairs(all) do\n\
                    all[i] = string.gsub(text, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d', 'digits')\n\
                  end\n\
                  return all";
    on_all(source, &[])
}

fn any<T: Copy>(of: &[T]) -> T {
    of[fastrand::usize(0..of.len())]
}

fn finish(token: &str, task: &str) -> Arc<Call> {
    let claim = Claim::new(keys(), any(&["", task]).to_owned(), LIMIT);
    let pause = any(&[Duration::ZERO, HOUR]);
    claim.end(match fastrand::u32(0..6) {
        0 | 1 => Ending::Done,
        2 => Ending::Retry(pause, "boom".into()),
        3 => Ending::Again(pause),
        4 => Ending::Dead("bad".into()),
        _ => Ending::Undo,
    });
    let id = id(token);
    claim.release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody }).call
}

/// Draws a call. The second value is true if time has to pass after the call.
fn random_call(token: &mut u32) -> (Arc<Call>, bool) {
    let tasks = keys();
    let task = any(&["a", "b", "c", "d"]);
    let wait = any(&[ALIVE, SECOND_ALIVE, DEAD]);
    let made = |n: u32| format!("t{}", fastrand::u32(0..n.max(1)) + 1);
    let call = match fastrand::u32(0..32) {
        0..8 => {
            let push =
                |id| NewTask { id, due: Due::In(any(&[Duration::ZERO, HOUR])), body: any(&["one", "é\0"]).as_bytes() };
            let all = [push(task), push(any(&["a", "b", "c", "d"]))];
            let most = any(&[None, None, Some(3)]);
            tasks.push(any(&["keep", "replace", "earlier"]), most, &all[..any(&[1, 2])]).call
        }
        8..15 => {
            *token += 1;
            let lease = any(&[HOUR, HOUR, Duration::from_millis(1)]);
            let wait = any(&[None, None, Some((wait, HOUR)), Some((wait, Duration::ZERO))]);
            let id = id(&format!("t{token}"));
            return (
                tasks.claim(&id, lease, 3, any(&[LIMIT, DeadLimit { age: Some(HOUR), ..LIMIT }]), wait).call,
                lease < HOUR,
            );
        }
        15 => Claim::new(keys(), task.into(), LIMIT).extend(&id(&made(*token)), HOUR).call,
        16..21 => finish(&made(*token), task),
        21 => tasks.pop(any(&[1, 3]), LIMIT).call,
        22 => tasks.peek(any(&[1, 9]), any(&[TaskFilter::Due, TaskFilter::All, TaskFilter::Dead])).call,
        23 => tasks.remove(task).call,
        24 => if fastrand::bool() { tasks.revive(task, 0) } else { tasks.revive("", any(&[1, 9])) }.call,
        25 => tasks.purge(1).call,
        26 => tasks.count().call,
        27 => tasks.clear(any(&[1, 9]), any(&[0, 1])).call,
        28 => tasks.pause(fastrand::u32(0..4) == 0).call,
        29 => tasks.pause(false).call,
        30 => tasks.is_paused().call,
        _ if fastrand::u32(0..6) == 0 => spoil(),
        _ => tasks.leave(wait).call,
    };
    (call, false)
}

/// A reply as text, without the last number of a claim, which is the time for which the task had been due, and without
/// other times: each number of 16 digits.
fn timeless(mut reply: Result<Value, Failure>) -> String {
    if let Ok(Value::List(items)) = &mut reply
        && let [Value::Int(1), _, _, _, _, Value::Int(_)] = items[..]
    {
        items.pop();
    }
    let text = shown(&reply);
    let mut left = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        left.push_str(if digits.len() == 16 { "time" } else { digits });
        left.push_str(&part[digits.len()..]);
    }
    left
}

#[test]
fn random_calls_of_a_queue_have_the_same_replies() {
    let (mut memory, mut remote) = (in_memory(), Remote::start());
    memory.listen(CHANNEL);
    remote.listen(CHANNEL);
    for seed in 0..15 * FACTOR {
        fastrand::seed(seed);
        assert_eq!(memory.call(&clear()).is_ok(), remote.call(&clear()).is_ok());
        let (mut done, mut token) = (String::new(), 0);
        for _ in 0..50 {
            let (call, must_pass) = random_call(&mut token);
            _ = writeln!(done, "{} {:?}", scripts::name(call.script), call.args());
            // On a server, tasks of two calls are never due in the same microsecond.
            memory.pass(Duration::from_micros(20));
            let replies = (timeless(memory.call(&call)), timeless(remote.call(&call)));
            assert!(is_alike(&replies), "{replies:?}: seed {seed}: in memory, on a server, after\n{done}");
            let heard = (memory.heard(), remote.heard());
            assert_eq!(heard.0, heard.1, "seed {seed}: published in memory, on a server, after\n{done}");
            if must_pass {
                memory.pass(MOMENT);
                remote.pass(MOMENT);
            }
            let stored = (shown(&memory.call(&dump())), shown(&remote.call(&dump())));
            assert!(is_alike(&stored), "{stored:?}: seed {seed}: stored in memory, on a server, after\n{done}");
        }
    }
}

/// The claim `t1` is sent twice. The second copy is executed after the task of the first claim was done. The end of the
/// claim is repeated, since its reply was lost.
#[test]
fn a_repeated_end_of_a_claim_takes_no_other_task() {
    let tasks = keys();
    let task = |id| NewTask { id, due: Due::In(Duration::ZERO), body: b"body" };
    let claim = |token: &str| {
        let id = id(token);
        tasks.claim(&id, HOUR, 1, LIMIT, None).call
    };
    let end_of = |place: &str| {
        let (claim, id) = (Claim::new(keys(), place.to_owned(), LIMIT), id("t1"));
        claim.end(Ending::Done);
        claim.release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody }).call
    };
    let mut sides: [Box<dyn Side>; 2] = [Box::new(in_memory()), Box::new(Remote::start())];
    for side in &mut sides {
        fn ask(side: &mut dyn Side, call: &Arc<Call>) -> String {
            shown(&side.call(call))
        }
        let place = |reply: String| reply.split(", ").nth(2).unwrap_or_default().to_owned();
        ask(&mut **side, &tasks.push("keep", None, &[task("a"), task("b")]).call);
        let first = place(ask(&mut **side, &claim("t1")));
        assert_eq!(&first[16..], "a");
        assert_eq!(ask(&mut **side, &end_of(&first)), "1");
        assert_eq!(&place(ask(&mut **side, &claim("t1")))[16..], "b");
        assert_eq!(ask(&mut **side, &end_of(&first)), "-1");
        // The task has only this attempt.
        let second = place(ask(&mut **side, &claim("t2")));
        assert_eq!(&second[16..], "b");
        // The late copy takes a task that was pushed since, under the id of the first one. Neither a renewal nor an end
        // of the first claim concerns it.
        // The task has another time than the first one.
        side.pass(MOMENT);
        ask(&mut **side, &tasks.push("keep", None, &[task("a")]).call);
        let third = place(ask(&mut **side, &claim("t1")));
        assert!(third != first && third[16..] == first[16..], "{first} {third}");
        let late = Claim::new(keys(), first.clone(), LIMIT);
        assert_eq!(ask(&mut **side, &late.extend(&id("t1"), HOUR).call), "-1");
        assert_eq!(ask(&mut **side, &end_of(&first)), "-1");
        assert_eq!(place(ask(&mut **side, &claim("t3"))), third);
    }
}
