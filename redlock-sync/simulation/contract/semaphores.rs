//! Semaphores: random calls on a node in memory and on a server, beside a reference model of what is lent and which waits there are.

use std::collections::BTreeMap;

use super::*;
use crate::protocol::semaphore::Semaphore;

const TOKENS: [&str; 5] = ["a", "b", "c", "d", "e"];
const WAITS: [&str; 4] = [ALIVE, SECOND_ALIVE, DEAD, "-1"];

fn semaphore(permits: u32, several: bool, slot: Option<u32>) -> Semaphore {
    Semaphore { key: exclusive().key, permits, several, reservation: LEASE, slot }
}

fn reserved(wait: &str) -> String {
    format!("{}:granted:{wait}", "0".repeat(32))
}

fn polls(wait: &str) -> bool {
    wait.starts_with('-')
}

fn listens(wait: &str) -> bool {
    wait == ALIVE || wait == SECOND_ALIVE
}

/// What one node is to have, and what it is to have published.
#[derive(Debug, Default)]
struct Model {
    slots: BTreeMap<u32, String>,
    queue: Vec<String>,
    told: Vec<String>,
    several: bool,
}

/// One attempt.
#[derive(Debug)]
struct Attempt<'a> {
    token: &'a str,
    permits: u32,
    first: u32,
    /// The slot of a lease that is set again.
    slot: Option<u32>,
    wait: Option<Entry<'a>>,
    orphan: Option<&'a str>,
}

impl Model {
    fn free(&self, permits: u32, first: u32, tries: u32) -> Option<u32> {
        (0..tries).map(|at| (first + at) % permits).find(|slot| !self.slots.contains_key(slot))
    }

    /// Reserves free slots for the first waits up to `own`; on several nodes only tells them.
    fn serve(&mut self, own: &str, permits: u32, first: u32) {
        let (before, mut kept) = (self.slots.clone(), Vec::new());
        while let Some(slot) = self.free(permits, first, permits)
            && let Some(wait) = self.queue.first().filter(|wait| *wait != own).cloned()
        {
            self.queue.remove(0);
            if listens(&wait) {
                self.told.push(wait.clone());
            }
            if listens(&wait) || polls(&wait) && !self.several {
                self.slots.insert(slot, reserved(&wait));
            }
            if listens(&wait) && self.several {
                kept.push(wait);
            }
        }
        if self.several {
            self.slots = before;
        }
        kept.append(&mut self.queue);
        self.queue = kept;
    }

    fn acquire(&mut self, attempt: &Attempt<'_>) -> String {
        let Attempt { token, permits, first, slot: fixed, .. } = *attempt;
        let wait = attempt.wait.map_or("", |wait| wait.id);
        let is_own = |(slot, held): (&u32, &String)| held == token && fixed.is_none_or(|fixed| fixed == *slot);
        let own = self.slots.iter().find(|entry| is_own(*entry)).map(|(slot, _)| *slot);
        let is_left = |held: &str| held == token || attempt.orphan.is_some_and(|orphan| held.starts_with(orphan));
        self.slots.retain(|slot, held| Some(*slot) == own || !is_left(held));
        let place = self.slots.iter().find(|(_, held)| !wait.is_empty() && **held == reserved(wait));
        let lent = own.or(place.map(|(slot, _)| *slot)).or_else(|| {
            if !self.several {
                self.serve(wait, permits, first);
            }
            self.free(permits, first, if fixed.is_some() { 1 } else { permits })
        });
        let was_there = self.queue.iter().any(|queued| queued == wait);
        let stays = lent.is_none() && attempt.wait.is_some_and(|wait| !wait.stays.is_zero());
        if !stays {
            self.queue.retain(|queued| queued != wait);
        } else if !was_there {
            self.queue.push(wait.to_owned());
        }
        match lent {
            Some(slot) => {
                self.slots.insert(slot, token.to_owned());
                format!("slot {slot}")
            }
            None if stays => format!("no {}", 1 + i32::from(was_there)),
            None => "no 0".to_owned(),
        }
    }

    fn extend(&mut self, token: &str, slot: u32) -> i64 {
        if self.slots.get(&slot).is_some_and(|held| held == token) {
            return 1;
        }
        self.slots.retain(|_, held| held != token);
        if self.slots.contains_key(&slot) { 0 } else { -1 }
    }

    fn release(&mut self, token: &str, slot: Option<u32>, permits: u32, wait: Option<&str>) -> i64 {
        let had = self.slots.values().any(|held| held == token);
        if let Some(wait) = wait {
            self.queue.retain(|queued| queued != wait);
        }
        self.slots.retain(|_, held| held != token && wait.is_none_or(|wait| *held != reserved(wait)));
        let said = match slot {
            _ if had => 1,
            Some(slot) if self.slots.contains_key(&slot) => 0,
            _ => -1,
        };
        self.serve("", permits, 0);
        said
    }
}

