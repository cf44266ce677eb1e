//! What is printed with `--json`: docs/json.md has the schema.

use serde::Serialize;

use crate::text::is_odd;

/// It changes if a program that reads the older output would misread the newer one. New fields do not change it.
const VERSION: u32 = 1;

/// A line of output: what is shown, and the version of the schema before it.
#[derive(Serialize)]
struct Line<T> {
    version: u32,
    #[serde(flatten)]
    shown: T,
}

/// As one line, in which a terminal finds nothing to obey.
pub(crate) fn line(shown: impl Serialize) -> String {
    // Cannot fail: the keys of all maps are strings.
    let text = serde_json::to_string(&Line { version: VERSION, shown }).unwrap_or_default();
    plain(&text) + "\n"
}

/// Characters that change how others are shown stand within strings only, where JSON has escapes for them.
fn plain(json: &str) -> String {
    let each = |c: char| if is_odd(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_finds_nothing_to_obey() {
        let shown = std::collections::BTreeMap::from([("name", "a\u{1b}[2J\u{7f}\u{9b}1m\u{202e}b\nc 日")]);
        let text = line(&shown);
        assert_eq!(text, "{\"version\":1,\"name\":\"a\\u001b[2J\\u007f\\u009b1m\\u202eb\\nc 日\"}\n");
    }
}
