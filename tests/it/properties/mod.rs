//! Properties: what must hold for whatever comes, tried on random input.
//!
//! 1. `machine`: random operations of several clients on a real server, beside a reference that says what each must answer.
//! 2. `settings`: settings and node URLs, sensible and not.
//!
//! A plain run tries a fixed sequence of cases. `PROPTEST_CASES=5000 cargo test --test it properties` tries so many new ones. What fails is
//! made as small as it can be, and printed.

mod machine;
mod settings;

use std::env;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs that many cases, always the same ones, unless the environment asks for a number of new ones.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let asked = env::var("PROPTEST_CASES").ok().map(|n| n.parse().expect("PROPTEST_CASES is a number"));
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    }
}
