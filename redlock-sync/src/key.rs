//! The names of locks, and the keys that belong to each on the server.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::names::{HELPERS, OF_QUEUES, escaped, has_hash_tag, helper, is_helper};

/// Something that names a lock: a string, or a type of yours that spells its key in one place.
///
/// With feature `macros`, `#[derive(LockKey)]` writes this from a template.
///
/// ```
/// use redlock_sync::LockKey;
/// use std::borrow::Cow;
///
/// struct Order { id: u64 }
///
/// impl LockKey for Order {
///     fn lock_key(&self) -> Cow<'_, str> {
///         format!("order:{}", self.id).into()
///     }
/// }
/// assert_eq!(Order { id: 7 }.lock_key(), "order:7");
/// ```
pub trait LockKey {
    /// The lock's name, without the client's key prefix.
    ///
    /// ```
    /// use redlock_sync::LockKey;
    /// assert_eq!("order:7".lock_key(), "order:7");
    /// ```
    fn lock_key(&self) -> Cow<'_, str>;
}

macro_rules! texts {
    ($($text:ty),*) => {$(
        impl LockKey for $text {
            fn lock_key(&self) -> Cow<'_, str> {
                Cow::Borrowed(self)
            }
        }
    )*};
}

texts!(str, String, Cow<'_, str>, Arc<str>);

impl<T: LockKey + ?Sized> LockKey for &T {
    fn lock_key(&self) -> Cow<'_, str> {
        (**self).lock_key()
    }
}

/// The longest key in bytes, prefix included. A longer name is most likely a mistake.
const MAX_KEY_LEN: usize = 1024;

/// A checked lock key, with the client's prefix. Cheap to clone. `Display` escapes what would garble a message.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    name: Arc<str>,
    /// Keys in the lock's hash slot: that of the fence counter, that of the queue, and that of a semaphore's queue.
    helpers: Arc<[String; 3]>,
}

impl Key {
    /// Joins prefix and name. An empty key is refused, and one longer than [`MAX_KEY_LEN`].
    pub(crate) fn new(prefix: &str, name: &str) -> Result<Key, Error> {
        Key::of("lock", prefix, name)
    }

    fn of(what: &str, prefix: &str, name: &str) -> Result<Key, Error> {
        let full: Arc<str> = if prefix.is_empty() { name.into() } else { format!("{prefix}{name}").into() };
        if name.is_empty() {
            return Err(Error::config(format!(
                "a {what} needs a name, but its name is empty{}",
                if prefix.is_empty() { String::new() } else { format!(" behind the prefix `{}`", escaped(prefix)) }
            )));
        }
        if full.len() > MAX_KEY_LEN {
            return Err(Error::config(format!(
                "{what} key `{}…` is {} bytes long, more than {MAX_KEY_LEN}; choose a shorter name",
                escaped(&full.chars().take(40).collect::<String>()),
                full.len(),
            )));
        }
        let shown = || match full.char_indices().nth(40) {
            Some((end, _)) => format!("{}…", escaped(full.get(..end).unwrap_or_default())),
            None => escaped(&full),
        };
        if full.contains('}') && !has_hash_tag(&full) {
            return Err(Error::config(format!(
                "{what} key `{}` has a `}}` but no hash tag (`{{…}}` that is not empty), so the library cannot \
                 keep other keys in its hash slot; remove the `}}`, or enclose a part of the name in braces",
                shown()
            )));
        }
        if is_helper(&full) {
            return Err(Error::config(format!(
                "{what} key `{}` is reserved: the library keeps data of another lock or queue there; choose \
                 another name (reserved: `{{…}}` or a name with `:`, followed by {} or `:q2:…`)",
                shown(),
                HELPERS.map(|suffix| format!("`:{suffix}`")).join(" or ")
            )));
        }
        let helpers = ["fence", "waits", "permit_queue"].map(|suffix| helper(&full, suffix));
        Ok(Key { name: full, helpers: Arc::new(helpers) })
    }

    /// The key that holds the holder's token.
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// The key of the fence counter, in the same hash slot.
    pub(crate) fn fence(&self) -> &str {
        let [fence, _, _] = &*self.helpers;
        fence
    }

    /// The sorted set of the waits for the lock, in order of arrival.
    pub(crate) fn queue(&self) -> &str {
        let [_, queue, _] = &*self.helpers;
        queue
    }

