//! Which process a client is, and where its tokens and ids come from. The library asks here in place of the system.

use uuid::Builder;

use super::world::{World, try_with};

/// What the system's random generator is to one client. Its values are its own.
#[derive(Debug, Default)]
pub(super) struct Generator {
    state: u64,
}

impl Generator {
    pub(super) fn new(client: usize) -> Generator {
        Generator { state: (client as u64 + 1) << 32 }
    }

    fn draw(&mut self) -> [u8; 16] {
        self.state += 1;
        let halves = [scrambled(self.state), scrambled(self.state ^ (1 << 63))];
        let mut bytes = [0; 16];
        for (chunk, half) in bytes.chunks_mut(8).zip(halves) {
            chunk.copy_from_slice(&half.to_le_bytes());
        }
        bytes
    }
}

/// Another number for each (`SplitMix64`).
fn scrambled(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// Random bytes for the client whose code runs now; none outside of a schedule.
pub(crate) fn random() -> Option<[[u8; 16]; 2]> {
    try_with(|world| {
        let (client, task) = (world.client, world.current);
        [(); 2].map(|()| {
            let drawn = world.clients[client].generator.draw();
            world.drawn.insert(Builder::from_random_bytes(drawn).into_uuid().as_u128(), task);
            drawn
        })
    })
}

impl World {
    /// The task that has drawn the random part of a token.
    pub(super) fn drawer(&self, token: &str) -> Option<usize> {
        self.drawn.get(&u128::from_str_radix(token.get(..32)?, 16).ok()?).copied()
    }
}

/// The process id of the client whose code runs now; none outside of a schedule.
pub(crate) fn process_id() -> Option<u32> {
    try_with(|world| 1000 + world.client as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_outside_of_a_schedule() {
        assert_eq!((random(), process_id()), (None, None));
    }

    #[test]
    fn clients_draw_values_of_their_own() {
        let mut generators: Vec<Generator> = (0..5).map(Generator::new).collect();
        let mut seen = std::collections::BTreeSet::new();
        assert!((0..1000).all(|i| seen.insert(generators[i % 5].draw())));
    }
}
