//! The HTTP side of `redlock dash`, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by a panic, and waits by the real clock"
)]

mod page;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use redlock_sync::Task;
use redlock_tests::{Server, eventually};
use serde_json::{Value, json};

use crate::page::{Dash, LONG, client};

#[test]
fn the_page_and_the_snapshot() {
    let server = Server::start();
    let locks = client(&server);
    let guard = locks.mutex("<img onerror>").holder_name("billing").lock().unwrap();
    let dash = Dash::start(&server, &[]);
    let page = dash.get("/");
    assert!(page.status == 200 && page.body.contains("<table id=\"locks\">"), "{}", page.body);
    for (name, part) in [
        ("content-security-policy", "default-src 'none'; script-src 'self'"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("x-frame-options", "DENY"),
    ] {
        assert!(page.header(name).unwrap().contains(part), "{name}");
    }
    assert!(!page.body.contains("<script>") && !page.body.contains("style=") && !page.body.contains("onclick"));
    for (path, kind) in [("/app.js", "text/javascript"), ("/style.css", "text/css")] {
        assert!(dash.get(path).header("content-type").unwrap().starts_with(kind), "{path}");
    }
    let first = dash.get("/api/snapshot");
    let told: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!((&told["version"], &told["allow_release"], &told["problem"]), (&json!(1), &json!(false), &Value::Null));
    assert_eq!(told["snapshot"]["locks"][0]["name"], "<img onerror>");
    assert!(!first.body.contains(guard.id().as_str()), "a whole token is a secret");
    // A request with the tag of the last snapshot gets no body until the next pass.
    eventually("the page is told that nothing is new", LONG, || {
        let tag = dash.get("/api/snapshot").header("etag").unwrap().to_owned();
        let again = dash.ask("GET", "/api/snapshot", &[("If-None-Match", &tag)], "");
        again.status == 304 && again.body.is_empty() && again.header("redlock-age-ms").is_some()
    });
    assert!(dash.ask("HEAD", "/", &[], "").body.is_empty());
    guard.unlock().unwrap();
    eventually("its end is shown", LONG, || dash.snapshot()["locks"] == json!([]));
    server.kill();
    eventually("an outage is shown, with what was", LONG, || {
        let told: Value = serde_json::from_str(&dash.get("/api/snapshot").body).unwrap();
        told["problem"].as_str().is_some_and(|why| why.contains("the server cannot be reached"))
            && !told["snapshot"].is_null()
    });
    // The locks are those of the last good pass, but the state of the servers is that of now.
    eventually("the server is shown as down", LONG, || {
        let seen = dash.snapshot();
        let (health, trips) = (&seen["health"], &seen["round_trips_ms"]);
        health["ready"] == false && health["nodes"][0]["problem"].is_string() && trips == &json!([null])
    });
}

/// Requests that come from a page of another site, with the name of another host, or for a path that does not exist.
#[test]
fn requests_of_other_sites_are_refused() {
    let server = Server::start();
    let locks = client(&server);
    let guard = locks.mutex("job").lock().unwrap();
    let dash = Dash::start(&server, &["--allow-release"]);
    let raw = |text: String| dash.raw(text.as_bytes()).status;
    for host in ["a.example", "a.example:8900", "127.0.0.1.a.example", "0.0.0.0", ""] {
        assert_eq!(raw(format!("GET /api/snapshot HTTP/1.1\r\nHost: {host}\r\n\r\n")), 421, "{host}");
    }
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        assert_eq!(dash.ask("GET", "/api/dead?queue=a", &[("Sec-Fetch-Site", site)], "").status, status, "{site}");
    }
    assert_eq!(raw("GET / HTTP/1.1\r\n\r\n".to_owned()), 400);
    assert_eq!(raw("GET / HTTP/1.1\r\nHost: localhost\r\nHost: a.example\r\n\r\n".to_owned()), 400);
    let body = json!({"name": "job", "holder": &guard.id().as_str()[..8]}).to_string();
    let kind = ("Content-Type", "application/json");
    let post = |headers: &[(&str, &str)]| dash.ask("POST", "/api/release", headers, &body).status;
    let own = dash.origin();
    assert_eq!(post(&[kind]), 403);
    for origin in ["http://a.example", "null", "http://127.0.0.1:1", &format!("{own}.a.example")] {
        assert_eq!(post(&[kind, ("Origin", origin)]), 403, "{origin}");
    }
    for other in
        ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/plain; application/json"]
    {
        assert_eq!(post(&[("Content-Type", other), ("Origin", &own)]), 415, "{other}");
        assert_eq!(post(&[kind, ("Content-Type", other), ("Origin", &own)]), 415, "{other} too");
    }
    assert_eq!(post(&[("Origin", &own)]), 415);
    assert_eq!(post(&[kind, ("Origin", &own), ("Origin", "http://a.example")]), 403);
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let status = dash.ask(method, "/api/release", &[kind, ("Origin", &own)], &body).status;
        assert!([404, 405].contains(&status), "{method} {status}");
    }
    guard.check().unwrap();
    for path in ["/../Cargo.toml", "//", "/%2e%2e/etc/passwd", "/app.js/", "/page/app.js", "/api/", "http://a.example/"]
    {
        assert_eq!(dash.get(path).status, 404, "{path}");
    }
    let read_only = Dash::start(&server, &[]);
    let refused = read_only.ask("POST", "/api/release", &[kind, ("Origin", &read_only.origin())], &body);
    assert!(refused.status == 403 && refused.body.contains("--allow-release"), "{}", refused.body);
    assert_eq!(guard.check(), Ok(()));
}

