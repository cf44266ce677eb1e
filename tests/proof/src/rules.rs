//! Each rule of the protocol, the smallest bounds in which its loss is noticed, and what is violated then.

use crate::several::{self, Rule as OfSeveral, Several};
use crate::single::{self, Rule as OfSingle, Single};

/// What becomes of a model without the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Violates(&'static str),
    /// Nothing is violated. README.md says why the rule is there.
    Nothing,
}

use Without::{Nothing, Violates};

const NOTHING_FAILS: single::Bounds = single::Bounds { tries: false, extends: false, losses: 0, lates: 0, deaths: 0 };
const ONE_LOST: single::Bounds = single::Bounds { losses: 1, ..NOTHING_FAILS };
const TWO_LOST: single::Bounds = single::Bounds { losses: 2, ..NOTHING_FAILS };
const ONE_LATE: single::Bounds = single::Bounds { lates: 1, ..NOTHING_FAILS };
const ONE_DEAD: single::Bounds = single::Bounds { deaths: 1, ..NOTHING_FAILS };
/// One call is lost or sent twice, and one is late.
const ONE_OF_EACH: single::Bounds = single::Bounds { losses: 1, lates: 1, ..NOTHING_FAILS };
const EXTENDED_ONE_OF_EACH: single::Bounds = single::Bounds { extends: true, ..ONE_OF_EACH };
/// In these the single server is searched to its end.
pub const ALL_OF_SINGLE: [(&str, single::Bounds); 2] = [
    ("one server, one loss, one late call, one death", single::Bounds { deaths: 1, ..ONE_OF_EACH }),
    ("one server, leases of two lengths, one loss, one late call", EXTENDED_ONE_OF_EACH),
];

/// The rules of one server.
pub const SINGLE: [(OfSingle, single::Bounds, Without); 23] = [
    (OfSingle::DeadlineFromStart, ONE_LOST, Violates(single::TWO_HOLDERS)),
    (OfSingle::Drift, NOTHING_FAILS, Violates(single::TWO_HOLDERS)),
    (OfSingle::FullGrant, NOTHING_FAILS, Violates(single::TWO_HOLDERS)),
    (OfSingle::GrantSinceLastAttempt, NOTHING_FAILS, Violates(single::TWO_HOLDERS)),
    (OfSingle::CleanNoes, ONE_LOST, Violates(single::TWO_HOLDERS)),
    (OfSingle::NoDuplicate, ONE_OF_EACH, Violates(single::TWO_HOLDERS)),
    (OfSingle::Places, NOTHING_FAILS, Violates(single::TWO_HOLDERS)),
    (OfSingle::GrantToItsWait, NOTHING_FAILS, Violates(single::TWO_HOLDERS)),
    (OfSingle::OwnGrantByAttempt, ONE_LOST, Violates(single::UNKNOWN_GRANT)),
    (OfSingle::RollBack, ONE_LOST, Violates(single::UNKNOWN_TOKEN)),
    (OfSingle::ReleaseCompares, ONE_LOST, Violates(single::TWO_HOLDERS)),
    (OfSingle::ExtendCompares, ONE_LATE, Violates(single::TWO_HOLDERS)),
    (OfSingle::ExtendNeverCreates, ONE_OF_EACH, Violates(single::CREATED)),
    (OfSingle::FreshTokens, ONE_LOST, Violates(single::COMES_BACK)),
    (OfSingle::RepeatedRelease, ONE_LOST, Violates(single::UNKNOWN_TOKEN)),
    (OfSingle::FirstComeFirstServed, NOTHING_FAILS, Violates(single::OUT_OF_ORDER)),
    (OfSingle::DeadWaitsAreSkipped, ONE_DEAD, Nothing),
    (OfSingle::LateGrantGivenBack, ONE_OF_EACH, Violates(single::UNKNOWN_GRANT)),
    (OfSingle::LeavesQueue, ONE_LOST, Violates(single::UNKNOWN_GRANT)),
    (OfSingle::LeavePassesGrant, ONE_LOST, Violates(single::UNKNOWN_GRANT)),
    (OfSingle::LeaveRepeated, TWO_LOST, Violates(single::UNKNOWN_GRANT)),
    (OfSingle::NeverShortens, EXTENDED_ONE_OF_EACH, Violates(single::TWO_HOLDERS)),
    (OfSingle::WonAttemptLeavesQueue, ONE_LOST, Violates(single::UNKNOWN_GRANT)),
];

