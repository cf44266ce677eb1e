//! Hash slots: each key belongs to one of 16384.
//!
//! The slot is the CRC16 (XMODEM) of the key, as the specification of Redis Cluster defines it. If the key has text
//! between its first `{` and the next `}`, only that text is hashed.

/// The number of slots.
pub(super) const SLOTS: usize = 16384;

/// The slot of a key.
pub(in crate::node) fn slot_of(key: &[u8]) -> usize {
    usize::from(crc16(hashed(key))) % SLOTS
}

fn hashed(key: &[u8]) -> &[u8] {
    let tag = |key: &'_ [u8]| -> Option<std::ops::Range<usize>> {
        let start = key.iter().position(|&byte| byte == b'{')? + 1;
        let len = key.get(start..)?.iter().position(|&byte| byte == b'}')?;
        (len > 0).then_some(start..start + len)
    };
    tag(key).and_then(|tag| key.get(tag)).unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        let at = usize::from(byte ^ crc.to_be_bytes()[0]);
        (crc << 8) ^ TABLE.get(at).copied().unwrap_or_default()
    })
}

/// The CRC table for the upper byte.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
        // The slots are replies of `CLUSTER KEYSLOT`.
        for (key, slot) in
            [("foo", 12182), ("bar", 5061), ("somekey", 11058), ("foo{hash_tag}", 2515), ("hash_tag", 2515)]
        {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn hash_tags() {
        let of = |key: &str| String::from_utf8_lossy(hashed(key.as_bytes())).into_owned();
        assert_eq!(of("{user1000}.following"), "user1000");
        assert_eq!(of("foo{}{bar}"), "foo{}{bar}");
        assert_eq!(of("foo{{bar}}zap"), "{bar");
        assert_eq!(of("foo{bar}{zap}"), "bar");
        assert_eq!(of("a}b{c"), "a}b{c");
        assert_eq!(of("{order:42}:queue"), "order:42");
        assert_eq!(slot_of(b"order:42"), slot_of(b"{order:42}:queue"));
    }
}