    /// The sorted set of the waits for a semaphore of this name. It is another key than the queue of a mutex, so that
    /// two kinds under one name never notify each other's waits.
    pub(crate) fn permit_queue(&self) -> &str {
        let [_, _, permit_queue] = &*self.helpers;
        permit_queue
    }

    /// The sorted sets of the waits for a read-write lock: those that want to read, and those that want to write.
    pub(crate) fn rw_queues(&self) -> [String; 2] {
        ["readers", "writers"].map(|suffix| helper(&self.name, suffix))
    }

    /// The sorted set of the waits for a latch of that name.
    pub(crate) fn latch_waits(&self) -> String {
        helper(&self.name, "latch_waits")
    }

    /// The key of the mark that a job has succeeded. The mark is a latch.
    pub(crate) fn done(&self) -> Key {
        Key { name: helper(&self.name, "done").into(), helpers: Arc::clone(&self.helpers) }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", escaped(&self.name))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", &*self.name)
    }
}

/// A queue of tasks: its keys, all in one hash slot. A lock of the same name has other keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskQueue {
    /// The sorted set with the time at which each task is due. This process identifies the claims of the queue by this
    /// key.
    pub(crate) due: Key,
    pub(crate) tasks: Arc<str>,
    pub(crate) claims: Arc<str>,
    pub(crate) dead: Arc<str>,
    pub(crate) waits: Arc<str>,
    pub(crate) fence: Arc<str>,
}

