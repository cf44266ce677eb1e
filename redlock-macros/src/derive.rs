//! `#[derive(LockKey)]`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, Generics, Index, LitStr, Member, Path, Result, Token, Type,
    WherePredicate, parse_quote, parse2,
};

use crate::args::{module, set};
use crate::expand::default_path;
use crate::hole::{self, Scope};
use crate::key;
use crate::template::{Hole, Template};

const EXAMPLE: &str = "`#[lock_key(\"order:{id}\")]`";

/// Expands the derive. After a mistake, the expansion contains only the message.
pub(crate) fn lock_key(item: TokenStream) -> TokenStream {
    parse2(item).and_then(|item| expand(&item)).unwrap_or_else(Error::into_compile_error)
}

/// The arguments of `#[lock_key("template", display, crate = path)]`.
#[derive(Default)]
struct Settings {
    template: Option<LitStr>,
    /// The span of `display`, if the type gets a `Display` that shows its key.
    display: Option<Ident>,
    krate: Option<Path>,
}

impl Parse for Settings {
    fn parse(input: ParseStream) -> Result<Settings> {
        let mut settings = Settings::default();
        if input.peek(LitStr) {
            settings.template = Some(input.parse()?);
            if input.is_empty() {
                return Ok(settings);
            }
            input.parse::<Token![,]>()?;
        }
        while !input.is_empty() {
            let name = input.call(<Ident as syn::ext::IdentExt>::parse_any)?;
            match name.to_string().as_str() {
                "crate" => set(&mut settings.krate, &name, module(input, &name))?,
                "display" => set(&mut settings.display, &name, Ok(name.clone()))?,
                _ => {
                    let expected = format!("expected {EXAMPLE}, optionally with `display` or `crate = path`");
                    return Err(Error::new(name.span(), expected));
                }
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(settings)
    }
}

impl Settings {
    /// Parses the attribute `lock_key`. A type may have one or none.
    fn of(attrs: &[Attribute]) -> Result<Settings> {
        let mut ours = attrs.iter().filter(|attr| attr.path().is_ident("lock_key"));
        let Some(first) = ours.next() else { return Ok(Settings::default()) };
        match ours.next() {
            None => first.parse_args(),
            Some(second) => Err(Error::new_spanned(second, "a second `#[lock_key(…)]`; a key has one template")),
        }
    }
}

fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let settings = Settings::of(&item.attrs)?;
    let krate = settings.krate.clone().unwrap_or_else(default_path);
    let is_shown = settings.display.is_some();
    let mut generics = item.generics.clone();
    let arms = match &item.data {
        Data::Struct(data) => {
            vec![arm(&item.ident, &parse_quote!(Self), &data.fields, settings, &krate, &mut generics)?]
        }
        Data::Enum(data) => {
            if let Some(template) = settings.template {
                return Err(Error::new(
                    template.span(),
                    "an enum has a template on each of its variants, not one for all",
                ));
            }
            let arm = |variant: &syn::Variant| {
                let name = &variant.ident;
                let settings = Settings::of(&variant.attrs)?;
                if let Some(word) = &settings.display {
                    return Err(Error::new(word.span(), "put `#[lock_key(display)]` on the enum, not on a variant"));
                }
                arm(name, &parse_quote!(Self::#name), &variant.fields, settings, &krate, &mut generics)
            };
            data.variants.iter().map(arm).collect::<Result<_>>()?
        }
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span,
                "a union cannot be a lock key: it does not say which of its fields is valid",
            ));
        }
    };
    let name = &item.ident;
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    // With `Display`, the type can be used in templates.
    let display = is_shown.then(|| {
        quote! {
            #[automatically_derived]
            impl #impl_generics ::core::fmt::Display for #name #ty_generics #where_clause {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.pad(&#krate::LockKey::lock_key(self))
                }
            }
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::LockKey for #name #ty_generics #where_clause {
            fn lock_key(&self) -> ::std::borrow::Cow<'_, str> {
                match *self { #(#arms)* }
            }
        }
        #display
    })
}

