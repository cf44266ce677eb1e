//! Functions with `#[track_caller]`.
//!
//! A closure cannot have that attribute, so the body becomes a separate function with the attribute.
//! `Location::caller()` and panics in the body then name the caller of the annotated function. The function of the body
//! has the same parameters, and a `SharedHold` as the last one.
//!
//! The function of the body is nested in the annotated function, if possible. A nested function cannot use `self` or
//! `Self`. If the body needs one of them, its function becomes a separate item after the annotated one, in the same
//! `impl` or trait.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, GenericParam, Meta, Path, Safety, Signature, parse_quote, parse_quote_spanned};

use crate::attrs::{is_cfg, is_lint, only};
use crate::function::{Function, at};

/// Returns true if the function has the attribute, at least in some builds.
pub(crate) fn is_tracked(function: &Function) -> bool {
    !only(&function.outer, is_track_caller).is_empty()
}

/// The function that contains the body.
pub(crate) struct Body {
    attrs: Vec<Attribute>,
    sig: Signature,
    /// True if this function follows the annotated one. False if it is nested in it.
    is_beside: bool,
}

impl Body {
    /// Returns the function of the body, if the annotated function has `#[track_caller]`. `expressions` are the
    /// expressions that the attribute's arguments put before the body. `guard` is the type of the guard.
    pub(crate) fn of(function: &Function, expressions: TokenStream, guard: &Path, krate: &Path) -> Option<Body> {
        let place = only(&function.outer, is_track_caller).first()?.path().span();
        let is_beside = needs_self(function, expressions);
        let wanted = if is_beside { goes_beside } else { goes_inside };
        let attrs = only(&function.outer, wanted);
        let mut sig = signature(&function.sig, guard, krate);
        if is_beside {
            // In an `impl` of a trait, rustc rejects this function. Its message then points at this span.
            let place = at().located_at(place);
            sig.fn_token.span = place;
            sig.ident.set_span(place);
        }
        Some(Body { attrs, sig, is_beside })
    }

