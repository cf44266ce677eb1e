//! Checks jobs that are run once. While the servers remember the first success, no second call for the same name may
//! return `Ran`.
//!
//! The documentation permits that lost data makes the servers forget a job. This needs the loss of the data on a
//! majority, or on one node if all have restarted within the time, or a replica that becomes the master.

use std::collections::BTreeMap;

use super::latch::may_be_lost;
use super::{Verdict, Violation};
use crate::clock::MS;
use crate::history::{History, Ran};
use crate::names;
use crate::timing::{JOB_LIFE, slack};

pub(super) fn check(history: &History) -> Verdict {
    if history.beyond || history.sentinel {
        return Verdict::excused();
    }
    let mut verdict = Verdict::default();
    let mut last: BTreeMap<u64, &Ran> = BTreeMap::new();
    for ran in &history.ran {
        let former = last.insert(ran.job, ran).filter(|former| is_remembered(history, former, ran));
        verdict.violations.extend(former.map(|former| violation(history, former, ran)));
    }
    verdict.judged = format!("{} jobs were run", last.len());
    verdict
}

fn is_remembered(history: &History, former: &Ran, ran: &Ran) -> bool {
    let life = u64::try_from(JOB_LIFE.as_nanos()).unwrap_or(u64::MAX) - slack();
    let calls = history.calls.iter().filter(|call| call.session == ran.session && call.from <= ran.at);
    let from = calls.map(|call| call.from).max().unwrap_or(ran.at);
    ran.at < former.at + life && !may_be_lost(history, former.at, &(from..ran.at), JOB_LIFE)
}

fn violation(history: &History, former: &Ran, ran: &Ran) -> Violation {
    let (name, at) = (names::job(ran.job), history.seconds(former.at));
    let what = format!("{name} was run by {} at {}, and by {} again", former.session, at.trim(), ran.session);
    let slice = history.slice(&[former.session, ran.session], former.at.saturating_sub(3000 * MS), ran.at + MS);
    Violation { at: ran.at, what, slice }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::checkers::story::Story;
    use crate::event::What;
    use crate::plan::{Kind, Target};

    fn ran(story: Story, at: u64, n: u8, job: u64) -> Story {
        story.event(at, n, What::Ran { job })
    }

    fn found(story: Story) -> usize {
        check(&story.history()).violations.len()
    }

    #[test]
    fn each_job_is_run_by_one() {
        assert_eq!(found(ran(ran(Story::new(), 100, 1, 7), 120, 2, 8)), 0);
        assert_eq!(found(ran(ran(Story::new(), 100, 1, 7), 120, 2, 7)), 1);
        assert_eq!(found(ran(ran(Story::new(), 100, 1, 7), 31_000, 2, 7)), 0, "it is forgotten by then");
    }

    #[test]
    fn a_mark_may_be_lost_with_the_data_of_a_majority() {
        let lost = |story: Story, node| story.struck(Kind::Empty, Target::Node(node), 20_110, 20_115);
        let twice = |story: Story| found(ran(ran(story, 20_100, 1, 7), 20_120, 2, 7));
        assert_eq!(twice(lost(Story::new(), 0)), 1);
        assert_eq!(twice(lost(lost(Story::new(), 0), 1)), 0);
    }

    #[test]
    fn it_may_be_lost_with_one_node_while_none_is_older_than_the_mark_can_be() {
        let lost = Story::new().struck(Kind::Amnesia, Target::Node(0), 110, 115);
        assert_eq!(found(ran(ran(lost, 100, 1, 7), 120, 2, 7)), 0);
    }
}
