//! `redlock inspect`, `ls`, `release` and `doctor`.

use redlock_tests::{Server, eventually, servers};

use crate::{LONG, client, on, outcome, redlock};

/// The lines below the heading that are about a lock, with single spaces.
fn rows(said: &str) -> Vec<String> {
    let rows = said.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    rows.filter(|row| !row.ends_with(" waiters")).collect()
}

#[test]
fn each_lock_is_shown_with_its_holders() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).key_prefix("P*").build().unwrap();
    let order = locks.mutex("order:42").holder_name("billing").lock().unwrap();
    let _reader = locks.rw_lock("prices").holder_name("shop").read().unwrap();
    let _writer = locks.rw_lock("stock").holder_name("store").write().unwrap();
    let _permits = locks.semaphore("geo\ncoder", 3).holder_name("map").acquire_many(2).unwrap();
    let _outside = client(std::slice::from_ref(&server)).build().unwrap().mutex("PP:order:43").lock().unwrap();
    order.fencing_token().unwrap();
    server.set("P*text", "no lock");
    // The many keys make the listing take several pages.
    let fill = "for i = 1, 3000 do redis.call('SET', 'P*other:' .. i, i) end";
    server.ask::<()>(redis::cmd("EVAL").arg(fill).arg(0));
    let redlock = |args: &[&str]| outcome(on(&server, []).args(args).env("REDLOCK_KEY_PREFIX", "P*"));

    let (said, code) = redlock(&["ls"]);
    let found = rows(&said);
    assert_eq!(code, Some(0), "{said}");
    let expected = [
        ("geo\\ncoder semaphore", "1 of 1", ":map"),
        ("geo\\ncoder semaphore", "1 of 1", ":map"),
        ("order:42 mutex", "1 of 1", ":billing"),
        ("prices read", "1 of 1", ":shop"),
        ("stock write", "1 of 1", ":store"),
    ];
    assert_eq!(found.len(), expected.len(), "{said}");
    for (row, (start, servers, end)) in found.iter().zip(expected) {
        assert!(row.starts_with(start) && row.contains(servers) && row.ends_with(end), "{row} in {said}");
    }
    for args in [["ls", "?r*s"], ["inspect", "prices"]] {
        let (said, _) = redlock(&args);
        assert!(rows(&said).len() == 1 && rows(&said)[0].starts_with("prices read"), "{args:?} {said}");
    }
    let token = &order.id().as_str()[..8];
    assert!(redlock(&["inspect", "order:42"]).0.contains(&format!("{token}…:billing")));
    assert!(!said.contains(order.id().as_str()), "a whole token is a secret");
    assert_eq!(redlock(&["inspect", "order:43"]).1, Some(1));
    assert_eq!(redlock(&["inspect", "text"]).1, Some(0), "a token of another library, for all that is known");
    let (said, code) = outcome(&mut on(&server, ["inspect", "{P*order:42}:queues"]));
    assert_eq!(code, Some(1), "{said}");
}

/// A program with a prefix has another key for the same name.
#[test]
fn a_free_lock_is_shown_with_its_key_and_how_to_find_others() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).key_prefix("app:").build().unwrap();
    let _guard = locks.mutex("it's 5").lock().unwrap();
    for (prefix, key, unset) in [("", "it's 5", ""), ("other:", "other:it's 5", "REDLOCK_KEY_PREFIX= ")] {
        let mut inspect = on(&server, ["inspect", "it's 5"]);
        let (said, code) = outcome(inspect.env("REDLOCK_KEY_PREFIX", prefix));
        let expected = format!("it's 5 is free: no lock has the key {key}\n");
        assert!(code == Some(1) && said.starts_with(&expected), "{code:?} {said}");
        let proposed = format!("{unset}redlock ls '*it'\\''s 5'");
        assert!(said.trim_end().ends_with(&proposed), "{said}");
        let run = proposed.replace("redlock", env!("CARGO_BIN_EXE_redlock"));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &run]).env("REDIS_URL", server.url()).env("REDLOCK_KEY_PREFIX", prefix);
        let (said, code) = outcome(&mut shell);
        assert!(code == Some(0) && said.contains("app:it's 5  mutex"), "{code:?} {said}");
    }
}

