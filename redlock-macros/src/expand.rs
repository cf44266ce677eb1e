//! Expands the attribute of a function.
//!
//! The body becomes a closure, so the expansion gets its value on every path, including early `return` and `?`. The
//! closure owns the arguments, so they are dropped before the lock is released. The lock is acquired inside the closure
//! after the key is made. Its guard is stored outside the closure. With `#[track_caller]`, a function replaces the
//! closure: [`caller`](crate::caller).
//!
//! All names in the expansion have mixed-site hygiene. Code of the user can neither see nor shadow them.

use std::time::Duration;

use proc_macro2::{Delimiter, Group, Ident, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{Expr, LitStr, Path, Result, Type, parse_quote, parse_quote_spanned, parse2};

use crate::args::{Args, Attribute, Busy, Done, Keys};
use crate::arguments::Arguments;
use crate::caller::Body;
use crate::check::{self, check};
use crate::function::{Function, at};
use crate::given::{Given, Literal};
use crate::kind::{Kind, Lock};
use crate::policy::keep;
use crate::template::Template;
use crate::{hole, key};

/// Expands the attribute. After a mistake, the function stays unchanged, so that no further message follows.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    match parse2(args).and_then(|attribute| expand(attribute, parse2(item.clone())?)) {
        Ok(expanded) => expanded,
        Err(error) => [error.into_compile_error(), item].into_iter().collect(),
    }
}

/// The path of the library, unless `crate = path` sets it.
pub(crate) fn default_path() -> Path {
    parse_quote!(::redlock_sync)
}

