//! Tests of rounds against real servers, and of the handling of their votes.

use std::thread;

use redlock_tests::{Proxy, Server, eventually, servers};

use super::*;
use crate::clock::SystemClock;
use crate::key::Key;
use crate::protocol::reply::Holders;
use crate::protocol::{Exclusive, Next, Protocol, ReleaseArgs};
use crate::token::LockId;

const TIMEOUT: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "k";
const TOKEN: &str = "t";

fn quorum(urls: impl Iterator<Item = String>, node_timeout: Duration) -> Quorum {
    crate::tests::quorum(urls, ClientOptions { node_timeout, ..ClientOptions::default() }, Arc::new(SystemClock))
}

/// Servers behind proxies, each of which has the key with the token of the test.
struct Rig {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    quorum: Quorum,
}

impl Rig {
    fn start(n: usize) -> Rig {
        Rig::with(n, TIMEOUT)
    }

    fn with(n: usize, node_timeout: Duration) -> Rig {
        let servers = servers(n);
        let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
        let quorum = quorum(proxies.iter().map(Proxy::url), node_timeout);
        for server in &servers {
            server.set(KEY, TOKEN);
        }
        Rig { servers, proxies, quorum }
    }

    /// The servers that have the key.
    fn nodes_with_key(&self) -> Vec<bool> {
        self.servers.iter().map(|server| server.get(KEY).is_some()).collect()
    }

    fn take_back(&self, votes: Vec<Vote<Released>>, within: Duration) -> bool {
        let ballot = Ballot { votes: votes.into(), started: self.quorum.now(), duplicate: false };
        self.quorum.roll_back(&ballot, &release(), self.quorum.now().after(within))
    }

    /// The failures of a round.
    fn ask(&self) -> Vec<Option<FailureKind>> {
        self.call(&release(), self.quorum.now().after(SOON))
    }

    fn call<R: Reply>(&self, call: &TypedCall<R>, by: Tick) -> Vec<Option<FailureKind>> {
        let ballot = self.quorum.round(call, by);
        let kind = |vote: &Vote<_>| if let Vote::Failed(failure) = vote { Some(failure.kind) } else { None };
        ballot.votes.iter().map(kind).collect()
    }
}

/// A call without an effect, which needs no release if its answer is late.
fn question() -> TypedCall<Holders> {
    Protocol::Mutex(Exclusive { key: Key::new("", KEY).unwrap() }).inspect()
}

fn release() -> TypedCall<Released> {
    let lock = Exclusive { key: Key::new("", KEY).unwrap() };
    let id = LockId::from_server(TOKEN);
    lock.release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody })
}

fn failed(kind: FailureKind, executed: Executed) -> Vote<Released> {
    Vote::Failed(Failure { kind, executed, message: format!("{kind:?}") })
}

fn unknown() -> Vote<Released> {
    failed(FailureKind::TimedOut, Executed::Maybe)
}

fn taken() -> Vote<Released> {
    Vote::taken("other".into(), None)
}

#[test]
fn only_where_the_token_may_stand_it_is_taken_back() {
    let rig = Rig::start(5);
    let votes = vec![
        Vote::Yes(Released::Freed),
        taken(),
        unknown(),
        failed(FailureKind::Unreachable, Executed::No),
        Vote::Absent,
    ];
    // The call with the unknown result may still be executed. Its node stays in doubt, although it does not have the
    // key now.
    assert!(rig.take_back(votes, SOON));
    // A busy server may execute the release after the call has returned.
    eventually("it is taken back", SOON, || rig.nodes_with_key() == [false, true, false, true, true]);
    assert!(!rig.take_back(vec![taken(), Vote::Yes(Released::Freed), taken(), Vote::Absent, taken()], SOON));
    assert_eq!(rig.nodes_with_key(), [false, false, false, true, true]);
}

#[test]
fn nodes_where_nothing_may_stand_are_not_asked() {
    let rig = Rig::start(1);
    for duplicate in [true, false] {
        let ballot = Ballot { votes: [taken()].into(), started: rig.quorum.now(), duplicate };
        assert_eq!(rig.quorum.roll_back(&ballot, &release(), rig.quorum.now().after(SOON)), duplicate);
    }
    assert_eq!(rig.proxies[0].count("*"), 0);
}

#[test]
fn what_does_not_get_through_is_sent_again() {
    let rig = Rig::start(1);
    rig.proxies[0].refuse();
    let started = rig.quorum.now();
    thread::scope(|scope| {
        scope.spawn(|| {
            // The exact time does not matter, as long as it is usually after the first attempt.
            SystemClock.sleep(TIMEOUT);
            rig.proxies[0].heal();
        });
        assert!(!rig.take_back(vec![Vote::Yes(Released::Freed)], SOON), "nothing is left");
    });
    assert!(rig.quorum.now().since(started) < SOON);
    assert_eq!(rig.nodes_with_key(), [false]);
}

#[test]
fn what_never_gets_through_is_left() {
    let rig = Rig::start(1);
    rig.proxies[0].refuse();
    let started = rig.quorum.now();
    assert!(rig.take_back(vec![Vote::Yes(Released::Freed)], TIMEOUT * 3));
    let took = rig.quorum.now().since(started);
    assert!(took > TIMEOUT, "it was not tried again: {took:?}");
    assert!(took < SOON, "{took:?}");
    assert_eq!(rig.nodes_with_key(), [true]);
}

