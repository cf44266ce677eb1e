//! Key templates: literal text, placeholders and escapes.
//!
//! ```text
//! template    = ( text | placeholder )+   at least one character; two placeholders need text between them
//! placeholder = "{" expr [ ":" format-spec ] "}" | "<" expr ">"
//! escapes     = "{{" "}}" "<<" ">>"       each stands for one character
//! ```
//!
//! [`hole`](crate::hole) says which expressions and which names a placeholder may contain.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::visit_mut::{VisitMut, visit_expr_method_call_mut};
use syn::{Error, Expr, ExprMethodCall, LitStr, Member, Result, parse_quote};

/// A checked template.
pub(crate) struct Template {
    pub(crate) lit: LitStr,
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    Text(String),
    Hole(Hole),
}

/// A placeholder: the value that is inserted, and its format.
pub(crate) struct Hole {
    pub(crate) expr: Expr,
    /// The text after the colon in the brace form; empty for `Display`.
    pub(crate) spec: String,
    /// True if `format!` reads the placeholder in the same way: `{name…}`.
    pub(crate) is_plain: bool,
}

impl Template {
    pub(crate) fn parse(lit: LitStr) -> Result<Template> {
        Template::read(lit, false)
    }

    /// Like `parse`, but a placeholder may start with the number of a field. `{0.name}` is read as `{_0.name}`.
    pub(crate) fn parse_with_numbers(lit: LitStr) -> Result<Template> {
        Template::read(lit, true)
    }

    fn read(lit: LitStr, numbers: bool) -> Result<Template> {
        let text = lit.value();
        if text.is_empty() {
            return Err(Error::new(
                lit.span(),
                "the key template is empty; a lock needs a name, such as \"order:{id}\"",
            ));
        }
        let mut scan = Scan { rest: &text, span: lit.span(), numbers, parts: Vec::new() };
        while scan.step()? {}
        let parts = scan.parts;
        Ok(Template { lit, parts })
    }

    pub(crate) fn holes(&self) -> impl Iterator<Item = &Hole> {
        self.parts.iter().filter_map(|part| if let Part::Hole(hole) = part { Some(hole) } else { None })
    }
}

/// The parser: the rest of the template, and the parts parsed so far.
struct Scan<'a> {
    rest: &'a str,
    span: Span,
    numbers: bool,
    parts: Vec<Part>,
}

impl<'a> Scan<'a> {
    /// Reads one character, escape or placeholder. Returns false at the end.
    fn step(&mut self) -> Result<bool> {
        let mut chars = self.rest.chars();
        let Some(first) = chars.next() else { return Ok(false) };
        let after = chars.as_str();
        if !matches!(first, '{' | '}' | '<' | '>') {
            self.text(first, after);
        } else if let Some(after) = after.strip_prefix(first) {
            self.text(first, after);
        } else if first == '{' || first == '<' {
            self.hole(first, after)?;
        } else {
            return Err(self.stray(first));
        }
        Ok(true)
    }

