//! Users and passwords change while locks are held.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{Builder, Credentials, Error, MutexGuard, Redlock};
use redlock_tests::{Act, Group, Proxy, Server, Stopwatch, eventually};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn settings(server: &Server) -> Builder {
    let url = format!("redis://locks@{}/", server.addr());
    Redlock::builder().node(url).node_timeout(Duration::from_secs(2)).unavailable_after(SOON)
}

/// Gives the user this password only, and kills the user's connections.
fn password(server: &Server, password: &str) {
    let rules = ["reset", "on", &format!(">{password}"), "~*", "&*", "+@all"];
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(&rules));
    server.ask::<usize>(cmd("CLIENT").arg("KILL").arg("USER").arg("locks"));
}

#[test]
fn a_password_file_is_read_at_each_connection() {
    let server = Server::start();
    password(&server, "first");
    let file = server.dir().join("password");
    let locks = settings(&server).password_file(&file).build().unwrap();
    let missing = locks.mutex("a").try_lock().unwrap_err();
    assert!(missing.is_unavailable() && missing.to_string().contains("no credentials"), "{missing}");
    fs::write(&file, "first\n").unwrap();
    let held = locks.mutex("a").lock().unwrap();

    fs::write(&file, "second\n").unwrap();
    password(&server, "second");
    held.extend(Duration::from_secs(60)).or_else(|_| held.extend(Duration::from_secs(60))).unwrap();
    locks.mutex("b").lock().unwrap().unlock().unwrap();
    held.unlock().unwrap();

    password(&server, "third");
    let refused = || locks.mutex("b").try_lock().is_err_and(|error| error.to_string().contains("WRONGPASS"));
    eventually("the old password is refused", SOON, refused);
    let error = locks.mutex("b").try_lock().unwrap_err();
    assert!(error.is_unavailable() && !error.to_string().contains("second"), "{error}");
    fs::write(&file, "third").unwrap();
    eventually("the new password is read", SOON, || locks.mutex("b").try_lock().is_ok());
}

/// Asserts that the connections of this client are those of the user `ann`.
fn is_ann(locks: &Redlock, server: &Server) {
    let guard = locks.mutex("a").lock().unwrap();
    let clients: String = server.ask(cmd("CLIENT").arg("LIST"));
    assert!(clients.lines().any(|line| line.contains("user=ann")), "{clients}");
    guard.unlock().unwrap();
}

#[test]
fn a_user_without_a_password_is_no_other_user() {
    let group = Group::start(0, 1);
    let server = &group.servers[0];
    let nopass = ["on", "nopass", "~*", "&*", "+@all"];
    for server in [server, &group.sentinels[0]] {
        server.ask::<()>(cmd("ACL").arg("SETUSER").arg("ann").arg(&nopass));
    }
    let (addr, of_group) = (server.addr(), group.url());
    for url in [format!("redis://ann@{addr}/"), format!("redis://ann:@{addr}/"), of_group.replace("://", "://ann@")] {
        is_ann(&redlock_tests::open(&url), server);
    }
    let with_socket = Server::builder().unix_socket().start();
    with_socket.ask::<()>(cmd("ACL").arg("SETUSER").arg("ann").arg(&nopass));
    is_ann(&redlock_tests::open(format!("{}?user=ann", with_socket.unix_url())), &with_socket);
    let by_sentinel = redlock_tests::open(format!("{of_group}?sentinel_user=ann"));
    is_known_as_ann(&by_sentinel, &group.sentinels[0]);
    // If the user has a password, the client does not act as another user.
    password(server, "secret");
    let refused = redlock_tests::open(format!("redis://locks@{addr}/")).mutex("a").lock().unwrap_err();
    assert!(matches!(&refused, Error::Config { message, .. } if message.contains("WRONGPASS")), "{refused}");
}

fn is_known_as_ann(locks: &Redlock, sentinel: &Server) {
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    let commands: String = sentinel.ask(cmd("CLIENT").arg("LIST"));
    assert!(commands.lines().any(|line| line.contains("user=ann")), "{commands}");
}

