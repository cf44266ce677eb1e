//! Tests with random input as a template, a length of time or arguments. The macros do not panic, and report one
//! message for each mistake.
//!
//! A plain run tries a fixed sequence of inputs. `PROPTEST_CASES=100000 cargo test -p redlock-macros tests::` tries
//! that many new inputs.

use std::fmt::Debug;
use std::mem::discriminant;
use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use proptest::prelude::{Strategy, any};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proptest::{collection, prop_oneof, sample};
use quote::quote;
use syn::LitStr;

use crate::expand;
use crate::given::Given;
use crate::template::{Part, Template};

fn run<T: Debug>(cases: u32, input: &impl Strategy<Value = T>, test: impl Fn(T)) {
    let asked = std::env::var("PROPTEST_CASES").ok().map(|n| n.parse().unwrap());
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let outcome = runner.run(input, |value| {
        test(value);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Complete and incomplete pieces of templates.
const PIECES: [&str; 48] = [
    "{", "}", "<", ">", "{{", "}}", "<<", ">>", "{id}", "<name>", ":", "::", ":08", ":?", ":>8", "$", "*", "\"", "'",
    "\\", "'a'", "'a", "r#\"", "//", "/*", "*/", "(", ")", "[", "]", ".", "0", "self", "self.0", "id", "name",
    ".len()", "é", "🔒", "\0", "\n", " ", "-", "%", "#", ",", ";", "&&",
];

fn template() -> impl Strategy<Value = String> {
    let bytes = collection::vec(any::<u8>(), 0..30).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let pieces = || collection::vec(sample::select(PIECES.to_vec()), 0..8).prop_map(|pieces| pieces.concat());
    let hole =
        prop_oneof![pieces().prop_map(|inside| format!("a{{{inside}}}")), pieces().prop_map(|i| format!("a<{i}>"))];
    prop_oneof![1 => bytes, 3 => pieces(), 2 => hole]
}

/// Returns the message of a mistake. There must be exactly one.
fn message(error: syn::Error) -> String {
    let all: Vec<String> = error.into_iter().map(|one| one.to_string()).collect();
    let [one] = &all[..] else { panic!("not one message: {all:?}") };
    assert!(!one.is_empty());
    one.clone()
}

#[test]
fn a_template_is_read_or_refused() {
    run(1000, &template(), |text| {
        let lit = || LitStr::new(&text, Span::call_site());
        for read in [Template::parse, Template::parse_with_numbers] {
            match read(lit()) {
                Ok(template) => {
                    let adjacent = template.parts.windows(2).any(|two| discriminant(&two[0]) == discriminant(&two[1]));
                    assert!(!template.parts.is_empty() && !adjacent, "text and holes take turns");
                }
                Err(error) => drop(message(error)),
            }
        }
    });
}

#[test]
fn text_that_is_escaped_is_itself() {
    let text = prop_oneof!["\\PC{1,20}", "[{}<>a]{1,12}"];
    run(300, &text, |text| {
        let escaped: String = text.chars().flat_map(|c| [Some(c), "{}<>".contains(c).then_some(c)]).flatten().collect();
        let template = Template::parse(LitStr::new(&escaped, Span::call_site())).unwrap();
        let [Part::Text(read)] = &template.parts[..] else { panic!("not one text") };
        assert_eq!(*read, text);
    });
}

/// Asserts that the output of the attribute parses, and that it contains at most one `compile_error!`.
fn assert_expands(args: TokenStream) {
    let item = quote!(
        fn ship(id: u64, name: &str) -> Result<(), redlock_sync::Error> {
            Ok(())
        }
    );
    let shown = args.to_string();
    let output = expand::attribute(args, item);
    let count = output.to_string().matches("compile_error !").count();
    assert!(count <= 1, "{shown}: {count} messages");
    assert!(syn::parse2::<syn::File>(output).is_ok(), "{shown}: no code");
}

#[test]
fn the_attribute_makes_code_of_any_template() {
    run(400, &template(), |text| {
        let lit = LitStr::new(&text, Span::call_site());
        assert_expands(quote!(#lit));
    });
}

#[test]
fn the_attribute_makes_code_of_any_arguments() {
    let words = [
        "\"a:{id}\"",
        "\"\"",
        ",",
        "=",
        "wait",
        "lease",
        "min_hold",
        "max_hold",
        "unavailable_after",
        "busy",
        "failed",
        "client",
        "renew",
        "fenced",
        "\"5s\"",
        "\"0\"",
        "\"1m30s\"",
        "5",
        "true",
        "skip",
        "panic",
        "error",
        "fallback",
        "kind",
        "mutex",
        "read",
        "semaphore",
        "[\"a:{id}\", \"b:{name}\"]",
        "id",
        "-",
        "[",
        "]",
        "(",
        ")",
    ];
    run(400, &collection::vec(sample::select(words.to_vec()), 0..8), |words| {
        // The compiler never passes unbalanced brackets to a macro.
        if let Ok(args) = words.join(" ").parse() {
            assert_expands(args);
        }
    });
}

#[test]
fn a_length_of_time_is_read_or_refused() {
    let units =
        ["", "0", "1", "5", "99999999999999999999", "s", "ms", "m", "h", "us", "d", ".", "-", " ", "é", "m30", "\0"];
    let text =
        prop_oneof![collection::vec(sample::select(units.to_vec()), 0..6).prop_map(|all| all.concat()), "\\PC{0,8}"];
    run(500, &text, |text| {
        let lit = LitStr::new(&text, Span::call_site());
        if let Err(error) = syn::parse2::<Given<Duration>>(quote!(#lit)) {
            message(error);
        }
    });
}
