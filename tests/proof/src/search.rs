//! Breadth-first search of a model, to its last state.
//!
//! Each state is stored as a fingerprint of 64 bits, with its parent. Only the states of two levels are kept whole. So
//! ten million states take some 300 MB. Two states with one fingerprint would hide one of them: with ten million
//! states the chance is one in 300 000.

use std::hash::{Hash, Hasher};

/// What happened in a step. `{c}`, `{s}` and `{t}` in the text stand for the client, the server and the token.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub text: &'static str,
    pub client: usize,
    pub server: usize,
    pub token: u16,
}

/// A model: its states, the steps between them, and what must be true.
pub trait Model: Sync {
    type State: Copy + Eq + Hash + Send + Sync;
    /// What has to occur, so that the properties say something. At most 32.
    const PREMISES: &'static [&'static str];

    fn initial(&self) -> Self::State;
    /// Adds every step that is possible in this state.
    fn steps(&self, state: &Self::State, steps: &mut Vec<(Told, Self::State)>);
    /// The same state, with interchangeable parts in a fixed order.
    fn canonical(&self, state: &Self::State) -> Self::State;
    /// The same state without what can have no effect any more, under the same names.
    fn tidied(&self, state: &Self::State) -> Self::State;
    /// The property that the state violates.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
    /// The premises that are true in this state, a bit for each.
    fn premises(&self, state: &Self::State) -> u32;
    /// The next step if nothing more goes wrong; `None` once nobody waits for the lock. Deterministic.
    fn benign(&self, state: &Self::State) -> Option<Self::State>;
    /// The step in words, with the state after it.
    fn tell(&self, told: Told, after: &Self::State) -> String;
}

/// The outcome of a search.
#[derive(Debug)]
pub struct Report {
    pub states: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    /// False if the search ended at its bound or at a violation.
    pub is_complete: bool,
    /// In how many states each premise was true.
    pub premises: Vec<(&'static str, u64)>,
    pub violation: Option<Violation>,
}

/// A property that does not hold, and the shortest way there.
#[derive(Debug)]
pub struct Violation {
    pub property: &'static str,
    pub story: Vec<String>,
}

pub const STUCK: &str = "a wait never gets the lock";
/// A benign run takes fewer steps than this.
const LONGEST_BENIGN: usize = 400;
const NO_PARENT: u32 = u32::MAX;

/// Searches all states, or as many as `most`.
pub fn search<M: Model>(model: &M, most: usize) -> Report {
    let mut search = Search { model, seen: Seen::new(), served: Seen::new(), counts: vec![0; M::PREMISES.len()] };
    let first = model.canonical(&model.initial());
    search.seen.insert(fingerprint(&first), NO_PARENT);
    let (mut level, mut depth) = (vec![(0, first)], 0);
    while !level.is_empty() {
        let mut next = Vec::new();
        for states in level.chunks(AT_A_TIME) {
            for (print, parent, after) in search.after(states) {
                let Some(new) = search.seen.insert(print, parent) else { continue };
                if let Some(property) = search.judge(&after) {
                    let violation = Violation { property, story: search.story(new) };
                    return search.report(depth + 1, false, Some(violation));
                }
                next.push((new, after));
            }
            if search.seen.len() >= most {
                return search.report(depth + 1, false, None);
            }
        }
        depth += usize::from(!next.is_empty());
        level = next;
    }
    search.report(depth, true, None)
}

/// So many states are followed before what comes after them is stored.
const AT_A_TIME: usize = 1 << 13;

struct Search<'a, M> {
    model: &'a M,
    seen: Seen,
    /// The states from which benign steps serve every wait.
    served: Seen,
    counts: Vec<u64>,
}

