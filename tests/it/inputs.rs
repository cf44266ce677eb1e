//! Bad input, case by case. Each input is refused with a clear error, or does what the documentation says.

mod setups;

use std::process::Command;
use std::time::Duration;

use crate::rig::ms;
use redis::cmd;
use redlock_sync::{Builder, Error, Redlock, Retry};
use redlock_tests::{Proxy, Server, servers};

use crate::kinds::{Kind, each_kind};

const NOWHERE: &str = "redis://127.0.0.1:1/";
const SECRET: &str = "Geheimnis";

/// A client that never connects. The inputs must be refused before that.
fn nowhere() -> Redlock {
    Redlock::open(NOWHERE).unwrap()
}

/// The message of a `Config` error.
#[track_caller]
fn config<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("accepted"),
        Err(Error::Config { message, .. }) => message,
        Err(other) => panic!("{other:?}"),
    }
}

#[track_caller]
fn says<T>(result: Result<T, Error>, words: &[&str]) {
    let message = config(result);
    for word in words {
        assert!(message.contains(word), "`{word}` is missing: {message}");
    }
}

/// Asserts that each method of locking fails with these words.
#[track_caller]
fn every_use_says<K: Kind>(lock: &K, words: &[&str]) {
    says(lock.lock(), words);
    says(lock.try_lock(), words);
    says(lock.try_lock_for(ms(10)), words);
}

fn input_01_empty_names<K: Kind>() {
    for prefix in ["", "Lock:"] {
        let locks = Redlock::builder().node(NOWHERE).key_prefix(prefix).build().unwrap();
        let lock = K::new(&locks, "");
        every_use_says(&lock, &["empty", prefix]);
        says(lock.is_locked(), &["empty"]);
        says(lock.inspect(), &["empty"]);
    }
}

fn input_02_odd_characters_are_accepted_and_escaped<K: Kind>() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    for (name, shown) in [
        ("a\0b", "`a\\u{0}b`"),
        ("a\r\nb\tc", "`a\\r\\nb\\tc`"),
        ("a{b}c", "`a{b}c`"),
        ("}{a}{", "`}{a}{`"),
        ("{", "`{`"),
        ("grün 鎖 🔒", "`grün 鎖 🔒`"),
        ("\u{1b}[31mred\u{202e}", "`\\u{1b}[31mred\\u{202e}`"),
        ("a`b\"c'd\\e", "`a`b\"c'd\\\\e`"),
        ("*", "`*`"),
        (" ", "`\\u{20}`"),
        ("a\u{fe0f}\u{2800}", "`a\\u{fe0f}\\u{2800}`"),
    ] {
        let lock = K::new(&locks, name);
        let guard = lock.lock().unwrap();
        assert_eq!(guard.key(), name);
        assert_eq!(server.get(name).as_deref(), Some(guard.id().as_str()));
        guard.fencing_token().unwrap();
        guard.extend(Duration::from_secs(40)).unwrap();
        let busy = K::new(&redlock_tests::open(server.url()), name).try_lock().map(drop).unwrap_err();
        assert!(busy.is_busy() && busy.to_string().contains(shown), "{busy}");
        assert!(!busy.to_string().contains(char::is_control), "{busy}");
        K::unlock(guard).unwrap();
        assert_eq!(server.get(name), None);
    }
    // Helper keys have other names than locks, so a lock of one name does not affect the lock of another name.
    assert!(server.keys().iter().all(|key| key.ends_with(":fence")), "{:?}", server.keys());
}

fn input_03_long_keys<K: Kind>() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    K::unlock(K::new(&locks, &"k".repeat(1024)).lock().unwrap()).unwrap();
    every_use_says(&K::new(&nowhere(), &"k".repeat(1025)), &["1025", "more than 1024", "kkkk…"]);
    // The limit counts bytes, including the prefix. Messages are cut between characters.
    every_use_says(&K::new(&nowhere(), &"鎖".repeat(342)), &["1026", "鎖…"]);
    let prefixed = Redlock::builder().node(server.url()).key_prefix("Lock:").build().unwrap();
    every_use_says(&K::new(&prefixed, &"k".repeat(1020)), &["1025 bytes", "more than 1024"]);
    K::unlock(K::new(&prefixed, &"k".repeat(1019)).lock().unwrap()).unwrap();
}

