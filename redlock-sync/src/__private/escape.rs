//! Values in keys that have several: see `key!`.

use std::fmt::{self, Display, Write};

/// A value in which `%` and one character more are written as `%` and two hexadecimal digits for each byte.
#[derive(Debug)]
pub struct Escaped<T> {
    value: T,
    follower: char,
}

/// `follower` is the character behind the hole in the template: where it stands unescaped, the value is at its end.
pub fn escape<T: Display>(value: T, follower: char) -> Escaped<T> {
    Escaped { value, follower }
}

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper { to: f, follower: self.follower }, "{}", self.value)
    }
}

struct Escaper<'a, 'f> {
    to: &'a mut fmt::Formatter<'f>,
    follower: char,
}

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(['%', self.follower]) {
            let (plain, special) = rest.split_at(at);
            self.to.write_str(plain)?;
            let mut chars = special.chars();
            chars.next().into_iter().try_for_each(|c| self.write_escape(c))?;
            rest = chars.as_str();
        }
        self.to.write_str(rest)
    }
}

impl Escaper<'_, '_> {
    fn write_escape(&mut self, c: char) -> fmt::Result {
        c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(self.to, "%{byte:02X}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashMap};

    fn escaped(value: &str, follower: char) -> String {
        escape(value, follower).to_string()
    }

    #[test]
    fn only_two_characters_change() {
        assert_eq!(escaped("a/b c:d", ':'), "a/b c%3Ad");
        assert_eq!(escaped("100%", ':'), "100%25");
        assert_eq!(escaped("é→é", 'é'), "%C3%A9→%C3%A9");
        assert_eq!(escape(format_args!("{:04}:", 7), '0').to_string(), "%30%30%307:");
    }

    /// Three letters each, from those that could be confused: the separator, `%`, and what escapes are made of.
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
                let start = format!("{}{separator}", escaped(first, follower));
                for second in &words {
                    let other = seen.insert(format!("{start}{second}"), (first, second));
                    assert_eq!(other, None, "{first:?} {second:?} with {separator:?}");
                }
            }
        }
    }
}
