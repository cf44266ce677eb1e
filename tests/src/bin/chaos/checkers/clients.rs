//! Checks that a client runs until the run orders it to end, and that it then ends without a failure. Clients that the
//! nemesis kills are excluded.

use std::collections::BTreeSet;

use super::{Verdict, Violation};
use crate::clock::SEC;
use crate::event::Session;
use crate::history::{Fallen, History};

/// The largest number of events that are reported, from the last second of the client.
const LINES: usize = 30;

pub(super) fn check(history: &History) -> Verdict {
    let is_client = |life: &(u8, u8)| usize::from(life.0) < history.clients;
    let lives: BTreeSet<(u8, u8)> = history.events.iter().map(|event| life(event.session)).filter(is_client).collect();
    Verdict {
        judged: format!("{} lives of {} clients", lives.len(), history.clients),
        violations: history.fallen.iter().map(|fallen| violation(history, fallen)).collect(),
        excused: false,
    }
}

fn life(session: Session) -> (u8, u8) {
    (session.client, session.life)
}

/// Describes the violation with the last events in the log of the client.
fn violation(history: &History, fallen: &Fallen) -> Violation {
    let &Fallen { at, client, life: nth, ref how } = fallen;
    let own = || history.events.iter().filter(|event| life(event.session) == (client, nth));
    let last = own().map(|event| event.at).max().unwrap_or(at);
    let mut slice: Vec<String> =
        own().filter(|event| event.at + SEC > last).map(|event| history.told(event.at, &event.to_string())).collect();
    let slice = slice.split_off(slice.len().saturating_sub(LINES));
    Violation { at, what: format!("client {client} in its life {nth} {how}"), slice }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::clock::MS;
    use crate::history::Fallen;
    use crate::plan::{Kind, Target};

    #[test]
    fn clients_that_end_when_they_are_told_or_killed_are_good() {
        let story = Story::new().hold(1, 110, &[(120, 190)]).struck(Kind::Murder, Target::Client(1), 200, 300);
        let verdict = check(&story.history());
        assert!(verdict.violations.is_empty() && verdict.judged == "1 lives of 9 clients", "{verdict:?}");
    }

    #[test]
    fn one_that_ends_otherwise_is_found() {
        let mut story = Story::new().hold(1, 110, &[(120, 190)]);
        let how = "ended with exit status: 101".to_owned();
        story.history.fallen.push(Fallen { at: 500 * MS, client: 1, life: 0, how });
        let violations = check(&story.history()).violations;
        assert_eq!(violations.len(), 1);
        assert!(violations[0].what.starts_with("client 1 in its life 0 ended") && violations[0].slice.len() == 5);
    }
}
