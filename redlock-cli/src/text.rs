//! Formats names and lengths of time.

use std::time::Duration;

/// Returns true for a character that controls a terminal, or that changes how other characters are shown.
pub(crate) fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text of unknown origin on one line, with odd characters escaped.
pub(crate) fn plain(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_odd(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Shortens a text to this many characters. A text that was cut ends with `…`.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let first: String = text.chars().take(most).collect();
    if first.len() < text.len() { first + "…" } else { first }
}

/// Formats a length of time with at most two units: `4s`, `2m05s`, `3h07m`, `12d03h`.
pub(crate) fn length(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s @ 3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        s => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_odd_is_escaped() {
        assert_eq!(
            plain("a'b \"日\" \u{1b}[2J\u{9b}\u{202e}\u{61c}\u{fff9}\n"),
            "a'b \"日\" \\u{1b}[2J\\u{9b}\\u{202e}\\u{61c}\\u{fff9}\\n"
        );
    }

    #[test]
    fn lengths_have_two_units() {
        let shown = [4, 125, 3600 + 420, 12 * 86_400 + 3 * 3600].map(|s| length(Duration::from_secs(s)));
        assert_eq!(shown, ["4s", "2m05s", "1h07m", "12d03h"]);
    }
}