/// Lengths that no lease may have, and how messages show them.
const NO_LEASES: [(Duration, &str); 7] = [
    (Duration::ZERO, "0ns"),
    (Duration::from_nanos(1), "1ns"),
    (Duration::from_micros(9999), "9.999ms"),
    (Duration::from_millis(86_400_001), "86400.001s"),
    (Duration::from_millis(u64::MAX), "18446744073709551.615s"),
    (Duration::from_secs(u64::MAX), "18446744073709551615s"),
    (Duration::MAX, "18446744073709551615.999999999s"),
];

fn input_04_times_to_live<K: Kind>() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let guard = K::new(&locks, "held").lock().unwrap();
    for (lease, shown) in NO_LEASES {
        let words = ["lease", shown, "10ms", "86400s"];
        says(Redlock::builder().node(NOWHERE).lease(lease).build(), &words);
        every_use_says(&K::new(&nowhere(), "k").lease(lease), &words);
        says(guard.extend(lease), &words);
    }
    guard.check().unwrap();
    guard.extend(Duration::from_secs(86_400)).unwrap();
    assert!(server.pttl("held").unwrap() > Duration::from_secs(86_000));
    K::unlock(K::new(&locks, "k").lease(Duration::from_secs(86_400)).lock().unwrap()).unwrap();
    // These settings have other extreme lengths.
    says(K::new(&locks, "k").min_hold(Duration::MAX).lock(), &["min_hold", "lease = 30s"]);
    K::unlock(K::new(&locks, "k").max_hold(Duration::MAX).max_renewals(u32::MAX).lock().unwrap()).unwrap();
    let endless = Redlock::builder().node(server.url()).unavailable_after(Duration::MAX).build().unwrap();
    let guard = K::new(&endless, "k").max_hold(Duration::MAX).try_lock_for(Duration::MAX).unwrap();
    assert!(guard.remaining() <= Duration::from_secs(30));
    K::unlock(guard).unwrap();
    for (hold, shown) in [(Duration::ZERO, "0ns"), (ms(9), "9ms"), (ms(100), "100ms")] {
        says(K::new(&locks, "k").max_hold(hold).lock(), &["max_hold", shown]);
    }
    says(Redlock::builder().node(NOWHERE).node_timeout(Duration::MAX).build(), &["node_timeout"]);
}

fn input_05_a_lease_that_leaves_nothing<K: Kind>() {
    let server = Server::start();
    // The lease must exceed 250 ms for the node, 10 ms minimum validity, and 1 % plus 2 ms for drift.
    let words = ["lease = 264ms", "node_timeout 250ms", "10ms = 264.64ms", "drift 4.64ms"];
    says(Redlock::builder().node(NOWHERE).lease(ms(264)).build(), &words);
    every_use_says(&K::new(&nowhere(), "k").lease(ms(264)), &words);
    let locks = Redlock::builder().node(server.url()).lease(ms(266)).build().unwrap();
    K::unlock(K::new(&locks, "k").lock().unwrap()).unwrap();
    let guard = K::new(&locks, "k").lease(Duration::from_secs(5)).lock().unwrap();
    says(guard.extend(ms(264)), &words);
    guard.check().unwrap();
    K::unlock(guard).unwrap();
    says(Redlock::builder().node(NOWHERE).node_timeout(Duration::ZERO).build(), &["node_timeout", "0ns"]);
}

fn input_06_retry_policies<K: Kind>() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let bad: [(Retry, &[&str]); 6] = [
        (Retry::growing(ms(20), ms(10)), &["20ms", "10ms"]),
        (Retry::every(ms(10)).jitter(-0.1), &["jitter", "-0.1"]),
        (Retry::every(ms(10)).jitter(1.1), &["jitter", "1.1"]),
        (Retry::every(ms(10)).jitter(f64::NAN), &["jitter", "NaN"]),
        (Retry::every(ms(10)).jitter(f64::INFINITY), &["jitter", "inf"]),
        (Retry::every(ms(10)).max_attempts(0), &["max_attempts"]),
    ];
    for (retry, words) in bad {
        says(Redlock::builder().node(NOWHERE).retry(retry.clone()).build(), words);
        every_use_says(&K::new(&nowhere(), "k").retry(retry), words);
    }
    // An interval of zero is allowed, and is no busy loop. The holder is a foreign program, so the client polls.
    server.set("k", "stranger");
    let proxy = Proxy::start(&server);
    let locks_seen = redlock_tests::open(proxy.url());
    for retry in [Retry::every(Duration::ZERO), Retry::growing(Duration::ZERO, Duration::ZERO).jitter(1.0)] {
        proxy.clear_log();
        let lock = K::new(&locks_seen, "k").retry(retry);
        assert!(lock.try_lock_for(ms(200)).map(drop).unwrap_err().is_busy());
        let tries = proxy.count("acquire");
        assert!(tries > 1 && tries <= 410, "{tries} tries in 200 ms");
    }
    // The deadline limits an endless interval.
    for retry in [Retry::every(Duration::MAX), Retry::growing(ms(1), Duration::MAX)] {
        let lock = K::new(&locks, "k").retry(retry);
        assert!(lock.try_lock_for(ms(50)).map(drop).unwrap_err().is_busy());
    }
}