/// Several lines can be about one lock, and each of them has the waiters of the lock.
#[test]
fn the_last_line_of_a_list_has_totals() {
    let server = Server::start();
    let ls = |pattern| outcome(&mut on(&server, ["ls", pattern])).0.lines().last().map(str::to_owned);
    assert_eq!(ls("*").as_deref(), Some("0 locks, 0 waiters"));
    let [locks, others] = [(); 2].map(|()| client(std::slice::from_ref(&server)).build().unwrap());
    let _permits = locks.semaphore("geocoder", 2).acquire_many(2).unwrap();
    let _order = locks.mutex("order:42").lock().unwrap();
    std::thread::scope(|scope| {
        // As `inspect --help` says, threads that wait for permits count one by one, and those for a mutex count as one.
        for _ in 0..3 {
            scope.spawn(|| others.semaphore("geocoder", 2).acquire().unwrap_err());
            scope.spawn(|| others.mutex("order:42").lock().unwrap_err());
        }
        eventually("they wait", LONG, || ls("*").as_deref() == Some("2 locks, 4 waiters"));
        locks.count_down_latch("import", 2).count_down().unwrap();
        assert_eq!(ls("*").as_deref(), Some("2 locks, 1 latch, 4 waiters"));
        assert_eq!(ls("order:*").as_deref(), Some("1 lock, 1 waiter"));
        others.shutdown(std::time::Duration::ZERO).unwrap();
    });
}

/// The text output shows names without control characters. The JSON output has the names unchanged.
#[test]
fn what_is_shown_is_json_too() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).build().unwrap();
    let name = "a\u{1b}[2J\u{9b}\u{202e}\n日\u{e0067}<img onerror>";
    let guard = locks.mutex(name).lock().unwrap();
    locks.count_down_latch("import", 2).count_down().unwrap();
    locks.queue("emails").push("welcome").unwrap();
    let json = |args: &[&str]| -> (serde_json::Value, Option<i32>) {
        let (said, code) = outcome(on(&server, []).args(args).arg("--json"));
        let is_plain = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(said.chars().all(is_plain), "{said:?}");
        // The library's log lines are on stderr, which follows stdout here.
        let tree: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert_eq!(tree["version"], 1, "{said}");
        (tree, code)
    };
    let (tree, code) = json(&["ls"]);
    assert_eq!((tree["locks"][0]["name"].as_str(), code), (Some(name), Some(0)));
    assert_eq!(tree["latches"][0]["arrived"], 1);
    let (said, _) = outcome(&mut on(&server, ["ls"]));
    assert!(!said.contains(['\u{1b}', '\u{9b}', '\u{202e}']) && said.contains("1 arrived"), "{said}");
    let (tree, code) = json(&["inspect", name]);
    assert_eq!((tree["locks"][0]["holder"].as_str(), code), (Some(&guard.id().as_str()[..8]), Some(0)));
    assert_eq!(json(&["inspect", "free"]), (serde_json::json!({"version": 1, "locks": []}), Some(1)));
    assert_eq!(json(&["doctor"]).0["health"]["ready"], true);
    assert_eq!(json(&["queue", "ls"]).0["queues"][0]["due"], 1);
    assert_eq!(json(&["queue", "peek", "emails"]).0["tasks"][0]["body"], "welcome");
    assert_eq!(json(&["queue", "dead", "emails"]).0["tasks"], serde_json::json!([]));
    let (tree, code) = json(&["queue", "revive", "emails", "x"]);
    assert_eq!((&tree["revived"], &tree["missing"][0], code), (&0.into(), &"x".into(), Some(75)));
    let (tree, code) = json(&["inspect", ""]);
    assert_eq!((&tree["error"]["code"], code), (&64.into(), Some(64)));
    server.kill();
    let (tree, code) = json(&["ls"]);
    assert!(code == Some(69) && tree["error"]["message"].as_str().unwrap().contains("cannot be reached"), "{tree}");
    assert_eq!(outcome(&mut on(&server, ["run", "--json", "job", "true"])).1, Some(64));
}

#[test]
fn a_giant_name_leaves_the_table_readable() {
    let server = Server::start();
    let (giant, token) = ("x".repeat(70_000), format!("{:032x}:shop", 1));
    for name in [&giant, "order:42"] {
        server.ask::<()>(redis::cmd("SET").arg(name).arg(&token).arg("PX").arg(600_000));
    }
    let (said, code) = outcome(&mut on(&server, ["ls"]));
    assert!(code == Some(0) && said.contains("order:42 "), "{code:?} {}", said.len());
    assert!(said.contains(&format!("\n{}…  mutex", "x".repeat(200))), "{said}");
    assert!(said.lines().all(|line| line.chars().count() < 300), "{said}");
    let (said, code) = outcome(&mut on(&server, ["ls", "--json"]));
    assert!(code == Some(0) && said.contains(&giant), "{code:?} {}", said.len());
}