const QUIET: several::Bounds = several::Bounds {
    losses: 0,
    lates: 0,
    restarts: 0,
    stops: 0,
    deaths: 0,
    attempts: 3,
    extends: false,
    queues: false,
    fences: false,
    is_fence_late: false,
    lease: 3,
};
const LOST: several::Bounds = several::Bounds { losses: 1, ..QUIET };
const LATE: several::Bounds = several::Bounds { lates: 1, ..QUIET };
const STOPPED: several::Bounds = several::Bounds { stops: 1, ..QUIET };
const RESTARTED: several::Bounds = several::Bounds { restarts: 1, ..QUIET };
const EXTENDED: several::Bounds = several::Bounds { extends: true, ..QUIET };
const EXTENDED_LOST: several::Bounds = several::Bounds { losses: 1, ..EXTENDED };
const EXTENDED_STOPPED: several::Bounds = several::Bounds { stops: 1, ..EXTENDED_LOST };
const REFILLED: several::Bounds = several::Bounds { extends: true, restarts: 1, ..QUIET };
/// A refill needs a server without the key: a loss. Another loss is the break after which the late call is overtaken.
const REFILLED_LATE: several::Bounds = several::Bounds { losses: 2, lates: 1, attempts: 1, ..EXTENDED };
const QUEUED: several::Bounds = several::Bounds { queues: true, losses: 1, ..QUIET };
const FENCED: several::Bounds = several::Bounds { fences: true, ..QUIET };
const LATE_FENCED: several::Bounds = several::Bounds { is_fence_late: true, ..FENCED_LOST_RESTARTED };
const FENCED_LOST: several::Bounds = several::Bounds { losses: 1, ..FENCED };
const FENCED_RESTARTED: several::Bounds = several::Bounds { restarts: 1, ..FENCED };
const FENCED_LOST_RESTARTED: several::Bounds = several::Bounds { losses: 1, lease: 2, ..FENCED_RESTARTED };

/// In these the three servers are searched to their end.
pub const ALL_OF_SEVERAL: [(&str, several::Bounds); 6] = [
    (
        "one loss, one late call, one restart, one stop",
        several::Bounds { losses: 1, lates: 1, restarts: 1, stops: 1, attempts: 2, lease: 2, ..QUIET },
    ),
    (
        "extensions and refills, one loss, one restart, one death",
        several::Bounds { losses: 1, deaths: 1, attempts: 2, ..REFILLED },
    ),
    ("extensions and refills of one client, two losses, one late call", REFILLED_LATE),
    ("reservations, one loss, one stop", several::Bounds { stops: 1, lease: 2, ..QUEUED }),
    ("fences, one loss, one restart", FENCED_LOST_RESTARTED),
    ("fences that are asked for later, one loss, one restart", LATE_FENCED),
];

/// The rules of several servers.
pub const SEVERAL: [(OfSeveral, several::Bounds, Without); 22] = [
    (OfSeveral::DeadlineFromStart, STOPPED, Violates(several::TWO_HOLDERS)),
    (OfSeveral::Drift, QUIET, Violates(several::TWO_HOLDERS)),
    (OfSeveral::Majority, QUIET, Violates(several::TWO_HOLDERS)),
    (OfSeveral::DeadlineOfMajority, EXTENDED_LOST, Violates(several::TWO_HOLDERS)),
    (OfSeveral::NoesClearMarks, REFILLED, Nothing),
    (OfSeveral::GrantIsNoLock, QUEUED, Violates(several::TWO_HOLDERS)),
    (OfSeveral::RollBack, QUIET, Violates(several::UNKNOWN_TOKEN)),
    (OfSeveral::ReleaseCompares, LOST, Violates(several::TWO_HOLDERS)),
    (OfSeveral::ExtendCompares, EXTENDED_STOPPED, Violates(several::TWO_HOLDERS)),
    (OfSeveral::ExtendNeverCreates, EXTENDED, Violates(several::CREATED)),
    (OfSeveral::RefillOnlyWithMajority, REFILLED, Nothing),
    (OfSeveral::RefillRaisesNoVote, REFILLED, Nothing),
    (OfSeveral::RefillOnlyFree, EXTENDED_STOPPED, Violates(several::TWO_HOLDERS)),
    (OfSeveral::UnknownRefill, REFILLED_LATE, Violates(several::COMES_BACK)),
    (OfSeveral::RestartGuard, RESTARTED, Violates(several::TWO_HOLDERS)),
    (OfSeveral::FreshTokens, LATE, Violates(several::TWO_HOLDERS)),
    (OfSeveral::RepeatedRelease, LOST, Violates(several::UNKNOWN_TOKEN)),
    (OfSeveral::Unreserve, QUEUED, Nothing),
    (OfSeveral::FenceWriteBack, FENCED, Violates(several::FENCE_FALLS)),
    (OfSeveral::FenceOfMajority, FENCED_LOST, Violates(several::FENCE_FALLS)),
    (OfSeveral::FenceGuard, LATE_FENCED, Violates(several::FENCE_FALLS)),
    (OfSeveral::FenceTimeFloor, FENCED_LOST_RESTARTED, Violates(several::FENCE_FALLS)),
];

pub fn single(bounds: single::Bounds, without: Option<OfSingle>) -> Single<2> {
    Single { bounds, without }
}

pub fn several(bounds: several::Bounds, without: Option<OfSeveral>) -> Several<2> {
    Several { bounds, without }
}
