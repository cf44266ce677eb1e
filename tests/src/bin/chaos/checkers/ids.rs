//! Checks that tokens, the tokens of grants and the ids of waits are unique. This includes processes that were forked
//! from a parent that had drawn random numbers.

use std::collections::HashMap;

use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{History, Hold, Reused};
use crate::names;

pub(super) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut tokens: HashMap<&str, &Hold> = HashMap::new();
    for hold in &history.holds {
        let Some(token) = &hold.token else { continue };
        // A lock that is handed over within a client keeps its token.
        if let Some(other) = tokens.insert(token, hold).filter(|other| life(other) != life(hold)) {
            verdict.violations.push(held_twice(history, other, hold, token));
        }
    }
    verdict.violations.extend(history.reused.iter().map(|reused| sent_twice(history, reused)));
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict.judged = format!("{} tokens, {} grants, {} waits", tokens.len(), history.grants, history.waits);
    verdict
}

fn life(hold: &Hold) -> (u8, u8) {
    (hold.session.client, hold.session.life)
}

fn held_twice(history: &History, first: &Hold, second: &Hold, token: &str) -> Violation {
    let what = format!(
        "{} had the token {token} of {}, and {} had it of {}",
        first.session,
        names::of(first.key),
        second.session,
        names::of(second.key)
    );
    let from = second.begin.saturating_sub(500 * MS);
    Violation { at: second.begin, what, slice: history.slice(&[second.session], from, second.begin + 500 * MS) }
}

fn sent_twice(history: &History, reused: &Reused) -> Violation {
    let Reused { at, what, id, first, second } = reused;
    let what =
        format!("the {} {id} is that {first}, and at {} that {second}", what.word(), history.seconds(*at).trim());
    Violation { at: *at, what, slice: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::{Story, session};
    use crate::clock::MS;
    use crate::event::{Event, What};
    use crate::history::{IdOf, Reused};

    #[test]
    fn tokens_of_their_own_are_good() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).hold(2, 200, &[(210, 300)]);
        assert!(check(&story.history()).violations.is_empty());
    }

    #[test]
    fn a_token_that_two_processes_had_is_found() {
        let held = |n, at| Event { at: at * MS, session: session(n), key: 0, what: What::Held { token: "a:b".into() } };
        let two = |n| Story::new().history.with_events(vec![held(1, 10), held(n, 20)]);
        assert_eq!(check(&two(2)).violations.len(), 1);
        assert_eq!(check(&two(1)).violations.len(), 0);
    }

    #[test]
    fn an_id_that_was_sent_for_two_is_found() {
        let mut story = Story::new();
        let (first, second) = ("of a".to_owned(), "of b".to_owned());
        story.history.reused.push(Reused { at: 5, what: IdOf::Wait, id: "12".into(), first, second });
        assert_eq!(check(&story.history()).violations.len(), 1);
    }
}
