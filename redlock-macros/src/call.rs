//! `key!` and `assert_locked!`, the macros that are called like functions.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, LitStr, Path, Result, Token, parse2};

use crate::args::{self, module, set, value};
use crate::expand::{client, default_path};
use crate::hole::{self, Scope};

use crate::template::Template;

/// The arguments `"template", client = expr, crate = path`.
struct Call {
    template: LitStr,
    client: Option<(Ident, Expr)>,
    krate: Path,
}

impl Parse for Call {
    fn parse(input: ParseStream) -> Result<Call> {
        let template = args::template(input, "\"order:{id}\"")?;
        let (mut client, mut krate) = (None, None);
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let name = Ident::parse_any(input)?;
            match name.to_string().as_str() {
                "client" => set(&mut client, &name, value(input, &name).map(|client| (name.clone(), client)))?,
                "crate" => set(&mut krate, &name, module(input, &name))?,
                other => return Err(Error::new(name.span(), format!("unknown argument `{other}`"))),
            }
        }
        Ok(Call { template, client, krate: krate.unwrap_or_else(default_path) })
    }
}

impl Call {
    fn key(&self) -> Result<TokenStream> {
        let template = Template::parse(self.template.clone())?;
        hole::check(&template, &Scope::Open)?;
        Ok(crate::key::build(&template, None, &self.krate)?.into_string())
    }
}

/// Expands `key!` to an expression of type `String`.
pub(crate) fn key(input: TokenStream) -> TokenStream {
    let expand = |call: Call| match &call.client {
        Some((name, _)) => Err(Error::new(name.span(), "a key has no client; the argument is `crate`")),
        None => call.key(),
    };
    parse2(input).and_then(expand).unwrap_or_else(Error::into_compile_error)
}

/// Expands `assert_locked!` to an expression of type `()`, which may panic.
pub(crate) fn assert_locked(input: TokenStream) -> TokenStream {
    let expand = |call: Call| {
        let (key, krate) = (call.key()?, &call.krate);
        let (bind, client) = client(call.client.as_ref().map(|(_, client)| client), krate);
        let at = Span::mixed_site();
        Ok(quote_spanned!(at=> { #bind #krate::__private::assert_locked(#client, &#key) }))
    };
    parse2(input).and_then(expand).unwrap_or_else(Error::into_compile_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(expand: fn(TokenStream) -> TokenStream, text: &str) -> String {
        expand(text.parse().unwrap()).to_string().replace(' ', "")
    }

    #[test]
    fn keys() {
        assert_eq!(of(key, "\"job\""), "::std::string::String::from(\"job\")");
        assert_eq!(of(key, "\"o:{id}\","), "::std::format!(\"o:{id}\")");
        assert!(of(key, "\"{a}:{b}\", crate = ::c").contains("::c::__private::escape"));
    }

    #[test]
    fn assertions() {
        let default = "{::redlock_sync::__private::assert_locked(::redlock_sync::Redlock::default_client(),&::std::format!(\"o:{id}\"))}";
        assert_eq!(of(assert_locked, "\"o:{id}\""), default);
        let own = of(assert_locked, "\"job\", client = self.locks");
        assert!(own.contains("letclient=&self.locks;"), "{own}");
    }

    #[test]
    fn mistakes() {
        for (bad, says) in [
            ("", "template first"),
            ("id", "template first"),
            ("\"{a}{b}\"", "put text"),
            ("\"k\", wait = \"5s\"", "unknown argument"),
            ("\"k\", client = x, client = y", "given twice"),
        ] {
            assert!(of(assert_locked, bad).contains(&says.replace(' ', "")), "{bad}");
        }
        assert!(of(key, "\"k\", client = x").contains("no client".replace(' ', "").as_str()));
    }
}
