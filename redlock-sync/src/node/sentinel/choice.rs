//! Which master counts, according to the answers of the Sentinels. Does no I/O.
//!
//! A majority of the Sentinels in the URL decides. One Sentinel alone may watch another server under the same name, and
//! claim any number of failovers.

use std::time::Duration;

use super::master_reply::MasterReply;
use crate::clock::Tick;

/// Within this time, Sentinels tell each other of a failover.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// The master that the client uses.
#[derive(Clone, Debug)]
pub(super) struct CurrentMaster {
    pub(super) reply: MasterReply,
    /// The id of its data (`master_replid`), once the client has logged in. A replica that becomes the master keeps it
    /// as `master_replid2`.
    pub(super) replid: Option<String>,
    /// When it proved that it comes from the former master, if it did.
    pub(super) verified_at: Option<Tick>,
    /// Since when it has not answered.
    pub(super) down_since: Option<Tick>,
}

impl CurrentMaster {
    pub(super) fn new(reply: MasterReply) -> CurrentMaster {
        CurrentMaster { reply, replid: None, verified_at: None, down_since: None }
    }
}

/// What follows from the answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    Keep,
    /// Use this master. If it is in use already, the answer is newer.
    Follow(&'a MasterReply),
    /// Use that one of these which proves that it comes from the master in use.
    Verify(Vec<&'a MasterReply>),
}

/// Chooses by these answers, the latest of each Sentinel that answered. `sentinels`: how many there are in the URL.
/// `is_over`: no more answers are expected.
pub(super) fn choose<'a>(
    all: &[&'a MasterReply],
    sentinels: usize,
    current: Option<&CurrentMaster>,
    is_over: bool,
    now: Tick,
) -> Choice<'a> {
    // More than half of those that answered name it.
    let most = newest(all, now).into_iter().find(|one| named(all, one) > all.len() / 2);
    let is_majority = |one: &MasterReply| named(all, one) > sentinels / 2;
    let Some(current) = current else {
        return most.filter(|one| is_over || is_majority(one)).map_or(Choice::Keep, Choice::Follow);
    };
    let is_current = |one: &MasterReply| one.address() == current.reply.address();
    let lasts = |since: Option<Tick>| since.is_some_and(|since| now.since(since) >= SETTLED);
    if let Some(most) = most {
        let is_older = current.reply.is_after(most);
        let counts = if is_current(most) {
            true
        } else if is_majority(most) {
            // Most Sentinels may not know yet of the failover that was verified.
            !is_older || current.verified_at.is_none() || lasts(current.verified_at)
        } else {
            !is_older && lasts(current.down_since)
        };
        if counts {
            return Choice::Follow(most);
        }
    }
    let mut others: Vec<&MasterReply> = Vec::new();
    for one in newest(all, now) {
        // A copy that was restored from a backup passes for a former replica too. But it is not named just now.
        if !is_current(one) && one.age(now) < SETTLED && named(&others, one) == 0 {
            others.push(one);
        }
    }
    if others.is_empty() {
        return newest(all, now).into_iter().find(|one| is_current(one)).map_or(Choice::Keep, Choice::Follow);
    }
    Choice::Verify(others)
}

/// How many answers name the master that this one names.
pub(super) fn named(all: &[&MasterReply], one: &MasterReply) -> usize {
    all.iter().filter(|other| other.address() == one.address()).count()
}

