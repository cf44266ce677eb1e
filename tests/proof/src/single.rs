//! **Model (a): one server, with the queue.** The mutex of `acquire.lua`, `release.lua`, `extend.lua`, `grant.lua`, and
//! the client of `acquire.rs`, `handover/grant.rs`, `lease/inner`. Clients call `lock()` or `try_lock()`, wait in the
//! queue, get the lock by a grant, renew it, release it, give up, stop, die.
//!
//! # The grain, and why it loses no behaviour
//!
//! - **A call and its reply are one step**, unless the call or the reply is lost or late. The server executes one script
//!   at a time. Between the send and the execution, or the execution and the reply, only other calls and time can
//!   intervene. A call that is executed in the step in which it is sent differs from one that is sent earlier only in
//!   the start from which its client counts. That is a late call, and late calls are steps of their own.
//! - **A late call** waits in the line of its client, and everything that this client sends later waits behind it: the
//!   transport keeps the order for each key and server. If the connection breaks, each call of the line may be executed
//!   at any later time, or never, and the client sends the unanswered call once more, as a possible duplicate. No other
//!   call is executed twice, since no other call is sent twice.
//! - **A pause** of a client is the steps of others between two of its steps. So each reply, push and timer may be
//!   handled at any later time.
//! - **Time** passes in ticks, for the server and all clients together. A client counts from the tick in which it sent
//!   its call. A key counts from the tick of its execution. The clock of a server may be fast by one tick for each
//!   lease ([`Rule::Drift`]): a key may end one tick early. A slow clock is a call that is executed later.
//! - **A timer** of a wait may fire at any time. So there are no hints: they only say when to try.
//! - **The fast path** of `acquire.lua` does less than an attempt without a wait, and an attempt without a wait is here.
//! - **Clients are interchangeable.** A state is stored with its clients in a fixed order.
//!
//! Left out: pauses for other programs, minimum holds, waits that poll, `SET NX` on a key that was free of waits
//! (README.md).

mod client;
mod server;
mod show;
mod state;
mod steps;

pub use self::state::{Call, Client, State};
use crate::search::{Model, Told};

/// The rules of the protocol that this model can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    DeadlineFromStart,
    Drift,
    FullGrant,
    GrantSinceLastAttempt,
    CleanNoes,
    NoDuplicate,
    Places,
    GrantToItsWait,
    OwnGrantByAttempt,
    RollBack,
    ReleaseCompares,
    ExtendCompares,
    ExtendNeverCreates,
    FreshTokens,
    RepeatedRelease,
    FirstComeFirstServed,
    DeadWaitsAreSkipped,
    LateGrantGivenBack,
    LeavesQueue,
    LeavePassesGrant,
    LeaveRepeated,
    NeverShortens,
    WonAttemptLeavesQueue,
}

impl Rule {
    pub const ALL: [Rule; 23] = [
        Rule::DeadlineFromStart,
        Rule::Drift,
        Rule::FullGrant,
        Rule::GrantSinceLastAttempt,
        Rule::CleanNoes,
        Rule::NoDuplicate,
        Rule::Places,
        Rule::GrantToItsWait,
        Rule::OwnGrantByAttempt,
        Rule::RollBack,
        Rule::ReleaseCompares,
        Rule::ExtendCompares,
        Rule::ExtendNeverCreates,
        Rule::FreshTokens,
        Rule::RepeatedRelease,
        Rule::FirstComeFirstServed,
        Rule::DeadWaitsAreSkipped,
        Rule::LateGrantGivenBack,
        Rule::LeavesQueue,
        Rule::LeavePassesGrant,
        Rule::LeaveRepeated,
        Rule::NeverShortens,
        Rule::WonAttemptLeavesQueue,
    ];
}

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Clients call `try_lock()` too.
    pub tries: bool,
    /// They extend their leases by one tick more too.
    pub extends: bool,
    pub losses: u8,
    pub lates: u8,
    pub deaths: u8,
}

pub struct Single<const N: usize> {
    pub bounds: Bounds,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// The lease and the span of a grant, in ticks.
pub(crate) const LEASE: u8 = 3;
/// A client may use its lease for this long, from the start of its call.
pub(crate) const USABLE: u8 = LEASE - 1;

impl<const N: usize> Single<N> {
    fn on(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn usable(&self) -> u8 {
        if self.on(Rule::Drift) { USABLE } else { LEASE }
    }
}

pub const TWO_HOLDERS: &str = "two holders";
pub const OUT_OF_ORDER: &str = "out of order";
pub const COMES_BACK: &str = "a released token comes back";
pub const UNKNOWN_TOKEN: &str = "a token that nobody knows";
pub const UNKNOWN_GRANT: &str = "a grant that nobody knows";
pub const CREATED: &str = "a lock from an extension";

impl<const N: usize> Model for Single<N> {
    type State = State<N>;
    const PREMISES: &'static [&'static str] = &[
        "a client holds",
        "a client holds by a grant",
        "a client holds while another one waits",
        "a wait is in the queue",
        "a call is late",
        "a connection is broken, and its calls may come",
        "a grant waits for its client",
        "a grant came after its wait",
        "a release is confirmed",
        "a token without a lease is owed",
        "a token without a lease is left over",
        "a dead client's token has the lock",
        "a dead client's wait is in the queue",
        "a lease has run out",
        "a call was sent twice",
    ];

    fn initial(&self) -> State<N> {
        let mut clients = [Client::default(); N];
        for client in &mut clients {
            (client.listens, client.queued, client.is_certain) = (true, state::NEVER, true);
        }
        let Bounds { losses, lates, deaths, .. } = self.bounds;
        State { losses, lates, deaths, ..State::new(clients) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Vec<(Told, State<N>)>) {
        self.all_steps(state, steps);
    }

    fn canonical(&self, state: &State<N>) -> State<N> {
        state.canonical()
    }

    fn tidied(&self, state: &State<N>) -> State<N> {
        state.tidied()
    }

    fn broken(&self, state: &State<N>) -> Option<&'static str> {
        match state.fault {
            state::FAULT_OUT_OF_ORDER => return Some(OUT_OF_ORDER),
            state::FAULT_CREATED => return Some(CREATED),
            _ => {}
        }
        if state.clients.iter().filter(|client| client.passes_check()).count() > 1 {
            return Some(TWO_HOLDERS);
        }
        if state.comes_back() {
            return Some(COMES_BACK);
        }
        if state.is_token_unknown() {
            return Some(UNKNOWN_TOKEN);
        }
        state.is_grant_unknown().then_some(UNKNOWN_GRANT)
    }

    fn premises(&self, state: &State<N>) -> u32 {
        state.premises()
    }

    fn benign(&self, state: &State<N>) -> Option<State<N>> {
        self.benign_step(state)
    }

    fn tell(&self, told: Told, after: &State<N>) -> String {
        show::tell(told, after)
    }
}