    fn text(&mut self, c: char, after: &'a str) {
        self.rest = after;
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(c),
            _ => self.parts.push(Part::Text(c.into())),
        }
    }

    fn hole(&mut self, open: char, after: &'a str) -> Result<()> {
        let Some((inside, after)) = closing(open, after) else { return Err(self.unclosed(open)) };
        self.rest = after;
        if let Some(Part::Hole(_)) = self.parts.last() {
            return Err(self.error(format!(
                "put text between the hole before `{inside}` and this one: without it \"a\", \"bc\" and \"ab\", \"c\" are the same key"
            )));
        }
        let hole = if open == '{' { self.braced(inside)? } else { self.angled(inside)? };
        self.parts.push(Part::Hole(hole));
        Ok(())
    }

    fn braced(&self, inside: &str) -> Result<Hole> {
        let (source, spec) = split_spec(inside);
        if let Some(c) = spec.chars().find(|c| matches!(c, '$' | '*')) {
            return Err(self.error(format!(
                "`{c}` in format spec `{spec}`: in a key template, width and precision must be numbers"
            )));
        }
        // `format!` would continue after the brace, since it takes a quote or a brace here for a fill character.
        if spec.contains(['{', '}']) {
            return Err(
                self.error(format!("a brace in format spec `{spec}`; a quote or a brace cannot be the fill character"))
            );
        }
        let is_name = source.chars().all(|c| c.is_alphanumeric() || c == '_') && !source.starts_with(char::is_numeric);
        let has_bare_colon = spec.is_empty() && source.len() < inside.len();
        let is_plain = is_name && source != "self" && !has_bare_colon;
        Ok(Hole { expr: self.expr(source, "{}")?, spec: spec.to_owned(), is_plain })
    }

    fn angled(&self, inside: &str) -> Result<Hole> {
        let (source, spec) = split_spec(inside);
        if !spec.is_empty() {
            return Err(
                self.error(format!("`<{inside}>` has a format spec, which only braces take: write `{{{inside}}}`"))
            );
        }
        Ok(Hole { expr: self.expr(source, "<>")?, spec: String::new(), is_plain: false })
    }

    fn expr(&self, source: &str, empty: &str) -> Result<Expr> {
        if source.trim().is_empty() {
            return Err(self.error(format!("`{empty}` is an empty hole; put a parameter into it")));
        }
        let is_number = self.numbers && source.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let name = if is_number { format!("_{}", source.trim_start()) } else { source.to_owned() };
        let name = LitStr::new(&name, self.span);
        let mut expr = name.parse().or_else(|_| keyword(&name)).map_err(|_| {
            self.error(format!("`{source}` is not allowed in a hole; a hole takes parameters, fields and method calls"))
        })?;
        Members(Span::call_site().located_at(self.span)).visit_expr_mut(&mut expr);
        Ok(expr)
    }

    fn unclosed(&self, open: char) -> Error {
        let close = if open == '{' { '}' } else { '>' };
        self.error(format!(
            "`{open}` opens a hole that no `{close}` closes; write `{open}{open}` for the character itself"
        ))
    }

    fn stray(&self, close: char) -> Error {
        let open = if close == '}' { '{' } else { '<' };
        self.error(format!(
            "`{close}` closes a hole that no `{open}` opens; write `{close}{close}` for the character itself"
        ))
    }

    fn error(&self, message: String) -> Error {
        Error::new(self.span, message)
    }
}

/// Parses a keyword as the name that code writes with `r#`, as `format!` does.
fn keyword(name: &LitStr) -> Result<Expr> {
    let keyword = name.parse_with(Ident::parse_any)?;
    let name = Ident::new_raw(&keyword.to_string(), keyword.span());
    Ok(parse_quote!(#name))
}

/// Gives a span of the macro to fields and methods. Otherwise, rustc would offer to replace the whole template by the
/// name of a field. Variables keep the span of the template, so messages point at it.
struct Members(Span);

impl VisitMut for Members {
    fn visit_member_mut(&mut self, member: &mut Member) {
        if let Member::Named(name) = member {
            name.set_span(self.0);
        }
    }

    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        call.method.set_span(self.0);
        visit_expr_method_call_mut(self, call);
    }
}

/// Splits the text after `open` at the end of the placeholder. Strings and nested brackets of the same kind are
/// skipped.
fn closing(open: char, text: &str) -> Option<(&str, &str)> {
    let close = if open == '{' { '}' } else { '>' };
    let mut depth = 0_usize;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => skip_string(&mut chars),
            '\'' => skip_char(&mut chars),
            _ if c == open => depth += 1,
            _ if c == close && depth == 0 => return Some((text.get(..at)?, chars.as_str())),
            _ if c == close => depth -= 1,
            _ => {}
        }
    }
    None
}

