//! What the scripts of a semaphore must do, by a reference that predicts the slots that are lent, the waits, the
//! messages and the replies. The simulation misses much of it: a slot that is given to no wait is free for a later
//! attempt.

use std::collections::BTreeMap;

use super::semaphore::{Semaphore, semaphore};
use super::sides::{call_in_memory, in_memory, listen_in_memory};
use super::*;
use crate::node::Value;

fn reserved(wait: &str) -> String {
    format!("{}:granted:{wait}", "0".repeat(32))
}

fn polls(wait: &str) -> bool {
    wait.starts_with('-')
}

/// The member of a queue for a wait that asks for so many permits.
fn queued(wait: &str, permits: u32, many: usize) -> String {
    format!("{wait} {permits} {many}")
}

fn client(wait: &str) -> &str {
    wait.split(' ').next().unwrap()
}

/// The number of permits of the semaphore, and the number that the wait asks for.
fn wants(wait: &str) -> (u32, usize) {
    let mut words = wait.split(' ').skip(1);
    (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap())
}

fn listens(wait: &str) -> bool {
    client(wait) == ALIVE || client(wait) == SECOND_ALIVE
}

/// The expected state of one node, and the messages that it is expected to have published.
#[derive(Debug, Default)]
struct Model {
    slots: BTreeMap<u32, String>,
    queue: Vec<String>,
    told: Vec<String>,
    several: bool,
}

/// The arguments of one attempt.
#[derive(Debug)]
struct Attempt<'a> {
    token: &'a str,
    permits: u32,
    first: u32,
    many: usize,
    /// The slots of a lease that the attempt sets again.
    fixed: &'a [u32],
    /// The name of the wait in the queue.
    wait: &'a str,
    stays: bool,
}

impl Model {
    fn free(&self, permits: u32, first: u32, many: usize) -> Option<Vec<u32>> {
        let all = (0..permits).map(|at| (first + at) % permits).filter(|slot| !self.slots.contains_key(slot));
        let found: Vec<u32> = all.take(many).collect();
        (found.len() == many).then_some(found)
    }

    /// Reserves free slots for the first waits, up to `own`, and notifies them. With several nodes, it only notifies
    /// them. Returns true if free slots are kept for a wait that asks for more.
    fn serve(&mut self, own: &str, permits: u32, first: u32) -> bool {
        let (before, mut kept, mut is_kept) = (self.slots.clone(), Vec::new(), false);
        while self.free(permits, first, 1).is_some()
            && let Some(wait) = self.queue.first().filter(|wait| *wait != own).cloned()
        {
            let (of, many) = wants(&wait);
            let slots = self.free(of, 0, many);
            if listens(&wait) {
                self.told.push(client(&wait).to_owned());
            }
            let is_there = listens(&wait) || polls(&wait) && !self.several;
            if is_there && slots.is_none() {
                is_kept = true;
                break;
            }
            self.queue.remove(0);
            if is_there {
                self.slots.extend(slots.unwrap_or_default().into_iter().map(|slot| (slot, reserved(&wait))));
            }
            if listens(&wait) && self.several {
                kept.push(wait);
            }
        }
        // The next wait checks again when the reserved slots are free.
        if !self.several && !is_kept && self.slots != before && self.free(permits, first, 1).is_none() {
            let mut next = self.queue.iter().take(8).take_while(|wait| *wait != own && !polls(wait));
            self.told.extend(next.find(|wait| listens(wait)).map(|wait| client(wait).to_owned()));
        }
        if self.several {
            self.slots = before;
        }
        kept.append(&mut self.queue);
        self.queue = kept;
        is_kept
    }

