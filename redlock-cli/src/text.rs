//! Formats names and lengths of time. A name is `escaped`. A message of the library, in which names are escaped already,
//! is made `printable`.

use std::time::Duration;

pub(crate) use redlock_sync::__private::{escaped, is_odd, printable};

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
    fn lengths_have_two_units() {
        let shown = [4, 125, 3600 + 420, 12 * 86_400 + 3 * 3600].map(|s| length(Duration::from_secs(s)));
        assert_eq!(shown, ["4s", "2m05s", "1h07m", "12d03h"]);
    }
}