    /// Returns the tokens to nest in the annotated function, and the tokens to put after it. One of the two is empty.
    pub(crate) fn place(&self, inner: &[Attribute], inside: &TokenStream) -> [TokenStream; 2] {
        let (attrs, sig) = (&self.attrs, &self.sig);
        // The function has one parameter more than the user's function.
        let head = quote_spanned!(at()=> #(#attrs)* #[allow(clippy::too_many_arguments)]);
        if self.is_beside {
            let block = quote_spanned!(sig.fn_token.span=> { #(#inner)* #inside });
            [TokenStream::new(), quote_spanned!(at()=> #head #[allow(dead_code)] #[doc(hidden)] #sig #block)]
        } else {
            [quote_spanned!(at()=> #head #sig { #inside }), TokenStream::new()]
        }
    }

    /// The call of the function with the arguments of the annotated one.
    pub(crate) fn call(&self, names: &[TokenStream]) -> TokenStream {
        let Signature { ident, generics, safety, .. } = &self.sig;
        let path = if self.is_beside { quote_spanned!(at()=> Self::#ident) } else { ident.to_token_stream() };
        let generics: Vec<&Ident> = generics.params.iter().filter_map(not_a_lifetime).collect();
        let generics = if generics.is_empty() { None } else { Some(quote_spanned!(at()=> ::<#(#generics),*>)) };
        let call = quote_spanned!(at()=> #path #generics (#(#names,)* ::core::clone::Clone::clone(&hold)));
        match safety {
            Safety::Unsafe(token) => quote_spanned!(at()=> #token { #call }),
            _ => call,
        }
    }

    /// Removes the `mut` of `mut self` and the expected warnings from the annotated function. Only the body needs them.
    /// The annotated function now contains only a call, so rustc would warn that neither is needed.
    pub(crate) fn relieve(&self, function: &mut Function) {
        if let Some(FnArg::Receiver(receiver)) = function.sig.inputs.first_mut() {
            receiver.mutability = None;
        }
        let expects = |attr: &&mut Attribute| self.is_beside && attr.path().is_ident("expect");
        for attr in function.outer.iter_mut().filter(expects) {
            if let Meta::List(list) = &mut attr.meta {
                list.path = parse_quote!(allow);
            }
        }
    }
}

fn is_track_caller(name: &str) -> bool {
    name == "track_caller"
}

/// Returns true for attributes that a nested function needs. The lint levels of the annotated function apply to it
/// anyway.
fn goes_inside(name: &str) -> bool {
    is_track_caller(name) || name == "target_feature"
}

fn goes_beside(name: &str) -> bool {
    goes_inside(name) || is_cfg(name) || is_lint(name)
}

/// The same signature with another name.
fn signature(sig: &Signature, guard: &Path, krate: &Path) -> Signature {
    let mut sig = sig.clone();
    let name = format!("__body_of_{}_for_track_caller", sig.ident.unraw());
    sig.ident = Ident::new(&name, at().located_at(sig.ident.span()));
    sig.abi = None;
    for input in &mut sig.inputs {
        let attrs = match input {
            FnArg::Receiver(receiver) => &mut receiver.attrs,
            FnArg::Typed(typed) => &mut typed.attrs,
        };
        *attrs = only(attrs, |name| is_cfg(name) || is_lint(name));
    }
    sig.inputs.push(parse_quote_spanned!(at()=> hold: #krate::__private::SharedHold<#krate::#guard>));
    sig
}

fn not_a_lifetime(param: &GenericParam) -> Option<&Ident> {
    match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        GenericParam::Lifetime(_) => None,
    }
}

/// Returns true if the body has to stay in its `impl` or trait. A function that uses neither `self` nor `Self` can be
/// nested anywhere.
fn needs_self(function: &Function, expressions: TokenStream) -> bool {
    function.sig.receiver().is_some()
        || names_self(function.sig.to_token_stream(), never)
        || names_self(expressions, never)
        || names_self(function.body.stream(), starts_item)
}

/// Returns true if `Self` occurs. Nested items are skipped, since `Self` has another meaning in them or none.
fn names_self(tokens: TokenStream, starts_item: fn(&Ident, Option<&TokenTree>) -> bool) -> bool {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if names_self(group.stream(), starts_item) => return true,
            TokenTree::Ident(ident) if ident == "Self" => return true,
            TokenTree::Ident(ident) if starts_item(&ident, tokens.peek()) => drop(tokens.find(ends_item)),
            _ => {}
        }
    }
    false
}

/// Always returns false, since a signature contains no items.
fn never(_: &Ident, _: Option<&TokenTree>) -> bool {
    false
}

fn starts_item(keyword: &Ident, next: Option<&TokenTree>) -> bool {
    match keyword.to_string().as_str() {
        "impl" | "trait" | "struct" | "enum" => true,
        // A type such as `fn(u8)` has no name.
        "fn" => matches!(next, Some(TokenTree::Ident(_))),
        _ => false,
    }
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn body(function: &str) -> Option<Body> {
        Body::of(&syn::parse_str(function).unwrap(), TokenStream::new(), &parse_quote!(G), &parse_quote!(::c))
    }

    fn is_beside(function: &str) -> bool {
        body(&format!("#[track_caller] {function}")).unwrap().is_beside
    }

    fn text(tokens: &TokenStream) -> String {
        tokens.to_string().replace(' ', "")
    }

    #[test]
    fn only_with_the_attribute() {
        assert!(body("#[inline] #[cfg_attr(x, cold)] fn f() {}").is_none());
        assert!(body("#[track_caller] fn f() {}").is_some());
        assert!(body("#[cfg_attr(x, cold, track_caller)] fn f() {}").is_some());
    }

    #[test]
    fn what_needs_self_stands_beside() {
        for inside in [
            "fn f(x: u8) {}",
            "fn f() { impl S { fn new() -> Self { Self } } f() }",
            "fn f() { struct S { x: Option<Box<Self>> } enum E { A(Box<Self>) } struct T(Box<Self>); }",
            "fn f() { fn g<T: From<u8>>(x: T) where T: Into<Self> {} }",
        ] {
            assert!(!is_beside(inside), "{inside}");
        }
        for beside in [
            "fn f(&self) {}",
            "fn f(self: Arc<Self>) {}",
            "fn f() -> Result<Self, Error> {}",
            "fn f(x: impl Fn(Self)) {}",
            "fn f() { vec![1, { Self::N }] }",
            "fn f() { struct S; impl S {} let x: fn(u8) -> Self = g; }",
        ] {
            assert!(is_beside(beside), "{beside}");
        }
        let function = syn::parse_str("#[track_caller] fn f() {}").unwrap();
        assert!(Body::of(&function, quote!(Self::LOCKS), &parse_quote!(G), &parse_quote!(::c)).unwrap().is_beside);
    }

    #[test]
    fn the_body_has_the_same_head() {
        let head = "#[cfg_attr(x, track_caller, cold)] #[allow(l)] #[must_use] #[inline]
            pub unsafe extern \"C\" fn f<'a, T: X, const N: usize>(#[cfg(y)] #[case] mut a: u8, (b, _): &'a B) -> R where T: Y {}";
        let body = body(head).unwrap();
        let [inside, beside] = body.place(&[], &quote!(go()));
        assert_eq!(
            text(&inside),
            "#[cfg_attr(x,track_caller)]#[allow(clippy::too_many_arguments)]unsafefn__body_of_f_for_track_caller<'a,T:X,constN:usize>\
            (#[cfg(y)]muta:u8,(b,_):&'aB,hold:::c::__private::SharedHold<::c::G>)->RwhereT:Y{go()}"
        );
        assert!(beside.is_empty());
        let call = text(&body.call(&[quote!(a), quote!(arg1)]));
        assert_eq!(call, "unsafe{__body_of_f_for_track_caller::<T,N>(a,arg1,::core::clone::Clone::clone(&hold))}");
    }

    #[test]
    fn a_method_takes_its_lints_along() {
        let mut function: Function =
            syn::parse_str("#[track_caller] #[cfg(x)] #[expect(l)] #[must_use] fn r#type(mut self: Box<Self>) {}")
                .unwrap();
        let body = Body::of(&function, TokenStream::new(), &parse_quote!(G), &parse_quote!(::c)).unwrap();
        let [inside, beside] = body.place(&[], &quote!(go()));
        assert!(inside.is_empty());
        assert_eq!(
            text(&beside),
            "#[track_caller]#[cfg(x)]#[expect(l)]#[allow(clippy::too_many_arguments)]#[allow(dead_code)]#[doc(hidden)]\
            fn__body_of_type_for_track_caller(mutself:Box<Self>,hold:::c::__private::SharedHold<::c::G>){go()}"
        );
        assert_eq!(
            text(&body.call(&[quote!(self)])),
            "Self::__body_of_type_for_track_caller(self,::core::clone::Clone::clone(&hold))"
        );
        body.relieve(&mut function);
        let (outer, sig) = (&function.outer, &function.sig);
        assert_eq!(
            text(&quote!(#(#outer)* #sig)),
            "#[track_caller]#[cfg(x)]#[allow(l)]#[must_use]fnr#type(self:Box<Self>)"
        );
    }
}
