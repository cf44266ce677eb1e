//! Errors name the operation, the queue and the server, but no key of the library.

use redlock_sync::{Error, Redlock, Task};
use redlock_tests::{Act, Proxy, Server, eventually};

use super::rig::{SOON, ms};

fn open(url: &str) -> Redlock {
    Redlock::builder().node(url).node_timeout(ms(3000)).key_prefix("shop:").build().unwrap()
}

/// Asserts that the error has these words followed by the queue's name, and the node's address if there is one.
fn check(error: &Error, words: &str, address: Option<&str>) {
    let text = error.to_string();
    assert!(text.contains(&format!("{words} `shop:mails`")) && !text.contains("q2:"), "{text}");
    assert!(address.is_none_or(|address| text.contains(&format!("node 1 ({address})"))), "{text}");
}

#[test]
fn errors_name_the_queue_and_not_a_key() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let address = proxy.addr().to_string();
    let mails = open(&proxy.url()).queue("mails");
    let task = |id: &str| Task::new("body").id(id);
    mails.push_all(["a", "b", "c", "d"].map(task)).unwrap();
    let [first, second, removed, wrong] = std::array::from_fn(|_| mails.claim().unwrap());
    assert!(mails.remove("c").unwrap());
    let lost = removed.ack().unwrap_err();
    assert!(lost.is_lost());
    check(&lost, "a claim in queue", None);
    check(&mails.clone().max_len(1).push("e").unwrap_err(), "queue", None);
    for said in ["OOM command not allowed", "NOPERM this user has no permissions"] {
        let fault = proxy.on_each("*", Act::Error(said.into()));
        let calls = [
            ("push", mails.push("e").err()),
            ("claim", mails.try_claim().err()),
            ("pop", mails.pop_due(1).err()),
            ("peek", mails.peek(1).err()),
            ("peek", mails.dead(1).err()),
            ("count", mails.len().err()),
            ("count", mails.dead_len().err()),
            ("remove", mails.remove("a").err()),
            ("revive", mails.revive("a").err()),
            ("extend", first.extend(ms(60_000)).err()),
        ];
        for (op, error) in calls {
            check(&error.unwrap(), &format!("failed to {op} in queue"), Some(&address));
        }
        fault.release();
    }
    eventually("the node is used again", SOON, || mails.len().is_ok());
    proxy.on_each("finish", Act::Error("OOM command not allowed".into()));
    check(&second.ack().unwrap_err(), "the end of a claim in queue", Some(&address));
    proxy.heal();
    server.del("{shop:mails}:q2:tasks");
    server.set("{shop:mails}:q2:tasks", "x");
    // Here the key is what the user has to look at.
    for (op, error) in [("release", wrong.ack().unwrap_err()), ("push", mails.push("e").unwrap_err())] {
        let told = error.to_string();
        let is_named = told.contains("node 1") && told.contains("(the key `{shop:mails}:q2:tasks`)");
        assert!(told.starts_with(&format!("failed to {op} in queue `shop:mails`")) && is_named, "{told}");
    }
    drop(first);
    for odd in ["", "a}b", "{a}::q2:due", &"x".repeat(2000)] {
        let text = open(&server.url()).queue(odd).push("e").unwrap_err().to_string();
        assert!(text.contains("queue") && !text.contains("a lock needs") && !text.starts_with("lock"), "{text}");
    }
}
