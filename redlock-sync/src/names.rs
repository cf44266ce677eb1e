//! How text of unknown origin is shown, and how the keys beside a lock's own, and those of a queue, are named; and how
//! messages name a lock or a queue by its key.

/// A name for a message, behind the words for what has it: the key of a lock, but of a queue of tasks its name, and not
/// the key at which these are.
pub(crate) fn told(key: &str, of_lock: &str, of_queue: &str) -> String {
    let (words, name) = queue_of(key).map_or((of_lock, key), |queue| (of_queue, queue));
    format!("{words}`{}`", name.escape_debug())
}

/// Text of unknown origin for a line of the log or a terminal: control characters, and those that change how others are
/// shown, are escaped. A server, a key or a variable could else begin a line of its own, or send the terminal commands.
pub(crate) fn printable(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
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

/// What keys beside a lock's own end in.
pub(crate) const HELPERS: [&str; 8] =
    ["fence", "queue", "permit_queue", "many_permits", "readers", "writers", "latch_waits", "done"];
/// What the keys of a queue of tasks end in.
pub(crate) const OF_QUEUES: [&str; 7] = ["q:due", "q:body", "q:meta", "q:dead", "q:claims", "q:waits", "q:fence"];

/// A key beside `name` in its hash slot: `{name}:suffix`, or `name::suffix` where `name` has a hash tag of its own.
///
/// No two locks share one. A `name` of the first form has no `}` (see `Key::new`), so it can be read back from its
/// helper: what stands between the first `{` and the only `}`. From the second form it is what stands before the last
/// `::`. And no key has both forms: before `:suffix` stands a `}` in the first and a `:` in the second.
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

/// The name, with the prefix, of the queue of tasks that has tasks or dead ones at this key.
pub(crate) fn queue_of(key: &str) -> Option<&str> {
    ["q:due", "q:dead"].iter().find_map(|suffix| owner(key, suffix))
}

/// Redis Cluster hashes what stands between the first `{` and the next `}`, if that is not empty.
pub(crate) fn has_hash_tag(name: &str) -> bool {
    name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
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
