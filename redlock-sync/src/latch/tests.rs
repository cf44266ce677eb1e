//! Tests of latches on nodes in memory, and of the results of their replies.

use std::thread;

use super::*;
use crate::client::Redlock;
use crate::clock::SystemClock;
use crate::node::Dial;
use crate::node::memory::MemoryServer;
use crate::protocol::reply::{Failure, FailureKind};

const KEY: &str = "import";

fn looked(is_open: bool, arrivals: &[&str]) -> Vote<LatchStatus> {
    let arrivals: Vec<String> = arrivals.iter().map(|&a| a.to_owned()).collect();
    let kept = Some(Duration::from_millis(arrivals.len() as u64));
    Vote::Yes(LatchStatus { is_open, count: arrivals.len(), kept, arrivals })
}

fn silent() -> Vote<LatchStatus> {
    Vote::Failed(Failure::unsent(FailureKind::Unreachable, ""))
}

#[test]
fn an_arrival_counts_once_wherever_it_is_stored() {
    let votes = [looked(false, &["a", "b"]), silent(), looked(false, &["b", "c"])];
    let union = ArrivalUnion::of(&votes);
    assert_eq!((union.arrived(), union.open, union.kept), (3, 0, Duration::from_millis(2)));
    let (lacking, nodes) = union.lacking(&votes);
    assert_eq!(lacking.into_iter().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(nodes, [true, false, true], "a node that said nothing is given nothing");
}

#[test]
fn nodes_that_know_all_lack_nothing() {
    let votes = [looked(false, &["a"]), looked(false, &["a"])];
    let (lacking, nodes) = ArrivalUnion::of(&votes).lacking(&votes);
    assert!(lacking.is_empty() && nodes == [false, false]);
}

#[test]
fn nodes_that_are_open_by_themselves_are_counted() {
    let votes = [looked(true, &[]), looked(false, &["a"]), looked(true, &[])];
    assert_eq!(ArrivalUnion::of(&votes).open, 2);
}

// --- on nodes in memory ----------------------------------------------------------------------------------------------

fn memory(nodes: usize) -> Vec<Arc<MemoryServer>> {
    (1..=nodes).map(|number| MemoryServer::new(number, Arc::new(SystemClock))).collect()
}

fn client(servers: &[Arc<MemoryServer>]) -> Redlock {
    let servers = servers.iter().map(|server| Arc::clone(server) as Arc<dyn Dial>).collect();
    Redlock::builder().build_on(servers, Arc::new(SystemClock)).0
}

#[test]
fn in_memory_the_last_arrival_opens_it() {
    for nodes in [1, 3] {
        let servers = memory(nodes);
        let (here, there) = (client(&servers), client(&servers));
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| here.count_down_latch(KEY, 2).wait())).collect();
            let latch = there.count_down_latch(KEY, 2);
            latch.count_down_as("a").unwrap();
            latch.count_down_as("a").unwrap();
            assert!(latch.wait_for(Duration::from_millis(50)).unwrap_err().is_busy());
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            latch.count_down().unwrap();
            for waiter in waiters {
                waiter.join().unwrap().unwrap();
            }
        });
        assert!(here.count_down_latch(KEY, 2).is_open().unwrap());
    }
}

/// Runs a schedule of arrivals, checks by two clients, and nodes that lose the latch. With `is_repaired`, a node loses
/// it only after a check has repaired the last loss, so no arrival is lost.
fn schedule(seed: u64, is_repaired: bool) {
    const COUNT: usize = 4;
    let mut rng = fastrand::Rng::with_seed(seed);
    let servers = memory(3);
    let latches = [client(&servers), client(&servers)].map(|client| client.count_down_latch(KEY, COUNT));
    let mut sent = BTreeSet::new();
    let (mut may_lose, mut was_open) = (true, false);
    for step in 0..40 {
        let latch = &latches[rng.usize(..2)];
        match rng.u32(..4) {
            0 => {
                let id = rng.usize(..=COUNT).to_string();
                sent.insert(id.clone());
                latch.count_down_as(&id).unwrap();
            }
            1 if may_lose => {
                servers[rng.usize(..3)].lose(KEY);
                may_lose = !is_repaired;
            }
            _ => {
                let (is_open, arrived) = (latch.is_open().unwrap(), latch.arrived().unwrap());
                let told = format!("seed {seed}, step {step}: {arrived} arrived of {sent:?}");
                assert!(!is_open || sent.len() >= COUNT, "opened early: {told}");
                if is_repaired {
                    assert_eq!(is_open, sent.len() >= COUNT, "{told}");
                    assert!(is_open || arrived == sent.len(), "an arrival is gone: {told}");
                    assert!(is_open || !was_open, "closed again: {told}");
                }
                (may_lose, was_open) = (true, is_open);
            }
        }
    }
}

#[test]
fn it_never_opens_early_whatever_nodes_lose() {
    (0..100).for_each(|seed| schedule(seed, false));
}

#[test]
fn while_one_node_at_a_time_loses_it_nothing_is_lost() {
    (0..100).for_each(|seed| schedule(seed, true));
}
