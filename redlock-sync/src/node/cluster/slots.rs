//! Hash slots: each key belongs to one of 16384.
//!
//! The slot is the CRC16 (XMODEM) of the key or of its hash tag, as the specification of Redis Cluster defines it.

use crate::names::hash_tag;

/// The number of slots.
pub(super) const SLOTS: usize = 16384;

/// The slot of a key.
pub(in crate::node) fn slot_of(key: &[u8]) -> usize {
    usize::from(crc16(hash_tag(key).unwrap_or(key))) % SLOTS
}

/// CRC16 with the polynomial 0x1021. The terms with `upper` are the entry that a table would have for this byte.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        let upper = (crc >> 8) ^ u16::from(byte);
        let upper = upper ^ (upper >> 4);
        (crc << 8) ^ (upper << 12) ^ (upper << 5) ^ upper
    })
}

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
        assert_eq!(hash_tag(b"{user1000}.following"), Some(&b"user1000"[..]));
        assert_eq!(hash_tag(b"foo{}{bar}"), None);
        assert_eq!(hash_tag(b"foo{{bar}}zap"), Some(&b"{bar"[..]));
        assert_eq!(hash_tag(b"foo{bar}{zap}"), Some(&b"bar"[..]));
        assert_eq!(hash_tag(b"a}b{c"), None);
        assert_eq!(hash_tag(b"{order:42}:waits"), Some(&b"order:42"[..]));
        assert_eq!(slot_of(b"order:42"), slot_of(b"{order:42}:waits"));
    }
}
