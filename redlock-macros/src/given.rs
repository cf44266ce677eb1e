//! The value of an argument: a literal, which is checked at compile time, or an expression, which is evaluated at each
//! call.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, Lit, Result};

/// The value of an argument.
pub(crate) struct Given<T> {
    expr: Expr,
    /// The value of a literal; `None` for an expression, whose value is known only at run time.
    pub(crate) literal: Option<T>,
}

/// A type that an argument takes as a literal.
pub(crate) trait Literal: Sized {
    /// The error message for anything else.
    const EXPECTED: &'static str;
    fn read(lit: &Lit) -> Result<Self>;
    fn tokens(&self) -> TokenStream;
}

impl<T: Literal> Parse for Given<T> {
    fn parse(input: ParseStream) -> Result<Given<T>> {
        let expr: Expr = input.parse().map_err(|error: Error| Error::new(error.span(), T::EXPECTED))?;
        let literal = if let Expr::Lit(lit) = &expr { Some(T::read(&lit.lit)?) } else { None };
        Ok(Given { expr, literal })
    }
}

impl<T> Given<T> {
    pub(crate) fn span(&self) -> Span {
        self.expr.span()
    }
}

impl<T: Literal> Given<T> {
    /// The value as tokens for the expansion.
    pub(crate) fn tokens(&self) -> TokenStream {
        self.literal.as_ref().map_or_else(|| self.expr.to_token_stream(), Literal::tokens)
    }
}

impl Literal for bool {
    const EXPECTED: &'static str = "expected `true`, `false` or an expression that is a `bool`";

    fn read(lit: &Lit) -> Result<bool> {
        match lit {
            Lit::Bool(lit) => Ok(lit.value),
            other => Err(Error::new(other.span(), bool::EXPECTED)),
        }
    }

    fn tokens(&self) -> TokenStream {
        quote!(#self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn shown<T: Literal>(text: &str) -> String {
        let given = syn::parse_str::<Given<T>>(text);
        given.map_or_else(|error| error.to_string(), |given| given.tokens().to_string().replace(' ', ""))
    }

    #[test]
    fn literals_are_read_and_expressions_are_kept() {
        assert_eq!(shown::<Duration>("\"5s\""), "::core::time::Duration::from_millis(5000u64)");
        assert_eq!(shown::<Duration>("config().wait * 2"), "config().wait*2");
        assert_eq!(shown::<bool>("false"), "false");
        assert_eq!(shown::<bool>("!self.is_slow"), "!self.is_slow");
    }

    #[test]
    fn other_literals_are_refused() {
        assert_eq!(shown::<Duration>("5"), Duration::EXPECTED);
        assert_eq!(shown::<Duration>(","), Duration::EXPECTED);
        assert_eq!(shown::<Duration>(""), Duration::EXPECTED);
        assert_eq!(shown::<bool>("\"true\""), bool::EXPECTED);
    }
}