#[test]
fn input_07_no_node() {
    says(Redlock::builder().build(), &["node"]);
    says(Redlock::builder().nodes([""; 0]).build(), &["node"]);
    says(Redlock::open(""), &["node URL ``", "redis://"]);
    for each in [0, 10_001, u32::MAX] {
        says(Redlock::builder().node(NOWHERE).connections(each).build(), &[&format!("connections = {each}")]);
    }
}

#[test]
fn input_08_the_same_address_twice_is_refused_by_build() {
    let twice = |a: &str, b: &str| Redlock::builder().nodes(["redis://third/", a, b]).build();
    let same = ["nodes 2 and 3", "same server"];
    says(twice("redis://host/", "redis://host/"), &same);
    says(twice("redis://host", "redis://HOST:6379/1"), &same);
    says(twice("redis://host", "redis://user:Geheimnis@host"), &same);
    says(twice("redis://[::1]:7000", "redis://[0:0:0:0:0:0:0:1]:7000"), &same);
    says(twice("redis+unix:///run/redis.sock", "unix:///run/redis.sock?db=2"), &same);
    twice("redis://host:1", "redis://host:2").unwrap();
}

/// Asserts that each use finds the conflict, and leaves no key on the servers.
#[track_caller]
fn expect_conflict<K: Kind>(urls: &[String], all: &[&Server], words: &[&str]) {
    let locks = redlock_tests::patient().nodes(urls).build().unwrap();
    let lock = K::new(&locks, "k");
    every_use_says(&lock, words);
    assert!(all.iter().all(|server| server.get("k").is_none()));
    let fresh = redlock_tests::patient().nodes(urls).build().unwrap();
    says(K::new(&fresh, "k").lock(), words);
}

fn input_08_two_names_of_one_server_are_found_at_first_contact<K: Kind>() {
    let two = servers(2);
    let by_name = two[0].url().replace("127.0.0.1", "localhost");
    let same = ["node 1 (127.0.0.1:", "is the same server as", "node 3 (localhost:"];
    expect_conflict::<K>(&[two[0].url(), two[1].url(), by_name.clone()], &[&two[0], &two[1]], &same);
    expect_conflict::<K>(&[two[0].url(), by_name], &[&two[0]], &["is the same server as"]);
    // Through a proxy, the address is a different one.
    let proxy = Proxy::start(&two[0]);
    let words = ["node 1", "node 2", "is the same server as"];
    expect_conflict::<K>(&[two[0].url(), proxy.url(), two[1].url()], &[&two[0], &two[1]], &words);
}

fn input_08_a_replica_of_a_member_is_found_at_first_contact<K: Kind>() {
    let three = servers(3);
    three[2].replica_of(&three[0]);
    let urls: Vec<String> = three.iter().map(Server::url).collect();
    expect_conflict::<K>(&urls, &[&three[0], &three[1]], &["node 3", "is a replica of", "node 1"]);
    // A replica of another server cannot be a node either, whatever the majority replies.
    let locks = redlock_tests::open(three[2].url());
    let error = K::new(&locks, "k").lock().map(drop).unwrap_err().to_string();
    assert!(error.contains("replica of 127.0.0.1"), "{error}");
}

/// Creates a user with all permissions except INFO, and returns its URL.
fn hide_info(server: &Server) -> String {
    server.ask::<()>(cmd("ACL").arg(&["SETUSER", "shy", "on", ">Geheimnis", "~*", "&*", "+@all", "-info"]));
    server.url().replace("redis://", "redis://shy:Geheimnis@")
}