#[test]
fn a_release_without_an_answer_is_left_and_a_refused_one_too() {
    for refused in [false, true] {
        let rig = Rig::start(1);
        let answer = if refused { redlock_tests::Act::Error("ERR no".into()) } else { redlock_tests::Act::HoldReply };
        // Makes the connection before, since that can take long on a busy machine.
        let is_connected = || rig.call(&question(), rig.quorum.now().after(SOON)) == [None];
        redlock_tests::eventually("it is connected", SOON, is_connected);
        let rule = rig.proxies[0].on_each("release", answer);
        let within = if refused { SOON } else { TIMEOUT * 2 };
        assert!(rig.take_back(vec![Vote::Yes(Released::Freed)], within), "refused: {refused}");
        assert_eq!(rule.hits(), 1, "refused: {refused}");
    }
}

#[test]
fn a_node_that_failed_is_left_out_while_the_others_are_a_majority() {
    let rig = Rig::with(3, SOON);
    assert_eq!(rig.ask(), [None, None, None]);
    // A round does not wait for the first node once the others have decided.
    let is_left_out = |node: usize| rig.quorum.nodes.members().nth(node).is_some_and(|node| node.outage().is_some());
    let leave_out = |node: usize| {
        rig.proxies[node].refuse();
        eventually("the client notices", SOON, || {
            assert!(rig.ask()[node].is_some());
            is_left_out(node)
        });
    };
    leave_out(0);
    // Probes continue meanwhile, and all of them fail.
    assert_eq!(rig.ask(), [Some(FailureKind::LeftOut), None, None]);
    leave_out(1);
    // The majority needs each of the two nodes. While a probe is under way, the client sends no further one.
    let both = [Some(FailureKind::Unreachable), Some(FailureKind::Unreachable), None];
    eventually("both are asked again", SOON, || rig.ask() == both);
}

/// This holds even if the client cannot leave the node out, since there is no majority without it.
#[test]
fn a_silent_node_costs_one_timeout_and_not_one_per_round() {
    let rig = Rig::start(1);
    assert_eq!(rig.ask(), [None]);
    rig.proxies[0].black_hole();
    let ask = || rig.call(&question(), rig.quorum.round_deadline());
    assert_eq!(ask(), [Some(FailureKind::TimedOut)]);
    let start = rig.quorum.now();
    for _ in 0..8 {
        assert!(ask()[0].is_some());
    }
    let took = rig.quorum.now().since(start);
    assert!(took < 4 * TIMEOUT, "{took:?}");
    rig.proxies[0].heal();
    eventually("it is asked again", SOON, || rig.ask() == [None]);
}

/// All clients use the node with the smallest run id, independent of the order in which they name the nodes.
#[test]
fn waits_are_on_the_well_node_with_the_smallest_run_id() {
    let rig = Rig::start(3);
    let at = || rig.quorum.notification_server().map(|(i, _)| i);
    assert_eq!(at(), Some(0), "no node has told its run id");
    eventually("all answer", SOON, || rig.ask() == [None, None, None]);
    let mut order = [0, 1, 2];
    let ids: Vec<_> = rig.quorum.nodes.members().map(|node| node.run_id().unwrap()).collect();
    order.sort_by_key(|&i| &ids[i]);
    assert_eq!(at(), Some(order[0]));
    rig.proxies[order[0]].refuse();
    rig.ask();
    assert_eq!(at(), Some(order[1]));
}

#[test]
fn lasting_failures_are_told_where_the_others_are_no_majority() {
    use FailureKind::{Misuse, Unreachable, WrongType};
    let quorum = quorum((1..4).map(|n| format!("redis://127.0.0.{n}:1/")), TIMEOUT);
    let no = |kind| failed(kind, Executed::No);
    let votes = [Vote::Absent, no(FailureKind::TimedOut), no(FailureKind::Refused), no(FailureKind::Refused)];
    let nodes = |kind| quorum.errors(&votes, |other| other == kind).map(|error| error.node).collect::<Vec<_>>();
    assert_eq!((nodes(FailureKind::Refused), nodes(FailureKind::TimedOut)), (vec![3, 4], vec![2]));
    assert!(nodes(FailureKind::WrongType).is_empty());
    let error = |votes: Vec<Vote<Released>>| {
        quorum.failed("acquire", KEY, &Ballot { votes: votes.into(), started: quorum.now(), duplicate: false })
    };
    match error(vec![no(Unreachable), no(WrongType), no(WrongType)]) {
        Error::WrongType { op: "acquire", key, node } => {
            assert_eq!((key.as_str(), node.node, node.address.as_str()), (KEY, 2, "127.0.0.2:1"));
        }
        other => panic!("{other:?}"),
    }
    let misuse = error(vec![no(Misuse), taken(), no(Misuse)]);
    assert!(matches!(misuse, Error::Config { .. }) && misuse.to_string().contains("127.0.0.1:1"), "{misuse}");
    // Two other nodes could still make a majority.
    match error(vec![no(WrongType), taken(), no(Unreachable)]) {
        Error::Unavailable { of: 3, nodes, .. } => {
            let told: Vec<_> = nodes.iter().map(|node| (node.node, node.message.as_str())).collect();
            assert_eq!(told, [(1, "WrongType"), (3, "Unreachable")]);
        }
        other => panic!("{other:?}"),
    }
}
