//! Names of locks, and the keys on the server that belong to one.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Something that names a lock: a string, or a type of yours with one place that spells its key.
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

impl LockKey for str {
    fn lock_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl LockKey for String {
    fn lock_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl LockKey for Cow<'_, str> {
    fn lock_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl LockKey for Arc<str> {
    fn lock_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<T: LockKey + ?Sized> LockKey for &T {
    fn lock_key(&self) -> Cow<'_, str> {
        (**self).lock_key()
    }
}

/// A checked lock key, with the client's prefix. Cheap to clone. `Display` escapes what would garble a message.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    name: Arc<str>,
    helpers: Arc<Helpers>,
}

/// Keys beside the lock's own, in its hash slot.
#[derive(PartialEq, Eq, Hash)]
struct Helpers {
    fence: String,
    wake: String,
    waiting: String,
}

impl Key {
    /// Joins prefix and name. An empty key is refused, and one longer than `max_len` bytes.
    pub(crate) fn new(prefix: &str, name: &str, max_len: usize) -> Result<Key, Error> {
        let full: Arc<str> = if prefix.is_empty() { name.into() } else { format!("{prefix}{name}").into() };
        if name.is_empty() {
            return Err(Error::config(format!(
                "a lock needs a name, but the key after prefix `{}` is empty",
                prefix.escape_debug()
            )));
        }
        if full.len() > max_len {
            return Err(Error::config(format!(
                "lock key `{}…` is {} bytes long, more than max_key_len = {max_len}",
                full.chars().take(40).collect::<String>().escape_debug(),
                full.len(),
            )));
        }
        if is_helper(&full) {
            return Err(Error::config(format!(
                "lock key `{}` is one that the library keeps beside another lock; names with a hash tag must not end in {}",
                full.escape_debug(),
                HELPERS.map(|suffix| format!("`:{suffix}`")).join(" or ")
            )));
        }
        let helper = |suffix| helper(&full, suffix);
        let helpers = Helpers { fence: helper("fence"), wake: helper("wake"), waiting: helper("waiting") };
        Ok(Key { name: full, helpers: Arc::new(helpers) })
    }

    /// The key that holds the holder's token.
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// The key of the fence counter, in the same hash slot.
    pub(crate) fn fence(&self) -> &str {
        &self.helpers.fence
    }

    /// The list on which a release pushes to the waiter who is next.
    pub(crate) fn wake(&self) -> &str {
        &self.helpers.wake
    }

    /// The sorted set of those who wait, by when they cease to.
    pub(crate) fn waiting(&self) -> &str {
        &self.helpers.waiting
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name.escape_debug())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", &*self.name)
    }
}

/// What keys beside a lock's own end in; some are for later versions.
const HELPERS: [&str; 3] = ["fence", "waiting", "wake"];

/// True for a name that [`helper`] could have made for another lock.
fn is_helper(name: &str) -> bool {
    let suffix = name.rsplit_once(':').map(|(_, suffix)| suffix);
    has_hash_tag(name) && suffix.is_some_and(|suffix| HELPERS.contains(&suffix))
}

/// A key beside `name` in its hash slot: `{name}:suffix`, or `name:suffix` when `name` carries a hash tag already.
fn helper(name: &str, suffix: &str) -> String {
    if has_hash_tag(name) { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// Redis Cluster hashes what stands between the first `{` and the next `}`, if that is not empty.
fn has_hash_tag(name: &str) -> bool {
    name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("", name, 1024).unwrap()
    }

    #[test]
    fn helpers_share_the_slot() {
        assert_eq!(key("order:42").fence(), "{order:42}:fence");
        assert_eq!(key("user:{7}:cart").fence(), "user:{7}:cart:fence");
        assert_eq!(key("odd{}name").fence(), "{odd{}name}:fence");
    }

    #[test]
    fn names_of_helpers_are_refused() {
        for taken in ["{order:42}:fence", "user:{7}:cart:fence", "{a}:wake", "{a}:b:waiting"] {
            assert!(Key::new("", taken, 1024).is_err(), "{taken}");
        }
        for free in ["order:fence", "{a}:fences", "fence", "{}:fence", "{a}fence"] {
            assert!(Key::new("", free, 1024).is_ok(), "{free}");
        }
    }

    #[test]
    fn the_prefix_belongs_to_the_key() {
        assert_eq!(Key::new("Lock:", "a", 1024).unwrap().as_str(), "Lock:a");
    }

    #[test]
    fn empty_and_long_keys_are_refused() {
        assert!(Key::new("", "", 1024).is_err());
        assert!(Key::new("Lock:", "", 1024).is_err());
        assert!(Key::new("", &"x".repeat(1025), 1024).is_err());
        assert!(Key::new("", &"x".repeat(1024), 1024).is_ok());
    }

    #[test]
    fn odd_bytes_are_escaped_in_messages_only() {
        let odd = key("a\0b\nc{d}é");
        assert_eq!(odd.as_str(), "a\0b\nc{d}é");
        assert_eq!(odd.to_string(), "a\\0b\\nc{d}é");
    }
}