fn input_08_a_server_that_hides_info_is_no_error<K: Kind>() {
    let three = servers(3);
    let urls: Vec<String> = three.iter().map(hide_info).collect();
    for urls in [&urls[..], &urls[..1]] {
        let locks = redlock_tests::patient().nodes(urls).build().unwrap();
        let guard = K::new(&locks, "k").lock().unwrap();
        guard.fencing_token().unwrap();
        guard.extend(Duration::from_secs(40)).unwrap();
        K::unlock(guard).unwrap();
    }
}

#[test]
fn input_09_an_even_number_of_nodes_works_and_warns_once() {
    let four = servers(4);
    let hear = |urls: &[Server]| {
        let urls = urls.iter().map(Server::url);
        let heard = Command::new(env!("CARGO_BIN_EXE_agent")).arg("hear").args(urls).output().unwrap();
        assert!(heard.status.success(), "{heard:?}");
        String::from_utf8(heard.stdout).unwrap()
    };
    for n in [2, 4] {
        let heard = hear(&four[..n]);
        assert_eq!(heard.lines().count(), 1, "{heard}");
        assert!(heard.starts_with(&format!("WARN {n} nodes")), "{heard}");
    }
    for n in [1, 3] {
        assert_eq!(hear(&four[..n]), "");
    }
    let locks = redlock_tests::patient().nodes(four.iter().map(Server::url)).build().unwrap();
    let guard = locks.mutex("k").lock().unwrap();
    guard.fencing_token().unwrap();
    guard.unlock().unwrap();
}

fn input_10_a_database_of_its_own_per_node<K: Kind>() {
    let three = servers(3);
    let urls: Vec<String> = three.iter().enumerate().map(|(i, server)| format!("{}{}", server.url(), i * 3)).collect();
    let locks = redlock_tests::patient().nodes(&urls).build().unwrap();
    let guard = K::new(&locks, "k").lock().unwrap();
    for (i, server) in three.iter().enumerate() {
        let mut client = server.client();
        let found: (String, Option<String>) =
            redis::pipe().cmd("SELECT").arg(i * 3).cmd("GET").arg("k").query(&mut client).unwrap();
        assert_eq!(found.1.as_deref(), Some(guard.id().as_str()), "node {}", i + 1);
        assert_eq!(server.get("k").is_some(), i == 0);
    }
    K::unlock(guard).unwrap();
    let shown = format!("{locks:?}");
    for (i, server) in three.iter().enumerate() {
        assert!(shown.contains(&format!("redis://127.0.0.1:{}/{}", server.port(), i * 3)), "{shown}");
    }
    let none = redlock_tests::open(format!("{}99", three[0].url()));
    let error = config(K::new(&none, "k").lock());
    assert!(error.contains("out of range") && error.contains("`k`"), "{error}");
}