#[test]
fn a_holder_without_a_majority_is_shown() {
    let all = servers(3);
    let locks = client(&all).build().unwrap();
    let guard = locks.mutex("job").lock().unwrap();
    let args = all.iter().flat_map(|server| ["--node".to_owned(), server.url()]);
    let args: Vec<String> = args.chain(["inspect", "job"].map(str::to_owned)).collect();
    // The environment names another server, which must not be used.
    let inspect = || outcome(redlock([]).args(&args).env("REDLOCK_NODES", "redis://127.0.0.1:1/"));
    let (said, code) = inspect();
    assert!(code == Some(0) && said.contains("3 of 3"), "{code:?} {said}");
    let token = guard.id().as_str().to_owned();
    guard.unlock().unwrap();
    all[2].set("job", &token);
    let (said, code) = inspect();
    assert!(code == Some(0) && said.contains("never") && said.contains("1 of 3"), "{code:?} {said}");
    all[0].kill();
    assert_eq!(inspect().1, Some(0), "two servers are a majority");
    all[1].kill();
    let (said, code) = inspect();
    assert!(code == Some(69) && said.contains("no majority"), "{code:?} {said}");
}

#[test]
fn a_lock_is_taken_from_the_holder_that_was_shown() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).build().unwrap();
    let guard = locks.mutex("job").holder_name("billing").lock().unwrap();
    let release = |key, holder: &str| outcome(&mut on(&server, ["release", key, "--holder", holder]));
    let (said, code) = release("job", "01234567");
    assert!(code == Some(75) && said.contains("01234567 does not hold job"), "{code:?} {said}");
    assert_eq!(release("other", "01234567").1, Some(75));
    guard.check().unwrap();
    let (said, code) = release("job", &guard.id().to_string());
    assert!(code == Some(0) && said.starts_with("released job, which ") && said.contains("billing"), "{code:?} {said}");
    assert_eq!(server.get("job"), None);
    assert!(guard.unlock().unwrap_err().is_lost());

    let reader = locks.rw_lock("prices").read().unwrap();
    let (said, code) = release("prices", &reader.id().as_str()[..12]);
    assert!(code == Some(64) && said.contains("only a mutex can be taken away"), "{code:?} {said}");
    server.ask::<()>(redis::cmd("RPUSH").arg("list").arg("x"));
    assert_eq!(release("list", "01234567").1, Some(64));
}

/// A string that is no lock gets one answer, whatever a holder is named. Otherwise the answers would tell its value.
#[test]
fn a_string_of_another_program_is_neither_told_nor_deleted() {
    let server = Server::start();
    let release = |key, holder: &str| outcome(&mut on(&server, ["release", key, "--holder", holder]));
    let hex = "0123456789abcdef0123456789abcdef";
    let like_a_token = format!("{hex}:billing");
    for (key, value) in [("text", "deadbeef is secret"), ("digits", hex), ("token", &like_a_token)] {
        server.set(key, value);
        let (said, code) = release(key, "deadbee0");
        assert!(code == Some(64) && said.contains("no token") && said.contains("by hand"), "{code:?} {said}");
        for holder in ["deadbeef", "01234567", hex, &like_a_token, "01234567…:billing"] {
            assert_eq!(release(key, holder), (said.clone(), code), "{key} {holder}");
        }
        assert_eq!(server.get(key).as_deref(), Some(value));
    }
    // Only what a token can be is accepted.
    for holder in ["0123456", "0123456…", "deadbeef is", "01234567:billing", "0123456g", &format!("{hex}0"), "", "…:x"]
    {
        let (said, code) = release("text", holder);
        assert!(code == Some(64) && said.contains("is no token"), "{holder}: {code:?} {said}");
    }
    // With a time to live, it cannot be told from a lock.
    server.ask::<()>(redis::cmd("PEXPIRE").arg("token").arg(600_000));
    assert_eq!(release("token", "01234568").1, Some(75));
    assert_eq!(release("token", &like_a_token).1, Some(0));
    assert_eq!(server.get("token"), None);
}

/// A password, for example. With a time to live, it cannot be told from a token of another library.
#[test]
fn a_string_without_a_time_to_live_is_not_shown() {
    let server = Server::start();
    for value in ["pw123456:hunter2", "0123456789abcdef0123456789abcdef:hunter2"] {
        server.set("session", value);
        let (said, code) = outcome(&mut on(&server, ["inspect", "session"]));
        assert!(code == Some(0) && said.contains("a string without a time to live: no lock of redlock-sync"), "{said}");
        let (json, code) = outcome(&mut on(&server, ["inspect", "session", "--json"]));
        let tree: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        let lock = &tree["locks"][0];
        assert!(code == Some(0) && lock["holder"].is_null() && lock["remaining_ms"].is_null(), "{json}");
        for said in [said, json] {
            assert!(!["pw1", "hunter2", "0123456"].iter().any(|part| said.contains(part)), "{said}");
        }
    }
}

