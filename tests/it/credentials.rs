//! Users and passwords that change while locks are held.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Builder, Credentials, Error, Redlock};
use redlock_tests::{Server, eventually};

/// More than a busy machine needs for anything here.
const SOON: Duration = Duration::from_secs(30);

fn settings(server: &Server) -> Builder {
    let url = format!("redis://locks@{}/", server.addr());
    Redlock::builder().node(url).node_timeout(Duration::from_secs(2)).unavailable_after(SOON)
}

/// The user has that password only, and its connections end.
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
    let refused = || matches!(locks.mutex("b").try_lock(), Err(Error::Config { .. }));
    eventually("the old password is refused", SOON, refused);
    let error = locks.mutex("b").try_lock().unwrap_err().to_string();
    assert!(error.contains("WRONGPASS") && !error.contains("second"), "{error}");
    fs::write(&file, "third").unwrap();
    eventually("the new one is read", SOON, || locks.mutex("b").try_lock().is_ok());
}

#[test]
fn a_function_is_asked_for_users_and_passwords() {
    let server = Server::start();
    password(&server, "sesame");
    let (asked, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Ok(Credentials::of("locks", "sesame")))));
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
    assert_eq!(asked.load(Ordering::SeqCst), before, "only new connections ask");

    *now.lock().unwrap() = Err("the vault is sealed");
    password(&server, "second");
    let mut said = String::new();
    eventually("the error is told", SOON, || {
        said = locks.mutex("a").try_lock().map_or_else(|error| error.to_string(), |_| String::new());
        said.contains("the vault is sealed")
    });
    *now.lock().unwrap() = Ok(Credentials::of("locks", "second"));
    eventually("it is asked again", SOON, || locks.mutex("a").try_lock().is_ok());
}
