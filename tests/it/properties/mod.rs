//! Properties that must hold for all inputs, tested with random input.
//!
//! 1. `machine`: random operations of several clients on a real server, and a reference model.
//! 2. `settings`: valid and invalid settings and node URLs.
//!
//! By default, the tests run a fixed sequence of cases. `PROPTEST_CASES=5000 cargo test --test it properties` runs that
//! many new cases. A failing case is made as small as possible and printed.

mod machine;
mod settings;

use std::env;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs this number of cases, always the same ones. If `PROPTEST_CASES` is set, runs that number of new cases.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let asked = env::var("PROPTEST_CASES").ok().map(|n| n.parse().expect("PROPTEST_CASES is a number"));
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    }
}
