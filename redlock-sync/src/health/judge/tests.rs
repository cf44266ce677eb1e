use std::time::UNIX_EPOCH;

use super::*;
use crate::protocol::reply::Executed;

const SOUND: &str =
    "now_ms:1000\nrole:master\nmaxmemory:0\nmaxmemory_policy:noeviction\naof_enabled:1\nconnected_slaves:0\n";

fn judged(text: &str, written: &Vote<()>, nodes: usize) -> (NodeHealth, Vec<String>) {
    asked(0, text, written, nodes)
}

/// Judges a server for a client with `min_replicas_ack`.
fn asked(acks: u32, text: &str, written: &Vote<()>, nodes: usize) -> (NodeHealth, Vec<String>) {
    let facts = Facts::parse(Vote::Yes(text.to_owned()), acks);
    let node = facts.node("a:6379".into(), written, "redlock-sync:health");
    let warnings = facts.warnings(&node, nodes, written);
    (node, warnings)
}

fn failed(kind: FailureKind, message: &str) -> Vote<()> {
    Vote::Failed(Failure::new(kind, Executed::No, message))
}

#[test]
fn each_fault_of_a_server_is_said() {
    assert_eq!(judged(SOUND, &Vote::Yes(()), 1).1, Vec::<String>::new());
    for (fact, said, only_alone) in [
        ("aof_enabled:0", "set appendonly yes", true),
        ("connected_slaves:2", "use failover_guard and min_replicas_ack(2)", true),
        ("connected_slaves:2\ncluster_enabled:1", "use min_replicas_ack(2)", true),
        ("maxmemory:100\nmaxmemory_policy:volatile-lru", "set it to noeviction", false),
        ("evicted_keys:7", "has evicted 7 keys", false),
        ("maxmemory:1000\nused_memory:960", "uses 96 % of its maxmemory", false),
        ("rdb_last_bgsave_status:err", "rdb_last_bgsave_status is err", false),
        ("may_listen:0", "+publish +subscribe", false),
        ("refused:NOPERM", "give the user +info", false),
    ] {
        let facts = format!("{SOUND}{fact}\n");
        let (node, warnings) = judged(&facts, &Vote::Yes(()), 1);
        assert!(node.problem.is_none() && warnings.len() == 1, "{fact}: {warnings:?}");
        assert!(warnings[0].starts_with("a:6379 ") && warnings[0].contains(said), "{fact}: {warnings:?}");
        assert_eq!(judged(&facts, &Vote::Yes(()), 3).1.is_empty(), only_alone, "{fact} among three");
    }
    let waited_for = format!("{SOUND}connected_slaves:2\nmin_slaves_good_slaves:2\n");
    assert!(judged(&waited_for, &Vote::Yes(()), 1).1.is_empty());
    // A server that evicts keys is never full. Without a memory limit, it evicts nothing.
    let lru = format!("{SOUND}maxmemory_policy:allkeys-lru\n");
    assert!(judged(&lru, &Vote::Yes(()), 1).1.is_empty());
}

/// The text is printed on terminals.
#[test]
fn what_a_server_says_of_itself_is_escaped() {
    let facts = "valkey_version:9\u{1b}[2J\rX\nmaxmemory:1\nused_memory:0\nmaxmemory_policy:all\u{9b}2Jkeys\nrefused:\u{1b}]0;x\u{7}\n";
    let (node, warnings) = judged(facts, &Vote::Yes(()), 1);
    assert_eq!(node.version.as_deref(), Some("9\\u{1b}[2J\\rX"));
    assert_eq!(node.eviction_policy.as_deref(), Some("all\\u{9b}2Jkeys"));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(!warnings.iter().any(|warning| warning.contains(char::is_control)), "{warnings:?}");
}