    /// The slots that an attempt is lent; `None` if it is refused.
    fn lend(&mut self, attempt: &Attempt<'_>, own: &[u32]) -> Option<Vec<u32>> {
        let Attempt { token, permits, first, many, fixed, wait, .. } = *attempt;
        let of_wait = |(_, held): &(&u32, &String)| !wait.is_empty() && **held == reserved(wait);
        let place: Vec<u32> = self.slots.iter().filter(of_wait).map(|(slot, _)| *slot).collect();
        if own.len() == many {
            return Some(own.to_vec());
        }
        if !fixed.is_empty() {
            let is_free = |slot: &u32| self.slots.get(slot).is_none_or(|held| held == token);
            return fixed.iter().all(is_free).then(|| fixed.to_vec());
        }
        if place.len() == many {
            return Some(place);
        }
        if !self.several && self.serve(wait, permits, first) {
            return None;
        }
        self.free(permits, first, many)
    }

    fn acquire(&mut self, attempt: &Attempt<'_>) -> String {
        let Attempt { token, many, fixed, wait, .. } = *attempt;
        let is_own = |slot: u32, held: &str| held == token && (fixed.is_empty() || fixed.contains(&slot));
        self.slots.retain(|slot, held| is_own(*slot, held) || held != token);
        let own: Vec<u32> =
            self.slots.iter().filter(|(slot, held)| is_own(**slot, held)).map(|(slot, _)| *slot).collect();
        let lent = self.lend(attempt, &own);
        if fixed.is_empty() && own.len() != many {
            self.slots.retain(|slot, _| !own.contains(slot));
        }
        let was_there = self.queue.iter().any(|queued| queued == wait);
        let stays = lent.is_none() && attempt.stays;
        if !stays {
            self.queue.retain(|queued| queued != wait);
        } else if !was_there {
            self.queue.push(wait.to_owned());
        }
        match lent {
            Some(mut slots) => {
                self.slots.retain(|_, held| wait.is_empty() || *held != reserved(wait));
                self.slots.extend(slots.iter().map(|slot| (*slot, token.to_owned())));
                slots.sort_unstable();
                format!("slots {slots:?}")
            }
            None if stays => format!("no {}", 1 + i32::from(was_there)),
            None => "no 0".to_owned(),
        }
    }

    fn extend(&mut self, token: &str, slots: &[u32]) -> i64 {
        let is_ours = |slot: &u32| self.slots.get(slot).is_some_and(|held| held == token);
        if slots.iter().all(is_ours) {
            return 1;
        }
        self.slots.retain(|slot, held| held != token || slots.contains(slot));
        let is_others = |slot: &u32| self.slots.get(slot).is_some_and(|held| held != token);
        if slots.iter().any(is_others) { 0 } else { -1 }
    }

    fn release(&mut self, token: &str, slots: &[u32], permits: u32, wait: Option<&str>) -> i64 {
        let has = |slot: &u32| self.slots.get(slot).is_some_and(|held| held == token);
        let had = if slots.is_empty() { self.slots.values().any(|held| held == token) } else { slots.iter().all(has) };
        // A lease of one slot has no other slots to release.
        if let ([slot], None, true) = (slots, wait, self.queue.is_empty())
            && self.slots.get(slot).is_some_and(|held| held == token)
        {
            self.slots.remove(slot);
            return 1;
        }
        if let Some(wait) = wait {
            self.queue.retain(|queued| queued != wait);
        }
        self.slots.retain(|_, held| held != token && wait.is_none_or(|wait| *held != reserved(wait)));
        let is_lent = slots.iter().any(|slot| self.slots.contains_key(slot));
        self.serve("", permits, 0);
        if had { 1 } else { i64::from(is_lent) - 1 }
    }
}

