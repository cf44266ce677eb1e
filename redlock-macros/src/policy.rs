//! The code that ends a call before its body: the call has no lock, or its job is done.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{ExprPath, Path, Type};

use crate::args::{Args, Busy, Policy};
use crate::check;
use crate::function::at;

impl Policy {
    /// The function that turns an error into the value of the call. For `panic`, the function panics.
    pub(crate) fn function(self, output: &Type, krate: &Path) -> TokenStream {
        match self {
            Policy::Error => quote!(<#output as #krate::__private::OrError>::or_error),
            Policy::Skip => quote!(<#output as #krate::__private::OrSkip>::or_skip),
            Policy::Panic => quote!(#krate::__private::panic),
        }
    }

    /// Ends the closure with the result of that function.
    fn refuse(self, function: &TokenStream) -> TokenStream {
        match self {
            Policy::Error | Policy::Skip => quote_spanned!(at()=> return #function(error)),
            Policy::Panic => quote_spanned!(at()=> #function(error)),
        }
    }
}

/// Stores the guard outside the closure. Without a guard, the call ends here. `names`: the arguments with which a
/// fallback is called.
pub(crate) fn keep(args: &Args, output: &Type, names: &[TokenStream], krate: &Path) -> TokenStream {
    let lease = args.guard.as_ref().map_or_else(|| quote!(_), ToTokens::to_token_stream);
    let (done, busy) = (done(args, output, names, krate), busy(args, output, names, krate));
    let otherwise = check::failed(args).refuse(&quote_spanned!(at()=> failed));
    quote_spanned! {at()=>
        #done
        let #lease = match hold.keep(lock) {
            ::core::result::Result::Ok(lease) => lease,
            #busy
            ::core::result::Result::Err(error) => #otherwise,
        };
    }
}

/// Ends a call whose job has succeeded before.
fn done(args: &Args, output: &Type, names: &[TokenStream], krate: &Path) -> Option<TokenStream> {
    args.once?;
    let answer = match args.done.as_ref().and_then(|done| done.fallback.as_ref()) {
        None => quote_spanned!(at()=> <#output as #krate::__private::OrSkip>::skipped()),
        Some(path) => call(path, names),
    };
    Some(quote_spanned! {at()=>
        let ::core::option::Option::Some(lock) = lock.transpose() else { return #answer };
    })
}

/// The call of a fallback with the arguments of the function.
fn call(path: &ExprPath, names: &[TokenStream]) -> TokenStream {
    let arguments = quote_spanned!(path.span()=> (#(#names),*));
    quote!(#path #arguments)
}

/// The match arm for a lock that another holder has. Without `wait`, `once` and `busy` there is no such arm, and "busy"
/// is treated like any other failure. Otherwise, a function that returns no error could not report it.
fn busy(args: &Args, output: &Type, names: &[TokenStream], krate: &Path) -> Option<TokenStream> {
    let answer = match &args.busy {
        None if args.wait.is_none() && args.once.is_none() => return None,
        None => &Busy::Policy(Policy::Error),
        Some(busy) => busy,
    };
    let answer = match answer {
        Busy::Policy(same) if *same == check::failed(args) => return None,
        Busy::Policy(other) => other.refuse(&other.function(output, krate)),
        Busy::Fallback(path) => {
            let call = call(path, names);
            quote!(return #call)
        }
    };
    Some(quote_spanned!(at()=> ::core::result::Result::Err(error) if error.is_busy() => #answer,))
}
