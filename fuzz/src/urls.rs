//! Node URLs: any text is one or is refused, and no password is shown.

use std::fs;

use redlock_sync::Redlock;
use url::Url;

use crate::refusal;

/// How a password begins and ends, by which it is found in a message.
const MARKS: [&str; 2] = ["geheim", "nisvoll"];

/// Opens a client of that text, and of that text with passwords where URLs have them.
///
/// # Panics
/// If something is not as it must be.
pub fn node_url(text: &str) {
    let before = (fds(), threads());
    shown(text);
    assert_eq!((fds(), threads()), before, "{text:?} opened something or started a thread");
    // The fuzzer learns the marks, and writes them elsewhere too, with a tab inside that a URL ignores.
    let marks = |text: &str| MARKS.map(|mark| text.to_lowercase().matches(mark).count());
    let is_once = |secret: &String| marks(text) == [0, 0] && marks(secret) == [1, 1];
    let secrets = [before_the_host(text), in_a_parameter(text), by_the_standard(text)].into_iter().flatten();
    for secret in secrets.filter(is_once) {
        let shown = shown(&secret).to_lowercase();
        assert!(!MARKS.iter().any(|mark| shown.contains(mark)), "{secret:?} is shown as {shown}");
    }
}

/// Whatever is shown of a client with this node.
fn shown(text: &str) -> String {
    let builder = Redlock::builder().node(text);
    let builder_shown = format!("{builder:?}");
    match builder.build() {
        Ok(locks) => format!("{builder_shown} {locks:?}"),
        Err(error) => {
            let message = refusal(&error);
            assert!(message.starts_with("node URL `"), "{message}");
            format!("{builder_shown} {message} {error:?}")
        }
    }
}

/// Files and sockets that are open in this process; zero on a system that does not tell.
fn fds() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn marked(password: &str) -> String {
    format!("{}{password}{}", MARKS[0], MARKS[1])
}

/// What people take for the password: from the first colon to the last `@`. Not if the authority ends before that colon, since then the rules
/// of URLs say that it is something else.
fn before_the_host(text: &str) -> Option<String> {
    let start = text.find("://").filter(|at| text.find(':') == Some(*at)).map_or(0, |at| at + 3);
    let (head, rest) = text.split_at(start);
    let (user, behind) = rest.split_once(':')?;
    let (password, host) = behind.rsplit_once('@')?;
    let is_user = !user.contains(['/', '?', '#', '\\', '@']);
    is_user.then(|| format!("{head}{user}:{}@{host}", marked(password)))
}

/// The value of `pass`, and of the password of Sentinels.
fn in_a_parameter(text: &str) -> Option<String> {
    let (path, query) = text.split_once('?')?;
    let (query, fragment) = query.split_at(query.find('#').unwrap_or(query.len()));
    let mark = |pair: &str| match pair.split_once('=') {
        Some((name @ ("pass" | "sentinel_password"), value)) => format!("{name}={}", marked(value)),
        _ => pair.to_owned(),
    };
    let pairs: Vec<String> = query.split('&').map(mark).collect();
    Some(format!("{path}?{}{fragment}", pairs.join("&")))
}

/// In whatever the standard takes for a URL with a host.
fn by_the_standard(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    url.set_password(Some(&marked(""))).ok()?;
    Some(url.into())
}
