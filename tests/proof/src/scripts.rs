//! The scripts of a mutex, as one server executes them. Both models use these functions, each with its own names and
//! its own time. The simulation of the library uses them too, with the names and the time of its servers: whatever a
//! script does there has to be what these functions do.

/// What a script does for a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reply {
    Yes,
    /// The lock was released, and granted to a wait that listens.
    Granted,
    /// The lock was released, and is reserved for a wait that does not listen here (several servers).
    Reserved,
    /// Another token has the lock. The wait is not in the queue, is new there, or was there.
    Nowhere,
    New,
    Kept,
    /// There is no key.
    Absent,
}

impl Reply {
    /// It says that an attempt was not executed with success, and cannot be any more.
    pub fn is_no(self) -> bool {
        matches!(self, Reply::Nowhere | Reply::New | Reply::Kept)
    }
}

/// How long a key is set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// The lease that the call asks for.
    Lease,
    Grant,
}

/// How many connections heard of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    Nobody,
    Somebody,
    /// The user may not publish.
    Refused,
}

/// Whether the lock is left to other programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    No,
    GoesOn,
    /// The next release begins one.
    Due,
}

/// The rules that the models can leave out of the scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    FirstComeFirstServed,
    OwnGrantByAttempt,
    GrantToItsWait,
    WonAttemptLeavesQueue,
    ExtendNeverCreates,
    ExtendCompares,
    ReleaseCompares,
    LeavePassesGrant,
}

/// With several servers, a release and `unreserve` look at this many.
const MOST_OF_SEVERAL: usize = 8;

/// The keys of one lock on one server, and the call that the server executes.
pub trait Lock {
    type Token: Clone + PartialEq;
    type Wait: Clone + PartialEq;

    fn is_several(&self) -> bool;
    fn obeys(&self, _: Rule) -> bool {
        true
    }

    fn held(&self) -> Option<Self::Token>;
    fn set(&mut self, token: Self::Token, span: Span);
    /// The key lasts for the lease of the call from now on, and never less long than before.
    fn lengthen(&mut self);
    /// The key lasts for the rest of a minimum hold.
    fn keep(&mut self);
    fn free(&mut self);
    /// The wait to which a token was granted.
    fn granted_to(&self, token: &Self::Token) -> Option<Self::Wait>;
    /// The token of a grant to this wait: with one server its own, with several one of the call.
    fn grant_of(&self, wait: &Self::Wait) -> Self::Token;
    /// Tells the client of the wait of its grant.
    fn publish(&mut self, wait: &Self::Wait) -> Heard;

    fn pause(&self) -> Pause {
        Pause::No
    }
    /// The wait at this place.
    fn nth(&self, place: usize) -> Option<Self::Wait>;
    fn is_queued(&self, wait: &Self::Wait) -> bool;
    fn enter(&mut self, wait: &Self::Wait);
    fn take_out(&mut self, wait: &Self::Wait);
    /// Takes out so many, from the front.
    fn drop_front(&mut self, many: usize);
}

pub struct Attempt<T, W> {
    pub token: T,
    pub wait: Option<W>,
    /// It does not enter the queue.
    pub is_last: bool,
    /// It asks for the lock only, and grants nothing.
    pub is_fast: bool,
}

pub struct Release<T, W> {
    /// `None`: a wait leaves.
    pub token: Option<T>,
    pub wait: Option<W>,
    /// It grants the lock to the next wait.
    pub offers: bool,
    /// A minimum hold keeps the key.
    pub keeps: bool,
}

/// `acquire.lua`. `may_follow`: the attempt takes the lock over from this token.
pub fn acquire<L: Lock>(
    lock: &mut L,
    call: &Attempt<L::Token, L::Wait>,
    may_follow: impl Fn(&L::Token) -> bool,
) -> Reply {
    match lock.held() {
        Some(held) if held == call.token => lock.lengthen(),
        Some(held) if is_own_grant(lock, &held, call.wait.as_ref()) || may_follow(&held) => {
            lock.set(call.token.clone(), Span::Lease);
        }
        None if may_take(lock, call) => lock.set(call.token.clone(), Span::Lease),
        _ => return refuse(lock, call),
    }
    if let Some(wait) = call.wait.as_ref().filter(|_| lock.obeys(Rule::WonAttemptLeavesQueue)) {
        lock.take_out(wait);
    }
    Reply::Yes
}

fn is_own_grant<L: Lock>(lock: &L, held: &L::Token, wait: Option<&L::Wait>) -> bool {
    let Some(heir) = lock.granted_to(held).filter(|_| wait.is_some() && lock.obeys(Rule::OwnGrantByAttempt)) else {
        return false;
    };
    wait == Some(&heir) || !lock.obeys(Rule::GrantToItsWait)
}

/// Whether an attempt may take the free lock.
fn may_take<L: Lock>(lock: &mut L, call: &Attempt<L::Token, L::Wait>) -> bool {
    match (call.is_fast, lock.is_several()) {
        (true, true) => true,
        // Any attempt may take it, but no wait in a pause.
        (false, true) => call.wait.is_none() || lock.pause() != Pause::GoesOn,
        (_, false) if lock.pause() == Pause::GoesOn => false,
        (true, false) => lock.nth(0).is_none(),
        (false, false) => is_its_turn(lock, call.wait.as_ref()),
    }
}

