use super::*;
use crate::clock::SystemClock;

/// A group of three Sentinels at addresses where nothing listens.
fn group() -> Arc<Group> {
    let url = NodeUrl::parse("redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/main").unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Group::new(&url, url.group.as_ref().unwrap(), Duration::from_millis(250), &clock)
}

fn reply(port: u16, epoch: u64) -> MasterReply {
    let list = |words: &[&str]| {
        redis::Value::Array(words.iter().map(|word| redis::Value::BulkString(word.as_bytes().to_vec())).collect())
    };
    let facts = list(&["config-epoch", &epoch.to_string()]);
    master_reply::parse(list(&["a", &port.to_string()]), facts, "main", Tick::ZERO).unwrap()
}

/// Runs an inquiry with these answers. Each names the Sentinel, the port, and the number of the failover. Returns true
/// if the answers end the inquiry.
fn inquiry(group: &Group, answers: &[(usize, u16, u64)]) -> bool {
    let number = {
        let mut state = group.state.lock();
        state.inquiry += 1;
        state.is_under_way = true;
        state.inquiry
    };
    for &(i, port, epoch) in answers {
        group.record_answer(i, SentinelAnswer { inquiry: number, said: Ok(reply(port, epoch)) });
    }
    let is_enough = !group.state.lock().is_under_way;
    group.end_inquiry(number);
    is_enough
}

#[test]
fn the_first_inquiry_is_decided_by_a_majority_or_by_all_that_answer() {
    assert!(!inquiry(&group(), &[(0, 1, 3)]));
    assert!(inquiry(&group(), &[(0, 1, 3), (2, 1, 3)]));
    // The Sentinel that knows of the latest failover may answer last.
    let group = group();
    assert!(!inquiry(&group, &[(0, 1, 3), (1, 2, 4)]));
    assert_eq!(group.master().unwrap(), "a:2");
}

#[test]
fn sentinels_that_were_silent_are_not_waited_for_again() {
    let group = group();
    assert!(!inquiry(&group, &[(0, 1, 3)]));
    assert!(inquiry(&group, &[(0, 1, 3)]));
    assert!(inquiry(&group, &[(1, 1, 3), (0, 1, 3)]));
    assert!(!inquiry(&group, &[(1, 1, 3)]));
}

#[test]
fn one_that_missed_a_failover_is_not_believed_while_the_others_are_silent() {
    let group = group();
    inquiry(&group, &[(0, 2, 4), (1, 2, 4), (2, 1, 3)]);
    assert_eq!(group.master().unwrap(), "a:2");
    let address_changes = group.address_changes.load(Ordering::Acquire);
    for _ in 0..2 {
        assert!(!inquiry(&group, &[(2, 1, 3)]));
        assert_eq!(group.master().unwrap(), "a:2");
    }
    assert_eq!(group.address_changes.load(Ordering::Acquire), address_changes);
    // The other Sentinels missed a failover, or the group was set up again.
    inquiry(&group, &[(1, 1, 3), (2, 1, 3)]);
    assert_eq!(group.master().unwrap(), "a:1");
}

#[test]
fn connections_from_before_a_time_without_a_call_are_stale() {
    let group = group();
    let first = group.address_changes().unwrap();
    assert_eq!(group.address_changes(), Some(first));
    group.idle.store(IDLE_PERIODS, Ordering::Release);
    assert_eq!(group.address_changes(), Some(first + 1));
    assert_eq!(group.address_changes(), Some(first + 1));
}