/// The answers, that of the latest failover first. Among equal answers, first that with the longest time as master.
fn newest<'a>(all: &[&'a MasterReply], now: Tick) -> Vec<&'a MasterReply> {
    let mut sorted = all.to_vec();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.order(now)));
    sorted
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    const NOW: Tick = Tick::from_nanos(60_000_000_000);

    fn answer(port: u16, epoch: Option<u64>) -> MasterReply {
        MasterReply { host: "a".into(), port, epoch, age: Duration::ZERO, at: NOW }
    }

    fn ago(seconds: u64) -> Tick {
        Tick::from_nanos(NOW.as_nanos() - seconds * 1_000_000_000)
    }

    /// The port of the chosen master, or of those to verify.
    fn chosen(all: &[MasterReply], sentinels: usize, current: Option<&CurrentMaster>) -> Result<u16, Vec<u16>> {
        match choose(&all.iter().collect::<Vec<_>>(), sentinels, current, true, NOW) {
            Choice::Keep => Err(Vec::new()),
            Choice::Follow(one) => Ok(one.port),
            Choice::Verify(others) => Err(others.iter().map(|one| one.port).collect()),
        }
    }

    #[test]
    fn at_the_start_a_majority_of_those_that_answer_counts() {
        let [old, new, stray] = [answer(1, Some(3)), answer(2, Some(4)), answer(9, Some(99))];
        assert_eq!(chosen(&[], 3, None), Err(vec![]));
        assert_eq!(chosen(std::slice::from_ref(&stray), 3, None), Ok(9));
        assert_eq!(chosen(&[old.clone(), old.clone(), stray.clone()], 4, None), Ok(1));
        assert_eq!(chosen(&[old.clone(), new.clone()], 3, None), Err(vec![]));
        assert_eq!(chosen(&[old.clone(), old.clone(), new.clone(), new.clone()], 4, None), Err(vec![]));
        // More answers may come.
        let two = [&old, &old];
        assert_eq!(choose(&two, 4, None, false, NOW), Choice::Keep);
        assert_eq!(choose(&two, 3, None, false, NOW), Choice::Follow(&old));
    }

    #[test]
    fn a_majority_counts_whatever_the_others_claim() {
        let [old, new, stray] = [answer(1, Some(3)), answer(2, Some(4)), answer(9, Some(99))];
        let current = CurrentMaster::new(old.clone());
        assert_eq!(chosen(&[old.clone(), old.clone(), old.clone(), stray.clone()], 4, Some(&current)), Ok(1));
        assert_eq!(chosen(&[old.clone(), new.clone(), new.clone()], 3, Some(&current)), Ok(2));
        // The group was set up again.
        let current = CurrentMaster::new(new.clone());
        assert_eq!(chosen(&[old.clone(), old.clone(), new.clone()], 3, Some(&current)), Ok(1));
        let nameless = [answer(2, None), answer(2, None), answer(1, None)];
        assert_eq!(chosen(&nameless, 3, Some(&CurrentMaster::new(answer(1, None)))), Ok(2));
    }

    #[test]
    fn without_a_majority_a_master_has_to_prove_where_it_comes_from() {
        let [old, new, stray] = [answer(1, Some(3)), answer(2, Some(4)), answer(9, Some(99))];
        let current = CurrentMaster::new(old.clone());
        assert_eq!(chosen(&[old.clone(), new.clone()], 3, Some(&current)), Err(vec![2]));
        // It is not even asked if most of those that answer name the master in use.
        assert_eq!(chosen(&[old.clone(), old.clone(), stray.clone()], 4, Some(&current)), Ok(1));
        assert_eq!(chosen(&[new.clone(), stray.clone()], 4, Some(&current)), Err(vec![9, 2]));
        let aged = |one: &MasterReply| MasterReply { age: SETTLED, ..one.clone() };
        assert_eq!(chosen(&[new.clone(), aged(&stray)], 4, Some(&current)), Err(vec![2]));
        assert_eq!(chosen(&[aged(&new)], 3, Some(&current)), Err(vec![]));
        // Those that answer are believed if the master in use has been down for long.
        let down = |seconds| CurrentMaster { down_since: Some(ago(seconds)), ..current.clone() };
        assert_eq!(chosen(std::slice::from_ref(&new), 3, Some(&down(4))), Err(vec![2]));
        assert_eq!(chosen(std::slice::from_ref(&new), 3, Some(&down(5))), Ok(2));
        assert_eq!(chosen(&[new.clone(), stray], 4, Some(&down(5))), Err(vec![9, 2]));
        // But not those that missed a failover.
        let late = CurrentMaster { down_since: Some(ago(9)), ..CurrentMaster::new(new) };
        assert_eq!(chosen(&[old], 3, Some(&late)), Err(vec![1]));
    }

    #[test]
    fn most_sentinels_may_learn_of_a_verified_failover_later() {
        let [old, new] = [answer(1, Some(3)), answer(2, Some(4))];
        let verified = |seconds| CurrentMaster { verified_at: Some(ago(seconds)), ..CurrentMaster::new(new.clone()) };
        let all = [old.clone(), old.clone(), new.clone()];
        assert_eq!(chosen(&all, 3, Some(&verified(4))), Err(vec![1]));
        assert_eq!(chosen(&all, 3, Some(&verified(5))), Ok(1));
        let later = answer(3, Some(5));
        assert_eq!(chosen(&[later.clone(), later], 3, Some(&verified(4))), Ok(3));
    }

    #[test]
    fn the_answer_of_the_latest_failover_with_the_longest_time_is_kept() {
        let aged = |epoch, seconds| MasterReply { age: Duration::from_secs(seconds), ..answer(1, Some(epoch)) };
        let all = [aged(3, 2), aged(3, 9), aged(3, 5), aged(2, 20)];
        let all: Vec<_> = all.iter().collect();
        assert_eq!(choose(&all, 4, None, true, NOW), Choice::Follow(all[1]));
    }
}
