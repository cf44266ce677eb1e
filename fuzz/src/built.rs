//! The key that a template becomes, as rustc reads it: not what the macro meant, but what it wrote.

use quote::ToTokens;
use ra_ap_rustc_parse_format::{Count, FormatSpec, ParseMode, Parser, Piece, Position};
use redlock_sync::__private::escape;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, ExprMacro, Lit, Path, Token};

use crate::key::{self, Key};
use crate::template::Template;

/// A part of a key.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Hole {
        expr: String,
        /// The character that ends the value, if the value is escaped.
        follower: Option<char>,
        /// Without width, precision and the like.
        is_plain: bool,
    },
}

/// What rustc makes of the template's code; `None` if it refuses the format string, or the macro the template.
///
/// # Panics
/// If the code is of another shape than the macro is meant to write.
pub(crate) fn read(template: &Template, prefix: Option<&Expr>) -> Option<Vec<Part>> {
    let krate: Path = syn::parse_quote!(::redlock_sync);
    match key::build(template, prefix, &krate).ok()? {
        Key::Constant(text) => Some(vec![Part::Text(string(&syn::parse2(text).expect("a literal")))]),
        Key::Built(code) => {
            let (text, args) = format_args(&syn::parse2(code).expect("one macro"));
            let mut args = args.iter();
            let parts = pieces(&text)?.into_iter().map(|piece| match piece {
                Read::Text(text) => Some(Part::Text(text)),
                Read::Hole { name: Some(name), is_plain } => Some(Part::Hole { expr: name, follower: None, is_plain }),
                Read::Hole { name: None, is_plain } => hole(args.next().expect("an argument for each hole"), is_plain),
            });
            let parts = parts.collect::<Option<_>>()?;
            assert!(args.next().is_none(), "{text:?} leaves arguments over");
            Some(parts)
        }
    }
}

/// One argument: `expr`, or `escape(format_args!("{…}", expr), 'c')`.
fn hole(arg: &Expr, is_plain: bool) -> Option<Part> {
    let (expr, follower, is_plain) = match arg {
        Expr::Call(call) if call.func.to_token_stream().to_string().ends_with(":: __private :: escape") => {
            let [Expr::Macro(value), Expr::Lit(follower)] = [&call.args[0], &call.args[1]] else {
                panic!("escape of what")
            };
            let Lit::Char(follower) = &follower.lit else { panic!("escape of what") };
            let (text, args) = format_args(value);
            let [Read::Hole { name: None, is_plain: inner }] = pieces(&text)?[..] else {
                panic!("one hole in {text:?}")
            };
            assert!(is_plain && args.len() == 1, "{text:?}");
            (args[0].clone(), Some(follower.value()), inner)
        }
        other => (other.clone(), None, is_plain),
    };
    Some(Part::Hole { expr: expr.to_token_stream().to_string(), follower, is_plain })
}

fn format_args(call: &ExprMacro) -> (String, Vec<Expr>) {
    let args = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(call.mac.tokens.clone());
    let mut args = args.expect("arguments").into_iter();
    (string(&args.next().expect("a format string")), args.collect())
}

fn string(expr: &Expr) -> String {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
        other => panic!("no text: {}", other.to_token_stream()),
    }
}

/// A piece of a format string. A hole without a name takes the next argument.
enum Read {
    Text(String),
    Hole { name: Option<String>, is_plain: bool },
}

fn pieces(text: &str) -> Option<Vec<Read>> {
    let mut parser = Parser::new(text, None, None, false, ParseMode::Format);
    let mut all: Vec<Read> = Vec::new();
    while let Some(piece) = parser.next() {
        match (piece, all.last_mut()) {
            (Piece::Lit(more), Some(Read::Text(text))) => text.push_str(more),
            (Piece::Lit(text), _) => all.push(Read::Text(text.to_owned())),
            (Piece::NextArgument(argument), _) => {
                let spec = &argument.format;
                let is_number = |count: &Count<'_>| matches!(count, Count::CountIs(_) | Count::CountImplied);
                let name = match argument.position {
                    Position::ArgumentNamed(name) => Some(name.to_owned()),
                    Position::ArgumentImplicitlyIs(_) => None,
                    Position::ArgumentIs(at) => Some(at.to_string()),
                };
                let is_taken = is_number(&spec.width) && is_number(&spec.precision);
                assert!(is_taken || !parser.errors.is_empty(), "{text:?} takes a width from elsewhere");
                all.push(Read::Hole { name, is_plain: *spec == FormatSpec::default() });
            }
        }
    }
    parser.errors.is_empty().then_some(all)
}

/// The key of these values.
pub(crate) fn render(parts: &[Part], values: &[String]) -> String {
    let mut values = values.iter();
    let show = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Hole { follower: None, .. } => values.next().expect("a value").clone(),
        Part::Hole { follower: Some(follower), .. } => escape(values.next().expect("a value"), *follower).to_string(),
    };
    parts.iter().map(show).collect()
}

/// The values of a key: that they can be read back says that no other values have this key.
pub(crate) fn values(parts: &[Part], key: &str) -> Vec<String> {
    let mut rest = key;
    let mut values = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Text(text) => rest = rest.strip_prefix(text.as_str()).expect("the text of the template"),
            Part::Hole { follower: Some(follower), .. } => {
                let (value, after) = rest.split_at(end(rest, *follower).expect("the end of the value"));
                values.push(unescaped(value));
                rest = after;
            }
            Part::Hole { follower: None, .. } => {
                let behind = match parts.get(at + 1) {
                    Some(Part::Text(text)) => text.as_str(),
                    _ => "",
                };
                let value = rest.strip_suffix(behind).expect("the end of the template");
                values.push(value.to_owned());
                rest = behind;
            }
        }
    }
    assert!(rest.is_empty(), "{rest:?} is left");
    values
}

/// Where that character stands first that is no part of an escape.
fn end(text: &str, follower: char) -> Option<usize> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '%' => drop(chars.nth(1)),
            c if c == follower => return Some(at),
            _ => {}
        }
    }
    None
}

/// `%` and two digits are one byte.
fn unescaped(value: &str) -> String {
    let mut bytes = value.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let digits =
            if byte == b'%' { [bytes.next(), bytes.next()].into_iter().collect::<Option<Vec<u8>>>() } else { None };
        let text = digits.map(|digits| String::from_utf8(digits).expect("digits"));
        out.push(text.map_or(byte, |text| u8::from_str_radix(&text, 16).expect("a byte")));
    }
    String::from_utf8(out).expect("text")
}