#[test]
fn a_password_file_without_a_password_is_told() {
    let server = Server::start();
    password(&server, "first");
    let file = server.dir().join("password");
    let told = |text: &str| {
        fs::write(&file, text).unwrap();
        let locks = settings(&server).password_file(&file).build().unwrap();
        locks.mutex("a").try_lock().map(drop).map_err(|error| error.to_string())
    };
    for empty in ["", "\nfirst\n", "\u{feff}"] {
        assert!(told(empty).unwrap_err().contains("is empty: write the password there"), "{empty:?}");
    }
    assert_eq!(told("\u{feff}first\r\n"), Ok(()), "a byte order mark is no part of a password");
}

#[test]
fn a_refused_login_is_told_with_what_to_do() {
    let server = Server::builder().password("secret").start();
    let told = |login: &str| {
        let error = redlock_tests::open(format!("redis://{login}{}/", server.addr())).mutex("a").lock().unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
        error.to_string()
    };
    let none = told("");
    assert!(none.contains("NOAUTH") && none.contains("put it into the URL"), "{none}");
    let wrong = told(":guess@");
    assert!(wrong.contains("WRONGPASS") && wrong.contains("correct the user name or the password"), "{wrong}");
    assert!(!wrong.contains("ACL") && !wrong.contains("guess"), "{wrong}");
}

#[test]
fn a_function_is_asked_for_users_and_passwords() {
    let server = Server::start();
    password(&server, "sesame");
    let (asked, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Ok(Credentials::new("locks", "sesame")))));
    let (count, given) = (Arc::clone(&asked), Arc::clone(&now));
    let address = server.addr().to_string();
    let url = format!("redis://other:wrong@{address}/");
    let settings = Redlock::builder().node(url).node_timeout(Duration::from_secs(2)).credentials(move |node| {
        assert_eq!(node, address);
        count.fetch_add(1, Ordering::SeqCst);
        given.lock().unwrap().clone()
    });
    assert!(!format!("{settings:?}").contains("sesame"));
    let locks = settings.build().unwrap();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    let before = asked.load(Ordering::SeqCst);
    assert!(before > 0);
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), before, "an existing connection asked for credentials");

    *now.lock().unwrap() = Err("the vault is sealed");
    password(&server, "second");
    let mut said = String::new();
    eventually("the call returns the function's error", SOON, || {
        said = locks.mutex("a").try_lock().map_or_else(|error| error.to_string(), |_| String::new());
        said.contains("the vault is sealed")
    });
    *now.lock().unwrap() = Ok(Credentials::new("locks", "second"));
    eventually("the function is asked again", SOON, || locks.mutex("a").try_lock().is_ok());
}

/// The password changes often, in the way that administrators should change it: the server accepts both passwords until
/// the client has read the new one.
#[test]
fn no_call_fails_while_a_password_changes() {
    let server = Server::start();
    let rules = ["reset", "on", ">password-0", "~*", "&*", "+@all"];
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(&rules));
    let file = server.dir().join("password");
    fs::write(&file, "password-0").unwrap();
    let locks = settings(&server).password_file(&file).build().unwrap();
    let held = locks.mutex("held").lock().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (locks, is_over) = (&locks, &is_over);
                scope.spawn(move || {
                    let mut calls = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        // Two threads share each lock, so one of them sometimes waits.
                        locks.mutex(format!("a:{}", thread / 2)).lock()?.unlock()?;
                        calls += 1;
                    }
                    Ok::<_, Error>(calls)
                })
            })
            .collect();
        for change in 1..=20 {
            let user = |rule: String| server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(rule));
            user(format!(">password-{change}"));
            let next = server.dir().join("next");
            fs::write(&next, format!("password-{change}\n")).unwrap();
            fs::rename(&next, &file).unwrap();
            user(format!("<password-{}", change - 1));
            server.ask::<usize>(cmd("CLIENT").arg("KILL").arg("USER").arg("locks"));
            locks.mutex("b").lock().unwrap().unlock().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        for thread in threads {
            assert!(thread.join().unwrap().unwrap() > 0);
        }
    });
    held.unlock().unwrap();
}

