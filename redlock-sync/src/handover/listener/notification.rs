//! The form of a notification, and how to parse it.

use std::time::Duration;

/// A notification to a wait: `wait fence time random key`. The wait is `channel/number`, and the time is in ms. A hint
/// ends with a space after the time. A hint to several waits of a channel has commas between their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The fence of the granted lock; 0 if there is none.
    pub(crate) fence: u64,
    /// The lease of the grant. For a hint: after what time the wait should make an attempt.
    pub(crate) time: Duration,
    /// The random part of the granted token; `None` for a hint.
    pub(crate) random: Option<String>,
    /// The key of the granted lock; `None` for a hint.
    pub(crate) key: Option<String>,
}

impl Notification {
    /// Parses a message that came on `channel`: the waits that it is for, and what it says. `None` for anything but a
    /// notification to waits of that channel.
    pub(crate) fn read(message: &[u8], channel: &str) -> Option<(Vec<u64>, Notification)> {
        let mut words = std::str::from_utf8(message).ok()?.splitn(5, ' ');
        let numbers = words.next()?.strip_prefix(channel)?.strip_prefix('/')?.split(',');
        let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        let mut next = || words.next()?.parse::<u64>().ok();
        let fence = next()?;
        let time = Duration::from_millis(next()?);
        let random = words.next().map(|random| (!random.is_empty()).then(|| random.to_owned()))?;
        // The message of another layout is none.
        let is_random = |random: &String| random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        if random.as_ref().is_some_and(|random| !is_random(random)) {
            return None;
        }
        let key = words.next().map(str::to_owned);
        // A grant names its lock and is for one wait; a hint names no lock.
        let is_whole = random.is_some() == key.is_some() && (random.is_none() || numbers.len() == 1);
        is_whole.then_some((numbers, Notification { fence, time, random, key }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> Option<(Vec<u64>, Notification)> {
        Notification::read(message.as_bytes(), "redlock-sync:1f")
    }

    #[test]
    fn grants_and_hints() {
        let ms = Duration::from_millis;
        let (numbers, grant) = read("redlock-sync:1f/12 7 300 0123456789abcdef0123456789abcdef a key").unwrap();
        let random = Some("0123456789abcdef0123456789abcdef".to_owned());
        let told = Notification { fence: 7, time: ms(300), random, key: Some("a key".to_owned()) };
        assert_eq!((numbers, grant), (vec![12], told));
        let (numbers, hint) = read("redlock-sync:1f/0,7,12 0 10 ").unwrap();
        let told = Notification { fence: 0, time: ms(10), random: None, key: None };
        assert_eq!((numbers, hint), (vec![0, 7, 12], told));
    }

    #[test]
    fn anything_else_is_ignored() {
        for text in [
            "",
            "0",
            "closed",
            "redlock-sync:1f",
            "redlock-sync:1f/1",
            "redlock-sync:1f/1 0 10",
            "redlock-sync:1f/1 0 10 a",
            "redlock-sync:1f/1 0 30000 0 0 0123456789abcdef0123456789abcdef key",
            "redlock-sync:1f/1 0 10  a",
            "redlock-sync:1f/x 0 10 0123456789abcdef0123456789abcdef b",
            "redlock-sync:1f/1,2 0 10 0123456789abcdef0123456789abcdef b",
            "redlock-sync:1f/1, 0 10 ",
            "redlock-sync:1f/1 0 -1 0123456789abcdef0123456789abcdef b",
            "redlock-sync:1f/1 0  10 0123456789abcdef0123456789abcdef b",
            "redlock-sync:1f1/1 0 10 0123456789abcdef0123456789abcdef b",
            "-redlock-sync:1f/1 0 10 0123456789abcdef0123456789abcdef b",
            "redlock-sync:2f/1 0 10 0123456789abcdef0123456789abcdef b",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Notification::read(b"redlock-sync:1f/1 0 10 a \xff", "redlock-sync:1f"), None);
    }
}
