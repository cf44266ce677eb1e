//! Checks the arguments against each other and against the function.

use std::time::Duration;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericParam, Result, Type, TypeParamBound};

use crate::args::{Args, Attribute, Busy, Keys, Policy};
use crate::attrs::has_cfg;
use crate::caller::is_tracked;
use crate::function::{Function, plain};
use crate::given::Given;
use crate::kind::{Kind, Lock};

/// The shortest lease of a client with the default settings of the library: what is longer than drift (1 % + 2 ms),
/// `node_timeout` (250 ms) and 10 ms together. The test `the_shortest_lease_is_that_of_the_library` checks that it is.
/// A client with a shorter `node_timeout` takes a shorter lease from an expression.
const SHORTEST: Duration = Duration::from_millis(265);
/// The longest lease, as in the library's `options.rs`.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The limits of `remember`, as in the library's `options.rs`.
const REMEMBERED: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 60 * 60);

/// Checks everything except the key and the types. Rustc checks the types.
pub(crate) fn check(Attribute { keys, args }: &Attribute, function: &Function) -> Result<()> {
    signature(function)?;
    several(keys, args)?;
    once(keys, args)?;
    lengths(args)?;
    policies(args, function)?;
    never(args, function)?;
    guard(args, function)?;
    caller(function)
}

fn signature(function: &Function) -> Result<()> {
    let sig = &function.sig;
    if let Some(token) = &sig.asyncness {
        return Err(Error::new(
            token.span(),
            "an `async fn` cannot be locked: this lock blocks its thread; lock inside `spawn_blocking`, or take an async lock",
        ));
    }
    if let Some(token) = &sig.constness {
        return Err(Error::new(
            token.span(),
            "a `const fn` cannot be locked: a lock needs a server at run time; remove `const`",
        ));
    }
    if let Some(variadic) = &sig.variadic {
        return Err(Error::new(
            variadic.span(),
            "a variadic function cannot be locked: its arguments cannot be passed on",
        ));
    }
    match function.output() {
        Some(output) if is_future(output) => Err(Error::new(
            output.span(),
            "the lock would be released when the function returns its future, before the future runs; \
             lock a function that blocks",
        )),
        _ => Ok(()),
    }
}

/// Returns true for `impl Future`, `Box<dyn Future>`, `Pin<Box<dyn Future>>` and `BoxFuture`, also within `Result` and
/// `Option`. Aliases are not recognized.
fn is_future(ty: &Type) -> bool {
    match ty {
        Type::ImplTrait(ty) => ty.bounds.iter().any(names_future),
        Type::TraitObject(ty) => ty.bounds.iter().any(names_future),
        Type::Path(ty) => ty.path.segments.last().is_some_and(|last| {
            if last.ident == "BoxFuture" || last.ident == "LocalBoxFuture" {
                return true;
            }
            let wraps = ["Box", "Pin", "Result", "Option"].iter().any(|name| last.ident == name);
            let syn::PathArguments::AngleBracketed(inside) = &last.arguments else { return false };
            wraps && inside.args.iter().any(|arg| matches!(arg, syn::GenericArgument::Type(ty) if is_future(ty)))
        }),
        _ => false,
    }
}

fn names_future(bound: &TypeParamBound) -> bool {
    matches!(bound, TypeParamBound::Trait(bound) if bound.path.segments.last().is_some_and(|last| last.ident == "Future"))
}

/// Checks the arguments of a list of keys.
fn several(keys: &Keys, args: &Args) -> Result<()> {
    if let Keys::One(_) = keys {
        return Ok(());
    }
    if let Some(Kind { lock, span }) = &args.kind
        && !matches!(lock, Lock::Mutex)
    {
        return Err(Error::new(
            *span,
            "a list of keys is locked as mutexes, all or none: leave out `kind`, or take `kind = mutex`",
        ));
    }
    match &args.min_hold {
        Some(given) => Err(Error::new(
            given.span(),
            "a list of keys has no `min_hold`: if one key is busy, the keys locked before it would stay taken",
        )),
        None => Ok(()),
    }
}

