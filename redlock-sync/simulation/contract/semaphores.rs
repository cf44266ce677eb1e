//! Semaphores: random calls on a node in memory and on a server. A reference model predicts the slots that are lent and
//! the waits.

use std::collections::BTreeMap;

use super::*;
use crate::protocol::permits::Permits;

/// Waits of other kinds than mutexes.
const ALIVE: &str = "redlock-sync:1/2";
const SECOND_ALIVE: &str = "redlock-sync:1/3";
const DEAD: &str = "redlock-sync:0/1";

const TOKENS: [&str; 5] = ["a", "b", "c", "d", "e"];
const WAITS: [&str; 5] = [ALIVE, SECOND_ALIVE, DEAD, "-1", "-60000:1"];

fn semaphore(permits: u32, several: bool, slots: &[u32]) -> Permits {
    let many = u32::try_from(slots.len()).unwrap().max(1);
    Permits {
        key: exclusive().key,
        total: permits,
        many,
        several,
        reservation: LEASE,
        first: None,
        slots: slots.to_vec(),
    }
}

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

fn stored() -> Arc<Call> {
    let source = "local all = redis.call('ZRANGE', KEYS[1], 0, -1)\n\
                  table.sort(all)\n\
                  return table.concat(all, '|') .. ' / ' .. table.concat(redis.call('ZRANGE', KEYS[2], 0, -1), '|')";
    with_queue("stored", source)
}

fn clear() -> Arc<Call> {
    with_queue("clear", "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])")
}

fn with_queue(operation: &'static str, source: &'static str) -> Arc<Call> {
    let call = own(operation, source);
    let key = exclusive().key;
    let keys = [key.as_str(), key.permit_queue(), key.fence()];
    Call::new(call.script, &keys, &[])
}

fn any<T: Copy>(all: &[T]) -> T {
    all[fastrand::usize(0..all.len())]
}

/// Draws one call. Returns it with the reply that the model predicts.
fn random_step(model: &mut Model) -> (Arc<Call>, String) {
    let (token, permits) = (any(&TOKENS), any(&[1, 2, 3, 4]));
    let many = if model.several { 1 } else { any(&[1, 1, 1, 2, 3]).min(permits) };
    let mut slots: Vec<u32> = (0..permits).collect();
    fastrand::shuffle(&mut slots);
    slots.truncate(usize::try_from(many).unwrap());
    slots.sort_unstable();
    let known: &[u32] = if fastrand::bool() { &slots } else { &[] };
    let lock = |slots: &[u32]| Permits { many, ..semaphore(permits, model.several, slots) };
    let named = |wait| queued(wait, permits, slots.len());
    let wait = any(&WAITS);
    match fastrand::u32(0..20) {
        0..10 => {
            let fixed = if model.several && fastrand::u32(0..4) == 0 { known } else { &[] };
            let wait = any(&[None, Some(enters(wait)), Some(enters(wait)), Some(leaves(wait))]);
            let id = id(token);
            let args =
                AcquireArgs { id: &id, lease: LEASE, fence: None, wait, policy: QueuePolicy::None, take_over: &[] };
            let call = lock(fixed).acquire(&args).call;
            let first = if fixed.is_empty() { call.args()[3].parse().unwrap() } else { 0 };
            let stays = wait.is_some_and(|wait| !wait.stays.is_zero());
            let wait = wait.map_or_else(String::new, |wait| named(wait.id));
            let attempt = Attempt { token, permits, first, many: slots.len(), fixed, wait: &wait, stays };
            (call, model.acquire(&attempt))
        }
        10..12 => (lock(&slots).extend(&id(token), 2 * LEASE).call, model.extend(token, &slots).to_string()),
        12..18 => {
            let wait = any(&[None, None, Some(wait)]);
            let id = id(token);
            let args = ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait, next: Next::Anybody };
            let call = lock(known).release(&args).call;
            (call, model.release(token, known, permits, wait.map(named).as_deref()).to_string())
        }
        18 => {
            let args = ReleaseArgs { id: None, keep: Duration::ZERO, wait: Some(wait), next: Next::Anybody };
            let call = lock(&[]).release(&args).call;
            (call, model.release("no token", &[], permits, Some(&named(wait))).to_string())
        }
        _ => {
            model.slots.clear();
            (with_queue("lose", "redis.call('DEL', KEYS[1]) return 0"), "0".to_owned())
        }
    }
}

