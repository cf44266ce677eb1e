//! Selects the attributes of a function or parameter for each of the two places in the expansion.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;
use syn::{Attribute, Meta};

/// Returns true for an attribute that sets the level of a lint.
pub(crate) fn is_lint(name: &str) -> bool {
    matches!(name, "allow" | "warn" | "deny" | "forbid" | "expect")
}

/// Returns true for an attribute that limits an item to some builds.
pub(crate) fn is_cfg(name: &str) -> bool {
    name == "cfg"
}

/// Returns true for every attribute that sets no lint level.
pub(crate) fn is_no_lint(name: &str) -> bool {
    !is_lint(name)
}

/// Returns true if the attributes limit an item to some builds.
pub(crate) fn has_cfg(attrs: &[Attribute]) -> bool {
    !only(attrs, is_cfg).is_empty()
}

/// The attributes whose names `wanted` accepts, including those within `cfg_attr`. A path such as `rustfmt::skip`
/// counts as an empty name.
pub(crate) fn only(attrs: &[Attribute], wanted: fn(&str) -> bool) -> Vec<Attribute> {
    attrs.iter().filter_map(|attr| part(attr, wanted)).collect()
}

fn part(attr: &Attribute, wanted: fn(&str) -> bool) -> Option<Attribute> {
    let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
    if name != "cfg_attr" {
        return wanted(&name).then(|| attr.clone());
    }
    let Meta::List(list) = &attr.meta else { return None };
    let mut list = list.clone();
    list.tokens = conditional(list.tokens, wanted)?;
    let mut attr = attr.clone();
    attr.meta = Meta::List(list);
    Some(attr)
}

/// The wanted part of the inside of a `cfg_attr`, which is `predicate, attribute, …`.
fn conditional(tokens: TokenStream, wanted: fn(&str) -> bool) -> Option<TokenStream> {
    let mut parts = between_commas(tokens).into_iter();
    let predicate = parts.next()?;
    let kept: Vec<TokenStream> = parts.filter_map(|part| nested(part, wanted)).collect();
    if kept.is_empty() { None } else { Some(quote!(#predicate, #(#kept),*)) }
}

/// The wanted part of one attribute inside a `cfg_attr`.
fn nested(attribute: TokenStream, wanted: fn(&str) -> bool) -> Option<TokenStream> {
    let mut tokens = attribute.clone().into_iter();
    let name = tokens.next()?;
    match tokens.next() {
        Some(TokenTree::Group(group)) if name.to_string() == "cfg_attr" => {
            let inside = Group::new(Delimiter::Parenthesis, conditional(group.stream(), wanted)?);
            Some(quote!(#name #inside))
        }
        Some(TokenTree::Punct(punct)) if punct.as_char() == ':' => wanted("").then_some(attribute),
        _ => wanted(&name.to_string()).then_some(attribute),
    }
}

fn between_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    for token in tokens {
        match (token, parts.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => parts.push(TokenStream::new()),
            (token, Some(part)) => part.extend([token]),
            (_, None) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::ToTokens;

    fn shown(attrs: &str, wanted: fn(&str) -> bool) -> String {
        let function: syn::ItemFn = syn::parse_str(&format!("{attrs} fn f() {{}}")).unwrap();
        let kept = only(&function.attrs, wanted);
        kept.iter().map(|attr| attr.to_token_stream().to_string().replace(' ', "")).collect()
    }

    #[test]
    fn attributes_are_chosen_by_name() {
        let attrs = "/// doc\n#[cfg(unix)] #[allow(a, b)] #[must_use] #[rustfmt::skip] #[expect(c, reason = \"d\")]";
        assert_eq!(shown(attrs, is_cfg), "#[cfg(unix)]");
        assert_eq!(shown(attrs, is_lint), "#[allow(a,b)]#[expect(c,reason=\"d\")]");
        assert_eq!(shown(attrs, is_no_lint), "#[doc=\"doc\"]#[cfg(unix)]#[must_use]#[rustfmt::skip]");
    }

    #[test]
    fn conditional_attributes_are_chosen_one_by_one() {
        let attrs = "#[cfg_attr(all(unix, true), allow(a), cfg(b), cold, cfg_attr(true, cfg(c), deny(d)), x::cfg)]";
        assert_eq!(shown(attrs, is_cfg), "#[cfg_attr(all(unix,true),cfg(b),cfg_attr(true,cfg(c)))]");
        assert_eq!(shown(attrs, is_lint), "#[cfg_attr(all(unix,true),allow(a),cfg_attr(true,deny(d)))]");
        assert_eq!(shown(attrs, is_no_lint), "#[cfg_attr(all(unix,true),cfg(b),cold,cfg_attr(true,cfg(c)),x::cfg)]");
        assert_eq!(shown("#[cfg_attr(unix, cold)] #[cfg_attr(true, cfg_attr(true, cold))]", is_lint), "");
    }
}