/// A reply without times.
fn short(reply: &Value) -> String {
    match reply {
        Value::Int(n) => n.to_string(),
        Value::List(items) => match items.as_slice() {
            [Value::Int(1), Value::Text(_), Value::Text(slots)] => {
                let text = String::from_utf8_lossy(slots);
                let mut slots: Vec<u32> = text.split(' ').map(|slot| slot.parse().unwrap()).collect();
                slots.sort_unstable();
                format!("slots {slots:?}")
            }
            [Value::Int(0), Value::Int(_), Value::Text(_), Value::Int(place)] => format!("no {place}"),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Draws one call. Returns it with the reply that the model predicts.
fn random_step(model: &mut Model) -> (Arc<Call>, String) {
    let (token, permits) = (any(&["a", "b", "c", "d", "e"]), any(&[1, 2, 3, 4]));
    let many = if model.several { 1 } else { any(&[1, 1, 1, 2, 3]).min(permits) };
    let mut slots: Vec<u32> = (0..permits).collect();
    fastrand::shuffle(&mut slots);
    slots.truncate(usize::try_from(many).unwrap());
    slots.sort_unstable();
    let known: &[u32] = if fastrand::bool() { &slots } else { &[] };
    let lock = |slots: &[u32]| semaphore(permits, many, model.several, slots);
    let named = |wait| queued(wait, permits, slots.len());
    let wait = any(&WAITS);
    match fastrand::u32(0..20) {
        0..10 => {
            let fixed = if model.several && fastrand::u32(0..4) == 0 { known } else { &[] };
            let wait = any(&[None, Some(enters(wait)), Some(enters(wait)), Some(leaves(wait))]);
            let call = lock(fixed).attempt(token, None, wait, QueuePolicy::None, &[]);
            let first = if fixed.is_empty() { call.args()[3].parse().unwrap() } else { 0 };
            let stays = wait.is_some_and(|wait| !wait.stays.is_zero());
            let wait = wait.map_or_else(String::new, |wait| named(wait.id));
            let attempt = Attempt { token, permits, first, many: slots.len(), fixed, wait: &wait, stays };
            (call, model.acquire(&attempt))
        }
        10..12 => (lock(&slots).extend(token, 2 * LEASE), model.extend(token, &slots).to_string()),
        12..18 => {
            let wait = any(&[None, None, Some(wait)]);
            let call = lock(known).release(Some(token), Duration::ZERO, wait, Next::Anybody);
            (call, model.release(token, known, permits, wait.map(named).as_deref()).to_string())
        }
        18 => {
            let call = lock(&[]).release(None, Duration::ZERO, Some(wait), Next::Anybody);
            (call, model.release("no token", &[], permits, Some(&named(wait))).to_string())
        }
        _ => {
            model.slots.clear();
            (own::<Semaphore>(script!("lose", "redis.call('DEL', KEYS[1]) return 0"), &[]), "0".to_owned())
        }
    }
}

/// On a server too, since the random calls of `semaphore.rs` are alike there.
#[test]
fn semaphores_do_what_the_model_says() {
    for seed in 0..500 * FACTOR {
        fastrand::seed(seed);
        let mut memory = in_memory();
        listen_in_memory(&mut memory);
        let mut model = Model { several: seed.is_multiple_of(2), ..Model::default() };
        let mut done = String::new();
        for _ in 0..50 {
            let (call, said) = random_step(&mut model);
            _ = writeln!(done, "{} {:?}", name(&call), call.args());
            let what = format!("seed {seed}, after\n{done}");
            assert_eq!(short(&call_in_memory(&mut memory, &call).unwrap()), said, "{what}");
            let text = |(_, text): (Vec<u8>, Vec<u8>)| String::from_utf8(text).unwrap();
            let told = std::mem::take(&mut memory.published).into_iter().map(text);
            let told: Vec<String> = told.map(|text| client(&text).to_owned()).collect();
            assert_eq!(told, std::mem::take(&mut model.told), "messages: {what}");
            let mut lent: Vec<String> = model.slots.iter().map(|(slot, token)| format!("{slot} {token}")).collect();
            lent.sort_unstable();
            let expected = format!("{} / {}", lent.join("|"), model.queue.join("|"));
            let Ok(Value::Text(stored)) = call_in_memory(&mut memory, &stored()) else { panic!("nothing is stored") };
            assert_eq!(String::from_utf8(stored.clone()).unwrap(), expected, "stored: {what}");
        }
    }
}

fn stored() -> Arc<Call> {
    const TEXT: &str = "local all = redis.call('ZRANGE', KEYS[1], 0, -1)\n\
                        table.sort(all)\n\
                        local queue = redis.call('ZRANGE', KEYS[2], 0, -1)\n\
                        return table.concat(all, '|') .. ' / ' .. table.concat(queue, '|')";
    own::<Semaphore>(script!("stored", TEXT), &[])
}