impl<M: Model> Search<'_, M> {
    /// The states after these that are new, in the order of the steps, each with its fingerprint and its parent. Two
    /// threads share the work; the outcome is that of one.
    fn after(&self, states: &[(u32, M::State)]) -> Vec<(u64, u32, M::State)> {
        let follow = |states: &[(u32, M::State)]| {
            let (mut steps, mut found) = (Vec::new(), Vec::new());
            for (index, state) in states {
                steps.clear();
                self.model.steps(state, &mut steps);
                let all = steps.iter().map(|(_, after)| self.model.canonical(after));
                let all = all.map(|after| (fingerprint(&after), *index, after));
                found.extend(all.filter(|(print, ..)| self.seen.place(*print).is_ok()));
            }
            found
        };
        let (first, second) = states.split_at(states.len() / 2);
        if states.len() < AT_A_TIME / 8 {
            return follow(states);
        }
        std::thread::scope(|scope| {
            let other = scope.spawn(|| follow(second));
            let mut found = follow(first);
            found.extend(other.join().expect("a step of a model does not fail"));
            found
        })
    }

    /// Counts the premises of a new state. Returns the property that it violates.
    fn judge(&mut self, state: &M::State) -> Option<&'static str> {
        let premises = self.model.premises(state);
        for (bit, count) in self.counts.iter_mut().enumerate() {
            *count += u64::from(premises >> bit & 1);
        }
        self.model.broken(state).or_else(|| (!self.is_served(state)).then_some(STUCK))
    }

    /// True if benign steps from this state serve every wait. Each state is followed once. A circle is followed to the
    /// longest run.
    fn is_served(&mut self, state: &M::State) -> bool {
        let (mut state, mut way) = (*state, Vec::new());
        while way.len() < LONGEST_BENIGN {
            let print = fingerprint(&state);
            if self.served.place(print).is_err() {
                break;
            }
            way.push(print);
            match self.model.benign(&state) {
                Some(next) => state = self.model.canonical(&next),
                None => break,
            }
        }
        let is_served = way.len() < LONGEST_BENIGN;
        if is_served {
            for print in way {
                self.served.insert(print, NO_PARENT);
            }
        }
        is_served
    }

    /// The steps to the state with this index. They are found again from the fingerprints on the way. The clients keep
    /// their names in the story, although the search exchanges them.
    fn story(&self, index: u32) -> Vec<String> {
        let mut way = vec![index];
        while let Some(parent) = way.last().map(|&last| self.seen.parent(last)).filter(|&parent| parent != NO_PARENT) {
            way.push(parent);
        }
        let (mut state, mut story) = (self.model.initial(), Vec::new());
        for index in way.into_iter().rev().skip(1) {
            let mut steps = Vec::new();
            self.model.steps(&state, &mut steps);
            let is_it = |after: &M::State| fingerprint(&self.model.canonical(after)) == self.seen.fingerprint(index);
            let Some((told, after)) = steps.into_iter().find(|(_, after)| is_it(after)) else { break };
            story.push(self.model.tell(told, &after));
            state = self.model.tidied(&after);
        }
        story
    }

    fn report(self, depth: usize, is_complete: bool, violation: Option<Violation>) -> Report {
        let premises = M::PREMISES.iter().copied().zip(self.counts).collect();
        Report { states: self.seen.len(), depth, is_complete, premises, violation }
    }
}

/// A set of fingerprints in the order in which they were found, each with its parent.
struct Seen {
    all: Vec<(u64, u32)>,
    /// For each place the index of an element and one; 0 if it is empty.
    table: Vec<u32>,
}

impl Seen {
    fn new() -> Seen {
        Seen { all: Vec::new(), table: vec![0; 1 << 12] }
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    fn fingerprint(&self, index: u32) -> u64 {
        self.all[index as usize].0
    }

    fn parent(&self, index: u32) -> u32 {
        self.all[index as usize].1
    }

    /// Returns the index if it is new.
    fn insert(&mut self, fingerprint: u64, parent: u32) -> Option<u32> {
        if self.all.len() * 4 > self.table.len() * 3 {
            self.grow();
        }
        let place = self.place(fingerprint).ok()?;
        let index = u32::try_from(self.all.len()).expect("fewer than 2^32 states fit into memory");
        self.all.push((fingerprint, parent));
        self.table[place] = index + 1;
        Some(index)
    }

    /// The free place for it; `Err` if it is there.
    fn place(&self, fingerprint: u64) -> Result<usize, ()> {
        let mask = self.table.len() - 1;
        let mut place = fingerprint as usize & mask;
        loop {
            match self.table[place] {
                0 => return Ok(place),
                index if self.fingerprint(index - 1) == fingerprint => return Err(()),
                _ => place = (place + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        self.table = vec![0; self.table.len() * 2];
        for index in 0..self.all.len() {
            let place = self.place(self.all[index].0).expect("each element is there once");
            self.table[place] = index as u32 + 1;
        }
    }
}

/// A hash of 64 bits that is the same in each run. It takes eight bytes at a time.
struct Fingerprint {
    hash: u64,
    word: u64,
    bytes: u32,
}

const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes.is_multiple_of(8) {
            self.hash = mixed(self.hash ^ self.word, FACTORS[0]).rotate_left(23);
            self.word = 0;
        }
    }

    /// The lengths of arrays say nothing: they are the same in all states.
    fn write_usize(&mut self, _: usize) {}

    /// Which variant of an enum it is.
    fn write_isize(&mut self, variant: isize) {
        self.write_u8(variant as u8);
    }

    fn finish(&self) -> u64 {
        mixed(mixed(self.hash ^ self.word, FACTORS[0]) ^ u64::from(self.bytes), FACTORS[1])
    }
}

fn fingerprint<S: Hash>(state: &S) -> u64 {
    let mut hasher = Fingerprint { hash: FACTORS[1], word: 0, bytes: 0 };
    state.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three counters that count from 0 to 9, in any order. They are interchangeable.
    struct Counters {
        forbidden: [u8; 3],
        is_sorted: bool,
    }

    impl Model for Counters {
        type State = [u8; 3];
        const PREMISES: &'static [&'static str] = &["all are 9", "the first is 0"];

        fn initial(&self) -> [u8; 3] {
            [0; 3]
        }

        fn steps(&self, state: &[u8; 3], steps: &mut Vec<(Told, [u8; 3])>) {
            for i in (0..3).filter(|&i| state[i] < 9) {
                let mut after = *state;
                after[i] += 1;
                steps.push((Told { text: "counter {c} counts", client: i, server: 0, token: 0 }, after));
            }
        }

        fn canonical(&self, state: &[u8; 3]) -> [u8; 3] {
            let mut state = *state;
            if self.is_sorted {
                state.sort_unstable();
            }
            state
        }

        fn tidied(&self, state: &[u8; 3]) -> [u8; 3] {
            *state
        }

        fn broken(&self, state: &[u8; 3]) -> Option<&'static str> {
            (*state == self.forbidden).then_some("forbidden")
        }

        fn premises(&self, state: &[u8; 3]) -> u32 {
            u32::from(*state == [9; 3]) | u32::from(state[0] == 0) << 1
        }

        fn benign(&self, state: &[u8; 3]) -> Option<[u8; 3]> {
            // 7 7 7 leads nowhere.
            (*state == [7; 3]).then_some(*state)
        }

        fn tell(&self, told: Told, after: &[u8; 3]) -> String {
            format!("{} {after:?}", told.text.replace("{c}", &told.client.to_string()))
        }
    }