#[test]
fn connections_are_replaced_before_their_password_runs_out() {
    let server = Server::start();
    password(&server, "sesame");
    let valid_for = Duration::from_millis(400);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let settings = settings(&server).credentials(move |_node| {
        // Every other call returns an outdated password.
        let is_late = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        Ok::<_, Error>(Credentials::password(if is_late { "old" } else { "sesame" }).valid_for(valid_for))
    });
    let locks = settings.build().unwrap();
    let ids = || -> Vec<u64> {
        let all: String = server.ask(cmd("CLIENT").arg("LIST"));
        let of_user = all.lines().filter(|line| line.contains("user=locks"));
        of_user.map(|line| line.split(['=', ' ']).nth(1).unwrap().parse().unwrap()).collect()
    };
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    let first = ids();
    assert!(!first.is_empty());
    let began = Stopwatch::start();
    let mut calls = 0;
    while began.elapsed() < valid_for * 4 || ids().iter().any(|id| first.contains(id)) {
        locks.mutex("a").lock().unwrap().unlock().unwrap();
        calls += 1;
        assert!(began.elapsed() < SOON, "the first connections are still there after {calls} calls");
    }
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked >= 6 && asked < calls, "asked {asked} times for {calls} calls");
    // A connection that was idle is not used after its password has expired.
    thread::sleep(valid_for + Duration::from_millis(50));
    let idle = ids();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    assert!(ids().iter().any(|id| !idle.contains(id)));
}

/// The connection of a key is replaced while a release is on its way there, and the next attempt goes over another one.
/// It never finds the lock taken by the dropped guard.
#[test]
fn locks_are_free_after_a_drop_while_connections_are_replaced() {
    let server = Server::start();
    password(&server, "sesame");
    let valid_for = Duration::from_millis(100);
    let source = move |_: &str| Ok::<_, Error>(Credentials::password("sesame").valid_for(valid_for));
    let proxy = Proxy::start(&server);
    // So the connection is often replaced before the server has the release.
    proxy.on_each("release", Act::Delay(Duration::from_millis(30)));
    let url = format!("redis://locks@{}/", proxy.addr());
    let locks = Redlock::builder().node(url).node_timeout(Duration::from_secs(2)).credentials(source).build().unwrap();
    let made = || server.info("total_connections_received").unwrap().parse::<usize>().unwrap();
    let enough = made() + 40;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (locks, is_over) = (&locks, &is_over);
            scope.spawn(move || {
                let mutex = locks.mutex(format!("a:{thread}"));
                while !is_over.load(Ordering::SeqCst) {
                    drop(mutex.lock().unwrap());
                    // Meanwhile the connection can be replaced.
                    thread::sleep(Duration::from_millis(10));
                    drop(mutex.try_lock().unwrap());
                }
            });
        }
        eventually("the connections have been replaced", SOON, || made() > enough);
        is_over.store(true, Ordering::SeqCst);
    });
}

/// The function for the next credentials fails. The client must work until the current credentials expire.
#[test]
fn a_server_is_not_left_out_while_its_connections_are_good() {
    let server = Server::start();
    password(&server, "sesame");
    let valid_for = Duration::from_secs(6);
    let (is_sealed, refusals) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (sealed, refused) = (Arc::clone(&is_sealed), Arc::clone(&refusals));
    let settings = settings(&server).unavailable_after(Duration::ZERO).credentials(move |_node| {
        if sealed.load(Ordering::SeqCst) {
            refused.fetch_add(1, Ordering::SeqCst);
            return Err("the vault is sealed");
        }
        Ok(Credentials::password("sesame").valid_for(valid_for))
    });
    let locks = settings.build().unwrap();
    let began = Instant::now();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    is_sealed.store(true, Ordering::SeqCst);
    // The client asks for the next credentials after 4.5 s.
    while began.elapsed() + Duration::from_millis(200) < valid_for {
        let outcome = locks.mutex("a").try_lock().and_then(MutexGuard::unlock);
        assert!(outcome.is_ok() || began.elapsed() > valid_for, "{outcome:?}");
        thread::sleep(Duration::from_millis(5));
    }
    let refusals = refusals.load(Ordering::SeqCst);
    assert!((1..20).contains(&refusals), "asked {refusals} times");
    is_sealed.store(false, Ordering::SeqCst);
    let is_renewed = || locks.mutex("a").lock().and_then(MutexGuard::unlock).is_ok();
    eventually("the connections have new credentials", SOON, || is_renewed() && began.elapsed() > valid_for);
}
