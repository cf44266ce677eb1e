//! Parses lengths of time such as `"250ms"`, `"30s"` or `"1h30m"` at compile time.
//!
//! `redlock-sync` reads settings from the environment in the same form (`client/environment.rs`). A macro crate cannot
//! share code with it.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Lit, Result};

use crate::given::Literal;

impl Literal for Duration {
    const EXPECTED: &'static str =
        "expected a length of time in quotes, such as \"30s\" or \"250ms\", or an expression that is a `Duration`";

    fn read(lit: &Lit) -> Result<Duration> {
        let Lit::Str(lit) = lit else { return Err(Error::new(lit.span(), Duration::EXPECTED)) };
        let text = lit.value();
        parse(&text).ok_or_else(|| {
            Error::new(
                lit.span(),
                format!(
                    "`{text}` is not a length of time, such as \"30s\", \"250ms\" or \"1h30m\" (units: ms, s, m, h, d)"
                ),
            )
        })
    }

    fn tokens(&self) -> TokenStream {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        quote!(::core::time::Duration::from_millis(#millis))
    }
}

/// Parses a sum of numbers with units. Returns `None` for anything else, and for a sum that is too large for a
/// `Duration`.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = None;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, after) = after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let millis = number.parse::<u64>().ok()?.checked_mul(millis(unit)?)?;
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(Duration::from_millis(millis))?);
        rest = after;
    }
    total
}

fn millis(unit: &str) -> Option<u64> {
    match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!(parse("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse("2d12h"), Some(Duration::from_secs(60 * 3600)));
        assert_eq!(parse(" 250ms "), Some(Duration::from_millis(250)));
        assert_eq!(parse("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("0s"), Some(Duration::ZERO));
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "",
            " ",
            "30",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "5x",
            "5sec",
            "99999999999999999999s",
            "18446744073709551615h",
            "é",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
