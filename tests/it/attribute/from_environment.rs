//! The default client that is made from the environment, in a process of its own.

use std::env;
use std::process::Command;

use redlock_sync::{Error, Redlock, distributed_lock};
use redlock_tests::Server;

#[distributed_lock("shop", guard = lock)]
fn shop() -> Result<String, Error> {
    Ok(lock.key().to_owned())
}

/// Runs `child` of this file with these variables.
fn child_sees(vars: &[(&str, &str)], expected: &str) {
    let names = ["REDLOCK_NODES", "REDIS_URL", "REDLOCK_LEASE", "REDLOCK_NODE_TIMEOUT", "REDLOCK_KEY_PREFIX"];
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "attribute::from_environment::child", "--ignored"]);
    for name in names {
        command.env_remove(name);
    }
    let output = command.envs(vars.iter().copied()).env("EXPECTED", expected).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by the other tests of this file"]
fn child() {
    let shown = match shop() {
        Ok(key) => format!("{key} with {:?}", Redlock::default_client().unwrap()),
        Err(error) => error.to_string(),
    };
    let expected = env::var("EXPECTED").unwrap();
    assert!(expected.split('|').all(|part| shown.contains(part)), "{shown}");
    assert_eq!(Redlock::set_default(Redlock::open("redis://other/").unwrap()).is_ok(), shop().is_err());
}

#[test]
fn servers_and_settings_are_read() {
    let servers = redlock_tests::servers(3);
    let nodes: Vec<_> = servers.iter().map(Server::url).collect();
    let vars = [("REDLOCK_NODES", &*nodes.join(", ")), ("REDLOCK_LEASE", "7s"), ("REDLOCK_KEY_PREFIX", "app:")];
    child_sees(&vars, &format!("app:shop|lease: 7s|{}", servers[2].addr()));
    child_sees(&[("REDIS_URL", &nodes[0])], &format!("shop with|{}", servers[0].addr()));
}

#[test]
fn without_a_server_the_error_says_how() {
    child_sees(&[], "no default client|Redlock::set_default(client)|REDLOCK_NODES|REDIS_URL");
    child_sees(&[("REDLOCK_NODES", "http://a/")], "REDLOCK_NODES: node URL");
}
