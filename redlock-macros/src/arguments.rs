//! The parameters of a function: the parts that stay in its signature, and the way in which the body gets them.
//!
//! In the closure around the body, each parameter becomes a variable with the pattern and the span of the user. So
//! rustc sees whether the body or the key uses it, as it does without the attribute.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{FnArg, PatType, Receiver, parse_quote};

use crate::attrs::{is_cfg, is_lint, is_no_lint, only};
use crate::function::{Function, hidden_name, plain};

#[derive(Default)]
pub(crate) struct Arguments {
    /// Moves each parameter into the closure as a whole. The closure drops its variables before the lock is released.
    pub(crate) captures: TokenStream,
    /// The text between the parentheses of a call, which passes all parameters on.
    pub(crate) names: Vec<TokenStream>,
}

impl Arguments {
    /// Moves patterns, `mut` and lint levels out of the signature of the function.
    pub(crate) fn take_from(function: &mut Function) -> Arguments {
        let mut all = Arguments::default();
        for (index, input) in function.sig.inputs.iter_mut().enumerate() {
            match input {
                FnArg::Receiver(receiver) => all.receiver(receiver),
                FnArg::Typed(typed) => all.typed(typed, index),
            }
        }
        all
    }

    /// `self` can neither be renamed nor bound again.
    fn receiver(&mut self, receiver: &Receiver) {
        let (cfg, name) = (only(&receiver.attrs, is_cfg), &receiver.self_token);
        self.captures.extend(quote!(#(#cfg)* let _ = &#name;));
        self.names.push(quote!(#(#cfg)* #name));
    }

    fn typed(&mut self, typed: &mut PatType, index: usize) {
        let cfg = only(&typed.attrs, is_cfg);
        let attrs = only(&typed.attrs, |name| is_cfg(name) || is_lint(name));
        typed.attrs = only(&typed.attrs, is_no_lint);
        let name = plain(&typed.pat).cloned().unwrap_or_else(|| hidden_name(index));
        let pat = std::mem::replace(&mut *typed.pat, parse_quote!(#name));
        let at = Span::mixed_site();
        if plain(&pat).is_none() {
            // A pattern may leave a part of the value unbound. That part must also be dropped before the lock is
            // released.
            self.captures.extend(quote!(#(#cfg)* let _ = &#name;));
        }
        self.captures.extend(quote_spanned!(at=> #(#attrs)* let #pat = #name;));
        self.names.push(quote!(#(#cfg)* #name));
    }
}