/// Checks the arguments of a job that is run once.
fn once(keys: &Keys, args: &Args) -> Result<()> {
    let remember = args.remember.as_ref().map(Given::span);
    let Some(once) = args.once else {
        let done = args.done.as_ref().map(|done| done.span);
        return match remember.or(done) {
            Some(span) => Err(Error::new(span, "`remember` and `done` need `once`: add `once`, or leave this out")),
            None => Ok(()),
        };
    };
    if let Keys::Several(_) = keys {
        return Err(Error::new(once, "a job that is run `once` has a single key, which identifies the job"));
    }
    if let Some(kind) = &args.kind {
        return Err(Error::new(kind.span, "`once` takes a mutex: leave out `kind`"));
    }
    if let Some(release) = args.release {
        let message = "`once` waits for the release, which marks the job as done: leave out `release`";
        return Err(Error::new(release, message));
    }
    let unfit =
        [("renew", args.renew.as_ref().map(Given::span)), ("min_hold", args.min_hold.as_ref().map(Given::span))];
    if let Some((name, Some(span))) = unfit.into_iter().find(|(_, span)| span.is_some()) {
        return Err(Error::new(
            span,
            format!("`once` has no `{name}`: the lock lasts until the body ends; leave it out"),
        ));
    }
    match known(args.remember.as_ref()) {
        Some((length, span)) if !REMEMBERED.contains(&length) => {
            Err(Error::new(span, "a success is remembered for 1 s to 365 days"))
        }
        _ => Ok(()),
    }
}

/// Checks the lengths of time that are literals.
fn lengths(args: &Args) -> Result<()> {
    if let Some((lease, span)) = known(args.lease.as_ref())
        && !(SHORTEST..=LONGEST).contains(&lease)
    {
        return Err(Error::new(span, too_short_or_long("a lease lasts from 265 ms to 24 h", lease)));
    }
    if let Some((max, span)) = known(args.max_hold.as_ref())
        && max < SHORTEST
    {
        return Err(Error::new(span, too_short_or_long("`max_hold` must be 265 ms or more", max)));
    }
    within(args, args.lease.as_ref(), "lease")?;
    within(args, args.max_hold.as_ref(), "max_hold")
}

fn too_short_or_long(rule: &str, length: Duration) -> String {
    let way = "; if the client has a shorter `node_timeout` than 250 ms, write a constant in place of the text";
    format!("{rule}{}", if length < SHORTEST { way } else { "" })
}

fn known(length: Option<&Given<Duration>>) -> Option<(Duration, Span)> {
    length.and_then(|given| Some((given.literal?, given.span())))
}

fn within(args: &Args, limit: Option<&Given<Duration>>, name: &str) -> Result<()> {
    match (known(args.min_hold.as_ref()), known(limit)) {
        (Some((least, span)), Some((limit, _))) if least > limit => Err(Error::new(
            span,
            format!("`min_hold` ({least:?}) is longer than `{name}` ({limit:?}): a minimum hold must fit into it"),
        )),
        _ => Ok(()),
    }
}

fn policies(args: &Args, function: &Function) -> Result<()> {
    let has_fallback =
        matches!(&args.busy, Some(Busy::Fallback(_))) || args.done.as_ref().is_some_and(|done| done.fallback.is_some());
    if has_fallback { function.sig.inputs.iter().try_for_each(named) } else { Ok(()) }
}

/// Rejects `!` as the return type, since the message of rustc would not say how to fix it.
fn never(args: &Args, function: &Function) -> Result<()> {
    let Some(output @ Type::Never(_)) = function.output() else { return Ok(()) };
    if args.once.is_some() {
        return Err(Error::new(output.span(), "a function that never returns never succeeds: it cannot be run `once`"));
    }
    let busy_returns = args
        .busy
        .as_ref()
        .map_or(args.wait.is_some(), |busy| matches!(busy, Busy::Policy(Policy::Error | Policy::Skip)));
    if failed(args) == Policy::Panic && !busy_returns {
        return Ok(());
    }
    Err(Error::new(
        output.span(),
        "a function that never returns cannot report that it got no lock; add `failed = panic`, and with `wait` \
         also `busy = panic`",
    ))
}

