//! The push connection of a client: on its wake node, read by the threads that wait, in turn.

mod pushed;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use self::pushed::Pushed;
use crate::clock::Tick;
use crate::node::{Heard, Lane, Push};
use crate::quorum::Quorum;
use crate::script::{Arg, Call, PUBLISH, Purpose};
use crate::token::random_part;

/// A thread that does not read looks so often whether something came for it.
const SLICE: Duration = Duration::from_millis(2);
/// After so long without a push it is found out whether the connection is alive.
const BEAT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(20);
const REFUSED_FOR: Duration = Duration::from_secs(60);
const MOST_GHOSTS: usize = 64;

/// What gives back a grant to a wait that is over.
pub(crate) struct Ghost {
    pub(crate) give_back: Box<dyn Fn(&Pushed) + Send>,
}

/// Where a client listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) channel: Arc<str>,
    /// The generation of the subscription.
    pub(crate) since: u64,
}

/// How a sleep ended.
#[derive(Debug)]
pub(crate) enum Woken {
    Push(Pushed),
    Timer,
    Connected,
    Closed,
}

pub(crate) struct Ear {
    quorum: Arc<Quorum>,
    state: Mutex<State>,
}

struct State {
    conn: Option<Box<dyn Push>>,
    place: Option<Place>,
    channel: Option<Arc<str>>,
    spots: HashMap<u64, Spot>,
    ghosts: VecDeque<(u64, Ghost)>,
    generation: u64,
    next: u64,
    heard_at: Tick,
    retry_at: Tick,
    refused_until: Tick,
    is_busy: bool,
    is_closed: bool,
}

#[derive(Default)]
struct Spot {
    kept: VecDeque<Pushed>,
    seen: u64,
}

/// A thread's wait for pushes; its spot goes with it.
pub(crate) struct Wait {
    ear: Arc<Ear>,
    number: u64,
}

impl Ear {
    pub(crate) fn new(quorum: Arc<Quorum>) -> Arc<Ear> {
        let state = State {
            conn: None,
            place: None,
            channel: None,
            spots: HashMap::new(),
            ghosts: VecDeque::new(),
            generation: 0,
            next: 0,
            heard_at: Tick::ZERO,
            retry_at: Tick::ZERO,
            refused_until: Tick::ZERO,
            is_busy: false,
            is_closed: false,
        };
        Arc::new(Ear { quorum, state: Mutex::new(state) })
    }

    /// True while a subscription is confirmed.
    pub(crate) fn listens(&self) -> bool {
        self.state.lock().place.is_some()
    }

    /// Enters a wait.
    pub(crate) fn begin(self: &Arc<Ear>) -> Wait {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        let seen = state.generation;
        state.spots.insert(number, Spot { seen, ..Spot::default() });
        drop(state);
        self.connect();
        Wait { ear: Arc::clone(self), number }
    }

    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// A grant pushed to this wait, which is over, is given back.
    pub(crate) fn haunt(&self, number: u64, ghost: Ghost) {
        let mut state = self.state.lock();
        if state.ghosts.len() >= MOST_GHOSTS {
            state.ghosts.pop_front();
        }
        state.ghosts.push_back((number, ghost));
    }

    /// Has the connection made or looked after in the background, if that is due.
    fn connect(self: &Arc<Ear>) {
        let now = self.quorum.now();
        let mut state = self.state.lock();
        let is_due = match state.place {
            Some(_) => now.since(state.heard_at) >= BEAT,
            None => now >= state.retry_at.max(state.refused_until),
        };
        if state.is_busy || state.is_closed || !is_due {
            return;
        }
        state.is_busy = true;
        drop(state);
        let this = Arc::clone(self);
        self.quorum.nodes.background().after(Duration::ZERO, move || this.look_after());
    }

    fn look_after(&self) {
        let place = self.state.lock().place.clone();
        let outcome = match place {
            Some(place) => self.confirm(&place).then_some(()),
            None => self.subscribe(),
        };
        let now = self.quorum.now();
        let mut state = self.state.lock();
        state.is_busy = false;
        state.heard_at = now;
        if outcome.is_none() {
            (state.conn, state.place, state.retry_at) = (None, None, now.after(RETRY));
        }
    }