#[test]
fn replicas_are_compared_with_those_that_must_confirm() {
    let said = |acks: u32, facts: &str, nodes: usize| {
        let (node, warnings) = asked(acks, &format!("{SOUND}{facts}\n"), &Vote::Yes(()), nodes);
        (node.problem.is_none(), warnings.join("; "))
    };
    for nodes in [1, 3] {
        let (is_well, text) = said(2, "connected_slaves:1", nodes);
        assert!(!is_well && text.contains("1 replicas are connected to it, but 2 must confirm each lock"), "{text}");
        assert!(text.contains("lower min_replicas_ack"), "{text}");
    }
    // The server has as many replicas as must confirm. So every replica that may become the master has every lock.
    assert_eq!(said(2, "connected_slaves:2", 1), (true, String::new()));
    let (is_well, text) = said(1, "connected_slaves:2", 1);
    assert!(is_well && text.contains("use min_replicas_ack(2)"), "{text}");
    assert_eq!(said(1, "connected_slaves:2", 3), (true, String::new()));
    assert!(said(1, "connected_slaves:1\nmay_wait:0", 1).1.contains("give the user +wait"));
    assert_eq!(said(0, "may_wait:0", 1), (true, String::new()));
    // A server that reports no number causes no warning.
    assert!(asked(1, "role:master\naof_enabled:1\n", &Vote::Yes(()), 1).0.problem.is_none());
}

#[test]
fn a_server_that_takes_no_writes_is_a_problem() {
    let problem = |text: &str, written: &Vote<()>| judged(text, written, 3).0.problem;
    let full = format!("{SOUND}maxmemory:1000\nused_memory:1000\n");
    assert!(problem(&full, &Vote::Yes(())).unwrap().contains("memory is full"));
    let replica = format!("{SOUND}role:slave\n");
    assert!(problem(&replica, &Vote::Yes(())).unwrap().contains("is a replica"));
    let refused = failed(FailureKind::Refused, "MISCONF errors writing to the disk");
    assert_eq!(problem(SOUND, &refused).as_deref(), Some("MISCONF errors writing to the disk"));
    let missing = failed(FailureKind::Denied, "NOPERM this user may not run SET, ZADD");
    assert!(problem(SOUND, &missing).unwrap().contains("SET, ZADD"));
    let other_keys = failed(FailureKind::Denied, "NOPERM No permissions to access a key");
    let (node, warnings) = judged(SOUND, &other_keys, 3);
    assert!(node.problem.is_none() && warnings[0].contains("~PREFIXredlock-sync:health"), "{warnings:?}");
}

#[test]
fn what_was_not_said_is_not_known() {
    let down = Facts::parse(Vote::Failed(Failure::unsent(FailureKind::Unreachable, "connection refused")), 1);
    let node = down.node("a:6379".into(), &failed(FailureKind::LeftOut, "left out"), "k");
    assert_eq!(node.problem.as_deref(), Some("connection refused"));
    assert_eq!(down.warnings(&node, 1, &Vote::Yes(())), ["a:6379 cannot be used: connection refused"]);
    assert_eq!((node.version, node.clock, node.append_only), (None, None, None));
}

#[test]
fn servers_are_compared() {
    let at = |address: &str, ms: u64, uptime: u64| NodeHealth {
        address: address.into(),
        clock: Some(UNIX_EPOCH + Duration::from_millis(ms)),
        uptime: Some(Duration::from_secs(uptime)),
        ..NodeHealth::default()
    };
    let lease = Duration::from_secs(30);
    let three = [at("a", 10_000, 99), at("b", 12_500, 99), at("c", 11_000, 5)];
    let said = common_warnings(&three, Duration::from_millis(500), lease, true);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("the clock of b is 2s ahead of that of a"), "{said:?}");
    assert!(said[1].starts_with("c restarted 5s ago"), "{said:?}");
    assert_eq!(common_warnings(&three, Duration::from_secs(2), lease, false), Vec::<String>::new());
    assert!(common_warnings(&three[..2], Duration::from_secs(2), lease, true)[0].contains("2 servers tolerate"));
    assert_eq!(common_warnings(&three[..1], Duration::ZERO, lease, true), Vec::<String>::new());
}
