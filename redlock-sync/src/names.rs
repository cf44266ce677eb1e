//! Names: how messages show text of unknown origin and the keys of locks and queues, and how helper keys are named.

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, GeneralCategoryGroup};
use icu_properties::{CodePointMapData, CodePointSetData};

/// The key of a lock, or the name of a queue, for a message. `of_lock` or `of_queue` stands before it. A queue is shown
/// by its name, not by the key of its tasks.
pub(crate) fn key_in_message(key: &str, of_lock: &str, of_queue: &str) -> String {
    let (words, name) = queue_of(key).map_or((of_lock, key), |queue| (of_queue, queue));
    format!("{words}`{}`", escaped(name))
}

/// A hash of a key (FNV-1a), for tables in which keys may share a place.
pub(crate) fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// True for a character that controls a terminal, that changes how others are shown, or that cannot be seen: of the
/// categories Other and Separator, with the property `Default_Ignorable_Code_Point`, or with an empty glyph.
pub(crate) fn is_odd(c: char) -> bool {
    const CATEGORIES: GeneralCategoryGroup = GeneralCategoryGroup::Other.union(GeneralCategoryGroup::Separator);
    // No property tells these. They are the blank ones of Braille, of the notes, and of the hieroglyphs.
    const EMPTY_GLYPHS: [char; 4] = ['\u{2800}', '\u{1d159}', '\u{13441}', '\u{13442}'];
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
        || CATEGORIES.contains(CodePointMapData::<GeneralCategory>::new().get(c))
        || EMPTY_GLYPHS.contains(&c)
}

/// Escapes a name of unknown origin for a person: odd characters, `\`, and a space at an end or behind another one. So
/// two names that differ by these look different, and none looks like several columns of a table.
pub(crate) fn escaped(name: &str) -> String {
    let mut is_behind_space = false;
    name.char_indices().fold(String::with_capacity(name.len()), |mut shown, (at, c)| {
        match c {
            ' ' if is_behind_space || at == 0 || at + 1 == name.len() => shown.push_str("\\u{20}"),
            _ if c == '\\' || is_odd(c) => shown.extend(c.escape_default()),
            _ => shown.push(c),
        }
        is_behind_space = c == ' ';
        shown
    })
}

/// Escapes the odd characters of a message. Names in it are [`escaped`] already. Otherwise text of unknown origin could
/// begin a line of its own in a log, or control a terminal.
pub(crate) fn printable(message: &str) -> String {
    message.chars().fold(String::with_capacity(message.len()), |mut shown, c| {
        if is_odd(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// The suffixes of the helper keys of locks.
pub(crate) const HELPERS: [&str; 7] = ["fence", "waits", "permit_queue", "readers", "writers", "latch_waits", "done"];
/// The suffixes of the keys of queues of tasks. The 2 is the number of the layout. Clients of another layout have other
/// keys, so neither reads the tasks of the other.
pub(crate) const OF_QUEUES: [&str; 6] = ["q2:due", "q2:tasks", "q2:claims", "q2:dead", "q2:waits", "q2:fence"];

/// The helper key of `name` with this suffix, in the same hash slot: `{name}:suffix`, or `name::suffix` if `name` has a
/// hash tag of its own.
///
/// No two locks share a helper key. In the first form `name` has no `}` (see `Key::new`), so it is the text between the
/// first `{` and the only `}`. In the second form it is the text before the last `::`. No key has both forms: `:suffix`
/// follows a `}` in the first form and a `:` in the second.
pub(crate) fn helper(name: &str, suffix: &str) -> String {
    if has_hash_tag(name) { format!("{name}::{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// True for a name that [`helper`] could have made for another lock, and for that of the mark of a wait that polls: the
/// key of its queue, `:-` and more (`lua/push.lua`).
pub(crate) fn is_helper(name: &str) -> bool {
    let is_queue = |name: &str| owner(name, "waits").is_some();
    HELPERS.iter().chain(&OF_QUEUES).any(|suffix| owner(name, suffix).is_some())
        || name.match_indices(":-").any(|(at, _)| name.get(..at).is_some_and(is_queue))
}

/// The name from which [`helper`] made this key with this suffix.
fn owner<'a>(key: &'a str, suffix: &str) -> Option<&'a str> {
    let owner = key.strip_suffix(suffix)?.strip_suffix(':')?;
    let wrapped = owner.strip_prefix('{').and_then(|o| o.strip_suffix('}')).filter(|o| !o.contains('}'));
    wrapped.or_else(|| owner.strip_suffix(':').filter(|o| has_hash_tag(o)))
}

/// The command that reads a helper key, if the key has the type that it should have. `None` for the key of a lock.
pub(crate) fn reader_of_helper(key: &str) -> Option<&'static str> {
    let suffix = HELPERS.iter().chain(&OF_QUEUES).find(|suffix| owner(key, suffix).is_some())?;
    Some(match *suffix {
        "fence" | "q2:fence" => "GET",
        "q2:tasks" | "q2:claims" => "HGET",
        _ => "ZCARD",
    })
}

/// The name, with prefix, of the queue whose tasks or dead tasks are stored at this key.
pub(crate) fn queue_of(key: &str) -> Option<&str> {
    ["q2:due", "q2:dead"].iter().find_map(|suffix| owner(key, suffix))
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
        assert_eq!(printable("a 'b' \\ \"ü\" 日 "), "a 'b' \\ \"ü\" 日 ");
        assert_eq!(printable("\u{1b}[2J\r\n\u{9b}\u{202e}"), "\\u{1b}[2J\\r\\n\\u{9b}\\u{202e}");
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        let unseen = "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{180b}\u{180e}\u{200b}\u{2060}\u{2800}\u{3164}\u{fe0f}\
                      \u{feff}\u{ffa0}\u{fff9}\u{13441}\u{1d159}\u{1d173}\u{e0001}\u{e0101}\u{a0}\u{2003}\u{3000}\u{2028}\u{e000}";
        for c in unseen.chars() {
            let name = format!("a{c}b");
            let expected = format!("a\\u{{{:x}}}b", u32::from(c));
            assert_eq!((escaped(&name), printable(&name)), (expected.clone(), expected), "{c:?}");
        }
        for seen in ["order:42", "日本", "é", "e\u{301}", "🔒", "नमस्ते", "a b", "'\"`<>&", "\u{fffd}", ""]
        {
            assert_eq!((escaped(seen), printable(seen)), (seen.to_owned(), seen.to_owned()));
        }
    }

    #[test]
    fn no_two_names_are_shown_alike() {
        let names = [
            "a\u{1b}b",
            "a\\u{1b}b",
            "a\\\\u{1b}b",
            "a\nb",
            "a\\nb",
            "a",
            "a ",
            " a",
            "a  b",
            "a b",
            "a   b",
            "a\\u{20}",
            " ",
            "\\u{20}",
        ];
        let shown: std::collections::BTreeSet<String> = names.map(escaped).into();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
        // What is escaped stays as it is in a message.
        assert!(shown.iter().all(|name| printable(name) == *name && !name.starts_with(' ') && !name.ends_with(' ')));
    }
}
