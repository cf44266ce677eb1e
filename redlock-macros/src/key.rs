//! Builds the expression for a key from a template.
//!
//! A single placeholder is inserted unchanged. If there are several, the value of each one except the last is escaped.
//! So two different lists of values never make the same key. Two characters are escaped: `%`, and the character that
//! follows the placeholder in the template. Each byte of them becomes `%` and two hexadecimal digits. A reader goes
//! from left to right. The value ends at the first such character that is not a part of an escape. This works unless
//! that character is `%` itself, which is rejected.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Expr, LitStr, Path, Result};

use crate::template::{Hole, Part, Template};

/// A key as an expression.
pub(crate) enum Key {
    /// A key without placeholders: `&'static str`.
    Constant(TokenStream),
    /// A key with placeholders: `String`.
    Built(TokenStream),
}

impl Key {
    /// The key as an expression whose type is a `LockKey`.
    pub(crate) fn into_name(self) -> TokenStream {
        match self {
            Key::Constant(name) | Key::Built(name) => name,
        }
    }

    /// The key as a `String`.
    pub(crate) fn into_string(self) -> TokenStream {
        match self {
            Key::Constant(text) => quote!(::std::string::String::from(#text)),
            Key::Built(text) => text,
        }
    }

    /// The key as a `Cow<str>`.
    pub(crate) fn into_cow(self) -> TokenStream {
        match self {
            Key::Constant(text) => quote!(::std::borrow::Cow::Borrowed(#text)),
            Key::Built(text) => quote!(::std::borrow::Cow::Owned(#text)),
        }
    }
}

/// The key of a checked template, after `prefix`.
pub(crate) fn build(template: &Template, prefix: Option<&Expr>, krate: &Path) -> Result<Key> {
    if let (None, Some(lit)) = (prefix, as_written(template)) {
        return Ok(Key::Built(quote!(::std::format!(#lit))));
    }
    let mut format = Format { text: String::new(), plain: String::new(), args: Vec::new(), krate };
    if let Some(prefix) = prefix {
        format.prefix(prefix);
    }
    let escaped = template.holes().count().saturating_sub(1);
    let mut seen = 0;
    for (at, part) in template.parts.iter().enumerate() {
        match part {
            Part::Text(text) => format.text(text),
            Part::Hole(hole) if seen < escaped => {
                seen += 1;
                format.escaped(hole, follower(template, at)?);
            }
            Part::Hole(hole) => format.as_it_is(hole),
        }
    }
    Ok(format.finish(template.lit.span()))
}

/// Returns the literal itself, if `format!` parses it in the same way. Messages of rustc then point at the placeholder.
fn as_written(template: &Template) -> Option<&LitStr> {
    let mut holes = template.holes();
    let is_plain = holes.next()?.is_plain && holes.next().is_none() && !template.lit.value().contains(['<', '>']);
    is_plain.then_some(&template.lit)
}

/// The character after the placeholder at `at`. There is one, since another placeholder follows.
fn follower(template: &Template, at: usize) -> Result<char> {
    match template.parts.get(at + 1) {
        Some(Part::Text(text)) if text.starts_with('%') => Err(Error::new(
            template.lit.span(),
            "`%` cannot follow a hole that is not the last: `%` begins an escape in a value; put another sign first",
        )),
        Some(Part::Text(text)) => Ok(text.chars().next().unwrap_or(':')),
        _ => Ok(':'),
    }
}

/// The arguments of a call to `format!`.
struct Format<'a> {
    /// The format string: `{` and `}` are doubled, and it contains placeholders.
    text: String,
    /// The text without placeholders.
    plain: String,
    args: Vec<TokenStream>,
    krate: &'a Path,
}

impl Format<'_> {
    fn text(&mut self, text: &str) {
        self.plain.push_str(text);
        self.text.push_str(&text.replace('{', "{{").replace('}', "}}"));
    }

    fn prefix(&mut self, prefix: &Expr) {
        if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(lit), .. }) = prefix {
            return self.text(&lit.value());
        }
        self.text.push_str("{}");
        self.args.push(quote!(#prefix));
    }

    fn as_it_is(&mut self, hole: &Hole) {
        self.text.push_str(&placeholder(hole));
        let expr = &hole.expr;
        self.args.push(quote!(#expr));
    }

    fn escaped(&mut self, hole: &Hole, follower: char) {
        self.text.push_str("{}");
        let (krate, expr) = (self.krate, &hole.expr);
        let inner = literal(&placeholder(hole), syn::spanned::Spanned::span(expr));
        let value = quote!(::core::format_args!(#inner, #expr));
        self.args.push(quote!(#krate::__private::escape(#value, #follower)));
    }

    fn finish(self, at: Span) -> Key {
        if self.args.is_empty() {
            let text = literal(&self.plain, at);
            return Key::Constant(quote!(#text));
        }
        let (text, args) = (literal(&self.text, at), self.args);
        let at = hidden(at);
        Key::Built(quote_spanned!(at=> ::std::format!(#text, #(#args),*)))
    }
}

fn placeholder(hole: &Hole) -> String {
    if hole.spec.is_empty() { "{}".to_owned() } else { format!("{{:{}}}", hole.spec) }
}

fn literal(text: &str, at: Span) -> LitStr {
    LitStr::new(text, hidden(at))
}

/// The span of the user's code, but with the hygiene of the macro for lints.
fn hidden(at: Span) -> Span {
    Span::mixed_site().located_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(text: &str, prefix: Option<&str>) -> Result<String> {
        let template = Template::parse(LitStr::new(text, Span::call_site()))?;
        let prefix = prefix.map(|prefix| syn::parse_str(prefix).unwrap());
        let key = build(&template, prefix.as_ref(), &syn::parse_quote!(::c))?;
        Ok(key.into_name().to_string().replace(' ', ""))
    }

    #[test]
    fn no_hole_is_a_constant() {
        assert_eq!(built("a{{b}}<<", None).unwrap(), "\"a{b}<\"");
        assert_eq!(built("job", Some("\"x:\"")).unwrap(), "\"x:job\"");
    }

    #[test]
    fn one_hole_is_inserted_as_it_is() {
        assert_eq!(built("o:{id:08}", None).unwrap(), "::std::format!(\"o:{id:08}\")");
        assert_eq!(built("o:<id>", None).unwrap(), "::std::format!(\"o:{}\",id)");
        assert_eq!(built("{{o}}:{x.id:08}", None).unwrap(), "::std::format!(\"{{o}}:{:08}\",x.id)");
        assert_eq!(built("o:{r#type}", None).unwrap(), "::std::format!(\"o:{}\",r#type)");
        assert_eq!(built("o:{ id }", None).unwrap(), "::std::format!(\"o:{}\",id)");
        assert_eq!(built("{id}", Some("P")).unwrap(), "::std::format!(\"{}{}\",P,id)");
    }

    #[test]
    fn all_but_the_last_of_several_are_escaped() {
        let key = built("s:{a:x}/<b>-{c}", None).unwrap();
        let a = "::c::__private::escape(::core::format_args!(\"{:x}\",a),'/')";
        let b = "::c::__private::escape(::core::format_args!(\"{}\",b),'-')";
        assert_eq!(key, format!("::std::format!(\"s:{{}}/{{}}-{{}}\",{a},{b},c)"));
    }

    #[test]
    fn a_percent_sign_cannot_end_an_escaped_value() {
        assert!(built("{a}%{b}", None).is_err());
        assert!(built("{a}:%{b}%", None).is_ok());
    }
}
