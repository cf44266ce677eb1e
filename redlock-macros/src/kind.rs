//! The kind of lock: the value of `kind`, and the library's methods for it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Lit, Path, Result, parenthesized, parse_quote, token};

use crate::given::{Given, Literal};

pub(crate) struct Kind {
    pub(crate) lock: Lock,
    pub(crate) span: Span,
}

pub(crate) enum Lock {
    Reentrant,
    Mutex,
    Read,
    Write,
    Semaphore(Given<u32>),
    /// The lock of a list of keys. It has no name in `kind`.
    Several,
    /// The mutex of a job that is run once. It has no name in `kind`.
    Once,
}

const KINDS: &str = "`reentrant`, `mutex`, `read`, `write` and `semaphore(n)`";

impl Parse for Kind {
    fn parse(input: ParseStream) -> Result<Kind> {
        let name = Ident::parse_any(input)?;
        let lock = match name.to_string().as_str() {
            "reentrant" => Lock::Reentrant,
            "mutex" => Lock::Mutex,
            "read" => Lock::Read,
            "write" => Lock::Write,
            "semaphore" => Lock::Semaphore(permits(input, &name)?),
            other => return Err(Error::new(name.span(), format!("unknown kind `{other}`; the kinds are {KINDS}"))),
        };
        if input.peek(token::Paren) {
            return Err(Error::new(name.span(), format!("the kind `{name}` takes nothing in parentheses")));
        }
        Ok(Kind { lock, span: name.span() })
    }
}

/// Parses `(n)`.
fn permits(input: ParseStream, name: &Ident) -> Result<Given<u32>> {
    if !input.peek(token::Paren) {
        return Err(Error::new(name.span(), "a semaphore needs the number of its permits, such as `semaphore(10)`"));
    }
    let inside;
    parenthesized!(inside in input);
    let permits = inside.parse()?;
    if inside.is_empty() { Ok(permits) } else { Err(inside.error(u32::EXPECTED)) }
}

/// The number of permits of a semaphore.
impl Literal for u32 {
    const EXPECTED: &'static str = "expected a number of permits, 1 to 1024, or an expression that is a `u32`";

    fn read(lit: &Lit) -> Result<u32> {
        let Lit::Int(number) = lit else { return Err(Error::new(lit.span(), u32::EXPECTED)) };
        match number.base10_parse() {
            Ok(permits @ 1..=1024) => Ok(permits),
            _ => Err(Error::new(number.span(), format!("`{number}` permits; a semaphore has 1 to 1024"))),
        }
    }

    fn tokens(&self) -> TokenStream {
        quote!(#self)
    }
}

impl Lock {
    /// The call that creates the handle from the variable `key`.
    pub(crate) fn handle(&self) -> TokenStream {
        let at = Span::mixed_site();
        match self {
            Lock::Reentrant => quote_spanned!(at=> reentrant_mutex(key)),
            Lock::Mutex => quote_spanned!(at=> mutex(key)),
            Lock::Read | Lock::Write => quote_spanned!(at=> rw_lock(key)),
            Lock::Semaphore(permits) => {
                let permits = permits.tokens();
                quote_spanned!(at=> semaphore(key, #permits))
            }
            Lock::Several => quote_spanned!(at=> multi_lock(key)),
            Lock::Once => quote_spanned!(at=> once(key)),
        }
    }

    /// The method that waits without a limit. With the prefix `try_`, it is the method that does not wait. With that
    /// prefix and the suffix `_for`, it is the method with a limit.
    pub(crate) fn method(&self) -> &'static str {
        match self {
            Lock::Reentrant | Lock::Mutex | Lock::Several | Lock::Once => "lock",
            Lock::Read => "read",
            Lock::Write => "write",
            Lock::Semaphore(_) => "acquire",
        }
    }

    /// The type of the guard, as a path within the library.
    pub(crate) fn guard(&self) -> Path {
        let name = match self {
            Lock::Once => return parse_quote!(__private::OnceGuard),
            Lock::Reentrant => "ReentrantMutexGuard",
            Lock::Mutex => "MutexGuard",
            Lock::Read => "RwLockReadGuard",
            Lock::Write => "RwLockWriteGuard",
            Lock::Semaphore(_) => "SemaphorePermit",
            Lock::Several => "MultiLockGuard",
        };
        Ident::new(name, Span::mixed_site()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match syn::parse_str::<Kind>(text) {
            Ok(kind) => kind.lock.handle().to_string().replace(' ', ""),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn kinds() {
        for (text, handle) in [
            ("reentrant", "reentrant_mutex(key)"),
            ("mutex", "mutex(key)"),
            ("read", "rw_lock(key)"),
            ("write", "rw_lock(key)"),
            ("semaphore(10)", "semaphore(key,10u32)"),
            ("semaphore(self.limit())", "semaphore(key,self.limit())"),
        ] {
            assert_eq!(shown(text), handle);
        }
    }

    #[test]
    fn mistakes() {
        assert!(shown("rwlock").contains("the kinds are `reentrant`, `mutex`, `read`"));
        assert!(shown("semaphore").contains("such as `semaphore(10)`"));
        assert!(shown("read(5)").contains("nothing in parentheses"));
        for bad in ["0", "1025", "99999999999", "2.5", "\"3\"", "", "1 2"] {
            assert!(shown(&format!("semaphore({bad})")).contains("1024"), "{bad}");
        }
    }
}
