//! The scripts of a queue of tasks.

use super::sides::{call_in_memory, in_memory};
use super::texts::shown;
use super::*;
use crate::key::TaskQueue as Keys;
use crate::node::Value;
use crate::node::memory::Store;
use crate::protocol::task_queue::{Claim, DeadLimit, Due, Ending, NewTask, TaskFilter};

/// The waits of a queue bring a random part of their own, as those of a mutex do.
const ALIVE: &str = "redlock-sync:1/2 0123456789abcdef0123456789abcdef";
const SECOND_ALIVE: &str = "redlock-sync:1/3 0123456789abcdef0123456789abcdef";
const DEAD: &str = "redlock-sync:0/1 0123456789abcdef0123456789abcdef";

const IDS: [&str; 4] = ["a", "b", "c", "d"];
const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: DeadLimit = DeadLimit { most: 2, age: None };

struct TaskQueue {
    claims: u32,
}

impl Kind for TaskQueue {
    const FIELDS: &[&str] = &[
        "b:a", "s:a", "n:a", "b:b", "s:b", "n:b", "b:c", "s:c", "n:c", "b:d", "s:d", "n:d", "paused", "t1", "t2", "t3",
    ];

    fn of_run(_seed: u64) -> TaskQueue {
        TaskQueue { claims: 0 }
    }

    fn keys() -> Vec<String> {
        let Keys { due, tasks, claims, dead, waits, fence } = keys();
        [due.as_str(), &tasks, &claims, &dead, &waits, &fence].map(str::to_owned).into()
    }

    fn draw(&mut self) -> Drawn {
        let (tasks, task, wait) = (keys(), any(&IDS), any(&[ALIVE, SECOND_ALIVE, DEAD]));
        let token = format!("t{}", fastrand::u32(0..self.claims.max(1)) + 1);
        let call = match fastrand::u32(0..32) {
            0..8 => {
                let push = |id| NewTask {
                    id,
                    due: Due::In(any(&[Duration::ZERO, HOUR])),
                    body: any(&["one", "é\0"]).as_bytes(),
                };
                let all = [push(task), push(any(&IDS))];
                tasks.push(any(&["keep", "replace", "earlier"]), any(&[None, None, Some(3)]), &all[..any(&[1, 2])]).call
            }
            8..15 => {
                self.claims += 1;
                let lease = any(&[HOUR, HOUR, Duration::from_millis(1)]);
                let wait = any(&[None, None, Some((wait, HOUR)), Some((wait, Duration::ZERO))]);
                let limit = any(&[LIMIT, DeadLimit { age: Some(HOUR), ..LIMIT }]);
                let call = tasks.claim(&id(&format!("t{}", self.claims)), lease, 3, limit, wait).call;
                return Drawn { call, pause: if lease < HOUR { MOMENT } else { Duration::ZERO } };
            }
            15 => Claim::new(keys(), task.into(), LIMIT).extend(&id(&token), HOUR).call,
            16..21 => end_any(&token, any(&["", task])),
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
            _ if fastrand::u32(0..6) == 0 => spoil_any::<TaskQueue>(),
            _ => tasks.leave(wait).call,
        };
        call.into()
    }
}

fn keys() -> Keys {
    Keys::new("", "k").unwrap()
}

fn end(token: &str, place: &str, how: Ending) -> Arc<Call> {
    let (claim, id) = (Claim::new(keys(), place.to_owned(), LIMIT), id(token));
    claim.end(how);
    claim.release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody }).call
}

fn end_any(token: &str, place: &str) -> Arc<Call> {
    let pause = any(&[Duration::ZERO, HOUR]);
    let how = match fastrand::u32(0..6) {
        0 | 1 => Ending::Done,
        2 => Ending::Retry(pause, "boom".into()),
        3 => Ending::Again(pause),
        4 => Ending::Dead("bad".into()),
        _ => Ending::Undo,
    };
    end(token, place, how)
}

#[test]
fn random_calls_on_a_queue_of_tasks_are_alike() {
    random_calls_are_alike::<TaskQueue>(15, 50);
}

/// The claim `t1` is sent twice. The second copy is executed after the task of the first claim was done. The end of the
/// claim is repeated, since its reply was lost.
#[test]
fn a_repeated_end_of_a_claim_takes_no_other_task() {
    let (mut memory, tasks) = (in_memory(), keys());
    let push = |memory: &mut Store, ids: &[&'static str]| {
        // The task has another time than an earlier one.
        memory.clock += 20;
        let task = |id: &&'static str| NewTask { id, due: Due::In(Duration::ZERO), body: b"body" };
        let all: Vec<_> = ids.iter().map(task).collect();
        call_in_memory(memory, &tasks.push("keep", None, &all).call).unwrap();
    };
    // The place of the task that was claimed: its time of 16 digits, and its id.
    let claim = |memory: &mut Store, token: &str| match call_in_memory(
        memory,
        &keys().claim(&id(token), HOUR, 1, LIMIT, None).call,
    ) {
        Ok(Value::List(items)) => match &items[2] {
            Value::Text(place) => String::from_utf8(place.clone()).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let say = |memory: &mut Store, call: &Arc<Call>| shown(call_in_memory(memory, call));
    push(&mut memory, &["a", "b"]);
    let first = claim(&mut memory, "t1");
    assert_eq!(&first[16..], "a");
    assert_eq!(say(&mut memory, &end("t1", &first, Ending::Done)), "1");
    assert_eq!(&claim(&mut memory, "t1")[16..], "b");
    assert_eq!(say(&mut memory, &end("t1", &first, Ending::Done)), "-1");
    // The task has only this attempt.
    assert_eq!(&claim(&mut memory, "t2")[16..], "b");
    // The late copy takes a task that was pushed since, under the id of the first one. Neither a renewal nor an end of
    // the first claim concerns it.
    push(&mut memory, &["a"]);
    let third = claim(&mut memory, "t1");
    assert!(third != first && third[16..] == first[16..], "{first} {third}");
    let late = Claim::new(keys(), first.clone(), LIMIT);
    assert_eq!(say(&mut memory, &late.extend(&id("t1"), HOUR).call), "-1");
    assert_eq!(say(&mut memory, &end("t1", &first, Ending::Done)), "-1");
    assert_eq!(claim(&mut memory, "t3"), third);
}
