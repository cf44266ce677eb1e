//! Parses the signature of the annotated function. Its body is passed on unchanged.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, FnArg, Pat, PatIdent, Result, ReturnType, Signature, Token, Visibility, braced};

use crate::hole::Scope;

/// A function with a body.
pub(crate) struct Function {
    pub(crate) outer: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// Inner attributes of the body, which apply to the whole function.
    pub(crate) inner: Vec<Attribute>,
    /// The body in its braces. Messages of rustc can point at the braces.
    pub(crate) body: Group,
    /// The span of the braces.
    pub(crate) braces: Span,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> Result<Function> {
        let outer = input.call(Attribute::parse_outer)?;
        let start = input.span();
        let not_a_function = |_| Error::new(start, "`#[distributed_lock]` goes on a function or method");
        let vis = input.parse().map_err(not_a_function)?;
        head(&input.fork()).map_err(not_a_function)?;
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(Error::new(
                sig.ident.span(),
                "a method without a body cannot be locked; put `#[distributed_lock]` on its implementations",
            ));
        }
        let content;
        let braces = braced!(content in input).span.join();
        let inner = content.call(Attribute::parse_inner)?;
        Ok(Function { outer, vis, sig, inner, body: block(content.parse()?, braces), braces })
    }
}

/// Braces with the span of the user's code, but with the hygiene of the macro for lints.
fn block(body: TokenStream, braces: Span) -> Group {
    let mut block = Group::new(Delimiter::Brace, body);
    block.set_span(Span::mixed_site().located_at(braces));
    block
}

/// The span with the hygiene of all names in the expansion.
pub(crate) fn at() -> Span {
    Span::mixed_site()
}

/// Parses the signature up to and including `fn`.
fn head(input: ParseStream) -> Result<()> {
    while !input.peek(Token![fn]) {
        let is_modifier = input.peek(Token![const])
            || input.peek(Token![async])
            || input.peek(Token![unsafe])
            || input.peek(Token![extern])
            || input.peek(syn::LitStr);
        if !is_modifier {
            return Err(input.error("expected a function"));
        }
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

impl Function {
    /// The names that a key template may use.
    pub(crate) fn scope(&self) -> Scope {
        let mut names = Vec::new();
        for input in &self.sig.inputs {
            if let FnArg::Typed(typed) = input {
                bound(&typed.pat, &mut names);
            }
        }
        names.extend(self.sig.generics.const_params().map(|param| param.ident.to_string()));
        // With `cfg`, two parameters can have the same name.
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Scope::Function { name: self.sig.ident.to_string(), names, has_self: self.sig.receiver().is_some() }
    }

    /// The type that is written after the arrow.
    pub(crate) fn output(&self) -> Option<&syn::Type> {
        match &self.sig.output {
            ReturnType::Default => None,
            ReturnType::Type(_, output) => Some(output),
        }
    }
}

/// The name of a parameter whose pattern is only a name.
pub(crate) fn plain(pat: &Pat) -> Option<&Ident> {
    match pat {
        Pat::Ident(PatIdent { by_ref: None, subpat: None, ident, .. }) => Some(ident),
        _ => None,
    }
}

/// The names that a pattern binds.
fn bound(pat: &Pat, names: &mut Vec<String>) {
    match pat {
        Pat::Ident(pat) => {
            names.push(pat.ident.to_string());
            if let Some((_, sub)) = &pat.subpat {
                bound(sub, names);
            }
        }
        Pat::Paren(pat) => bound(&pat.pat, names),
        Pat::Reference(pat) => bound(&pat.pat, names),
        Pat::Tuple(pat) => pat.elems.iter().for_each(|elem| bound(elem, names)),
        Pat::TupleStruct(pat) => pat.elems.iter().for_each(|elem| bound(elem, names)),
        Pat::Slice(pat) => pat.elems.iter().for_each(|elem| bound(elem, names)),
        Pat::Struct(pat) => pat.fields.iter().for_each(|field| bound(&field.pat, names)),
        Pat::Type(pat) => bound(&pat.pat, names),
        _ => {}
    }
}

/// A name for the parameter at `index`. Code of the user cannot refer to it.
pub(crate) fn hidden_name(index: usize) -> Ident {
    Ident::new(&format!("arg{index}"), Span::mixed_site())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        syn::parse_str::<Function>(text).err().unwrap().to_string()
    }

    #[test]
    fn what_is_a_function() {
        for good in [
            "fn f() {}",
            "pub(crate) unsafe extern \"C\" fn f<T>(x: T) -> u8 where T: Copy { loop {} }",
            "/// doc\n#[inline] fn f(&self) { #![allow(unused)] let x = 1; }",
            "async fn f() {}",
        ] {
            assert!(syn::parse_str::<Function>(good).is_ok(), "{good}");
        }
        for bad in ["struct S;", "const X: u8 = 5;", "pub mod m {}", "impl S {}", "let x = 5;"] {
            assert!(message(bad).contains("goes on a function"), "{bad}");
        }
        assert!(message("fn f(&self);").contains("without a body"));
    }

    #[test]
    fn inner_attributes_are_taken_out_of_the_body() {
        let function: Function = syn::parse_str("fn f() { #![allow(unused)] let x = 1; }").unwrap();
        assert_eq!(function.inner.len(), 1);
        assert!(!function.body.to_string().contains("allow"));
    }

    #[test]
    fn names_in_patterns() {
        let text = "fn f<const N: usize>(a: u8, (b, Some(c)): X, P { d, e: [g, ..], .. }: P, h @ &i: &u8, #[cfg(x)] a: u64, _: u8) {}";
        let function: Function = syn::parse_str(text).unwrap();
        let Scope::Function { names, .. } = function.scope() else { panic!() };
        assert_eq!(names, ["a", "b", "c", "d", "g", "h", "i", "N"]);
    }
}