/// A reply without times.
fn short(reply: &Value) -> String {
    match reply {
        Value::Int(n) => n.to_string(),
        Value::List(items) => match items.as_slice() {
            [Value::Int(1), Value::Text(_), Value::Text(slot)] => format!("slot {}", String::from_utf8_lossy(slot)),
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

fn with_queue(operation: &'static str, source: &'static str) -> Arc<Call> {
    let call = own(operation, source);
    let key = exclusive().key;
    Call::new(call.script, Purpose::Other, None, Duration::ZERO, &[key.as_str(), key.permit_queue(), key.fence()], &[])
}

fn any<T: Copy>(all: &[T]) -> T {
    all[fastrand::usize(0..all.len())]
}

/// One call, with what the model says to it.
fn random_step(model: &mut Model) -> (Arc<Call>, String) {
    let (token, permits) = (any(&TOKENS), any(&[1, 2, 2, 3]));
    let slot = fastrand::u32(0..permits);
    let known = fastrand::bool().then_some(slot);
    match fastrand::u32(0..20) {
        0..10 => {
            let fixed = if model.several { known.filter(|_| fastrand::u32(0..4) == 0) } else { None };
            let lock = semaphore(permits, model.several, fixed);
            let wait = any(&WAITS);
            let wait = any(&[None, Some(entry(wait)), Some(entry(wait)), Some(leaves(wait))]);
            let orphan = (fastrand::u32(0..6) == 0).then(|| any(&TOKENS));
            let orphans: Vec<LockId> = orphan.map(id).into_iter().collect();
            let id = id(token);
            let args = AcquireArgs { id: &id, lease: LEASE, fence: None, wait, order: Order::None, orphans: &orphans };
            let call = lock.acquire(&args).call;
            let first = call.args()[3].parse().unwrap();
            let said = model.acquire(&Attempt { token, permits, first, slot: fixed, wait, orphan });
            (call, said)
        }
        10..12 => {
            let call = semaphore(permits, model.several, Some(slot)).extend(&id(token), 2 * LEASE).call;
            (call, model.extend(token, slot).to_string())
        }
        12..18 => {
            let wait = any(&[None, None, Some(any(&WAITS))]);
            let id = id(token);
            let args = ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait, next: Next::Anybody };
            let call = semaphore(permits, model.several, known).release(&args).call;
            (call, model.release(token, known, permits, wait).to_string())
        }
        18 => {
            let wait = Some(any(&WAITS));
            let args = ReleaseArgs { id: None, keep: Duration::ZERO, wait, next: Next::Anybody };
            let call = semaphore(permits, model.several, None).release(&args).call;
            (call, model.release("no token", None, permits, wait).to_string())
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
        side.call(&with_queue("clear", "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])")).unwrap();
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
    compare(&mut in_memory(), 2000);
}

#[test]
fn semaphores_on_a_server_do_what_the_model_says() {
    compare(&mut Remote::start(), 150);
}

/// A permit whose time has passed is as free as one that was released, and its token cannot have it back.
fn ends(side: &mut dyn Side) {
    side.call(&with_queue("clear", "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])")).unwrap();
    side.listen(CHANNEL);
    let (lock, moment) = (semaphore(1, false, None), Duration::from_millis(40));
    let take = |token: &str, lease| {
        let id = id(token);
        let args = AcquireArgs { id: &id, lease, fence: Some(0), wait: None, order: Order::None, orphans: &[] };
        lock.acquire(&args).call
    };
    let mut say = |call: &Arc<Call>| side.call(call).unwrap();
    assert_eq!(short(&say(&take("a", moment))), "slot 0");
    assert_eq!(short(&say(&take("b", LEASE))), "no 0");
    side.pass(moment + Duration::from_millis(2));
    let lease = semaphore(1, false, Some(0));
    let mut say = |call: &Arc<Call>| side.call(call).unwrap();
    assert_eq!(say(&lease.extend(&id("a"), LEASE).call), Value::Int(-1));
    assert_eq!(say(&lease.fence(&id("a"), None).call), Value::Int(-1));
    assert_eq!(short(&say(&take("b", LEASE))), "slot 0");
    assert_eq!(say(&lease.extend(&id("a"), LEASE).call), Value::Int(0));
    assert_eq!(say(&lease.fence(&id("a"), None).call), Value::Int(0));
    let release = |token: &str, keep| {
        let id = id(token);
        lease.release(&ReleaseArgs { id: Some(&id), keep, wait: None, next: Next::Anybody }).call
    };
    assert_eq!(say(&release("a", Duration::ZERO)), Value::Int(0));
    // A minimum hold keeps it for as long as that says, and no longer.
    assert_eq!(say(&release("b", moment)), Value::Int(1));
    assert_eq!(short(&say(&take("c", LEASE))), "no 0");
    side.pass(moment + Duration::from_millis(2));
    assert_eq!(short(&side.call(&take("c", LEASE)).unwrap()), "slot 0");
}

#[test]
fn permits_end_in_memory() {
    ends(&mut in_memory());
}

#[test]
fn permits_end_on_a_server() {
    ends(&mut Remote::start());
}

/// No call touches a key that is no semaphore, of another type or a sorted set.
fn refuses(side: &mut dyn Side) {
    let spoils = ["redis.call('SET', KEYS[1], 'x') return 1", "redis.call('ZADD', KEYS[1], 9e15, 'rtoken') return 1"];
    for source in spoils {
        side.call(&with_queue("clear", "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])")).unwrap();
        side.call(&with_queue("spoil", source)).unwrap();
        let (lock, id) = (semaphore(2, false, Some(0)), id("a"));
        let args = AcquireArgs { id: &id, lease: LEASE, fence: None, wait: None, order: Order::None, orphans: &[] };
        let release = ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        let calls = [
            lock.acquire(&args).call,
            lock.extend(&id, LEASE).call,
            lock.release(&release).call,
            lock.fence(&id, None).call,
            lock.inspect().call,
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
