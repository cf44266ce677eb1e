//! The output with `--json`. Its schema is in README.md.

use serde::Serialize;

use crate::text::is_odd;

/// The version of the schema. It changes if programs for the older schema would misread the output. New fields do not
/// change it.
const VERSION: u32 = 1;

/// A line of output, with the version of the schema as the first field.
#[derive(Serialize)]
struct Line<T> {
    version: u32,
    #[serde(flatten)]
    shown: T,
}

/// Serializes a value to one line without control sequences of a terminal.
pub(crate) fn line(shown: impl Serialize) -> String {
    // This cannot fail: the keys of all maps are strings.
    let text = serde_json::to_string(&Line { version: VERSION, shown }).unwrap_or_default();
    escaped(&text) + "\n"
}

/// Escapes characters that change how other characters are shown. They occur only within strings, where JSON has
/// escapes for the units of UTF-16.
pub(crate) fn escaped(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut shown, c| {
        if is_odd(c) {
            shown.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_finds_nothing_to_obey() {
        let shown = std::collections::BTreeMap::from([("name", "a\u{1b}[2J\u{7f}\u{9b}1m\u{202e}b\nc 日\u{e0067}")]);
        let text = line(&shown);
        assert_eq!(text, "{\"version\":1,\"name\":\"a\\u001b[2J\\u007f\\u009b1m\\u202eb\\nc 日\\udb40\\udc67\"}\n");
    }
}
