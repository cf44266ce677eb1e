//! **Model (b): three servers, and a majority.** The rounds of `acquire/attempt.rs` and `lease/inner`: attempt, roll-back,
//! extension, refill, release, reservation, fence. A server may restart without its data.
//!
//! # The grain, and why it loses no behaviour
//!
//! - **A round is a step for each server**, in any order, with the steps of others in between. What one server does with
//!   a call is one step, with its reply, unless the call or the reply is lost or late: `single.rs` says why.
//! - **The last reply and what the client makes of it are one step.** If the client stops in between, its lease only
//!   gets shorter. It then is a client that holds, or has failed, and stops. So a client learns at once that a call is
//!   lost. To give up a wait is to make no more attempts.
//! - **A late call, a break, a duplicate**: as in `single.rs`, for each client and server.
//! - **A client that sends its calls does so in one tick**, unless it stops before one of them and goes on later. Stops
//!   are steps of their own, and counted. A holder, and a wait between two attempts, may take any time.
//! - **Repeated releases** go to each server by itself, and in one step. A round of them is several such steps.
//! - **A server that restarts** has no keys, and its connections end with the calls on them. What a client still waits
//!   for is sent again, and nothing else is. Its votes count again once the longest lease has passed since. A lease that
//!   was alive at the restart has ended then, if no majority extended it.
//! - **The queue** keeps clients and not waits: an attempt may take what was reserved for an earlier wait of its client.
//!   The library refuses that, so it can do less.
//! - **Servers and clients are interchangeable.** A state is stored with both in a fixed order.
//!
//! Two kinds of searches cover the operations. *Exclusion* has attempts, releases, reservations, extensions and refills.
//! *Fences* has attempts, releases and the rounds that raise the fence: attempts that bring one, or none. A fence decides
//! nothing: no script reads the counter to give or refuse a lock. So what exclusion needs is in the first kind. A refill
//! brings a fence that the holder has already; an extension changes no counter. So what fences need is in the second.

mod client;
mod server;
mod state;
mod steps;

pub use self::state::State;
use crate::search::{Model, Told};

/// The rules of the protocol that this model can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    DeadlineFromStart,
    Drift,
    Majority,
    DeadlineOfMajority,
    NoesClearMarks,
    GrantIsNoLock,
    RollBack,
    ReleaseCompares,
    ExtendCompares,
    ExtendNeverCreates,
    RefillOnlyWithMajority,
    RefillRaisesNoVote,
    RefillOnlyFree,
    UnknownRefill,
    RestartGuard,
    FreshTokens,
    RepeatedRelease,
    Unreserve,
    FenceWriteBack,
    FenceOfMajority,
    FenceGuard,
    FenceTimeFloor,
}

impl Rule {
    pub const ALL: [Rule; 22] = [
        Rule::DeadlineFromStart,
        Rule::Drift,
        Rule::Majority,
        Rule::DeadlineOfMajority,
        Rule::NoesClearMarks,
        Rule::GrantIsNoLock,
        Rule::RollBack,
        Rule::ReleaseCompares,
        Rule::ExtendCompares,
        Rule::ExtendNeverCreates,
        Rule::RefillOnlyWithMajority,
        Rule::RefillRaisesNoVote,
        Rule::RefillOnlyFree,
        Rule::UnknownRefill,
        Rule::RestartGuard,
        Rule::FreshTokens,
        Rule::RepeatedRelease,
        Rule::Unreserve,
        Rule::FenceWriteBack,
        Rule::FenceOfMajority,
        Rule::FenceGuard,
        Rule::FenceTimeFloor,
    ];
}

/// How much may happen, and what clients do.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub losses: u8,
    pub lates: u8,
    pub restarts: u8,
    /// Clients that stop within a round, and go on later.
    pub stops: u8,
    pub deaths: u8,
    /// Attempts of all clients together; 255: any number.
    pub attempts: u8,
    pub extends: bool,
    pub queues: bool,
    pub fences: bool,
    /// An attempt brings no fence. The holder's first round raises the counters, and the second one writes back.
    pub is_fence_late: bool,
    /// The lease, in ticks.
    pub lease: u8,
}

pub struct Several<const N: usize> {
    pub bounds: Bounds,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

impl<const N: usize> Several<N> {
    fn on(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// A client may use its lease for this long, from the start of its call.
    fn usable(&self) -> u8 {
        self.bounds.lease - u8::from(self.on(Rule::Drift))
    }

    fn need(&self) -> usize {
        if self.on(Rule::Majority) { 2 } else { 1 }
    }
}

pub const TWO_HOLDERS: &str = "two holders";
pub const CREATED: &str = "a lock from an extension";
pub const FENCE_FALLS: &str = "a fence does not rise";
pub const COMES_BACK: &str = "a released token comes back";
pub const UNKNOWN_TOKEN: &str = "a token that nobody knows";

impl<const N: usize> Model for Several<N> {
    type State = State<N>;
    const PREMISES: &'static [&'static str] = &[
        "a client holds",
        "a client holds while another one waits",
        "a call is late",
        "a connection is broken, and its calls may come",
        "a release is confirmed, and its token stands in a call",
        "a token without a lease is owed",
        "a token without a lease is left over",
        "a dead client's token is on a server",
        "a lease has run out",
        "a server that restarted has no vote",
        "a holder's token is missing on a server",
        "a server is reserved for a wait",
        "a call was sent twice",
        "a second hold has a fence",
    ];

    fn initial(&self) -> State<N> {
        State::new(&self.bounds)
    }

    fn steps(&self, state: &State<N>, steps: &mut Vec<(Told, State<N>)>) {
        self.all_steps(state, steps);
    }

    fn canonical(&self, state: &State<N>) -> State<N> {
        state.canonical(self.on(Rule::FenceTimeFloor))
    }

    fn tidied(&self, state: &State<N>) -> State<N> {
        state.tidied(self.on(Rule::FenceTimeFloor))
    }

    fn broken(&self, state: &State<N>) -> Option<&'static str> {
        match state.fault {
            state::FAULT_CREATED => return Some(CREATED),
            state::FAULT_FENCE => return Some(FENCE_FALLS),
            _ => {}
        }
        if (0..N).filter(|&c| self.passes_check(&state.clients[c])).count() > 1 {
            return Some(TWO_HOLDERS);
        }
        if state.comes_back() {
            return Some(COMES_BACK);
        }
        state.is_token_unknown().then_some(UNKNOWN_TOKEN)
    }

    fn premises(&self, state: &State<N>) -> u32 {
        self.all_premises(state)
    }

    fn benign(&self, state: &State<N>) -> Option<State<N>> {
        self.benign_step(state)
    }

    fn tell(&self, told: Told, after: &State<N>) -> String {
        self.told(told, after)
    }
}