fn skip_string(chars: &mut std::str::CharIndices<'_>) {
    while let Some((_, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Skips a character literal `'x'`, but not a lifetime.
fn skip_char(chars: &mut std::str::CharIndices<'_>) {
    let mut ahead = chars.clone();
    if let (Some((_, _)), Some((_, '\''))) = (ahead.next(), ahead.next()) {
        *chars = ahead;
    }
}

/// Splits at the first single colon outside brackets and strings. `id:08` becomes `id` and `08`, and `a::B` has no
/// format.
fn split_spec(text: &str) -> (&str, &str) {
    let mut depth = 0_usize;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => skip_string(&mut chars),
            '\'' => skip_char(&mut chars),
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && !chars.as_str().starts_with(':') => {
                return (text.get(..at).unwrap_or_default(), chars.as_str());
            }
            ':' => drop(chars.next()),
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::ToTokens;

    fn parse(text: &str) -> Result<Template> {
        Template::parse(LitStr::new(text, Span::call_site()))
    }

    /// Shows text unchanged, and placeholders as `[expr|spec]`.
    fn shown(text: &str) -> String {
        let show = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Hole(hole) => format!("[{}|{}]", hole.expr.to_token_stream().to_string().replace(' ', ""), hole.spec),
        };
        parse(text).unwrap().parts.iter().map(show).collect()
    }

    fn message(text: &str) -> String {
        parse(text).err().unwrap().to_string()
    }

    #[test]
    fn both_forms_of_hole() {
        assert_eq!(shown("order:{id}"), "order:[id|]");
        assert_eq!(shown("order:<id>"), "order:[id|]");
        assert_eq!(shown("{item.sku}:<self.0.region()>"), "[item.sku|]:[self.0.region()|]");
        assert_eq!(shown("é{ id }ü"), "é[id|]ü");
    }

    #[test]
    fn escapes() {
        assert_eq!(shown("{{a}}<<b>>"), "{a}<b>");
        assert_eq!(shown("{{{id}}}:cart"), "{[id|]}:cart");
        assert_eq!(shown("<<<id>>>"), "<[id|]>");
    }

    #[test]
    fn format_specs() {
        assert_eq!(shown("{id:08}"), "[id|08]");
        assert_eq!(shown("{id:?}"), "[id|?]");
        assert_eq!(shown("{x.get(A::B):>8}"), "[x.get(A::B)|>8]");
        assert_eq!(shown("{Self::NAME}"), "[Self::NAME|]");
        assert_eq!(shown("<x.get::<u8>()>"), "[x.get::<u8>()|]");
        assert_eq!(shown("{x.get::<u8>():x}"), "[x.get::<u8>()|x]");
    }

    #[test]
    fn strings_inside_holes() {
        assert_eq!(shown(r#"{x.replace("}", ":\"")}"#), r#"[x.replace("}",":\"")|]"#);
        assert_eq!(shown("{x.replace('}', ':'):5}-<y.find('>')>"), "[x.replace('}',':')|5]-[y.find('>')|]");
        assert_eq!(shown("{x.get::<'a, 'b>()}"), "[x.get::<'a,'b>()|]");
    }

    #[test]
    fn a_keyword_is_a_name() {
        assert_eq!(shown("{type}:{match:08}:<r#fn>"), "[r#type|]:[r#match|08]:[r#fn|]");
        // Code cannot write these keywords with `r#`.
        for word in ["self", "Self", "super", "crate", "_", "true"] {
            assert!(!shown(&format!("{{{word}}}")).contains("r#"), "{word}");
        }
    }

    #[test]
    fn mistakes() {
        assert!(message("").contains("is empty"));
        for open in ["{id", "<id", "a{b.c(\"}\")", "{", "<"] {
            assert!(message(open).contains("opens a hole"), "{open}");
        }
        for stray in ["id}", "id>", "a->b"] {
            assert!(message(stray).contains("closes a hole"), "{stray}");
        }
        for adjacent in ["{a}{b}", "<a>{b}", "x{a}<b>y"] {
            assert!(message(adjacent).contains("put text between"), "{adjacent}");
        }
        for empty in ["a{}", "a<>", "{ }", "{:08}"] {
            assert!(message(empty).contains("empty hole"), "{empty}");
        }
        assert!(message("<id:08>").contains("write `{id:08}`"));
        assert!(message("{id:w$}").contains("must be numbers"));
        assert!(message("{a b}").contains("not allowed in a hole"));
    }

    /// `format!` reads `{a:"<}` as a placeholder with quotes as fill characters, and then `{b:"<8}` as another
    /// placeholder.
    #[test]
    fn what_format_would_read_otherwise() {
        assert!(message("{a:\"<}-{b:\"<8}").contains("a brace in format spec"));
        assert!(message("{a:'}'}").contains("a brace in format spec"));
        let is_plain = |text| parse(text).unwrap().holes().all(|hole| hole.is_plain);
        assert!(is_plain("{a}") && is_plain("{a:8}") && !is_plain("{a:}^}}"));
        let numbered = Template::parse_with_numbers(LitStr::new("{0a}", Span::call_site())).unwrap();
        assert!(numbered.holes().all(|hole| !hole.is_plain));
    }
}
