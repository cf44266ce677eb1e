//! The source of randomness for the clients, in place of the operating system.

/// The source of randomness of one client. No other client gets the same values.
#[derive(Debug, Default)]
pub(super) struct Generator {
    state: u64,
}

impl Generator {
    pub(super) fn new(client: usize) -> Generator {
        Generator { state: (client as u64 + 1) << 32 }
    }

    pub(super) fn draw(&mut self) -> [u8; 16] {
        self.state += 1;
        let halves = [scrambled(self.state), scrambled(self.state ^ (1 << 63))];
        let mut bytes = [0; 16];
        for (chunk, half) in bytes.chunks_mut(8).zip(halves) {
            chunk.copy_from_slice(&half.to_le_bytes());
        }
        bytes
    }
}

/// Maps each number to a different number (`SplitMix64`).
fn scrambled(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_draw_values_of_their_own() {
        let mut generators: Vec<Generator> = (0..5).map(Generator::new).collect();
        let mut seen = std::collections::BTreeSet::new();
        assert!((0..1000).all(|i| seen.insert(generators[i % 5].draw())));
    }
}
