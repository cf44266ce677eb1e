//! Parses the arguments of `#[distributed_lock(…)]`. [`check`](crate::check) checks them against each other.

use std::time::Duration;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprPath, Ident, LitStr, Path, Result, Token, bracketed, token};

use crate::given::Given;
use crate::kind::Kind;

/// All arguments. An argument that is not given is `None`.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) wait: Option<Given<Duration>>,
    pub(crate) lease: Option<Given<Duration>>,
    pub(crate) renew: Option<Given<bool>>,
    pub(crate) min_hold: Option<Given<Duration>>,
    pub(crate) max_hold: Option<Given<Duration>>,
    pub(crate) unavailable_after: Option<Given<Duration>>,
    pub(crate) fenced: Option<Given<bool>>,
    pub(crate) kind: Option<Kind>,
    pub(crate) client: Option<Expr>,
    pub(crate) prefix: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) krate: Option<Path>,
    pub(crate) busy: Option<Busy>,
    pub(crate) failed: Option<Policy>,
    /// The span of `once`.
    pub(crate) once: Option<Span>,
    pub(crate) remember: Option<Given<Duration>>,
    pub(crate) done: Option<Done>,
    /// The span of `background`: a call does not wait for the release.
    pub(crate) release: Option<Span>,
}

/// The keys and arguments of the attribute.
pub(crate) struct Attribute {
    pub(crate) keys: Keys,
    pub(crate) args: Args,
}

/// The templates of the keys.
pub(crate) enum Keys {
    One(LitStr),
    /// A list of keys, which are locked together.
    Several(Vec<LitStr>),
}

/// The behaviour of a call that did not acquire the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Error,
    Skip,
    Panic,
}

/// The behaviour of a call that found the lock held by another holder.
pub(crate) enum Busy {
    Policy(Policy),
    /// Called with the function's own arguments.
    Fallback(ExprPath),
}

/// The behaviour of a call whose job has succeeded before.
pub(crate) struct Done {
    pub(crate) span: Span,
    /// The function that is called with the same arguments; `None` skips the call.
    pub(crate) fallback: Option<ExprPath>,
}

const NAMES: &str = "`wait`, `lease`, `renew`, `min_hold`, `max_hold`, `unavailable_after`, `fenced`, `kind`, `client`, `prefix`, `guard`, `busy`, `failed`, \
    `once`, `remember`, `done`, `release`, `crate`";

impl Parse for Attribute {
    fn parse(input: ParseStream) -> Result<Attribute> {
        let keys = input.parse()?;
        let mut args = Args::default();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                args.parse_one(input)?;
            }
        }
        Ok(Attribute { keys, args })
    }
}

/// The largest number of keys of one multi-lock, as in the library.
const MOST_KEYS: usize = 64;

impl Parse for Keys {
    fn parse(input: ParseStream) -> Result<Keys> {
        if !input.peek(token::Bracket) {
            return template(input, "#[distributed_lock(\"order:{id}\")]").map(Keys::One);
        }
        let inside;
        let at = bracketed!(inside in input).span.join();
        let all = Punctuated::<LitStr, Token![,]>::parse_terminated_with(&inside, |one| {
            one.parse().map_err(|error: Error| Error::new(error.span(), "keys in a list must be templates in quotes"))
        })?;
        let all: Vec<LitStr> = all.into_iter().collect();
        if all.is_empty() || all.len() > MOST_KEYS {
            let message = format!(
                "a list of keys has 1 to {MOST_KEYS} templates, such as `[\"account:<from>\", \"account:<to>\"]`"
            );
            return Err(Error::new(at, message));
        }
        match all.iter().enumerate().find(|(i, key)| all.iter().take(*i).any(|other| other.value() == key.value())) {
            Some((_, twice)) => Err(Error::new(twice.span(), "this key is in the list twice")),
            None => Ok(Keys::Several(all)),
        }
    }
}

/// Parses the key template, the first argument of every macro.
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
            "unavailable_after" => set(&mut self.unavailable_after, &name, value(input, &name)),
            "fenced" => set(&mut self.fenced, &name, value(input, &name)),
            "kind" => set(&mut self.kind, &name, value(input, &name)),
            "client" => set(&mut self.client, &name, value(input, &name)),
            "prefix" => set(&mut self.prefix, &name, value(input, &name)),
            "guard" => set(&mut self.guard, &name, value(input, &name)),
            "busy" => set(&mut self.busy, &name, value(input, &name)),
            "failed" => set(&mut self.failed, &name, value(input, &name)),
            "once" => set(&mut self.once, &name, flag(input, &name)),
            "remember" => set(&mut self.remember, &name, value(input, &name)),
            "done" => set(&mut self.done, &name, value(input, &name)),
            "release" => set(&mut self.release, &name, background(input, &name)),
            "crate" => set(&mut self.krate, &name, module(input, &name)),
            other => Err(Error::new(name.span(), format!("unknown argument `{other}`; the arguments are {NAMES}"))),
        }
    }
}

