use super::*;
use crate::handover::listener::connect::rule_against;

/// A listener of a client whose user has only these rights.
fn limited(server: &Server, rights: &[&str]) -> Arc<Listener> {
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("app").arg("reset").arg("on").arg(">pw").arg("~*").arg(rights);
    server.ask::<()>(&command);
    listener(server.url().replace("redis://", "redis://app:pw@"))
}

fn refused(wait: &ListenerWait) {
    let until = soon();
    while !wait.must_poll() {
        assert_eq!(wait.sleep(until, &Cancelling::default()), Woken::Connected);
    }
    assert_eq!(wait.subscription(), None);
    // The refusal is known now. A wake-up for an earlier connection may still come.
    while wait.sleep(now().after(Duration::from_millis(5)), &Cancelling::default()) != Woken::Timer {
        assert!(now() < until && wait.must_poll());
    }
}

#[test]
fn a_user_without_channels_has_to_poll() {
    let server = Server::start();
    for rights in [&["+@all", "resetchannels"][..], &["+@all", "&*", "-subscribe"], &["+@all", "&*", "-publish"]] {
        let listener = limited(&server, rights);
        let wait = listener.begin();
        refused(&wait);
        refused(&listener.begin());
    }
}

#[test]
fn a_refused_login_is_not_mended_by_permissions() {
    assert!(rule_against("NOPERM this user has no permissions").contains("ACL SETUSER"));
    for message in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair"] {
        assert_eq!(rule_against(message), "", "{message}");
    }
}

#[test]
fn the_rule_that_the_warning_names_is_enough() {
    let server = Server::start();
    let listener =
        limited(&server, &["+evalsha", "+eval", "+info", "resetchannels", "&redlock-sync:*", "+subscribe", "+publish"]);
    let (wait, subscription) = wait(&listener);
    assert!(notify(&server, &subscription, wait.number));
    assert_eq!(fence(wait.sleep(soon(), &Cancelling::default())), wait.number);
}

#[test]
fn a_refusal_that_comes_later_is_noticed() {
    let server = Server::start();
    let listener = limited(&server, &["+@all", "&*"]);
    let (wait, _) = wait(&listener);
    // If the user has no right to the channel, the server ends the connection.
    server.ask::<()>(redis::cmd("ACL").arg("SETUSER").arg("app").arg("resetchannels"));
    refused(&wait);
}