impl TaskQueue {
    /// Like [`Key::new`].
    pub(crate) fn new(prefix: &str, name: &str) -> Result<TaskQueue, Error> {
        let named = Key::of("queue", prefix, name)?;
        let [due, tasks, claims, dead, waits, fence] = OF_QUEUES.map(|suffix| helper(&named.name, suffix).into());
        let due = Key { name: due, helpers: named.helpers };
        Ok(TaskQueue { due, tasks, claims, dead, waits, fence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::queue_of;

    fn key(name: &str) -> Key {
        Key::new("", name).unwrap()
    }

    #[test]
    fn messages_show_only_the_beginning_of_a_long_name() {
        for (start, end) in [("b:", "}"), ("{b", "}:fence")] {
            let name = format!("{start}{}{end}", "a".repeat(1000));
            let error = Key::new("", &name).unwrap_err().to_string();
            let shown = format!("`{start}{}…`", "a".repeat(38));
            assert!(error.len() < 500 && error.contains(&shown), "{} bytes", error.len());
        }
    }

    #[test]
    fn helpers_stand_beside_their_lock() {
        assert_eq!(key("order:42").fence(), "{order:42}:fence");
        assert_eq!(key("{order:42}").fence(), "{order:42}::fence");
        assert_eq!(key("user:{7}:cart").queue(), "user:{7}:cart::waits");
        assert_eq!(key("open{brace").queue(), "{open{brace}:waits");
        assert_eq!(key("import").latch_waits(), "{import}:latch_waits");
        assert_eq!(key("report").done().as_str(), "{report}:done");
        assert_eq!(key("report").done().latch_waits(), "{report}:done::latch_waits");
    }

    #[test]
    fn names_of_helpers_are_refused() {
        for taken in [
            "{order:42}:fence",
            "user:{7}:cart::fence",
            "{a}:waits",
            "{a}::waits",
            "{a}:b::waits",
            "{{a}:fence",
            "{a}:readers",
            "{a}::writers",
            "{a}:latch_waits",
            "{a}:done",
            "{a}:waits:-1",
            "user:{7}:cart::waits:-800:0123456789abcdef0123456789abcdef 0123456789abcdef0123456789abcdef",
        ] {
            assert!(Key::new("", taken).is_err(), "{taken}");
        }
        for free in [
            "order:fence",
            "{a}:fences",
            "fence",
            "{a}fence",
            "user:{7}:fence",
            "a::fence",
            "{a}:b:waits",
            "a:waits:-1",
            "a:-1",
        ] {
            assert!(Key::new("", free).is_ok(), "{free}");
        }
    }

    #[test]
    fn names_whose_slot_has_room_for_no_other_key_are_refused() {
        for odd in ["a}b", "}", "}a", "{}", "{}a", "a}b{c", "{}{a}"] {
            let error = Key::new("", odd).unwrap_err().to_string();
            assert!(error.contains("hash tag") && error.contains(odd), "{error}");
        }
        for fine in ["{a}", "}{a}", "}a{b}", "{a", "{{a}", "{a}}"] {
            assert!(Key::new("", fine).is_ok(), "{fine}");
        }
    }

    /// Returns the part of a key that Redis Cluster hashes, according to its specification.
    fn hashed(key: &str) -> &str {
        let Some(open) = key.find('{') else { return key };
        let rest = &key[open + 1..];
        match rest.find('}') {
            Some(end) if end > 0 => &rest[..end],
            _ => key,
        }
    }

    /// The largest number of parts of a name. In a debug build, six parts take half a minute.
    const MAX_PARTS: u32 = if cfg!(debug_assertions) { 5 } else { 6 };

    /// Every name of up to [`MAX_PARTS`] parts. The parts are those that could be confused: braces, separators,
    /// letters, and the endings of helper keys.
    fn names() -> impl Iterator<Item = String> {
        const PARTS: [&str; 8] = ["{", "}", ":", "a", "permit_queue", "fence", "waits", ":waits"];
        (1..=MAX_PARTS).flat_map(|len| {
            (0..8_usize.pow(len)).map(move |at| (0..len).map(|digit| PARTS[at / 8_usize.pow(digit) % 8]).collect())
        })
    }

    #[test]
    fn no_two_locks_share_a_key_and_all_keys_of_a_lock_share_a_slot() {
        let mut owners: std::collections::HashMap<String, String> = std::collections::HashMap::new();
        let mut accepted = 0;
        for name in names() {
            let Ok(key) = Key::new("", &name) else { continue };
            accepted += 1;
            let [readers, writers] = key.rw_queues();
            let latch = key.latch_waits();
            for own in [key.as_str(), key.fence(), key.queue(), key.permit_queue(), &readers, &writers, &latch] {
                assert_eq!(hashed(own), hashed(&name), "{own:?} of {name:?} is in another slot");
                let owner = owners.entry(own.to_owned()).or_insert_with(|| name.clone());
                assert_eq!(*owner, name, "{own:?} belongs to both");
            }
        }
        assert!(accepted > 10_000, "only {accepted} names were accepted");
    }

    #[test]
    fn a_queue_and_a_lock_of_one_name_share_no_key() {
        let queue = TaskQueue::new("", "emails").unwrap();
        assert_eq!((queue.due.as_str(), &*queue.waits), ("{emails}:q2:due", "{emails}:q2:waits"));
        assert_eq!(&*TaskQueue::new("", "user:{7}:mails").unwrap().tasks, "user:{7}:mails::q2:tasks");
        assert_eq!(
            (queue_of("{emails}:q2:due"), queue_of("user:{7}:mails::q2:dead")),
            (Some("emails"), Some("user:{7}:mails"))
        );
        assert_eq!((queue_of("{emails}:q2:tasks"), queue_of("emails:q2:due")), (None, None));
        for taken in ["{emails}:q2:due", "user:{7}::q2:tasks", "{a}:q2:claims"] {
            assert!(Key::new("", taken).is_err(), "{taken}");
        }
        for free in ["emails:q2:due", "{a}q2:due", "q2:due", "{a}:q2:dues", "{a}:q:due"] {
            assert!(Key::new("", free).is_ok(), "{free}");
        }
    }

    #[test]
    fn the_prefix_belongs_to_the_key() {
        assert_eq!(Key::new("Lock:", "a").unwrap().as_str(), "Lock:a");
    }

    #[test]
    fn empty_and_long_keys_are_refused() {
        assert!(Key::new("", "").is_err());
        assert!(Key::new("Lock:", "").is_err());
        assert!(Key::new("", &"x".repeat(1025)).is_err());
        assert!(Key::new("", &"x".repeat(1024)).is_ok());
    }

    #[test]
    fn odd_bytes_are_escaped_in_messages_only() {
        let odd = key("a\0b\nc{d}é");
        assert_eq!(odd.as_str(), "a\0b\nc{d}é");
        assert_eq!(odd.to_string(), "a\\u{0}b\\nc{d}é");
    }
}
