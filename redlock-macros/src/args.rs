//! The arguments of `#[distributed_lock(…)]`, as they are written. What they mean together: [`check`](crate::check).

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprPath, Ident, LitBool, LitStr, Path, Result, Token};

use crate::duration::Length;

/// All arguments; `None` for those that are not given.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) wait: Option<Length>,
    pub(crate) lease: Option<Length>,
    pub(crate) renew: Option<LitBool>,
    pub(crate) min_hold: Option<Length>,
    pub(crate) max_hold: Option<Length>,
    pub(crate) fenced: Option<LitBool>,
    pub(crate) kind: Option<Kind>,
    pub(crate) client: Option<Expr>,
    pub(crate) prefix: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) krate: Option<Path>,
    pub(crate) busy: Option<Busy>,
    pub(crate) failed: Option<Policy>,
}

/// The arguments of the attribute: the template first.
pub(crate) struct Attribute {
    pub(crate) template: LitStr,
    pub(crate) args: Args,
}

/// Which lock is taken. `read`, `write` and `semaphore(n)` will find their place here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Reentrant,
    Mutex,
}

/// What a call does that did not get the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Error,
    Skip,
    Panic,
}

/// The same for a lock that another holder has.
pub(crate) struct Busy {
    pub(crate) answer: Answer,
    pub(crate) span: Span,
}

pub(crate) enum Answer {
    Policy(Policy),
    /// Called with the function's own arguments.
    Fallback(ExprPath),
}

const NAMES: &str = "`wait`, `lease`, `renew`, `min_hold`, `max_hold`, `fenced`, `kind`, `client`, `prefix`, `guard`, `busy`, `failed`, \
    `crate`";

impl Parse for Attribute {
    fn parse(input: ParseStream) -> Result<Attribute> {
        let template = template(input, "#[distributed_lock(\"order:{id}\")]")?;
        let mut args = Args::default();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                args.parse_one(input)?;
            }
        }
        Ok(Attribute { template, args })
    }
}

/// The key template, which every macro wants first.
pub(crate) fn template(input: ParseStream, example: &str) -> Result<LitStr> {
    let expected = |at| Error::new(at, format!("expected the key template first, as in `{example}`"));
    if input.is_empty() {
        return Err(expected(Span::call_site()));
    }
    input.parse().map_err(|error: Error| expected(error.span()))
}

impl Args {
    fn parse_one(&mut self, input: ParseStream) -> Result<()> {
        let name = Ident::parse_any(input)?;
        match name.to_string().as_str() {
            "wait" => set(&mut self.wait, &name, value(input, &name)),
            "lease" => set(&mut self.lease, &name, value(input, &name)),
            "renew" => set(&mut self.renew, &name, value(input, &name)),
            "min_hold" => set(&mut self.min_hold, &name, value(input, &name)),
            "max_hold" => set(&mut self.max_hold, &name, value(input, &name)),
            "fenced" => set(&mut self.fenced, &name, value(input, &name)),
            "kind" => set(&mut self.kind, &name, value(input, &name)),
            "client" => set(&mut self.client, &name, value(input, &name)),
            "prefix" => set(&mut self.prefix, &name, value(input, &name)),
            "guard" => set(&mut self.guard, &name, value(input, &name)),
            "busy" => set(&mut self.busy, &name, value(input, &name)),
            "failed" => set(&mut self.failed, &name, value(input, &name)),
            "crate" => set(&mut self.krate, &name, module(input, &name)),
            other => Err(Error::new(name.span(), format!("unknown argument `{other}`; the arguments are {NAMES}"))),
        }
    }
}

