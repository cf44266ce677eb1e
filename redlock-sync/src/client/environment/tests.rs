use std::collections::BTreeSet;

use super::*;
use crate::client::Redlock;

fn builder(vars: &[(&str, &str)]) -> Result<Builder, Error> {
    from_variables(vars.iter().map(|(name, value)| (name.into(), value.into())))
}

fn client(vars: &[(&str, &str)]) -> Result<Redlock, Error> {
    builder(vars)?.build()
}

fn message(vars: &[(&str, &str)]) -> String {
    client(vars).unwrap_err().to_string()
}

#[test]
fn settings_are_read() {
    let vars = [
        (NODES, "redis://a/, redis://b/ ,redis://c/,"),
        (URL, "redis://unused/"),
        ("REDLOCK_PASSWORD_FILE", "/run/secrets/redis"),
        ("REDLOCK_LEASE", "1m30s"),
        ("REDLOCK_NODE_TIMEOUT", " 100ms"),
        ("REDLOCK_KEY_PREFIX", "shop: "),
        ("REDLOCK_UNAVAILABLE_AFTER", "42s"),
        ("REDLOCK_DEFAULT_WAIT", "43s"),
        ("REDLOCK_RETRY", "3ms..70ms"),
        ("REDLOCK_RETRY_JITTER", "0.25"),
        ("REDLOCK_RETRY_MAX_ATTEMPTS", "99"),
        ("REDLOCK_CONNECTIONS", "5"),
        ("REDLOCK_RESTART_GUARD", "false"),
        ("REDLOCK_FAILOVER_GUARD", "true"),
        ("REDLOCK_MIN_REPLICAS_ACK", "1"),
    ];
    let files = ["REDLOCK_TLS_CA", "REDLOCK_TLS_CERT", "REDLOCK_TLS_KEY"];
    assert_eq!(vars.len() + files.len(), known().count(), "each setting is here");
    let builder = builder(&vars).unwrap();
    let shown = format!("{builder:?}");
    for part in ["a:6379", "b:6379", "c:6379", "\"shop: \"", "90s", "100ms", "42s", "43s", "3ms", "70ms", "0.25", "99"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let others = [
        "connections: 5",
        "restart_guard: false",
        "min_replicas_ack: 1",
        "failover_guard: Some(true)",
        "credentials: true",
    ];
    for part in others {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("unused"));
    builder.build().unwrap();
    assert!(format!("{:?}", client(&[(URL, "redis://one/")]).unwrap()).contains("one:6379"));
    let every = client(&[(URL, "redis://one/"), ("REDLOCK_RETRY", "20ms")]).unwrap();
    assert!(format!("{every:?}").contains("first: 20ms, last: 20ms"));
    let empty = client(&[(NODES, " "), (URL, "redis://one/"), ("REDLOCK_LEASE", "")]).unwrap();
    assert!(format!("{empty:?}").contains("lease: 30s"));
}

/// Lists of hosts contain commas too, and passwords can contain them.
#[test]
fn a_comma_begins_a_node_only_before_a_scheme() {
    let groups = "redis+sentinel://:a,b@h1:1,h2/main, redis+sentinel://h3,h4/main , redis://c/,,";
    assert_eq!(split_urls(groups), ["redis+sentinel://:a,b@h1:1,h2/main", "redis+sentinel://h3,h4/main", "redis://c/"]);
    assert_eq!(split_urls("redis://a/, b"), ["redis://a/, b"]);
    assert_eq!(split_urls(" ,, "), Vec::<&str>::new());
}

#[test]
fn files_of_tls_are_read_where_there_is_tls() {
    let vars = [(URL, "rediss://one/"), ("REDLOCK_TLS_CA", "/nowhere/ca"), ("REDLOCK_TLS_CERT", "/nowhere/cert")];
    if cfg!(feature = "tls") {
        let said = message(&[&vars[..], &[("REDLOCK_TLS_KEY", "/nowhere/key")]].concat());
        assert!(said.contains("TLS cannot be set up: /nowhere/ca: No such file"), "{said}");
        let said = message(&[vars[0], vars[2]]);
        assert!(said.contains("(/nowhere/cert) is given without its key"), "{said}");
        let plain = message(&[(URL, "redis://one/"), vars[1]]);
        assert!(plain.contains("`rediss://`"), "{plain}");
    } else {
        let said = message(&[(URL, "redis://one/"), vars[1]]);
        assert!(said.contains("REDLOCK_TLS_CA") && said.contains("feature `tls`"), "{said}");
    }
}

/// If a setting is added to the builder, it needs a variable, or an entry in the list of exceptions.
#[test]
fn each_setting_of_the_builder_has_a_variable() {
    let methods = |source: &str| -> BTreeSet<String> {
        let names = source.lines().filter_map(|line| line.trim().strip_prefix("pub fn ")?.split(['(', '<']).next());
        names.map(str::to_uppercase).collect()
    };
    let mut settings = methods(include_str!("../builder.rs"));
    assert!(settings.contains("KEY_PREFIX"));
    // `node` is covered by `nodes`. Clients, observers and credentials are code. `build` is not a setting.
    for other in ["NODE", "CLIENT", "OBSERVER", "CREDENTIALS", "BUILD"] {
        assert!(settings.remove(other), "{other}");
    }
    for setting in settings {
        // Certificates have one variable for each file.
        let is_for =
            |known: &str| known == format!("REDLOCK_{setting}") || known.starts_with(&format!("REDLOCK_{setting}_"));
        assert!(known().any(is_for), "{setting} has no variable");
    }
    for variable in known().filter(|variable| *variable != URL) {
        let settings = include_str!("../../../../docs/guide.md");
        assert!(settings.contains(&format!("`{variable}`")), "{variable} is not in docs/guide.md");
    }
}

#[test]
fn mistakes_name_the_variable() {
    assert!(message(&[(NODES, "redis://a/,http://b/")]).starts_with("REDLOCK_NODES: node URL `http://b/`"));
    assert!(message(&[(URL, "redis://a/,redis://b/")]).starts_with("REDIS_URL"));
    let cluster = client(&[(NODES, "redis+cluster://u:pa,ss@h1:7000,h2,, redis://c/")]).unwrap();
    assert_eq!(format!("{cluster:?}").matches("redis+cluster://h1:7000,h2:6379").count(), 1, "{cluster:?}");
    assert!(message(&[(NODES, " , ")]).contains("REDLOCK_NODES names no server"));
    let with = |name, value| message(&[(URL, "redis://a/"), (name, value)]);
    assert!(with("REDLOCK_LEASE", "30").starts_with("REDLOCK_LEASE = `30` is not a length of time"));
    assert!(with("REDLOCK_NODE_TIMEOUT", "soon").starts_with("REDLOCK_NODE_TIMEOUT"));
    assert!(with("REDLOCK_RETRY", "2ms..").starts_with("REDLOCK_RETRY = `2ms..` is not a pause"));
    assert!(with("REDLOCK_CONNECTIONS", "-1").starts_with("REDLOCK_CONNECTIONS = `-1` is not a number"));
    assert!(with("REDLOCK_RESTART_GUARD", "on").ends_with("`true` or `false`"));
    assert!(with("REDLOCK_RETRY_JITTER", "2").contains("outside 0.0 to 1.0 (set by REDIS_URL, REDLOCK_RETRY_JITTER)"));
    assert!(with("REDLOCK_LEASE", "1ms").ends_with("(set by REDIS_URL, REDLOCK_LEASE)"));
    assert!(!message(&[(URL, "redis://u:secret@:0/")]).contains("secret"));
    assert!(!Redlock::builder().build().unwrap_err().to_string().contains("set by"));
}

#[cfg(unix)]
#[test]
fn a_value_that_is_no_text_names_the_variable() {
    use std::os::unix::ffi::OsStringExt;
    let garbled = [(OsString::from("REDLOCK_LEASE"), OsString::from_vec(vec![0xff]))];
    let error = from_variables(garbled.into_iter()).unwrap_err();
    assert!(error.to_string().contains("REDLOCK_LEASE is not valid UTF-8"));
}

#[test]
fn names_that_are_no_settings_are_warned_of() {
    for name in ["REDLOCK_NODE", "REDLOCK_node_timeout", "REDLOCK_FLAVOUR_OF_THE_DAY"] {
        assert!(warning(name).unwrap().contains(name), "{name}");
    }
    assert!(known().all(|known| warning(known).is_none()));
}

#[test]
fn names_that_commands_get_are_not_warned_of() {
    assert!(OF_COMMANDS.into_iter().all(|name| warning(name).is_none()));
}

#[test]
fn lengths_of_time() {
    assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
    assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
    for bad in ["", "30", "1.5s", "-1s", "1 s", "18446744073709551615h"] {
        assert_eq!(duration(bad), None, "{bad}");
    }
}

#[test]
fn a_name_that_a_terminal_would_obey_is_escaped() {
    let said = warning("REDLOCK_\u{1b}[31m\nX").unwrap();
    assert!(said.contains("REDLOCK_\\u{1b}[31m\\nX"), "{said:?}");
}