fn equals(input: ParseStream, name: &Ident) -> Result<()> {
    let missing = |_| Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`"));
    input.parse::<Token![=]>().map(drop).map_err(missing)
}

/// Parses `= value`.
pub(crate) fn value<T: Parse>(input: ParseStream, name: &Ident) -> Result<T> {
    equals(input, name)?;
    input.parse()
}

/// Parses a name without a value, and returns its span.
fn flag(input: ParseStream, name: &Ident) -> Result<Span> {
    if input.peek(Token![=]) {
        return Err(Error::new(name.span(), format!("`{name}` takes no value; write it alone")));
    }
    Ok(name.span())
}

/// Parses `= background`, and returns the span of that word.
fn background(input: ParseStream, name: &Ident) -> Result<Span> {
    equals(input, name)?;
    let word = Ident::parse_any(input)?;
    if word == "background" {
        return Ok(word.span());
    }
    let message = "`release` can only be `background`, which does not wait for the servers; leave it out to wait";
    Err(Error::new(word.span(), message))
}

/// Parses `= path::of::the::library`.
pub(crate) fn module(input: ParseStream, name: &Ident) -> Result<Path> {
    equals(input, name)?;
    input.call(Path::parse_mod_style)
}

/// Stores a parsed value. Returns an error if the argument was given before.
pub(crate) fn set<T>(place: &mut Option<T>, name: &Ident, value: Result<T>) -> Result<()> {
    if place.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice")));
    }
    *place = Some(value?);
    Ok(())
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
        let path: ExprPath = input.parse().map_err(|error: Error| {
            Error::new(
                error.span(),
                "`busy` takes `error`, `skip`, `panic` or the path of a function with the same parameters",
            )
        })?;
        Ok(Policy::named(&path.path).map_or(Busy::Fallback(path), Busy::Policy))
    }
}

impl Parse for Done {
    fn parse(input: ParseStream) -> Result<Done> {
        let expected = |at| Error::new(at, "`done` takes `skip` or the path of a function with the same parameters");
        let path: ExprPath = input.parse().map_err(|error: Error| expected(error.span()))?;
        let span = syn::spanned::Spanned::span(&path);
        match Policy::named(&path.path) {
            Some(Policy::Skip) => Ok(Done { span, fallback: None }),
            None => Ok(Done { span, fallback: Some(path) }),
            Some(Policy::Error | Policy::Panic) => Err(expected(span)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Lock;

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
        let Attribute { keys, args } = parsed.unwrap();
        assert!(matches!(keys, Keys::One(template) if template.value() == "k:{id}"));
        let literal = |given: Option<Given<Duration>>| given.unwrap().literal.unwrap().as_secs();
        assert_eq!(literal(args.wait), 5);
        assert_eq!(literal(args.lease), 30);
        assert_eq!(literal(args.min_hold), 1);
        assert_eq!(literal(args.max_hold), 3600);
        assert_eq!((args.renew.unwrap().literal, args.fenced.unwrap().literal), (Some(false), Some(true)));
        assert!(matches!(args.kind.unwrap().lock, Lock::Mutex));
        assert_eq!(args.guard.unwrap(), "lock");
        assert!(matches!(args.busy.unwrap(), Busy::Policy(Policy::Skip)));
        assert_eq!(args.failed, Some(Policy::Panic));
        assert!(args.client.is_some() && args.prefix.is_some() && args.krate.is_some());
    }

    #[test]
    fn arguments_of_once() {
        let args = parse("\"k\", once, remember = \"48h\", done = skip").unwrap().args;
        assert!(args.once.is_some() && args.done.unwrap().fallback.is_none());
        assert_eq!(args.remember.unwrap().literal.unwrap().as_secs(), 48 * 3600);
        assert!(parse("\"k\", once, done = g").unwrap().args.done.unwrap().fallback.is_some());
        assert!(message("\"k\", once = true").contains("takes no value"));
        assert!(message("\"k\", once, once").contains("given twice"));
        for bad in ["error", "panic", "5"] {
            assert!(message(&format!("\"k\", once, done = {bad}")).contains("`done` takes"), "{bad}");
        }
    }

    #[test]
    fn several_keys() {
        let keys = parse("[\"a:<x>\", \"b\",], wait = limits().wait").unwrap().keys;
        assert!(matches!(keys, Keys::Several(all) if all.len() == 2));
    }

    #[test]
    fn a_path_is_a_fallback() {
        for path in ["fallback", "Self::fallback", "self::skip", "f::<u8>"] {
            let args = parse(&format!("\"k\", busy = {path}")).unwrap().args;
            assert!(matches!(args.busy.unwrap(), Busy::Fallback(_)), "{path}");
        }
    }

    #[test]
    fn mistakes() {
        assert!(message("").contains("the key template first"));
        assert!(message("wait = \"5s\"").contains("the key template first"));
        assert!(message("\"k\", leese = 1").starts_with("unknown argument `leese`; the arguments are `wait`"));
        assert!(message("\"k\", wait = \"1s\", wait = \"1s\"").contains("given twice"));
        assert!(message("\"k\", wait = 5").contains("in quotes"));
        assert!(message("\"k\", wait = \"5\"").contains("not a length of time"));
        assert!(message("\"k\", fenced = 1").contains("`bool`"));
        assert!(message("\"k\", kind = rwlock").contains("the kinds are"));
        assert!(message("\"k\", failed = a::b").contains("`failed` takes"));
        assert!(message("\"k\", busy = 5").contains("`busy` takes"));
        assert!(message("\"k\", wait").contains("`wait` needs a value"));
        assert!(message("\"k\" \"l\"").contains("expected `,`"));
        assert!(message("[]").contains("has 1 to 64 templates"));
        assert!(message(&format!("[{}]", "\"k\",".repeat(65))).contains("has 1 to 64 templates"));
        assert!(message("[5]").contains("templates in quotes"));
        assert!(message("[\"a\", \"b\", \"a\"]").contains("twice"));
    }
}