    fn subscribe(&self) -> Option<()> {
        let channel = {
            let mut state = self.state.lock();
            match &state.channel {
                Some(channel) => Arc::clone(channel),
                None => {
                    let random = random_part().ok()?;
                    let channel: Arc<str> = format!("redlock-sync:{}", random.get(..16)?).into();
                    state.channel = Some(Arc::clone(&channel));
                    channel
                }
            }
        };
        let (node, server) = self.quorum.wake_node()?;
        let conn = match server.subscribe(&channel, self.quorum.round_deadline()) {
            Ok(conn) => conn,
            Err(failure) if failure.is_answer() => {
                self.refuse();
                return None;
            }
            Err(_) => return None,
        };
        let generation = self.state.lock().generation + 1;
        let place = Place { node, channel, since: generation };
        if !self.confirm(&place) {
            return None;
        }
        let mut state = self.state.lock();
        (state.conn, state.place, state.generation) = (Some(conn), Some(place), generation);
        Some(())
    }

    /// A message to the own channel is received.
    fn confirm(&self, place: &Place) -> bool {
        let args = [Arg::Text(&place.channel), Arg::Text("beat")];
        let call = Call::new(&PUBLISH, Purpose::Other, None, Duration::ZERO, &[], &args);
        let by = self.quorum.round_deadline();
        let ballot = self.quorum.round(&call, Lane::Ordinary, by, &|i| i == place.node);
        let is_refused = ballot.failure(crate::node::Trouble::Misuse).is_some();
        if is_refused {
            self.refuse();
        }
        ballot.votes.get(place.node).is_some_and(crate::quorum::Vote::is_yes)
    }

    fn refuse(&self) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.refused_until = self.quorum.now().after(REFUSED_FOR);
    }

    /// Reads what has come, for so long at most.
    fn read(&self, conn: &mut dyn Push, patience: Duration) -> bool {
        let heard = conn.receive(patience);
        let mut state = self.state.lock();
        let channel = state.channel.clone().unwrap_or_default();
        match heard {
            Heard::Nothing => true,
            Heard::Broken(_) => {
                state.place = None;
                false
            }
            Heard::Message(bytes) => {
                state.heard_at = self.quorum.now();
                if let Some((number, pushed)) = Pushed::read(&bytes, &channel) {
                    if let Some(spot) = state.spots.get_mut(&number) {
                        spot.kept.push_back(pushed);
                    } else if pushed.random.is_some()
                        && let Some((_, ghost)) = state.ghosts.iter().find(|(other, _)| *other == number)
                    {
                        (ghost.give_back)(&pushed);
                    }
                }
                true
            }
        }
    }
}

impl Wait {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.ear.state.lock().place.clone()
    }

    /// Waits until then, for a push, or for a new subscription.
    pub(crate) fn sleep(&self, until: Tick) -> Woken {
        loop {
            self.ear.connect();
            let mut state = self.ear.state.lock();
            let (generation, is_closed) = (state.generation, state.is_closed);
            if let Some(spot) = state.spots.get_mut(&self.number) {
                if let Some(pushed) = spot.kept.pop_front() {
                    return Woken::Push(pushed);
                }
                if std::mem::replace(&mut spot.seen, generation) != generation {
                    return Woken::Connected;
                }
            }
            if is_closed {
                return Woken::Closed;
            }
            let left = until.since(self.ear.quorum.now());
            if left.is_zero() {
                return Woken::Timer;
            }
            let conn = if state.place.is_some() { state.conn.take() } else { None };
            drop(state);
            match conn {
                Some(mut conn) => {
                    let is_alive = self.ear.read(&mut *conn, left.min(5 * SLICE));
                    let mut state = self.ear.state.lock();
                    if is_alive && state.place.is_some() && state.conn.is_none() {
                        state.conn = Some(conn);
                    }
                }
                None => self.ear.quorum.clock.sleep(left.min(SLICE)),
            }
        }
    }

    /// A push that came while this thread did not sleep.
    pub(crate) fn take(&self) -> Option<Pushed> {
        self.ear.state.lock().spots.get_mut(&self.number)?.kept.pop_front()
    }

    /// Subscribing was refused: this wait polls.
    pub(crate) fn polls(&self) -> bool {
        let state = self.ear.state.lock();
        state.place.is_none() && state.refused_until > self.ear.quorum.now()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.ear.state.lock();
        state.spots.remove(&self.number);
        // Under the old name the ghosts would hear again.
        if state.spots.is_empty() && !state.ghosts.is_empty() {
            state.ghosts.clear();
            (state.conn, state.place, state.channel) = (None, None, None);
        }
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ear({:?})", self.state.lock().place)
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait({})", self.number)
    }
}
