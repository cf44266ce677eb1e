//! The default client in its own process. It is made from the environment, and replaced after it was closed.

use std::process::Command;

use redlock_tests::Server;

/// Asserts what a process with these variables prints about its default client.
fn child_sees(vars: &[(&str, &str)], expected: &str) {
    says("environment", vars, expected);
}

fn says(subcommand: &str, vars: &[(&str, &str)], expected: &str) {
    let names = ["REDLOCK_NODES", "REDIS_URL", "REDLOCK_LEASE", "REDLOCK_NODE_TIMEOUT", "REDLOCK_KEY_PREFIX"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
    command.arg(subcommand);
    for name in names {
        command.env_remove(name);
    }
    let output = command.envs(vars.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(expected.split('|').all(|part| said.contains(part)), "{said}");
}

#[test]
fn servers_and_settings_are_read() {
    let servers = redlock_tests::servers(3);
    let nodes: Vec<_> = servers.iter().map(Server::url).collect();
    let vars = [("REDLOCK_NODES", &*nodes.join(", ")), ("REDLOCK_LEASE", "7s"), ("REDLOCK_KEY_PREFIX", "app:")];
    child_sees(&vars, &format!("app:shop|lease: 7s|{}", servers[2].addr()));
    child_sees(&[("REDIS_URL", &nodes[0])], &format!("shop with|{}", servers[0].addr()));
    let mistaken = [("REDIS_URL", &*nodes[0]), ("REDLOCK_LEASES", "7s")];
    child_sees(&mistaken, "REDLOCK_LEASES is not a setting of redlock-sync and has no effect|lease: 30s");
}

#[test]
fn without_a_server_the_error_says_how() {
    child_sees(&[], "no default client|Redlock::set_default(client)|REDLOCK_NODES|REDIS_URL");
    child_sees(&[("REDLOCK_NODES", "http://a/")], "REDLOCK_NODES: node URL");
}

/// A mutex that another thread of the parent has at the fork stays locked in the child forever.
#[test]
fn a_child_that_is_forked_beside_users_of_the_default_client_has_none() {
    says("forked-beside-users", &[], "all ended");
}

/// The program `agent` asserts the rest.
#[test]
fn a_closed_default_client_is_replaced() {
    let [first, second] = [Server::start(), Server::start()];
    let vars = [("REDIS_URL", &*first.url()), ("REDLOCK_TEST_OTHER", &*second.url())];
    says("replaced", &vars, &format!("closed|shop with|{}", second.addr()));
    assert!(first.get("shop").is_none() && second.get("shop").is_none());
}