#[test]
fn input_10_debug_shows_no_password() {
    let builder = || {
        Redlock::builder()
            .node("redis://anna:Geheimnis@host:7000/3")
            .node("redis://:Geheimnis@host:7001/")
            .key_prefix("Lock:")
            .node("redis+unix:///a.sock?pass=Geheimnis&user=anna&db=2")
    };
    let locks = builder().build().unwrap();
    let (mutex, reentrant) = (locks.mutex("k"), locks.reentrant_mutex("k"));
    for shown in
        [format!("{:?}", builder()), format!("{locks:?}"), format!("{locks:#?}"), format!("{mutex:?} {reentrant:?}")]
    {
        assert!(!shown.contains(SECRET) && !shown.contains("anna") && shown.contains("Lock:"), "{shown}");
    }
    for shown in [format!("{:?}", builder()), format!("{locks:#?}")] {
        for part in ["redis://host:7000/3", "host:7001/0", "/a.sock?db=2"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
    let broken = Redlock::builder().node("redis://anna:Geheimnis@host:port/");
    assert!(!format!("{broken:?}").contains(SECRET));
}

#[test]
fn input_11_urls_that_cannot_be() {
    for (url, shown, why) in [
        ("redis://anna:Geheimnis@host:port/", "redis://anna:***@host:port/", ""),
        ("redis://:Geheimnis@host/x", "redis://:***@host/x", ""),
        ("redis://:Geheimnis@host:70000", "redis://:***@host:70000", ""),
        ("redis://:Geheimnis@", "redis://:***@", ""),
        ("redis://:Geheimnis@host/-1", "redis://:***@host/-1", ""),
        ("redis://:Geheimnis@host:0", "redis://:***@host:0", "port 0"),
        ("http://anna:Geheimnis@host/", "http://anna:***@host/", "unknown scheme `http`"),
        ("anna:Geheimnis@host", "anna:***@host", "redis://"),
        ("host:6379", "host:6379", "redis://"),
        ("redis://", "redis://", "host is missing"),
        ("redis://:Geheimnis@host/0?timeout=3", "redis://:***@host/0?timeout=***", "unknown parameter `timeout`"),
        ("redis://:Geheim#nis@host", "redis://:***@host", ""),
        ("redis+unix://?pass=Geheimnis", "redis+unix://?pass=***", "path of the socket"),
        ("unix:///a.sock?pass=Geheimnis&what=1", "unix:///a.sock?pass=***&what=***", "unknown parameter `what`"),
        ("redis://:Geheimnis@ho st", "redis://:***@ho st", ""),
    ] {
        let message = config(Redlock::open(url));
        assert!(message.contains(&format!("node URL `{shown}`")) && message.contains(why), "{url}: {message}");
        assert!(!message.contains(SECRET) && !message.contains("nis@"), "{message}");
    }
}

/// A unit test of the library covers a build without the feature.
#[test]
fn input_11_tls_with_the_feature() {
    let shown = format!("{:?}", Redlock::open("rediss://anna:Geheimnis@host/").unwrap());
    assert!(shown.contains("rediss://host:6379/0") && !shown.contains(SECRET), "{shown}");
    says(Redlock::open("rediss://:Geheimnis@host:0/"), &["rediss://:***@host:0/", "port 0"]);
}

/// If a URL is refused, then no message shows a part of its password, whatever that contains.
#[test]
fn input_11_no_message_shows_a_part_of_a_password() {
    for odd in ["@", ":", "/", "?", "#", "&", "%", "=", " ", "\\", "?pass=", "&x=", "://", "[", "]", "%40", "ü", "\n"]
    {
        let password = format!("Geheim{odd}nisvoll");
        for url in [
            format!("redis://anna:{password}@host:port/"),
            format!("redis://:{password}@host/0?what=1"),
            format!("rediss+x://:{password}@host/"),
            format!("anna:{password}@host"),
            format!("unix:///a.sock?pass={password}&what=1"),
            format!("unix:///a:b.sock?db=x&pass={password}"),
            format!("redis+unix://?pass={password}"),
        ] {
            if url.contains("pass=Geheim&") {
                continue; // By the rules of URLs, the password ends at `&`.
            }
            let Err(error) = Redlock::open(&url) else { continue };
            let text = format!("{error} {error:?} {:?}", Redlock::builder().node(&url));
            assert!(!text.contains("Geheim") && !text.contains("nisvoll"), "{url:?} is shown as {text}");
        }
    }
}

/// Errors that only a server can cause show no password either.
fn input_11_no_message_of_a_server_shows_a_password<K: Kind>() {
    let server = Server::builder().password("another").start();
    let url = |with: &str| server.url().replace(":another@", with);
    for url in [url("anna:Geheimnis@"), url(":Geheimnis@"), url(""), "redis://anna:Geheimnis@127.0.0.1:1/".into()] {
        let builder: Builder = Redlock::builder().node(&url).unavailable_after(Duration::ZERO);
        let lock = K::new(&builder.build().unwrap(), "k");
        let error = lock.lock().map(drop).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains(SECRET) && !text.contains("another") && !text.contains("anna"), "{text}");
        assert!(text.contains("`k`") && text.contains("acquire") && text.contains("127.0.0.1:"), "{text}");
    }
}

each_kind!(
    input_01_empty_names,
    input_02_odd_characters_are_accepted_and_escaped,
    input_03_long_keys,
    input_04_times_to_live,
    input_05_a_lease_that_leaves_nothing,
    input_06_retry_policies,
    input_08_two_names_of_one_server_are_found_at_first_contact,
    input_08_a_replica_of_a_member_is_found_at_first_contact,
    input_08_a_server_that_hides_info_is_no_error,
    input_10_a_database_of_its_own_per_node,
    input_11_no_message_of_a_server_shows_a_password,
);
