//! Templates, and whatever people write around them.

use std::mem::discriminant;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Error, Expr, File, Item, ItemFn, LitStr, parse2};

use crate::built::{self, Part};
use crate::hole::{self, Scope};
use crate::template::{self, Template};
use crate::{call, derive, expand};

/// More is the same again, and brackets in brackets take the stack of any compiler.
const LONGEST: usize = 512;
/// The parameters of the function that has the template.
const NAMES: [&str; 3] = ["id", "name", "x"];

/// The first line is the template, each other one the value of a hole.
///
/// # Panics
/// If something is not as it must be.
pub fn template(text: &str) {
    if text.len() > LONGEST {
        return;
    }
    let (text, values) = text.split_once('\n').unwrap_or((text, ""));
    let lit = LitStr::new(text, Span::call_site());
    for read in [Template::parse, Template::parse_with_numbers] {
        match read(lit.clone()) {
            Ok(template) => is_read_by_rustc_in_the_same_way(&template, values),
            Err(error) => drop(message(error)),
        }
    }
    is_expression_or_one_message(call::key(quote!(#lit)));
    let scope = Scope::Function { name: "ship".into(), names: NAMES.map(String::from).to_vec(), has_self: true };
    let accepted = Template::parse(lit.clone()).and_then(|template| hole::check(&template, &scope).map(|()| template));
    if let Ok(template) = accepted {
        names_parameters(&template);
        let function = quote!(
            fn ship<const N: usize>(&self, id: u64, name: &str, x: Item) {}
        );
        is_code_or_one_message(expand::attribute(quote!(#lit), function));
    }
}

/// The first line is what stands in `#[distributed_lock(…)]`, the rest what it stands on.
///
/// # Panics
/// If something is not as it must be.
pub fn attribute(text: &str) {
    if text.len() > LONGEST {
        return;
    }
    let (args, item) = text.split_once('\n').unwrap_or((text, "fn ship(id: u64) {}"));
    // What is no list of tokens never reaches a macro.
    let (Ok(args), Ok(item)) = (args.parse::<TokenStream>(), item.parse::<TokenStream>()) else { return };
    let output = expand::attribute(args.clone(), item.clone());
    // The body is passed on unread, so it can be anything; a whole function must become whole code.
    if parse2::<ItemFn>(item.clone()).is_ok() {
        is_code_or_one_message(output);
    }
    is_code_or_one_message(derive::lock_key(item));
    is_expression_or_one_message(call::key(args.clone()));
    is_expression_or_one_message(call::assert_locked(args));
}

/// The texts and holes of the template are those of the format string, and values can be told apart in the key.
fn is_read_by_rustc_in_the_same_way(template: &Template, values: &str) {
    let adjacent = template.parts.windows(2).any(|two| discriminant(&two[0]) == discriminant(&two[1]));
    assert!(!template.parts.is_empty() && !adjacent, "text and holes take turns");
    let last = template.holes().count().saturating_sub(1);
    let mut holes = 0;
    let meant: Vec<(String, bool)> = template
        .parts
        .iter()
        .map(|part| match part {
            template::Part::Text(text) => (text.clone(), false),
            template::Part::Hole(hole) => {
                holes += 1;
                (hole.expr.to_token_stream().to_string(), holes <= last)
            }
        })
        .collect();
    for prefix in [None, Some("\"{x}\""), Some("P")] {
        let expr: Option<Expr> = prefix.map(|prefix| syn::parse_str(prefix).expect("an expression"));
        let Some(mut read) = built::read(template, expr.as_ref()) else { continue };
        if prefix == Some("P") {
            read.remove(0);
        }
        if prefix == Some("\"{x}\"") {
            let Some(Part::Text(first)) = read.first_mut() else { panic!("no prefix: {read:?}") };
            let behind = first.strip_prefix("{x}").expect("the prefix").to_owned();
            if behind.is_empty() { drop(read.remove(0)) } else { *first = behind }
        }
        let shown = |part: &Part| match part {
            Part::Text(text) => (text.clone(), false),
            Part::Hole { expr, follower, .. } => (expr.clone(), follower.is_some()),
        };
        let is = read.iter().map(shown).collect::<Vec<_>>();
        assert_eq!(is, meant, "{:?} with prefix {prefix:?}: what rustc reads, and what we read", template.lit.value());
        are_told_apart(&read, values);
    }
}

fn are_told_apart(parts: &[Part], values: &str) {
    let holes = parts.iter().filter(|part| matches!(part, Part::Hole { .. })).count();
    let is_plain = |part: &Part| matches!(part, Part::Text(_) | Part::Hole { is_plain: true, .. });
    if holes == 0 || !parts.iter().all(is_plain) {
        return;
    }
    let values: Vec<String> = values.split('\n').chain(std::iter::repeat("")).take(holes).map(str::to_owned).collect();
    let key = built::render(parts, &values);
    assert_eq!(built::values(parts, &key), values, "{key:?}");
}

/// A name alone in a hole is that of a parameter or a constant.
fn names_parameters(template: &Template) {
    for name in template.holes().filter_map(|hole| hole.only_name()) {
        let name = name.to_string();
        let is_constant = name.chars().any(char::is_uppercase) && !name.chars().any(char::is_lowercase);
        assert!(is_constant || name == "self" || NAMES.contains(&name.as_str()), "`{name}` is no parameter");
    }
}

/// The one message of a mistake.
fn message(error: Error) -> String {
    let all: Vec<String> = error.into_iter().map(|one| one.to_string()).collect();
    let [one] = &all[..] else { panic!("not one message: {all:?}") };
    assert!(!one.is_empty());
    one.clone()
}

/// The messages of the `compile_error!`s in front of the code; `None` if it is no code.
fn messages(output: TokenStream) -> Option<Vec<String>> {
    let message = |item: &Item| match item {
        Item::Macro(call) if call.mac.path.to_token_stream().to_string() == ":: core :: compile_error" => {
            Some(call.mac.parse_body::<LitStr>().expect("a message").value())
        }
        _ => None,
    };
    Some(parse2::<File>(output).ok()?.items.iter().map_while(message).collect())
}

/// Code, with one message in front of it at most.
fn is_code_or_one_message(output: TokenStream) {
    let messages = messages(output.clone());
    let is_fine = messages.is_some_and(|all| all.len() <= 1 && all.iter().all(|message| !message.is_empty()));
    assert!(is_fine, "no code, or several messages: {output}");
}

fn is_expression_or_one_message(output: TokenStream) {
    let is_fine = parse2::<Expr>(output.clone()).is_ok() || messages(output.clone()).is_some_and(|all| all.len() == 1);
    assert!(is_fine, "no expression: {output}");
}