fn compare(side: &mut dyn Side, seeds: u64) {
    side.listen(CHANNEL);
    for seed in 0..seeds {
        fastrand::seed(seed);
        side.call(&clear()).unwrap();
        let mut model = Model { several: seed % 2 == 0, ..Model::default() };
        let mut done = String::new();
        for _ in 0..50 {
            let (call, said) = random_step(&mut model);
            _ = writeln!(done, "{} {:?}", call.script.operation, call.args());
            assert_eq!(short(&side.call(&call).unwrap()), said, "seed {seed}, after\n{done}");
            let told: Vec<String> =
                side.heard().iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect();
            assert_eq!(told, std::mem::take(&mut model.told), "seed {seed}: published after\n{done}");
            let mut lent: Vec<String> = model.slots.iter().map(|(slot, token)| format!("{slot} {token}")).collect();
            lent.sort_unstable();
            let expected = format!("{} / {}", lent.join("|"), model.queue.join("|"));
            let Ok(Value::Text(stored)) = side.call(&stored()) else { panic!("nothing is stored") };
            assert_eq!(String::from_utf8(stored).unwrap(), expected, "seed {seed}: stored after\n{done}");
        }
    }
}

#[test]
fn semaphores_in_memory_do_what_the_model_says() {
    compare(&mut in_memory(), 500 * FACTOR);
}

#[test]
fn semaphores_on_a_server_do_what_the_model_says() {
    compare(&mut Remote::start(), 40 * FACTOR);
}

/// A permit whose time has passed is as free as a released one. The token cannot get it back.
fn ends(side: &mut dyn Side) {
    side.call(&clear()).unwrap();
    side.listen(CHANNEL);
    let (lock, moment) = (semaphore(1, false, &[]), Duration::from_millis(1500));
    let take = |token: &str, lease| {
        let id = id(token);
        let args =
            AcquireArgs { id: &id, lease, fence: Some(0), wait: None, policy: QueuePolicy::None, take_over: &[] };
        lock.acquire(&args).call
    };
    let mut say = |call: &Arc<Call>| side.call(call).unwrap();
    assert_eq!(short(&say(&take("a", moment))), "slots [0]");
    assert_eq!(short(&say(&take("b", LEASE))), "no 0");
    side.pass(moment + Duration::from_millis(2));
    let lease = semaphore(1, false, &[0]);
    let mut say = |call: &Arc<Call>| side.call(call).unwrap();
    assert_eq!(say(&lease.extend(&id("a"), LEASE).call), Value::Int(-1));
    assert_eq!(say(&lease.fence(&id("a"), None).call), Value::Int(-1));
    assert_eq!(short(&say(&take("b", LEASE))), "slots [0]");
    assert_eq!(say(&lease.extend(&id("a"), LEASE).call), Value::Int(0));
    assert_eq!(say(&lease.fence(&id("a"), None).call), Value::Int(0));
    let release = |token: &str, keep| {
        let id = id(token);
        lease.release(&ReleaseArgs { id: Some(&id), keep, wait: None, next: Next::Anybody }).call
    };
    assert_eq!(say(&release("a", Duration::ZERO)), Value::Int(0));
    // A minimum hold keeps a released permit exactly that long.
    assert_eq!(say(&release("b", moment)), Value::Int(1));
    assert_eq!(short(&say(&take("c", LEASE))), "no 0");
    side.pass(moment + Duration::from_millis(2));
    assert_eq!(short(&side.call(&take("c", LEASE)).unwrap()), "slots [0]");
}

#[test]
fn permits_end_in_memory() {
    ends(&mut in_memory());
}

#[test]
fn permits_end_on_a_server() {
    ends(&mut Remote::start());
}

/// No call changes a key that is not a semaphore: a key of another type, or a sorted set of something else.
fn refuses(side: &mut dyn Side) {
    let spoils = ["redis.call('SET', KEYS[1], 'x') return 1", "redis.call('ZADD', KEYS[1], 9e15, 'rtoken') return 1"];
    for source in spoils {
        side.call(&clear()).unwrap();
        side.call(&with_queue("spoil", source)).unwrap();
        let (lock, id) = (semaphore(2, false, &[0]), id("a"));
        let args =
            AcquireArgs { id: &id, lease: LEASE, fence: None, wait: None, policy: QueuePolicy::None, take_over: &[] };
        let release = ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        let calls = [
            lock.acquire(&args).call,
            lock.extend(&id, LEASE).call,
            lock.release(&release).call,
            lock.fence(&id, None).call,
            Protocol::Semaphore(lock.clone()).inspect().call,
        ];
        for call in calls {
            let failure = side.call(&call).unwrap_err();
            assert_eq!((failure.kind, failure.executed), (FailureKind::WrongType, Executed::No), "{source}");
        }
    }
}

#[test]
fn other_keys_are_refused_in_memory() {
    refuses(&mut in_memory());
}

#[test]
fn other_keys_are_refused_on_a_server() {
    refuses(&mut Remote::start());
}
