//! The form of a notification, and how to parse it.

use crate::handover::rules::Pauses;
use std::time::Duration;

/// A notification to a wait: `wait fence time age pauses random key`. The wait is `channel/number`, and times are in
/// ms. A hint ends with a space after the pauses. A hint to several waits of a channel has commas between their
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The fence of the granted lock; 0 if there is none.
    pub(crate) fence: u64,
    /// The lease of the grant. For a hint: after what time the wait should make an attempt.
    pub(crate) time: Duration,
    /// The age of the chain in which the lock goes from holder to holder.
    pub(crate) age: Duration,
    pub(crate) pauses: Pauses,
    /// The random part of the granted token; `None` for a hint.
    pub(crate) random: Option<String>,
    /// The key of the granted lock; `None` for a hint.
    pub(crate) key: Option<String>,
}

impl Notification {
    /// Parses a message that came on `channel`: the waits that it is for, and what it says. `None` for anything but a
    /// notification to waits of that channel.
    pub(crate) fn read(message: &[u8], channel: &str) -> Option<(Vec<u64>, Notification)> {
        let mut words = std::str::from_utf8(message).ok()?.splitn(7, ' ');
        let numbers = words.next()?.strip_prefix(channel)?.strip_prefix('/')?.split(',');
        let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        let mut next = || words.next()?.parse::<u64>().ok();
        let (fence, time, age, pauses) = (next()?, next()?, next()?, next()?);
        let random = words.next().map(|random| (!random.is_empty()).then(|| random.to_owned()))?;
        let key = words.next().map(str::to_owned);
        // A grant names its lock and is for one wait; a hint names no lock.
        let is_whole = random.is_some() == key.is_some() && (random.is_none() || numbers.len() == 1);
        let notification = Notification {
            fence,
            time: Duration::from_millis(time),
            age: Duration::from_millis(age),
            pauses: Pauses(pauses),
            random,
            key,
        };
        is_whole.then_some((numbers, notification))
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
        let (numbers, grant) = read("redlock-sync:1f/12 7 300 20 3 abc a key").unwrap();
        let (random, key) = (Some("abc".to_owned()), Some("a key".to_owned()));
        let told = Notification { fence: 7, time: ms(300), age: ms(20), pauses: Pauses(3), random, key };
        assert_eq!((numbers, grant), (vec![12], told));
        let (numbers, hint) = read("redlock-sync:1f/0,7,12 0 10 0 0 ").unwrap();
        let told = Notification { fence: 0, time: ms(10), age: ms(0), pauses: Pauses(0), random: None, key: None };
        assert_eq!((numbers, hint), (vec![0, 7, 12], told));
    }

    #[test]
    fn the_hint_of_a_wait_that_leaves_in_a_pause_tells_of_a_pause_and_of_no_stranger() {
        let scripts = [include_str!("../../protocol/lua/acquire.lua"), include_str!("../../protocol/lua/release.lua")];
        let chains: Vec<_> = scripts.iter().flat_map(|script| script.split("hint(queue, left, '").skip(1)).collect();
        assert_eq!(chains.len(), 1);
        let chain = chains[0].split('\'').next().unwrap();
        let (_, hint) = read(&format!("redlock-sync:1f/1 0 10 {chain} ")).unwrap();
        assert_eq!((hint.pauses.count(), hint.pauses.has_foreign_clients(), hint.age), (1, false, Duration::ZERO));
    }

    #[test]
    fn anything_else_is_ignored() {
        for text in [
            "",
            "0",
            "closed",
            "redlock-sync:1f",
            "redlock-sync:1f/1",
            "redlock-sync:1f/1 0 10 0 0",
            "redlock-sync:1f/1 0 10 0 0 a",
            "redlock-sync:1f/1 0 10 0 0  a",
            "redlock-sync:1f/x 0 10 0 0 a b",
            "redlock-sync:1f/1,2 0 10 0 0 a b",
            "redlock-sync:1f/1, 0 10 0 0 ",
            "redlock-sync:1f/1 0 -1 0 0 a b",
            "redlock-sync:1f/1 0  10 0 0 a b",
            "redlock-sync:1f1/1 0 10 0 0 a b",
            "-redlock-sync:1f/1 0 10 0 0 a b",
            "redlock-sync:2f/1 0 10 0 0 a b",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Notification::read(b"redlock-sync:1f/1 0 10 0 0 a \xff", "redlock-sync:1f"), None);
    }
}