fn expand(attribute: Attribute, mut function: Function) -> Result<TokenStream> {
    check(&attribute, &function)?;
    let Attribute { keys, mut args } = attribute;
    let krate = args.krate.clone().unwrap_or_else(default_path);
    let templates = templates(&keys, &function)?;
    let key = name(&keys, &templates, &args, &krate)?;
    let which = which(&keys, args.kind.take(), args.once.is_some());

    let output = output(&function);
    let failed = check::failed(&args).function(&output, &krate);
    let body = Body::of(&function, expressions(&args, &which, &templates), &which.guard(), &krate);
    let Arguments { captures, names } = Arguments::take_from(&mut function);
    let lock = lock(&args, &which, &templates, &krate);
    let keep = keep(&args, &output, &names, &krate);
    let locked = &function.body;
    let inside = quote_spanned!(at()=> let key = #key; #lock #keep #locked);
    let [nested, beside] = match &body {
        None => [TokenStream::new(), TokenStream::new()],
        Some(body) => body.place(&function.inner, &quote_spanned!(at()=> let failed = #failed; #inside)),
    };
    let (hold, run) = match &body {
        None => (
            quote_spanned!(at()=> let mut hold = #krate::__private::Hold::new();),
            quote_spanned!(at()=> hold.run(move |hold| -> #output { #captures #inside })),
        ),
        Some(body) => {
            body.relieve(&mut function);
            (quote_spanned!(at()=> let hold = #krate::__private::SharedHold::new();), body.call(&names))
        }
    };
    let run = release(run, &output, args.release.is_some(), &krate);
    let Function { outer, vis, sig, inner, braces, .. } = function;
    let block = quote_spanned!(at()=> #(#inner)* #nested let failed = #failed; #hold #run);
    // The block has the span of the user's braces. With the span of the macro, rustc would attribute the whole function
    // to the macro. Then it would not warn if the function is never called.
    let mut block = Group::new(Delimiter::Brace, block);
    block.set_span(braces);
    Ok(quote!(#(#outer)* #vis #sig #block #beside))
}

fn templates(keys: &Keys, function: &Function) -> Result<Vec<Template>> {
    let scope = function.scope();
    let read = |lit: &LitStr| {
        let template = Template::parse(lit.clone())?;
        hole::check(&template, &scope).map(|()| template)
    };
    match keys {
        Keys::One(lit) => Ok(vec![read(lit)?]),
        Keys::Several(all) => all.iter().map(read).collect(),
    }
}

/// The value from which the handle is made: a key, or an array of keys.
fn name(keys: &Keys, templates: &[Template], args: &Args, krate: &Path) -> Result<TokenStream> {
    let built = templates.iter().map(|template| key::build(template, args.prefix.as_ref(), krate));
    let built = built.collect::<Result<Vec<_>>>()?.into_iter();
    match keys {
        Keys::One(_) => Ok(built.map(key::Key::into_name).collect()),
        Keys::Several(_) => {
            let all = built.map(key::Key::into_string);
            Ok(quote!([#(#all),*]))
        }
    }
}

fn which(keys: &Keys, kind: Option<Kind>, is_once: bool) -> Lock {
    match keys {
        Keys::One(_) if is_once => Lock::Once,
        Keys::One(_) => kind.map_or(Lock::Reentrant, |kind| kind.lock),
        Keys::Several(_) => Lock::Several,
    }
}

/// Runs the body, and releases the lock after it. A body that never returns needs no such code, since its panic drops
/// the guard.
fn release(run: TokenStream, output: &Type, in_background: bool, krate: &Path) -> TokenStream {
    if let Type::Never(_) = output {
        return run;
    }
    let release = Ident::new(if in_background { "release_in_background" } else { "release" }, at());
    // The span makes the message point at the return type of the function.
    let has_run = quote_spanned!(at().located_at(output.span())=> #krate::__private::Value(&value).has_run(););
    quote_spanned! {at()=>
        let value = #run;
        use #krate::__private::AnyValue as _;
        #has_run
        match hold.#release(#krate::__private::Value(&value).is_err()) {
            ::core::result::Result::Ok(()) => value,
            ::core::result::Result::Err(error) => failed(error),
        }
    }
}

/// The expressions of arguments and placeholders, which are evaluated before the body.
fn expressions(args: &Args, which: &Lock, templates: &[Template]) -> TokenStream {
    let mut all: TokenStream =
        templates.iter().flat_map(Template::holes).map(|hole| hole.expr.to_token_stream()).collect();
    args.client.to_tokens(&mut all);
    args.prefix.to_tokens(&mut all);
    all.extend([settings(args), which.handle()]);
    all.extend(args.wait.as_ref().map(Given::tokens));
    if let Some(Busy::Fallback(path)) = &args.busy {
        path.to_tokens(&mut all);
    }
    if let Some(Done { fallback, .. }) = &args.done {
        fallback.to_tokens(&mut all);
    }
    all
}

/// The return type for a closure, in which `_` replaces `impl Trait`.
fn output(function: &Function) -> Type {
    struct Infer;
    impl VisitMut for Infer {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            match ty {
                Type::ImplTrait(_) => *ty = parse_quote!(_),
                other => visit_type_mut(self, other),
            }
        }
    }
    let at = function.sig.ident.span();
    let mut ty = function.output().cloned().unwrap_or_else(|| parse_quote_spanned!(at=> ()));
    Infer.visit_type_mut(&mut ty);
    ty
}

/// The expression that acquires the lock. It goes from the client to `Result<Guard, Error>`.
fn lock(args: &Args, which: &Lock, templates: &[Template], krate: &Path) -> TokenStream {
    let (bind, client) = client(args.client.as_ref(), krate);
    let (handle, settings) = (which.handle(), settings(args));
    // Observers see this label.
    let label = templates.iter().map(|template| template.lit.value()).collect::<Vec<_>>().join(" ");
    let handle = quote_spanned!(at()=> #handle.label(#label));
    let method = |text: String| Ident::new(&text, at());
    let name = which.method();
    let try_for = method(format!("try_{name}_for"));
    let take = match &args.wait {
        wait if args.once.is_some() => {
            let wait = match wait.as_ref().map(Given::tokens) {
                None => quote_spanned!(at()=> ::core::option::Option::None),
                Some(wait) => quote_spanned!(at()=> ::core::option::Option::Some(#wait)),
            };
            quote_spanned!(at()=> #krate::__private::begin(&locks.#handle #settings, #wait))
        }
        None => {
            let take = method(name.to_owned());
            // A call with a rule for a busy lock must not wait without a limit.
            let without_end = if args.busy.is_some() {
                quote_spanned!(at()=> ::core::result::Result::Err(#krate::__private::wait_without_end()))
            } else {
                quote_spanned!(at()=> lock.#take())
            };
            quote_spanned! {at()=> {
                let lock = locks.#handle #settings;
                match #krate::__private::default_wait(&locks) {
                    ::core::option::Option::None => #without_end,
                    ::core::option::Option::Some(wait) => lock.#try_for(wait),
                }
            }}
        }
        Some(Given { literal: Some(Duration::ZERO), .. }) => {
            let try_once = method(format!("try_{name}"));
            quote_spanned!(at()=> locks.#handle #settings .#try_once())
        }
        Some(wait) => {
            let wait = wait.tokens();
            quote_spanned!(at()=> locks.#handle #settings .#try_for(#wait))
        }
    };
    let lock = quote_spanned!(at()=> #client.and_then(|locks| #take));
    // The braces make the temporaries of the expression, such as a `MutexGuard`, end before the body.
    if bind.is_empty() {
        quote_spanned!(at()=> let lock = #lock;)
    } else {
        quote_spanned!(at()=> let lock = { #bind #lock };)
    }
}

/// The arguments that are settings of the handle.
fn settings(args: &Args) -> TokenStream {
    [
        setting("lease", args.lease.as_ref()),
        setting("renew", args.renew.as_ref()),
        setting("min_hold", args.min_hold.as_ref()),
        setting("max_hold", args.max_hold.as_ref()),
        setting("unavailable_after", args.unavailable_after.as_ref()),
        setting("fenced", args.fenced.as_ref()),
        setting("remember", args.remember.as_ref()),
    ]
    .into_iter()
    .collect()
}

fn setting<T: Literal>(name: &str, given: Option<&Given<T>>) -> TokenStream {
    let Some(given) = given else { return TokenStream::new() };
    let (name, value) = (Ident::new(name, at()), given.tokens());
    quote!(.#name(#value))
}

/// Returns a statement that binds the client, and the client as `Result<Redlock, Error>`.
pub(crate) fn client(given: Option<&Expr>, krate: &Path) -> (TokenStream, TokenStream) {
    let Some(given) = given else {
        return (TokenStream::new(), quote_spanned!(at()=> #krate::Redlock::default_client()));
    };
    // The client is bound to its own variable, so that `&Arc<Redlock>` and similar types are coerced to `&Redlock`.
    let client = Ident::new("client", at().located_at(given.span()));
    (quote!(let #client = &#given;), quote_spanned!(at()=> #krate::__private::client(#client)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proc_macro2::TokenTree;

    /// The tokens of a text, without the spaces between them.
    fn tokens(stream: TokenStream) -> Vec<String> {
        stream
            .into_iter()
            .flat_map(|token| match token {
                TokenTree::Group(group) => {
                    let around = quote_around(&group);
                    let [open, close] = around.map(String::from);
                    [vec![open], tokens(group.stream()), vec![close]].concat()
                }
                other => vec![other.to_string()],
            })
            .collect()
    }

    fn quote_around(group: &proc_macro2::Group) -> [&'static str; 2] {
        match group.delimiter() {
            proc_macro2::Delimiter::Brace => ["{", "}"],
            proc_macro2::Delimiter::Parenthesis => ["(", ")"],
            proc_macro2::Delimiter::Bracket => ["[", "]"],
            proc_macro2::Delimiter::None => ["", ""],
        }
    }

    fn expanded(attribute: &str, function: &str) -> String {
        let tokens = super::attribute(attribute.parse().unwrap(), function.parse().unwrap());
        tokens.to_string().replace(' ', "")
    }

    /// The code blocks of the docs, without the lines that rustdoc hides.
    fn blocks() -> Vec<String> {
        let shown = |line: &&str| !line.starts_with("# ");
        let lines: Vec<_> = include_str!("docs/expansion.md").lines().filter(shown).collect();
        lines.join("\n").split("```").skip(1).step_by(2).map(String::from).collect()
    }

    #[test]
    fn the_docs_show_the_expansion() {
        let blocks = blocks();
        let (attribute, function) =
            blocks[0].trim().strip_prefix("#[distributed_lock(").unwrap().split_once(")]\n").unwrap();
        let expanded = super::attribute(attribute.parse().unwrap(), function.parse().unwrap());
        let text = expanded.to_string();
        let documented: TokenStream = blocks[1].parse().unwrap();
        assert_eq!(tokens(expanded), tokens(documented), "docs/expansion.md is not what is made: {text}");
    }

    #[test]
    fn settings_are_those_of_the_handle() {
        let text = expanded(
            "\"k\", lease = \"30s\", renew = false, min_hold = \"1s\", max_hold = \"1h\", kind = mutex, \
            unavailable_after = \"2s\", fenced = true, client = self.locks",
            "fn f(&self) -> R { body() }",
        );
        let settings = "locks.mutex(key).label(\"k\").lease(::core::time::Duration::from_millis(30000u64)).renew(false)\
            .min_hold(::core::time::Duration::from_millis(1000u64)).max_hold(::core::time::Duration::from_millis(3600000u64))\
            .unavailable_after(::core::time::Duration::from_millis(2000u64)).fenced(true);";
        assert!(text.contains(settings), "{text}");
        assert!(
            text.contains("letlock={letclient=&self.locks;::redlock_sync::__private::client(client).and_then("),
            "{text}"
        );
    }

    #[test]
    fn a_fence_is_asked_for_by_fenced_alone() {
        assert!(expanded("\"k\", fenced = false", "fn f() -> R {}").contains("mutex(key).label(\"k\").fenced(false);"));
        assert!(expanded("\"k\", guard = lock", "fn f() -> R {}").contains("mutex(key).label(\"k\");"));
    }

    #[test]
    fn zero_tries_once() {
        assert!(
            expanded("\"k\", wait = \"0s\"", "fn f() -> R {}")
                .contains("reentrant_mutex(key).label(\"k\").try_lock())")
        );
        let forever = expanded("\"k\"", "fn f() -> R {}");
        assert!(
            forever
                .contains("::redlock_sync::__private::default_wait(&locks){::core::option::Option::None=>lock.lock(),"),
            "{forever}"
        );
        let skips = expanded("\"k\", busy = skip", "fn f() -> R {}");
        assert!(
            skips.contains("Err(::redlock_sync::__private::wait_without_end())") && !skips.contains(".lock()"),
            "{skips}"
        );
    }

    #[test]
    fn once_begins_a_run_or_is_done() {
        let of = |args: &str| expanded(&format!("\"k\", once{args}"), "#[track_caller] fn f(x: u8) -> R {}");
        let text = of(", remember = \"1s\", done = g");
        let begin = "::redlock_sync::__private::begin(&locks.once(key).label(\"k\")\
            .remember(::core::time::Duration::from_millis(1000u64)),::core::option::Option::None)";
        assert!(text.contains(begin) && text.contains("lock.transpose()else{returng(x)};"), "{text}");
        assert!(text.contains("SharedHold<::redlock_sync::__private::OnceGuard>"), "{text}");
        assert!(of(", wait = WAIT").contains("locks.once(key).label(\"k\"),::core::option::Option::Some(WAIT))"));
        assert!(of("").contains("return<Ras::redlock_sync::__private::OrSkip>::skipped()"));
        assert!(of(", failed = skip").contains("iferror.is_busy()=>return<Ras::redlock_sync::__private::OrError>"));
    }

    #[test]
    fn each_kind_has_its_methods() {
        let of = |args: &str| expanded(&format!("\"k\", {args}"), "fn f() -> R {}");
        assert!(of("kind = read, wait = \"0s\"").contains("locks.rw_lock(key).label(\"k\").try_read()"));
        assert!(of("kind = write, wait = WAIT").contains("locks.rw_lock(key).label(\"k\").try_write_for(WAIT)"));
        assert!(
            of("kind = semaphore(N), wait = \"1ms\"").contains("locks.semaphore(key,N).label(\"k\").try_acquire_for(")
        );
        assert!(
            of("kind = mutex, lease = c().lease").contains("letlock=locks.mutex(key).label(\"k\").lease(c().lease);")
        );
    }

    #[test]
    fn several_keys_are_strings() {
        let text = expanded("[\"a:<x>\", \"b\"], wait = \"0s\"", "#[track_caller] fn f(x: u8) -> R {}");
        assert!(text.contains("letkey=[::std::format!(\"a:{}\",x),::std::string::String::from(\"b\")];"), "{text}");
        assert!(
            text.contains("locks.multi_lock(key).label(\"a:<x>b\").try_lock()")
                && text.contains("SharedHold<::redlock_sync::MultiLockGuard>"),
            "{text}"
        );
    }

    #[test]
    fn a_hidden_type_is_inferred() {
        let text = expanded("\"k\"", "fn f() -> Result<Vec<impl Fn() -> u8>, E> {}");
        assert!(text.contains("move|hold|->Result<Vec<_>,E>{"), "{text}");
    }

    #[test]
    fn patterns_move_into_the_body() {
        let text = expanded("\"k:{a}\"", "fn f((a, _): (u8, u8), mut b: u8, _: u8) -> R {}");
        assert!(text.starts_with("fnf(arg0:(u8,u8),b:u8,arg2:u8)->R{"), "{text}");
        assert!(text.contains("{let_=&arg0;let(a,_)=arg0;letmutb=b;let_=&arg2;let_=arg2;letkey="), "{text}");
    }

    #[test]
    fn attributes_of_parameters_stay_with_them() {
        let text = expanded(
            "\"k\", wait = \"0s\", busy = g",
            "fn f(#[cfg(x)] &self, #[cfg(y)] #[case] #[expect(unused)] a: u8, #[cfg_attr(z, cfg(x), allow(l))] b: u8) -> R {}",
        );
        assert!(text.starts_with("fnf(#[cfg(x)]&self,#[cfg(y)]#[case]a:u8,#[cfg_attr(z,cfg(x))]b:u8)->R{"), "{text}");
        let captures =
            "#[cfg(x)]let_=&self;#[cfg(y)]#[expect(unused)]leta=a;#[cfg_attr(z,cfg(x),allow(l))]letb=b;letkey=";
        assert!(text.contains(captures), "{text}");
        assert!(text.contains("returng(#[cfg(x)]self,#[cfg(y)]a,#[cfg_attr(z,cfg(x))]b)"), "{text}");
    }

    #[test]
    fn a_mistake_leaves_the_function_as_it_was() {
        let text = expanded("\"\"", "fn f() -> R { body() }");
        assert!(text.contains("compile_error!") && text.ends_with("fnf()->R{body()}"), "{text}");
    }
}
