//! Names: how messages show text of unknown origin and the keys of locks and queues, and how helper keys are named.

/// The key of a lock, or the name of a queue, for a message. `of_lock` or `of_queue` stands before it. A queue is shown
/// by its name, not by the key of its tasks.
pub(crate) fn key_in_message(key: &str, of_lock: &str, of_queue: &str) -> String {
    let (words, name) = queue_of(key).map_or((of_lock, key), |queue| (of_queue, queue));
    format!("{words}`{}`", name.escape_debug())
}

/// A hash of a key (FNV-1a), for tables in which keys may share a place.
pub(crate) fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Escapes control characters, and characters that change how others are shown. Otherwise text of unknown origin could
/// begin a line of its own in a log, or control a terminal.
pub(crate) fn printable(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{feff}')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_odd(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// The suffixes of the helper keys of locks.
pub(crate) const HELPERS: [&str; 7] = ["fence", "queue", "permit_queue", "readers", "writers", "latch_waits", "done"];
/// The suffixes of the keys of queues of tasks.
pub(crate) const OF_QUEUES: [&str; 7] = ["q:due", "q:body", "q:meta", "q:dead", "q:claims", "q:waits", "q:fence"];

/// The helper key of `name` with this suffix, in the same hash slot: `{name}:suffix`, or `name::suffix` if `name` has a
/// hash tag of its own.
///
/// No two locks share a helper key. In the first form `name` has no `}` (see `Key::new`), so it is the text between the
/// first `{` and the only `}`. In the second form it is the text before the last `::`. No key has both forms: `:suffix`
/// follows a `}` in the first form and a `:` in the second.
pub(crate) fn helper(name: &str, suffix: &str) -> String {
    if has_hash_tag(name) { format!("{name}::{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// True for a name that [`helper`] could have made for another lock.
pub(crate) fn is_helper(name: &str) -> bool {
    HELPERS.iter().chain(&OF_QUEUES).any(|suffix| owner(name, suffix).is_some())
}

/// The name from which [`helper`] made this key with this suffix.
fn owner<'a>(key: &'a str, suffix: &str) -> Option<&'a str> {
    let owner = key.strip_suffix(suffix)?.strip_suffix(':')?;
    let wrapped = owner.strip_prefix('{').and_then(|o| o.strip_suffix('}')).filter(|o| !o.contains('}'));
    wrapped.or_else(|| owner.strip_suffix(':').filter(|o| has_hash_tag(o)))
}

/// The name, with prefix, of the queue whose tasks or dead tasks are stored at this key.
pub(crate) fn queue_of(key: &str) -> Option<&str> {
    ["q:due", "q:dead"].iter().find_map(|suffix| owner(key, suffix))
}

/// True if Redis Cluster hashes only a part of the name.
pub(crate) fn has_hash_tag(name: &str) -> bool {
    hash_tag(name.as_bytes()).is_some()
}

/// The part of a name that Redis Cluster hashes in place of the whole. It is the text between the first `{` and the
/// next `}`, if it is not empty.
pub(crate) fn hash_tag(name: &[u8]) -> Option<&[u8]> {
    let start = name.iter().position(|&byte| byte == b'{')? + 1;
    let end = start + name.get(start..)?.iter().position(|&byte| byte == b'}')?;
    name.get(start..end).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_terminal_would_obey_is_escaped() {
        assert_eq!(printable("a 'b' \\ \"ü\" 日"), "a 'b' \\ \"ü\" 日");
        assert_eq!(printable("\u{1b}[2J\r\n\u{9b}\u{202e}"), "\\u{1b}[2J\\r\\n\\u{9b}\\u{202e}");
    }
}
