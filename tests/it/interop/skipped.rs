//! A language that is not installed is named, and is an error in CI.

use std::env;
use std::process::{Command, Output};

use redlock_tests::Server;

/// Runs a test of this binary with a `PATH` without any tools.
fn without_tools(test: &str, ci: Option<&str>) -> Output {
    let server = Server::start();
    let mut tests = Command::new(env::current_exe().unwrap());
    tests.args(["--exact", test]).env("PATH", server.dir()).env_remove("CI");
    if let Some(ci) = ci {
        tests.env("CI", ci);
    }
    tests.output().unwrap()
}

#[test]
fn a_language_that_is_not_here_is_named() {
    for (test, said) in [
        ("interop::both_ways::redis_py", "redis-py 8 is skipped: python3 not on PATH"),
        ("interop::turns::node_redlock_5", "node-redlock 5 is skipped: node and npm not on PATH"),
        ("interop::turns::redsync", "redsync 4 is skipped: go not on PATH"),
        ("interop::layouts::the_locks_of_redisson_are_another_layout", "skipped: java and mvn not on PATH"),
    ] {
        let output = without_tools(test, None);
        let shown = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && shown.contains(said), "{test} says {shown}");
        let output = without_tools(test, Some("true"));
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success() && shown.contains(said), "{test} in CI says {shown}");
    }
}
