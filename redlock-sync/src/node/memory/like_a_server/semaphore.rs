//! The scripts of a semaphore.

use super::*;
use crate::protocol::permits::Permits;

pub(super) struct Semaphore {
    several: bool,
}

impl Kind for Semaphore {
    fn of_run(seed: u64) -> Semaphore {
        Semaphore { several: seed.is_multiple_of(2) }
    }

    fn keys() -> Vec<String> {
        let key = key();
        [key.as_str(), key.permit_queue(), key.fence()].map(str::to_owned).into()
    }

    fn draw(&mut self) -> Drawn {
        let (token, permits, wait) = (any(&["a", "b", "c", "d", "e"]), any(&[1, 2, 3, 4]), any(&WAITS));
        let many = if self.several { 1 } else { any(&[1, 1, 1, 2, 3]).min(permits) };
        let mut slots: Vec<u32> = (0..permits).collect();
        fastrand::shuffle(&mut slots);
        slots.truncate(many as usize);
        slots.sort_unstable();
        let known: &[u32] = if fastrand::bool() { &slots } else { &[] };
        let lock = |slots: &[u32]| semaphore(permits, many, self.several, slots);
        let call = match fastrand::u32(0..22) {
            0..10 => {
                let fixed = if self.several && fastrand::u32(0..4) == 0 { known } else { &[] };
                let fence = any(&[None, None, Some(0)]);
                lock(fixed).attempt(token, fence, any_entry(wait), QueuePolicy::None, &[])
            }
            10..12 => lock(&slots).extend(token, 2 * LEASE),
            12..18 => lock(known).release(Some(token), Duration::ZERO, any(&[None, None, Some(wait)]), Next::Anybody),
            18 => lock(&[]).release(None, Duration::ZERO, Some(wait), Next::Anybody),
            19 => lock(known).release(Some(token), 5 * SECOND, None, Next::Anybody),
            20 if fastrand::u32(0..6) == 0 => spoil_any::<Semaphore>(),
            20 => lapse::<Semaphore>(fastrand::bool()),
            _ => lock(&slots).fence(token, any(&[None, Some(7)])),
        };
        // Without a pause, two permits could end in the same millisecond, and their order would depend on their names.
        Drawn { call, pause: MOMENT / 2 }
    }
}

pub(super) fn semaphore(total: u32, many: u32, several: bool, slots: &[u32]) -> Lock {
    let slots = slots.to_vec();
    Lock(Protocol::Semaphore(Permits { key: key(), total, many, several, reservation: LEASE, first: None, slots }))
}

#[test]
fn random_calls_on_a_semaphore_are_alike() {
    random_calls_are_alike::<Semaphore>(30, 50);
}

#[test]
fn scenarios_of_a_semaphore() {
    let (lock, lease) = (semaphore(1, 1, false, &[]), semaphore(1, 1, false, &[0]));
    let take = |token| lock.attempt(token, None, None, QueuePolicy::None, &[]);
    let wrong = |spoil: Arc<Call>| {
        let refused = [take("a"), lease.extend("a", LEASE), lease.free("a"), lease.fence("a", None), lock.inspect()];
        [(spoil, "1")].into_iter().chain(refused.map(|call| (call, "WrongType No"))).collect()
    };
    scenarios_are_followed::<Semaphore>(vec![
        (
            "a permit that has ended is as free as a released one, and its token does not get it back",
            vec![
                (lock.attempt("a", Some(0), None, QueuePolicy::None, &[]), "[1, now, 0]"),
                (take("b"), "[0, 30s, a, 0]"),
                (lapse::<Semaphore>(true), "0"),
                (lease.extend("a", LEASE), "-1"),
                (lease.fence("a", None), "-1"),
                (take("b"), "[1, 0, 0]"),
                (lease.extend("a", LEASE), "0"),
                (lease.fence("a", None), "0"),
                (lease.free("a"), "0"),
                (lock.inspect(), "[1, 0 b, 30s]"),
            ],
        ),
        (
            "a minimum hold keeps a permit that was released",
            vec![
                (take("a"), "[1, 0, 0]"),
                (lease.release(Some("a"), 5 * SECOND, None, Next::Anybody), "1"),
                (take("b"), "[0, 5s, a, 0]"),
                (lapse::<Semaphore>(true), "0"),
                (take("b"), "[1, 0, 0]"),
            ],
        ),
        ("a key of another type is left alone", wrong(spoil::<Semaphore>(1))),
        ("a sorted set of something else is left alone", wrong(lend::<Semaphore>("9000000000000000", "rtoken"))),
    ]);
}
