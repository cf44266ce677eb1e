//! The log messages about nodes that fail: one line for each change of a node's state, not one for each call.

use redis::cmd;
use redlock_tests::{Act, Fault, Proxy, Server, servers};

use crate::process::Process;

/// A process that writes its log to stdout.
struct Journal(Process);

impl Journal {
    fn start(urls: impl IntoIterator<Item = String>) -> Journal {
        Journal(Process::start(&["journal"], &urls.into_iter().collect::<Vec<_>>()))
    }

    /// Makes the process take the lock ten times. Returns the number of successes, and the log lines since the last
    /// read.
    fn work(&mut self) -> (usize, Vec<String>) {
        self.0.tell("");
        let mut logged = Vec::new();
        loop {
            let line = self.0.line();
            match line.strip_prefix("taken ") {
                Some(taken) => return (taken.parse().unwrap(), logged),
                None => logged.push(line),
            }
        }
    }

    /// Calls `work`, and asserts that all ten attempts succeeded and nothing was logged.
    #[track_caller]
    fn works_silently(&mut self) {
        assert_eq!(self.work(), (10, vec![]));
    }
}

/// Asserts that the line is about this node: it starts with `begin` and the node's address, and contains `words`.
#[track_caller]
fn is_about(line: &str, begin: &str, server: &Server, words: &str) {
    let begins = line.starts_with(&format!("{begin} ({})", server.addr()));
    assert!(begins && line.contains(words), "`{begin}` and `{words}` in: {line}");
}

#[test]
fn a_node_that_goes_away_and_comes_back() {
    let servers = servers(3);
    let mut journal = Journal::start(servers.iter().map(Server::url));
    journal.works_silently();
    for _ in 0..2 {
        servers[1].kill();
        let (taken, logged) = journal.work();
        assert_eq!((taken, logged.len()), (10, 1), "{logged:?}");
        is_about(&logged[0], "WARN node 2", &servers[1], "does not answer: ");
        journal.works_silently();
        servers[1].restart();
        // The probe finds that the node answers again.
        is_about(&journal.0.line(), "INFO node 2", &servers[1], "answers again");
        journal.works_silently();
    }
}

#[test]
fn the_only_node() {
    let server = Server::start();
    server.kill();
    let mut journal = Journal::start([server.url()]);
    let (taken, logged) = journal.work();
    assert_eq!((taken, logged.len()), (0, 2), "{logged:?}");
    is_about(&logged[0], "WARN node 1", &server, "does not answer: connection refused");
    assert!(logged[1].starts_with("WARN failed to acquire `a`: the server cannot be reached"), "{logged:?}");
    assert_eq!(journal.work(), (0, vec![]));
    server.restart();
    is_about(&journal.0.line(), "INFO node 1", &server, "answers again");
    assert_eq!(journal.work(), (10, vec!["INFO a majority of the nodes can be asked again".to_owned()]));
    journal.works_silently();
}

/// The node accepts connections, but answers no calls.
#[test]
fn a_node_that_executes_no_calls() {
    let servers = servers(3);
    let proxy = Proxy::start(&servers[0]);
    let mut journal = Journal::start([proxy.url(), servers[1].url(), servers[2].url()]);
    journal.works_silently();
    let faults = ["acquire", "release"].map(|name| proxy.on_each(name, Act::HoldReply));
    // No call waits for the node, so the client learns it after a node timeout.
    let mut logged = Vec::new();
    while logged.is_empty() {
        let (taken, lines) = journal.work();
        assert_eq!(taken, 10);
        logged.extend(lines);
    }
    assert!(
        matches!(&logged[..], [line] if line.starts_with("WARN node 1 (") && line.contains("timed out")),
        "{logged:?}"
    );
    faults.iter().for_each(Fault::release);
    let mut logged = Vec::new();
    while logged.is_empty() {
        logged = journal.work().1;
    }
    assert!(matches!(&logged[..], [line] if line.starts_with("INFO node 1 (")), "{logged:?}");
    journal.works_silently();
}

#[test]
fn nodes_that_cannot_be_used() {
    let servers = servers(6);
    let member = Server::builder().arg("--cluster-enabled").arg("yes").start();
    let sentinel = Server::builder().sentinel().start();
    servers[0].replica_of(&servers[5]);
    let all = servers[..5].iter().chain([&member, &sentinel]);
    let mut journal = Journal::start(all.map(Server::url));
    let (taken, mut logged) = journal.work();
    logged.sort();
    let [replica, cluster, watcher] = &logged[..] else { panic!("{logged:?}") };
    assert_eq!(taken, 10);
    is_about(replica, "WARN node 1", &servers[0], "cannot be used: is a replica of");
    is_about(cluster, "WARN node 6", &member, "cannot be used: belongs to a Redis Cluster");
    is_about(watcher, "WARN node 7", &sentinel, "cannot be used: is a Redis Sentinel");
    journal.works_silently();
    servers[0].promote();
    let mut logged = Vec::new();
    while logged.is_empty() {
        logged = journal.work().1;
    }
    assert_eq!(logged.len(), 1, "{logged:?}");
    is_about(&logged[0], "INFO node 1", &servers[0], "can be used again");
    journal.works_silently();
}

/// No log line may contain the user and password of the URL.
#[test]
fn nodes_that_refuse_the_user() {
    let servers = servers(5);
    let rule = |server: &Server, rules: &[&str]| server.ask::<()>(cmd("ACL").arg("SETUSER").arg("ann").arg(rules));
    for server in &servers {
        rule(server, &["on", ">Geheimnis", "~*", "+@all"]);
    }
    rule(&servers[1], &["-time"]);
    rule(&servers[3], &["resetpass", ">another"]);
    let url = |server: &Server| format!("redis://ann:Geheimnis@{}/", server.addr());
    let mut journal = Journal::start(servers.iter().map(url));
    let (taken, mut logged) = journal.work();
    logged.sort();
    let [time, password] = &logged[..] else { panic!("{logged:?}") };
    assert_eq!(taken, 10);
    is_about(time, "WARN node 2", &servers[1], "cannot be used: NOPERM this user may not run TIME");
    is_about(password, "WARN node 4", &servers[3], "cannot be used: WRONGPASS");
    assert!(!logged.concat().contains("Geheimnis"), "{logged:?}");
    journal.works_silently();
    rule(&servers[1], &["+time"]);
    let (_, logged) = journal.work();
    assert_eq!(logged.len(), 1, "{logged:?}");
    is_about(&logged[0], "INFO node 2", &servers[1], "can be used again");
    journal.works_silently();
}
