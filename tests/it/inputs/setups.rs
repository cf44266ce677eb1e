//! Errors about set-ups that cannot work, and about names and texts with control characters of terminals.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use redlock_sync::{Error, Redlock};
use redlock_tests::{Act, Proxy, Server};

use super::ms;
use crate::logged::logged;

/// Asserts that the error is `Config`, has one line, and contains all these words.
#[track_caller]
fn is_config(error: &Error, words: &[&str]) {
    let Error::Config { message, .. } = error else { panic!("Config expected, but: {error}") };
    assert!(words.iter().all(|word| message.contains(word)), "{words:?} in: {message}");
    assert!(!message.contains(char::is_control), "{message:?}");
}

/// Starts a program that is no server. Returns its address.
fn program(answer: impl Fn(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().for_each(|socket| answer(&mut socket.unwrap())));
    address
}

#[test]
fn a_web_server_in_place_of_redis_is_named_as_such() {
    let address = program(|socket| {
        _ = socket.read(&mut [0; 512]);
        _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let locks = Redlock::builder().node(format!("redis://{address}")).node_timeout(ms(2000)).build().unwrap();
    is_config(&locks.mutex("a").lock().unwrap_err(), &["does not speak the Redis protocol", "127.0.0.1"]);
}

/// A server whose TLS is OpenSSL, as Redis is, reads the first bytes of plain text and closes the connection.
#[test]
fn a_server_that_closes_at_once_may_want_tls() {
    let address = program(|socket| _ = socket.read(&mut [0; 5]));
    let settings = Redlock::builder().node(format!("redis://{address}")).node_timeout(ms(2000));
    let locks = settings.unavailable_after(ms(0)).build().unwrap();
    let error = locks.mutex("a").lock().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("use `rediss`"), "{error}");
}

/// A server that a restart replaced by a program that closes each connection has spoken Redis before.
#[test]
fn a_server_that_is_down_is_not_said_to_want_tls() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let settings = Redlock::builder().node(proxy.url()).node_timeout(ms(500));
    let locks = settings.unavailable_after(ms(0)).build().unwrap();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    proxy.black_hole();
    let error = locks.mutex("a").lock().unwrap_err();
    assert!(error.is_unavailable() && !error.to_string().contains("rediss"), "{error}");
}

/// Without a bound, the client would make thousands of servers, with state for each.
#[test]
fn a_cluster_of_thousands_of_masters_is_refused() {
    let masters: Vec<String> = (0..5000).map(|n| format!("*3\r\n:{n}\r\n:{n}\r\n*2\r\n+h{n}\r\n:1\r\n")).collect();
    let text = "redis_version:7.2.0\r\nredis_mode:cluster\r\nrole:master\r\n";
    let info = format!("${}\r\n{text}\r\n", text.len());
    let greeting = format!("{info}{info}*{}\r\n{}", masters.len(), masters.concat());
    let address = program(move |socket| {
        _ = socket.read(&mut [0; 512]);
        _ = socket.write_all(greeting.as_bytes());
    });
    let locks = Redlock::builder().node(format!("redis+cluster://{address}")).node_timeout(ms(2000)).build().unwrap();
    let error = locks.mutex("a").lock().unwrap_err();
    is_config(&error, &["5000 masters", "at most 1000", "CLUSTER SLOTS", &address]);
}

#[test]
fn a_prefix_with_which_most_names_are_refused_is_refused() {
    let build = |prefix: &str| Redlock::builder().node("redis://127.0.0.1/").key_prefix(prefix).build();
    is_config(&build("a}").unwrap_err(), &["key_prefix", "a}", "hash tag"]);
    for prefix in ["{a}", "{a", "a:"] {
        build(prefix).unwrap();
    }
}

#[test]
fn a_server_without_scripts_is_named_as_such() {
    for disabled in ["EVALSHA", "EVAL"] {
        let server = Server::builder().arg("--rename-command").arg(disabled).arg("").start();
        let error = Redlock::open(server.url()).unwrap().mutex("a").lock().unwrap_err();
        is_config(&error, &["unknown command", disabled, "rename-command"]);
    }
}

#[test]
fn a_key_of_another_type_is_named() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| redlock_tests::open(server.url()));
    let says = |error: Error, key: &str| {
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
        assert!(error.to_string().ends_with(&format!("(the key `{key}`)")), "{key}: {error}");
    };
    let spoil = |key: &str| server.ask::<()>(redis::cmd("LPUSH").arg(key).arg("x"));
    spoil("own");
    says(locks.mutex("own").lock().unwrap_err(), "own");
    spoil("{counter}:fence");
    let error = locks.mutex("counter").fenced(true).lock().unwrap_err();
    is_config(&error, &["the fence counter has another type: delete its key {counter}:fence"]);
    // The lock is taken without contention, and only a wait needs the queue.
    spoil("{waits}:waits");
    let held = locks.mutex("waits").lock().unwrap();
    says(other.mutex("waits").lock().unwrap_err(), "{waits}:waits");
    drop(held);
    spoil("{mails}:q2:tasks");
    says(locks.queue("mails").push("x").unwrap_err(), "{mails}:q2:tasks");
}

#[test]
fn a_password_in_place_of_parameters_is_not_told() {
    for url in ["redis://host/?s3cr3tpw", "redis://host?s3cr3tpw", "redis://host/?protocol=resp2&s3cr3tpw"] {
        let error = Redlock::open(url).unwrap_err();
        is_config(&error, &["unknown parameter", "***"]);
        assert!(!error.to_string().contains("s3cr3tpw"), "{error}");
    }
}

#[test]
fn what_a_terminal_would_obey_is_escaped() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let settings = Redlock::builder().node(proxy.url()).node_timeout(ms(5000));
    let locks = settings.unavailable_after(ms(0)).build().unwrap();
    let odd = "a\u{1b}[31m\nERROR b\u{202e}";
    let guard = locks.mutex(odd).lock().unwrap();
    proxy.on_each("acquire", Act::Error("LOADING \u{1b}[2Jgone".into()));
    let error = locks.mutex("b").lock().unwrap_err().to_string();
    assert!(error.contains("LOADING \\u{1b}[2Jgone"), "{error:?}");
    let (ended, lines) = logged(|| locks.shutdown(ms(0)).unwrap());
    assert_eq!(ended.given_up, [odd]);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("the shutdown gave up locks") && line.contains("\\u{1b}[31m\\nERROR b\\u{202e}"))
    );
    assert!(!lines.iter().any(|line| line.contains(char::is_control)), "{lines:?}");
    drop(guard);
}