/// Grants a free lock to the first wait that listens, unless that is this one. Takes the others out.
fn is_its_turn<L: Lock>(lock: &mut L, wait: Option<&L::Wait>) -> bool {
    if !lock.obeys(Rule::FirstComeFirstServed) {
        return true;
    }
    while let Some(first) = lock.nth(0).filter(|first| Some(first) != wait) {
        let heard = grant(lock, &first);
        if heard == Heard::Refused {
            lock.free();
            return true;
        }
        lock.take_out(&first);
        if heard == Heard::Somebody {
            return false;
        }
    }
    true
}

/// `grant.lua`: sets the key, then publishes. If nobody hears it, the lock is not granted.
fn grant<L: Lock>(lock: &mut L, wait: &L::Wait) -> Heard {
    let heard = lock.publish(wait);
    if heard != Heard::Nobody {
        lock.set(lock.grant_of(wait), Span::Grant);
    }
    heard
}

/// A no. The wait enters the queue and keeps its place; a last attempt leaves it.
fn refuse<L: Lock>(lock: &mut L, call: &Attempt<L::Token, L::Wait>) -> Reply {
    let Some(wait) = &call.wait else { return Reply::Nowhere };
    if call.is_last {
        lock.take_out(wait);
        return Reply::Nowhere;
    }
    if lock.is_queued(wait) {
        return Reply::Kept;
    }
    lock.enter(wait);
    Reply::New
}

/// `SET NX`: the first attempt of a client that found no queue, and the attempt of programs in other languages.
pub fn set_nx<L: Lock>(lock: &mut L, token: L::Token) -> Reply {
    if lock.held().is_some() {
        return Reply::Nowhere;
    }
    lock.set(token, Span::Lease);
    Reply::Yes
}

/// `adopt.lua`: passes the lock from a former token to another one.
pub fn adopt<L: Lock>(lock: &mut L, token: L::Token, former: &L::Token) -> Reply {
    match lock.held() {
        None => return Reply::Absent,
        Some(held) if held == token => lock.lengthen(),
        Some(held) if held == *former => lock.set(token, Span::Lease),
        Some(_) => return Reply::Nowhere,
    }
    Reply::Yes
}

/// `extend.lua`.
pub fn extend<L: Lock>(lock: &mut L, token: L::Token) -> Reply {
    match lock.held() {
        None if lock.obeys(Rule::ExtendNeverCreates) => return Reply::Absent,
        None => lock.set(token, Span::Lease),
        Some(held) if held != token && lock.obeys(Rule::ExtendCompares) => return Reply::Nowhere,
        Some(_) => lock.lengthen(),
    }
    Reply::Yes
}

/// `release.lua`: with a token, with a wait, or with both.
pub fn release<L: Lock>(lock: &mut L, call: &Release<L::Token, L::Wait>) -> Reply {
    if let Some(wait) = &call.wait {
        lock.take_out(wait);
    }
    let Some(held) = lock.held() else { return Reply::Absent };
    let passes = call.token.is_some() || lock.obeys(Rule::LeavePassesGrant);
    let is_own_grant = call.wait.is_some() && passes && lock.granted_to(&held) == call.wait;
    let is_its = call.token == Some(held) || call.token.is_some() && !lock.obeys(Rule::ReleaseCompares);
    if !is_its && !is_own_grant {
        return Reply::Nowhere;
    }
    if call.keeps {
        lock.keep();
        return Reply::Yes;
    }
    // A pause goes on if an attempt that reads no queue has taken the lock in it.
    if !call.offers || lock.pause() != Pause::No {
        lock.free();
        return Reply::Yes;
    }
    if lock.is_several() { pass_on_several(lock) } else { pass_on(lock) }
}

/// Grants the lock to the first wait that listens.
fn pass_on<L: Lock>(lock: &mut L) -> Reply {
    while let Some(first) = lock.nth(0) {
        let heard = grant(lock, &first);
        if heard == Heard::Refused {
            break;
        }
        lock.drop_front(1);
        if heard == Heard::Somebody {
            return Reply::Granted;
        }
    }
    lock.free();
    Reply::Yes
}

/// Grants the lock to the first wait that listens here, and reserves it for the first one if none does.
fn pass_on_several<L: Lock>(lock: &mut L) -> Reply {
    let mut heir = None;
    for place in 0..MOST_OF_SEVERAL {
        let Some(wait) = lock.nth(place) else { break };
        match grant(lock, &wait) {
            Heard::Somebody => {
                lock.drop_front(place + 1);
                return Reply::Granted;
            }
            Heard::Refused => {
                lock.free();
                return Reply::Yes;
            }
            Heard::Nobody => heir = heir.or(Some(wait)),
        }
    }
    if let Some(heir) = heir {
        lock.set(lock.grant_of(&heir), Span::Grant);
        return Reply::Reserved;
    }
    lock.free();
    Reply::Yes
}

/// `unreserve.lua`. `is_it`: the token is that of the grant that the call names.
pub fn unreserve<L: Lock>(lock: &mut L, is_it: impl Fn(&L::Token) -> bool) -> Reply {
    match lock.held() {
        None => Reply::Absent,
        Some(held) if !is_it(&held) => Reply::Nowhere,
        Some(_) => {
            lock.free();
            lock.drop_front(MOST_OF_SEVERAL);
            Reply::Yes
        }
    }
}

/// `raise` of `fence_counter.lua`: the fence after this call. `wanted`: the fence to reach; 0: the next one.
pub fn raised<T: Copy + Ord + std::ops::Add<Output = T> + From<u8>>(stored: T, wanted: T, clock: T) -> T {
    if wanted == T::from(0) { clock.max(stored + T::from(1)) } else { wanted.max(stored) }
}
