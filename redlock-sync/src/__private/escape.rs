//! Escapes the values in keys that have several: see `key!`.

use std::fmt::Display;

/// Escapes `%` and the character `follower` in a value: each byte of them becomes `%` and two hexadecimal digits.
/// `follower` is the character behind the placeholder in the template. An unescaped `follower` so marks the end of the
/// value.
pub fn escape<T: Display>(value: T, follower: char) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if c == '%' || c == follower {
            text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashMap};

    #[test]
    fn only_two_characters_change() {
        assert_eq!(escape("a/b c:d", ':'), "a/b c%3Ad");
        assert_eq!(escape("100%", ':'), "100%25");
        assert_eq!(escape("é→é", 'é'), "%C3%A9→%C3%A9");
        assert_eq!(escape(format_args!("{:04}:", 7), '0'), "%30%30%307:");
    }

    /// Words of three letters each. The letters are those that could be confused: the separator, `%`, and parts of
    /// escapes.
    fn words() -> BTreeSet<String> {
        const LETTERS: [&str; 8] = ["", "%", "3", "A", ":", "2", "5", "a"];
        let letter = |at: usize, digit: u32| LETTERS[at / 8_usize.pow(digit) % 8];
        (0..512).map(|at| [letter(at, 0), letter(at, 1), letter(at, 2)].concat()).collect()
    }

    #[test]
    fn no_two_pairs_of_values_share_a_key() {
        let words = words();
        for separator in [":", "3", "A", "::", "a%"] {
            let follower = separator.chars().next().unwrap();
            let mut seen = HashMap::new();
            for first in &words {
                let start = format!("{}{separator}", escape(first, follower));
                for second in &words {
                    let other = seen.insert(format!("{start}{second}"), (first, second));
                    assert_eq!(other, None, "{first:?} {second:?} with {separator:?}");
                }
            }
        }
    }
}