fn equals(input: ParseStream, name: &Ident) -> Result<()> {
    let missing = |_| Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`"));
    input.parse::<Token![=]>().map(drop).map_err(missing)
}

/// `= value`
pub(crate) fn value<T: Parse>(input: ParseStream, name: &Ident) -> Result<T> {
    equals(input, name)?;
    input.parse()
}

/// `= path::of::the::library`
pub(crate) fn module(input: ParseStream, name: &Ident) -> Result<Path> {
    equals(input, name)?;
    input.call(Path::parse_mod_style)
}

/// Puts a parsed value into its place, which must be free.
pub(crate) fn set<T>(place: &mut Option<T>, name: &Ident, value: Result<T>) -> Result<()> {
    if place.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice")));
    }
    *place = Some(value?);
    Ok(())
}

impl Parse for Kind {
    fn parse(input: ParseStream) -> Result<Kind> {
        let kind = Ident::parse_any(input)?;
        match kind.to_string().as_str() {
            "reentrant" => Ok(Kind::Reentrant),
            "mutex" => Ok(Kind::Mutex),
            other => {
                Err(Error::new(kind.span(), format!("unknown kind `{other}`; the kinds are `reentrant` and `mutex`")))
            }
        }
    }
}

impl Policy {
    fn named(path: &Path) -> Option<Policy> {
        match path.get_ident()?.to_string().as_str() {
            "error" => Some(Policy::Error),
            "skip" => Some(Policy::Skip),
            "panic" => Some(Policy::Panic),
            _ => None,
        }
    }
}

impl Parse for Policy {
    fn parse(input: ParseStream) -> Result<Policy> {
        let expected = |at| Error::new(at, "`failed` takes `error`, `skip` or `panic`");
        let path: Path = input.parse().map_err(|error: Error| expected(error.span()))?;
        Policy::named(&path).ok_or_else(|| expected(syn::spanned::Spanned::span(&path)))
    }
}

impl Parse for Busy {
    fn parse(input: ParseStream) -> Result<Busy> {
        let span = input.span();
        let path: ExprPath = input.parse().map_err(|error: Error| {
            Error::new(
                error.span(),
                "`busy` takes `error`, `skip`, `panic` or the path of a function with the same parameters",
            )
        })?;
        let answer = Policy::named(&path.path).map_or(Answer::Fallback(path), Answer::Policy);
        Ok(Busy { answer, span })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Attribute> {
        syn::parse_str(text)
    }

    fn message(text: &str) -> String {
        parse(text).err().unwrap().to_string()
    }

    #[test]
    fn all_arguments() {
        let parsed = parse(
            r#""k:{id}", wait = "5s", lease = "30s", renew = false, min_hold = "1s", max_hold = "1h", kind = mutex,
            fenced = true, client = self.locks, prefix = "x:", guard = lock, busy = skip, failed = panic, crate = ::other,"#,
        );
        let Attribute { template, args } = parsed.unwrap();
        assert_eq!(template.value(), "k:{id}");
        assert_eq!(args.wait.unwrap().value.as_secs(), 5);
        assert_eq!(args.lease.unwrap().value.as_secs(), 30);
        assert_eq!(args.min_hold.unwrap().value.as_secs(), 1);
        assert_eq!(args.max_hold.unwrap().value.as_secs(), 3600);
        assert!(!args.renew.unwrap().value && args.fenced.unwrap().value);
        assert_eq!(args.kind, Some(Kind::Mutex));
        assert_eq!(args.guard.unwrap(), "lock");
        assert!(matches!(args.busy.unwrap().answer, Answer::Policy(Policy::Skip)));
        assert_eq!(args.failed, Some(Policy::Panic));
        assert!(args.client.is_some() && args.prefix.is_some() && args.krate.is_some());
    }

    #[test]
    fn a_path_is_a_fallback() {
        for path in ["fallback", "Self::fallback", "self::skip", "f::<u8>"] {
            let args = parse(&format!("\"k\", busy = {path}")).unwrap().args;
            assert!(matches!(args.busy.unwrap().answer, Answer::Fallback(_)), "{path}");
        }
    }

    #[test]
    fn mistakes() {
        assert!(message("").contains("the key template first"));
        assert!(message("wait = \"5s\"").contains("the key template first"));
        assert!(message("\"k\", leese = 1").starts_with("unknown argument `leese`; the arguments are `wait`"));
        assert!(message("\"k\", wait = \"1s\", wait = \"1s\"").contains("given twice"));
        assert!(message("\"k\", wait = 5").contains("in quotes"));
        assert!(message("\"k\", wait = \"5\"").contains("no length of time"));
        assert!(message("\"k\", fenced = yes").contains("boolean"));
        assert!(message("\"k\", kind = rwlock").contains("the kinds are"));
        assert!(message("\"k\", failed = a::b").contains("`failed` takes"));
        assert!(message("\"k\", busy = 5").contains("`busy` takes"));
        assert!(message("\"k\", wait").contains("`wait` needs a value"));
        assert!(message("\"k\" \"l\"").contains("expected `,`"));
    }
}