#[test]
fn a_token_is_asked_for() {
    let server = Server::start();
    let file = server.dir().join("token");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    let dash = Dash::start(&server, &["--token-file", file.to_str().unwrap(), "--allow-release"]);
    assert_eq!(dash.get("/").status, 200);
    for path in ["/api/snapshot", "/api/dead?queue=a"] {
        assert_eq!(dash.get(path).status, 401, "{path}");
    }
    let login = |token: &str| {
        let headers = [("Content-Type", "application/json"), ("Origin", &*dash.origin())];
        dash.ask("POST", "/api/login", &headers, &json!({ "token": token }).to_string())
    };
    for wrong in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg"] {
        let answer = login(wrong);
        assert!(answer.status == 401 && answer.header("set-cookie").is_none(), "{wrong}");
    }
    let answer = login("0123456789abcdef");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("0123456789abcdef"));
    let value = cookie.split(';').next().unwrap();
    let with = |name, value: &str| dash.ask("GET", "/api/snapshot", &[(name, value)], "").status;
    assert_eq!(with("Cookie", &format!("other=1; {value}")), 200);
    assert_eq!(with("Authorization", "Bearer 0123456789abcdef"), 200);
    let name = value.split('=').next().unwrap();
    assert!(
        dash.origin().ends_with(name.trim_start_matches("redlock-dash-")),
        "the cookie of another port has another name"
    );
    let (empty, token) = (format!("{name}="), format!("{name}=0123456789abcdef"));
    for (name, wrong) in [("Cookie", &*empty), ("Cookie", &*token), ("Authorization", "Bearer ")] {
        assert_eq!(with(name, wrong), 401, "{wrong}");
    }
    // With a token, the user decides under which host name the page is reached.
    let raw = format!("GET /api/snapshot HTTP/1.1\r\nHost: locks.example\r\nCookie: {value}\r\n\r\n");
    assert_eq!(dash.raw(raw.as_bytes()).status, 200);
    let kind = ("Content-Type", "application/json");
    let body = json!({"queue": "emails", "id": "x"}).to_string();
    let post = |headers: &[(&str, &str)]| dash.ask("POST", "/api/revive", &[&[kind], headers].concat(), &body).status;
    assert_eq!(post(&[("Cookie", value)]), 403, "a cookie is sent by any page");
    assert_eq!(post(&[("Authorization", "Bearer 0123456789abcdef")]), 409);

    fs::write(&file, "0123456789abcdef\n0123456789abcdef\n").unwrap();
    let refused = |args: &[&str]| {
        let output = page::command(std::slice::from_ref(&server), args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = refused(&["--token-file", file.to_str().unwrap()]);
    assert!(code == Some(64) && said.contains("on one line"), "{said}");
    fs::write(&file, "short").unwrap();
    let (code, said) = refused(&["--token-file", file.to_str().unwrap()]);
    assert!(code == Some(64) && said.contains("16 characters"), "{said}");
    let (code, said) = refused(&["--listen", "0.0.0.0:0"]);
    assert!(code == Some(64) && said.contains("--token-file"), "{said}");
    let (code, said) = refused(&["--listen", &dash.address]);
    assert!(code == Some(71) && said.contains(&dash.address), "{said}");
}

#[test]
fn a_mutex_is_released_and_dead_tasks_are_revived_or_removed() {
    let server = Server::start();
    let locks = client(&server);
    let dash = Dash::start(&server, &["--allow-release"]);
    let guard = locks.mutex("job").lease(Duration::from_secs(6)).lock().unwrap();
    let reader = locks.rw_lock("prices").read().unwrap();
    let release = |name: &str, holder: &str| dash.post("/api/release", &json!({"name": name, "holder": holder}));
    assert_eq!(release("job", "01234567").status, 409);
    assert_eq!(release("job", "").status, 400);
    assert_eq!(release("prices", &reader.id().as_str()[..8]).status, 400);
    assert_eq!(release("", "01234567").status, 400);
    guard.check().unwrap();
    assert_eq!(release("job", &guard.id().as_str()[..8]).status, 200);
    eventually("its holder is told", LONG, || guard.check().is_err());

    let queue = locks.queue("e & m?<b>");
    for id in ["a", "b"] {
        queue.push(Task::new(format!("body of {id}")).id(id)).unwrap();
        queue.claim().unwrap().fail("no such address").unwrap();
    }
    let dead = || -> Value { serde_json::from_str(&dash.get("/api/dead?queue=e+%26%20m%3F%3Cb%3E").body).unwrap() };
    let told = dead();
    assert_eq!((&told["tasks"][0]["body"], &told["tasks"][1]["why"]), (&json!("body of a"), &json!("no such address")));
    let act = |path: &str, id: &str| dash.post(path, &json!({"queue": "e & m?<b>", "id": id})).status;
    assert_eq!((act("/api/revive", "a"), act("/api/revive", "a"), act("/api/remove", "a")), (200, 409, 409));
    assert_eq!((act("/api/remove", "b"), act("/api/remove", "b")), (200, 409));
    assert_eq!((queue.len().unwrap(), queue.dead_len().unwrap()), (1, 0));
    assert_eq!(dash.post("/api/revive", &json!({"queue": 7})).status, 400);
}

#[test]
fn slow_and_giant_requests_are_cut_off() {
    let server = Server::start();
    let dash = Dash::start(&server, &[]);
    assert_eq!(dash.raw(&[b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 40_000]].concat()).status, 431);
    assert_eq!(dash.raw(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n").status, 413);
    assert_eq!(dash.raw(b"nonsense\r\n\r\n").status, 400);
    // Slow clients take all connections. Each sends one byte at a time until it is disconnected.
    let slow: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(&dash.address).unwrap()).collect();
    let began = Instant::now();
    eventually("others are served", LONG, || {
        for mut stream in &slow {
            // The write fails on a connection that was closed.
            _ = stream.write(b"G");
        }
        thread::sleep(Duration::from_millis(500));
        dash.try_get("/").is_some_and(|page| page.status == 200)
    });
    assert!(began.elapsed() < LONG);
}

#[test]
fn all_viewers_have_one_snapshot_and_no_viewer_costs_nothing() {
    let server = Server::start();
    let dash = Dash::start(&server, &[]);
    dash.get("/api/snapshot");
    let passes = || -> u64 {
        let said: String = server.ask(redis::cmd("INFO").arg("commandstats"));
        let line = said.lines().find(|line| line.starts_with("cmdstat_scan:")).unwrap().to_owned();
        line.split("calls=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
    };
    let (before, began) = (passes(), Instant::now());
    thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| (0..10).for_each(|_| _ = dash.try_get("/api/snapshot")));
        }
    });
    assert!(passes() - before <= began.elapsed().as_secs() + 2, "{} passes", passes() - before);
    eventually("the server is left alone", LONG, || {
        let before = passes();
        thread::sleep(Duration::from_secs(3));
        passes() == before
    });
    // The first viewer after that gets a new snapshot, not the old one.
    let _guard = client(&server).mutex("job").lock().unwrap();
    let told: Value = serde_json::from_str(&dash.get("/api/snapshot").body).unwrap();
    assert_eq!(told["snapshot"]["locks"][0]["name"], "job", "{told}");
    assert!(told["age_ms"].as_u64().is_some_and(|age| age < 3000), "{told}");
}