#[test]
fn a_lock_is_released_beside_a_string_on_another_server() {
    let all = servers(3);
    let locks = client(&all).build().unwrap();
    let guard = locks.mutex("job").lock().unwrap();
    all[2].set("job", "deadbeef is secret");
    let nodes = all.iter().flat_map(|server| ["--node".to_owned(), server.url()]);
    let nodes: Vec<String> = nodes.chain(["release", "job", "--holder"].map(str::to_owned)).collect();
    let release = |holder: &str| outcome(redlock([]).args(&nodes).arg(holder));
    let told = release("deadbeef").0.replace("deadbeef", "01234567");
    assert_eq!(release("01234567"), (told, Some(75)));
    assert_eq!(release(&guard.id().as_str()[..8]).1, Some(0));
    assert_eq!(all[2].get("job").as_deref(), Some("deadbeef is secret"));
    assert!(guard.unlock().unwrap_err().is_lost());
}

/// No two of these names are shown alike, and what `--json` tells is the exact name.
#[test]
fn names_that_look_alike_are_shown_differently() {
    let server = Server::start();
    let names = [
        "a\u{1b}b",
        "a\\u{1b}b",
        "ab",
        "a\u{34f}b",
        "a\u{115f}b",
        "a\u{2800}b",
        "a\u{fe0f}b",
        "a\u{e0101}b",
        "ab ",
        "a\u{a0}b",
        "a b",
    ];
    for name in names {
        server.ask::<()>(redis::cmd("SET").arg(name).arg(format!("{:032x}:\u{ffa0}", 1)).arg("PX").arg(600_000));
    }
    let (said, code) = outcome(&mut on(&server, ["ls"]));
    let shown = rows(&said);
    let distinct: std::collections::BTreeSet<&String> = shown.iter().collect();
    assert!(code == Some(0) && distinct.len() == names.len(), "{said}");
    for part in ["a\\\\u{1b}b ", "a\\u{1b}b ", "ab\\u{20} ", "a\\u{34f}b ", "a\\u{2800}b ", "00000000…:\\u{ffa0}"] {
        assert!(said.contains(part), "{part} {said}");
    }
    assert!(said.chars().all(|c| c.is_ascii() || c == '…'), "{said}");
    let (said, _) = outcome(&mut on(&server, ["ls", "--json"]));
    assert!(said.is_ascii(), "{said}");
    let tree: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let told: Vec<&str> = tree["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert!(told.len() == names.len() && names.iter().all(|name| told.contains(name)), "{told:?}");
    let (said, _) = outcome(&mut on(&server, ["inspect", "a\\\u{2800}"]));
    assert!(said.starts_with("a\\\\\\u{2800} is free: "), "{said}");
    assert!(said.ends_with(" redlock ls '*a??'\n"), "{said}");
}

#[test]
fn the_doctor_says_how_bad_it_is() {
    let doctor = |server: &Server| -> (String, Option<i32>) { outcome(&mut on(server, ["doctor"])) };
    let sound = Server::builder().persistent().start();
    let (said, code) = doctor(&sound);
    assert!(code == Some(0) && said.starts_with("ready: 1 of 1 servers"), "{code:?} {said}");
    let (said, code) = doctor(&Server::start());
    assert!(code == Some(1) && said.contains("warning: ") && said.contains("appendonly"), "{code:?} {said}");
    sound.kill();
    let (said, code) = doctor(&sound);
    assert!(code == Some(2) && said.starts_with("not ready"), "{code:?} {said}");
}

/// The test acts like `redlock ls | head -1`.
#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let server = Server::start();
    let mut child = on(&server, ["ls"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// As docs/operations.md says, `ls` needs `+scan` and shows only the keys that the user may read.
#[test]
fn a_user_with_few_permissions_sees_its_own_locks() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).build().unwrap();
    let _guards = [locks.mutex("order:42").lock().unwrap(), locks.mutex("other").lock().unwrap()];
    let rules = "locks on >secret ~order:* +eval +evalsha +get +pttl +time +zrevrange +info";
    server.ask::<()>(redis::cmd("ACL").arg("SETUSER").arg(rules.split(' ').collect::<Vec<_>>()));
    let url = format!("redis://locks:secret@{}/", server.addr());
    let redlock = |args: &[&str]| outcome(redlock(["--node", &url]).args(args));
    assert_eq!(redlock(&["inspect", "order:42"]).1, Some(0));
    let (said, code) = redlock(&["ls"]);
    assert!(code == Some(64) && !said.contains("secret"), "{code:?} {said}");
    server.ask::<()>(redis::cmd("ACL").arg("SETUSER").arg("locks").arg("+scan"));
    let (said, code) = redlock(&["ls"]);
    assert!(code == Some(0) && said.contains("order:42") && !said.contains("other"), "{code:?} {said}");
}