/// Checks that a parameter has a name. A fallback gets the parameter by its name.
fn named(input: &FnArg) -> Result<()> {
    match input {
        FnArg::Typed(typed) if plain(&typed.pat).is_none() => Err(Error::new(
            typed.pat.span(),
            "a fallback takes the same parameters, and this one has no name; name it and destructure it in the body",
        )),
        _ => Ok(()),
    }
}

fn guard(args: &Args, function: &Function) -> Result<()> {
    let Some(guard) = &args.guard else { return Ok(()) };
    let taken = function
        .sig
        .inputs
        .iter()
        .any(|input| matches!(input, FnArg::Typed(typed) if plain(&typed.pat) == Some(guard)));
    if taken {
        return Err(Error::new(
            guard.span(),
            format!("`guard = {guard}` would hide the parameter `{guard}`; take another name"),
        ));
    }
    Ok(())
}

/// Checks the generics of a function with `#[track_caller]`. The function of the body is called with all type
/// parameters, and a generic argument cannot have attributes.
fn caller(function: &Function) -> Result<()> {
    let conditional = |param: &&GenericParam| match param {
        GenericParam::Type(param) => has_cfg(&param.attrs),
        GenericParam::Const(param) => has_cfg(&param.attrs),
        GenericParam::Lifetime(_) => false,
    };
    match function.sig.generics.params.iter().find(conditional) {
        Some(param) if is_tracked(function) => Err(Error::new(
            param.span(),
            "a type parameter with `#[cfg]` cannot be passed on to the body: `#[track_caller]` makes the body a \
             function of its own; write two functions with `#[cfg]`",
        )),
        _ => Ok(()),
    }
}