    #[test]
    fn each_state_is_found_once_and_symmetry_leaves_one_of_each_kind() {
        let never = [99; 3];
        // 7 7 7 is reached, and no benign step leads out of it.
        let stuck = search(&Counters { forbidden: never, is_sorted: true }, usize::MAX).violation.unwrap();
        assert_eq!((stuck.property, stuck.story.len()), (STUCK, 21));
        let found = search(&Counters { forbidden: [1, 1, 2], is_sorted: true }, usize::MAX).violation.unwrap();
        assert_eq!((found.property, found.story.len()), ("forbidden", 4));
        assert!(found.story[3].ends_with(']'), "{:?}", found.story);
    }

    /// The same counters, each of which leads on.
    struct Free(Counters);

    impl Model for Free {
        type State = [u8; 3];
        const PREMISES: &'static [&'static str] = Counters::PREMISES;

        fn initial(&self) -> [u8; 3] {
            self.0.initial()
        }
        fn steps(&self, state: &[u8; 3], steps: &mut Vec<(Told, [u8; 3])>) {
            self.0.steps(state, steps);
        }
        fn canonical(&self, state: &[u8; 3]) -> [u8; 3] {
            self.0.canonical(state)
        }
        fn tidied(&self, state: &[u8; 3]) -> [u8; 3] {
            *state
        }
        fn broken(&self, state: &[u8; 3]) -> Option<&'static str> {
            self.0.broken(state)
        }
        fn premises(&self, state: &[u8; 3]) -> u32 {
            self.0.premises(state)
        }
        fn benign(&self, _: &[u8; 3]) -> Option<[u8; 3]> {
            None
        }
        fn tell(&self, told: Told, after: &[u8; 3]) -> String {
            self.0.tell(told, after)
        }
    }

    #[test]
    fn different_states_have_different_fingerprints() {
        #[derive(Hash, Clone, Copy)]
        enum Variant {
            A,
            B(u8),
            C,
        }
        let all = [Variant::A, Variant::B(0), Variant::B(1), Variant::C];
        let states = all.iter().flat_map(|x| all.iter().map(move |y| ([*x, *y], 0_u16, true)));
        let prints: std::collections::BTreeSet<u64> = states.map(|state| fingerprint(&state)).collect();
        assert_eq!(prints.len(), 16);
    }

    #[test]
    fn the_number_of_states_is_known() {
        let counters = |is_sorted| Free(Counters { forbidden: [99; 3], is_sorted });
        let all = search(&counters(false), usize::MAX);
        assert!(all.is_complete);
        assert_eq!((all.states, all.depth), (1000, 27));
        // Multisets of three out of ten.
        let sorted = search(&counters(true), usize::MAX);
        assert_eq!((sorted.states, sorted.depth), (220, 27));
        // The first state is not judged: it is the same in each model.
        assert_eq!(sorted.premises, [("all are 9", 1), ("the first is 0", 54)]);
        let bounded = search(&counters(false), 100);
        assert!(!bounded.is_complete && bounded.states >= 100);
    }
}
