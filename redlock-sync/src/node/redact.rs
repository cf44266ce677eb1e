//! What in the text of a URL may be a part of a password, and is not shown.

use std::borrow::Cow;
use std::ops::Range;

/// The text with stars for its passwords; works on any text, since what cannot be parsed has to be shown too. All of
/// them are looked for in the text as it is: stars for one must not hide where another begins.
pub(super) fn redact(text: &str) -> String {
    let mut secrets: Vec<Range<usize>> = behind_user(text).into_iter().chain(in_parameters(text)).collect();
    secrets.sort_by_key(|secret| secret.start);
    let (mut shown, mut at) = (String::new(), 0);
    for secret in secrets {
        // None within the one before.
        if let Some(between) = text.get(at..secret.start) {
            shown.push_str(between);
            shown.push_str("***");
        }
        at = at.max(secret.end);
    }
    shown + text.get(at..).unwrap_or_default()
}

/// Where the authority begins: behind the first `://`, unless a colon before it makes that a part of a password.
fn scheme_end(text: &str) -> usize {
    text.find("://").filter(|at| text.find(':') == Some(*at)).map_or(0, |at| at + 3)
}

/// What stands between the first colon and the last `@`; without a colon all that stands before the `@`, since that may
/// be a password without a user.
fn behind_user(text: &str) -> Option<Range<usize>> {
    let start = scheme_end(text);
    let at = text.rfind('@').filter(|at| start < *at)?;
    let colon = text.get(start..at)?.find(':');
    Some(colon.map_or(start, |colon| start + colon + 1)..at)
}

/// What may be a part of a password among the parameters: everything but what is certainly something else.
fn in_parameters(text: &str) -> Vec<Range<usize>> {
    // In a mistyped URL of a socket another sign stands in its place.
    let mistyped = || text.find(['&', ';']).filter(|_| text.contains("unix:"));
    let Some(mut end) = text.find('?').or_else(mistyped) else { return Vec::new() };
    let query = text.get(end + 1..).unwrap_or_default();
    let secret = |pair: &str| {
        end += 1 + pair.len();
        match pair.split_once('=') {
            Some((name, value)) if is_harmless(name, value) => None,
            Some((name, value)) if is_word(name) => Some(end - value.len()..end),
            _ => Some(end - pair.len()..end),
        }
    };
    query.split('&').filter_map(secret).collect()
}

/// Cannot be, or contain, a misspelt password.
fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        "db" | "protocol" => value.chars().all(|c| c.is_ascii_digit()),
        "user" | "sentinel_user" => value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c)),
        _ => false,
    }
}

fn is_word(name: &str) -> bool {
    name.len() <= 20 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// No parameters but the known ones.
pub(super) fn check_parameters<'a>(
    mut pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    query: Option<&str>,
    known: &[&str],
) -> Result<(), String> {
    let Some((name, _)) = pairs.find(|(name, _)| !known.contains(&name.as_ref())) else { return Ok(()) };
    // One without a value may be a misplaced password itself. With an `@` behind it, it may be the end of a password that has a `?` in it; and one that is no word may have its value in it.
    let has_value = |query: &str| query.split('&').any(|pair| pair.split_once('=').is_some_and(|(of, _)| of == name));
    let may_be_secret =
        !is_word(&name) || !query.is_some_and(has_value) || query.is_some_and(|query| query.contains('@'));
    Err(if may_be_secret { "unknown parameter".into() } else { format!("unknown parameter `{}`", name.escape_debug()) })
}