/// How a call behaves after a failure other than "busy".
pub(crate) fn failed(args: &Args) -> Policy {
    let panics = matches!(&args.busy, Some(Busy::Policy(Policy::Panic)));
    args.failed.unwrap_or(if panics { Policy::Panic } else { Policy::Error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attribute: &str, function: &str) -> String {
        let attribute: Attribute = syn::parse_str(attribute).unwrap();
        check(&attribute, &syn::parse_str(function).unwrap()).map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn signatures() {
        assert_eq!(message("\"k\"", "unsafe extern \"C\" fn f<T>((a, _): (u8, T)) {}"), "fine");
        assert!(message("\"k\"", "async fn f() {}").contains("`async fn`"));
        assert!(message("\"k\"", "const fn f() {}").contains("`const fn`"));
        for future in [
            "impl Future<Output = ()>",
            "Pin<Box<dyn std::future::Future<Output = ()> + Send>>",
            "Result<Pin<Box<dyn Future<Output = ()>>>, Error>",
            "Option<BoxFuture<'static, ()>>",
        ] {
            assert!(message("\"k\"", &format!("fn f() -> {future} {{}}")).contains("returns its future"));
        }
        assert_eq!(message("\"k\"", "fn f() -> impl Iterator<Item = u8> {}"), "fine");
    }

    #[test]
    fn lengths_fit() {
        let of = |args: &str| message(&format!("\"k\", {args}"), "fn f() {}");
        assert_eq!(of("lease = \"10s\", min_hold = \"10s\", max_hold = \"10s\""), "fine");
        assert!(of("lease = \"10s\", min_hold = \"11s\"").contains("longer than `lease`"));
        assert!(of("max_hold = \"10s\", min_hold = \"11s\"").contains("longer than `max_hold`"));
        assert!(of("lease = \"264ms\"").contains("265 ms to 24 h; if the client"));
        assert!(of("lease = \"25h\"").ends_with("265 ms to 24 h"));
        assert!(of("max_hold = \"264ms\"").contains("265 ms or more; if the client"));
        assert_eq!(of("lease = \"265ms\""), "fine");
        assert_eq!(of("max_hold = \"265ms\""), "fine");
        assert_eq!(of("lease = LEASE, min_hold = \"11s\", max_hold = config().max_hold"), "fine");
    }

    #[test]
    fn what_fits_a_list_of_keys() {
        let of = |args: &str| message(&format!("[\"a\", \"b\"]{args}"), "fn f() {}");
        for good in [
            "",
            "kind = mutex",
            "wait = \"1s\", lease = LEASE, fenced = true, renew = false, max_hold = LONG, guard = lock",
        ] {
            assert_eq!(of(&format!(", {good}")), "fine");
        }
        for bad in ["reentrant", "read", "write", "semaphore(2)"] {
            assert!(of(&format!(", kind = {bad}")).contains("as mutexes"), "{bad}");
        }
        assert!(of(", min_hold = \"1s\"").contains("a list of keys has no `min_hold`"));
    }

    #[test]
    fn what_fits_a_job_that_is_run_once() {
        let of = |args: &str| message(&format!("\"k\", {args}"), "fn f() {}");
        for good in [
            "once",
            "once, remember = \"365h\", done = g, busy = skip",
            "once, remember = LONG, lease = \"5s\", wait = \"1h\"",
        ] {
            assert_eq!(of(good), "fine");
        }
        assert_eq!(of("once, max_hold = \"1h\", fenced = true, guard = lease"), "fine");
        assert!(of("remember = \"48h\"").contains("add `once`"));
        assert!(of("done = skip").contains("add `once`"));
        assert!(of("once, kind = mutex").contains("leave out `kind`"));
        assert!(of("once, renew = false").contains("no `renew`"));
        assert!(of("once, min_hold = \"1s\"").contains("no `min_hold`"));
        for bad in ["999ms", "8761h"] {
            assert!(of(&format!("once, remember = \"{bad}\"")).contains("1 s to 365 days"), "{bad}");
        }
        assert!(message("[\"a\", \"b\"], once", "fn f() {}").contains("a single key"));
        assert!(message("\"k\", once, failed = panic", "fn f() -> ! {}").contains("never succeeds"));
        assert!(message("\"k\", once, done = g", "fn f(_: u8) {}").contains("has no name"));
    }

    #[test]
    fn policies_fit() {
        assert_eq!(message("\"k\", busy = skip", "fn f() {}"), "fine", "the client may have a default wait");
        assert_eq!(message("\"k\", wait = \"0s\", busy = skip", "fn f() {}"), "fine");
        let fallback = |function| message("\"k\", wait = \"0s\", busy = g", function);
        assert_eq!(fallback("fn f(&self, mut a: u8) {}"), "fine");
        for bad in ["fn f((a, b): (u8, u8)) {}", "fn f(_: u8) {}", "fn f(ref a: u8) {}"] {
            assert!(fallback(bad).contains("has no name"), "{bad}");
        }
        assert!(message("\"k\", guard = a", "fn f(a: u8) {}").contains("would hide"));
    }

    #[test]
    fn type_parameters_can_be_passed_on() {
        assert_eq!(message("\"k\"", "fn f<#[cfg(x)] T, #[cfg(x)] const N: usize>() {}"), "fine");
        assert_eq!(message("\"k\"", "#[track_caller] fn f<#[cfg(x)] 'a, T, #[allow(l)] U>() {}"), "fine");
        for bad in ["#[cfg(x)] T", "T, #[cfg_attr(x, cfg(y))] const N: usize"] {
            assert!(
                message("\"k\"", &format!("#[track_caller] fn f<{bad}>() {{}}")).contains("cannot be passed on"),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_never_returns_must_panic() {
        let of = |args: &str| message(&format!("\"k\"{args}"), "fn f() -> ! { loop {} }");
        for good in [", failed = panic", ", wait = \"1s\", busy = panic", ", wait = \"1s\", busy = g, failed = panic"] {
            assert_eq!(of(good), "fine");
        }
        for bad in
            ["", ", failed = skip", ", wait = \"1s\", failed = panic", ", wait = \"1s\", busy = skip, failed = panic"]
        {
            assert!(of(bad).contains("never returns"), "{bad}");
        }
    }

    #[test]
    fn failed_follows_a_panic() {
        let of = |args: &str| failed(&syn::parse_str::<Attribute>(args).unwrap().args);
        assert_eq!(of("\"k\""), Policy::Error);
        assert_eq!(of("\"k\", busy = panic"), Policy::Panic);
        assert_eq!(of("\"k\", busy = skip"), Policy::Error);
        assert_eq!(of("\"k\", busy = panic, failed = skip"), Policy::Skip);
    }
}