/// The match arm of a variant: `Self::Variant { id: ref id, .. } => key,`.
fn arm(
    name: &Ident,
    path: &Path,
    fields: &Fields,
    settings: Settings,
    krate: &Path,
    generics: &mut Generics,
) -> Result<TokenStream> {
    let missing = || Error::new(name.span(), format!("`{name}` needs a template, such as {EXAMPLE}"));
    let template = Template::parse_with_numbers(settings.template.ok_or_else(missing)?)?;
    let names = members(fields).map(|(_, binding, _)| binding).collect();
    hole::check(&template, &Scope::Fields { name: name.to_string(), names })?;
    add_bounds(generics, &template, fields);
    let key = key::build(&template, None, krate)?.into_cow();
    let bindings =
        members(fields).filter(|(_, name, _)| template.holes().any(|hole| hole.uses(name))).map(|(member, name, _)| {
            let name = variable(&name, template.lit.span());
            quote!(#member: ref #name,)
        });
    Ok(quote!(#path { #(#bindings)* .. } => #key,))
}

/// The identifier of a field, with `r#` if the name is a keyword.
fn variable(name: &str, span: Span) -> Ident {
    name.strip_prefix("r#").map_or_else(|| Ident::new(name, span), |keyword| Ident::new_raw(keyword, span))
}

/// Each field with its name in a template. The field `0` is bound as `_0`.
fn members(fields: &Fields) -> impl Iterator<Item = (Member, String, &Field)> {
    fields.iter().enumerate().map(|(index, field)| match &field.ident {
        Some(name) => (Member::Named(name.clone()), name.to_string(), field),
        None => (Member::Unnamed(Index::from(index)), format!("_{index}"), field),
    })
}

/// Adds the bounds that fields in placeholders need, if their types depend on type parameters.
fn add_bounds(generics: &mut Generics, template: &Template, fields: &Fields) {
    for (_, name, field) in members(fields) {
        if generics.type_params().any(|param| mentions(field.ty.to_token_stream(), &param.ident)) {
            let holes = template.holes().filter(|hole| hole.only_name().is_some_and(|only| *only == name));
            generics.make_where_clause().predicates.extend(holes.map(|hole| bound(hole, &field.ty)));
        }
    }
}

fn bound(hole: &Hole, ty: &Type) -> WherePredicate {
    let name = match hole.spec.chars().last() {
        Some('?') => "Debug",
        Some('x') => "LowerHex",
        Some('X') => "UpperHex",
        Some('o') => "Octal",
        Some('b') => "Binary",
        Some('e') => "LowerExp",
        Some('E') => "UpperExp",
        Some('p') => "Pointer",
        _ => "Display",
    };
    let name = Ident::new(name, Span::call_site());
    parse_quote!(#ty: ::core::fmt::#name)
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(text: &str) -> String {
        expand(&syn::parse_str(text).unwrap())
            .map_or_else(|error| error.to_string(), |tokens| tokens.to_string().replace(' ', ""))
    }

    #[test]
    fn a_struct() {
        let tokens = derived("#[lock_key(\"order:{id}\")] struct Order { id: u64, note: String }");
        assert!(
            tokens.contains("Self{id:refid,..}=>::std::borrow::Cow::Owned(::std::format!(\"order:{id}\")),"),
            "{tokens}"
        );
        assert!(tokens.contains("impl::redlock_sync::LockKeyforOrder{"), "{tokens}");
    }

    #[test]
    fn fields_by_number() {
        let tokens = derived("#[lock_key(\"o:{0}:{1.name}\", crate = a::b)] struct Order(u64, Item, u8);");
        assert!(tokens.contains("Self{0:ref_0,1:ref_1,..}=>"), "{tokens}");
        assert!(tokens.contains("impla::b::LockKeyforOrder{"), "{tokens}");
        assert_eq!(derived("#[lock_key(\"o:{1}\")] struct O(u64);"), "no field `1` in `O`; its only field is `0`");
    }

    #[test]
    fn fields_whose_names_are_keywords() {
        let tokens = derived("#[lock_key(\"o:{r#type}:{match}\")] struct Order { r#type: u8, r#match: u8 }");
        assert!(tokens.contains("Self{r#type:refr#type,r#match:refr#match,..}=>"), "{tokens}");
    }

    #[test]
    fn generics_get_the_bounds_they_need() {
        let tokens = derived(
            "#[lock_key(\"{a}:{b:x}:{c}\")] struct K<'a, A: Copy, B, const N: usize> { a: &'a A, b: [B; N], c: u8 }",
        );
        assert!(tokens.contains("impl<'a,A:Copy,B,constN:usize>::redlock_sync::LockKeyforK<'a,A,B,N>"), "{tokens}");
        assert!(tokens.contains("where&'aA:::core::fmt::Display,[B;N]:::core::fmt::LowerHex"), "{tokens}");
    }

    #[test]
    fn an_enum_has_a_template_per_variant() {
        let tokens = derived("enum K { #[lock_key(\"all\")] All, #[lock_key(\"one:{0}\")] One(u64) }");
        assert!(
            tokens.contains("Self::All{..}=>::std::borrow::Cow::Borrowed(\"all\"),Self::One{0:ref_0,..}=>"),
            "{tokens}"
        );
        assert!(derived("enum Never {}").contains("match*self{}"));
    }

    #[test]
    fn a_type_is_shown_as_its_key_if_it_is_to_be() {
        let tokens = derived("#[lock_key(display, crate = a)] enum K<T> { #[lock_key(\"one:{0}\")] One(T) }");
        let shown = "impl<T>::core::fmt::DisplayforK<T>whereT:::core::fmt::Display";
        assert!(tokens.contains(shown) && tokens.contains("f.pad(&a::LockKey::lock_key(self))"), "{tokens}");
        assert!(!derived("#[lock_key(\"k\")] struct S;").contains("DisplayforS"));
    }

    #[test]
    fn mistakes() {
        assert!(derived("struct S;").contains("`S` needs a template"));
        assert!(derived("enum K { A }").contains("`A` needs a template"));
        assert!(derived("#[lock_key(\"k\")] enum K { #[lock_key(\"a\")] A }").contains("on each of its variants"));
        assert!(derived("#[lock_key(\"k\")] #[lock_key(\"k\")] struct S;").contains("a second"));
        assert!(derived("#[lock_key(\"k\", prefix = 5)] struct S;").contains("expected"));
        assert!(derived("enum K { #[lock_key(\"a\", display)] A }").contains("on the enum"));
        assert!(derived("#[lock_key(\"k\", display, display)] struct S;").contains("given twice"));
        assert!(derived("#[lock_key(\"k\")] union U { a: u8 }").contains("union"));
    }
}
