use super::*;
use crate::clock::SystemClock;

/// A group of three Sentinels at addresses where nothing listens. No thread asks them.
fn group() -> Arc<Group> {
    group_with(Background::given_to(Box::new(|_, _| {})))
}

fn group_with(threads: Background) -> Arc<Group> {
    let url = NodeUrl::parse("redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/main").unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Group::with_threads(&url, url.group.as_ref().unwrap(), Duration::from_millis(250), &clock, threads)
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

fn master(group: &Group) -> Option<String> {
    group.state.lock().current.as_ref().map(|current| current.reply.address())
}

#[test]
fn the_first_inquiry_is_decided_by_a_majority_or_by_all_that_answer() {
    assert!(!inquiry(&group(), &[(0, 1, 3)]));
    assert!(inquiry(&group(), &[(0, 1, 3), (2, 1, 3)]));
    // Two Sentinels disagree, and the third is silent.
    let group = group();
    assert!(!inquiry(&group, &[(0, 1, 3), (1, 2, 4)]));
    assert_eq!(master(&group), None);
    let error = group.no_master(&group.state.lock(), 1).message;
    assert!(error.contains("disagree") && error.contains("127.0.0.1:2: names a:2"), "{error}");
}

#[test]
fn a_master_that_a_minority_named_first_is_left_for_that_of_the_majority() {
    let group = group();
    inquiry(&group, &[(0, 9, 99)]);
    assert_eq!(master(&group).unwrap(), "a:9");
    inquiry(&group, &[(0, 9, 99), (1, 1, 3), (2, 1, 3)]);
    assert_eq!(master(&group).unwrap(), "a:1");
}

#[test]
fn sentinels_that_disagree_are_told_and_asked_again() {
    let group = group();
    inquiry(&group, &[(0, 1, 3), (1, 1, 3), (2, 1, 3)]);
    assert!(group.disagreement().is_none() && !group.state.lock().is_asked_again);
    inquiry(&group, &[(0, 1, 3), (1, 1, 3), (2, 9, 99)]);
    let told = group.disagreement().unwrap();
    assert!(told.text.contains("127.0.0.1:3 names a:9") && told.text.contains("2 of 3"), "{}", told.text);
    assert!(told.has_majority && group.state.lock().is_asked_again);
    inquiry(&group, &[(1, 1, 3), (2, 9, 99)]);
    assert!(!group.disagreement().unwrap().has_majority);
    // It is logged when it lasts.
    let is_logged = || group.state.lock().dissent.as_ref().map(|dissent| dissent.is_logged);
    assert_eq!(is_logged(), Some(false));
    group.state.lock().dissent.as_mut().unwrap().since = Tick::ZERO;
    inquiry(&group, &[(0, 1, 3), (1, 1, 3), (2, 9, 99)]);
    assert_eq!(is_logged(), Some(true));
    inquiry(&group, &[(0, 1, 3), (1, 1, 3), (2, 1, 3)]);
    assert_eq!(is_logged(), None);
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
    assert_eq!(master(&group).unwrap(), "a:2");
    let address_changes = group.address_changes.load(Ordering::Acquire);
    for _ in 0..2 {
        assert!(!inquiry(&group, &[(2, 1, 3)]));
        assert_eq!(master(&group).unwrap(), "a:2");
    }
    assert_eq!(group.address_changes.load(Ordering::Acquire), address_changes);
    // The other Sentinels missed a failover, or the group was set up again.
    inquiry(&group, &[(1, 1, 3), (2, 1, 3)]);
    assert_eq!(master(&group).unwrap(), "a:1");
}

#[test]
fn connections_from_before_a_time_without_a_call_are_stale() {
    let group = group_with(Background::new(1));
    let first = group.address_changes().unwrap();
    assert_eq!(group.address_changes(), Some(first));
    group.idle.store(IDLE_PERIODS, Ordering::Release);
    assert_eq!(group.address_changes(), Some(first + 1));
    assert_eq!(group.address_changes(), Some(first + 1));
}
