//! Hides what may be a part of a password in the text of a URL.

use std::borrow::Cow;
use std::ops::Range;

use crate::names::escaped;

/// Replaces passwords by stars. Works on any text, since a URL that cannot be parsed must be shown too. All passwords
/// are located in the original text, so that stars for one cannot hide the start of another.
pub(super) fn redact(text: &str) -> String {
    let mut secrets: Vec<Range<usize>> = behind_user(text).into_iter().chain(in_parameters(text)).collect();
    secrets.sort_by_key(|secret| secret.start);
    let (mut shown, mut at) = (String::new(), 0);
    for secret in secrets {
        // `None` if this secret begins within the one before.
        if let Some(between) = text.get(at..secret.start) {
            shown.push_str(between);
            shown.push_str("***");
        }
        at = at.max(secret.end);
    }
    shown + text.get(at..).unwrap_or_default()
}

/// The start of the authority: after the first `://`, unless a colon before it means that `://` belongs to a password.
fn scheme_end(text: &str) -> usize {
    text.find("://").filter(|at| text.find(':') == Some(*at)).map_or(0, |at| at + 3)
}

/// The text between the first colon and the last `@`. Without a colon, all text before the `@`, since that may be a
/// password without a user.
fn behind_user(text: &str) -> Option<Range<usize>> {
    let start = scheme_end(text);
    let at = text.rfind('@').filter(|at| start < *at)?;
    let colon = text.get(start..at)?.find(':');
    Some(colon.map_or(start, |colon| start + colon + 1)..at)
}

/// Parameters that may contain a part of a password: all that are not certainly something else.
fn in_parameters(text: &str) -> Vec<Range<usize>> {
    // In a mistyped URL of a socket, `&` or `;` may stand in place of the `?`.
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

/// True if the value cannot contain a misspelt password.
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

/// Refuses parameters that are not in `known`.
pub(super) fn check_parameters<'a>(
    mut pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    query: Option<&str>,
    known: &[&str],
) -> Result<(), String> {
    let Some((name, _)) = pairs.find(|(name, _)| !known.contains(&name.as_ref())) else { return Ok(()) };
    // The name is shown only if it cannot be a part of a password. A name without a value may be a misplaced password.
    // An `@` in the query may end a password that contains a `?`. A name that is not a word may include its value.
    let has_value = |query: &str| query.split('&').any(|pair| pair.split_once('=').is_some_and(|(of, _)| of == name));
    let may_be_secret =
        !is_word(&name) || !query.is_some_and(has_value) || query.is_some_and(|query| query.contains('@'));
    Err(if may_be_secret { "unknown parameter".into() } else { format!("unknown parameter `{}`", escaped(&name)) })
}
