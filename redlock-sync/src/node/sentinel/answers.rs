//! The latest answers of the Sentinels of a group, and what is known by them.

use super::choice::{self, CurrentMaster};
use super::master_reply::MasterReply;
use crate::clock::Tick;
use crate::node::{Failure, FailureKind};

pub(super) struct GroupState {
    /// The number of the latest inquiry.
    pub(super) inquiry: u64,
    pub(super) is_under_way: bool,
    /// One answer for each Sentinel.
    pub(super) answers: Vec<SentinelAnswer>,
    pub(super) current: Option<CurrentMaster>,
    /// Set while a Sentinel names another master than the current one.
    pub(super) dissent: Option<Dissent>,
    /// The Sentinels will be asked again soon.
    pub(super) is_asked_again: bool,
    /// A thread asks servers whether they come from the current master.
    pub(super) is_verifying: bool,
}

pub(super) struct SentinelAnswer {
    /// The inquiry to which the answer belongs. 0 before the first.
    pub(super) inquiry: u64,
    pub(super) said: Result<MasterReply, Failure>,
}

pub(super) struct Dissent {
    pub(super) since: Tick,
    pub(super) is_logged: bool,
}

impl GroupState {
    pub(super) fn new(sentinels: usize) -> GroupState {
        let unasked = || SentinelAnswer { inquiry: 0, said: Err(silent()) };
        GroupState {
            inquiry: 0,
            is_under_way: false,
            answers: (0..sentinels).map(|_| unasked()).collect(),
            current: None,
            dissent: None,
            is_asked_again: false,
            is_verifying: false,
        }
    }

    pub(super) fn known(&self) -> Vec<&MasterReply> {
        self.answers.iter().filter_map(|answer| answer.said.as_ref().ok()).collect()
    }

    fn is_new(&self, answer: &SentinelAnswer) -> bool {
        answer.inquiry >= self.inquiry
    }

    /// True if all Sentinels have answered the latest question.
    pub(super) fn is_complete(&self) -> bool {
        self.answers.iter().all(|answer| self.is_new(answer))
    }

    /// True if waiting for more answers is not worthwhile.
    pub(super) fn is_decided(&self) -> bool {
        if self.is_complete() {
            return true;
        }
        let Some(current) = &self.current else { return false };
        let new = self.answers.iter().filter(|answer| self.is_new(answer));
        let agreeing =
            choice::named(&new.filter_map(|answer| answer.said.as_ref().ok()).collect::<Vec<_>>(), &current.reply);
        let is_missing = |answer: &SentinelAnswer| !self.is_new(answer) && (answer.said.is_ok() || answer.inquiry == 0);
        agreeing > self.answers.len() / 2 || agreeing > 0 && !self.answers.iter().any(is_missing)
    }
}

pub(super) fn silent() -> Failure {
    Failure::unsent(FailureKind::TimedOut, "no answer in time")
}
