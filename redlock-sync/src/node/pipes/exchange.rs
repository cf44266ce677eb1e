//! One call of one thread to the servers of a client: it is written to all of them, then its replies are read. Only this thread looks at what they say.

use std::borrow::Cow;
use std::sync::Arc;

use super::arrivals::Arrivals;
use super::ends::Broken;
use super::flight::{Load, Outcome, Parting, Trip, Wait};
use super::framer::Reply;
use super::pipe::Pipe;
use super::server::Pipes;
use super::waiting::wait;
use crate::clock::{Clock, Tick};
use crate::node::condition::During;
use crate::node::host::Host;
use crate::node::{Answers, Ask, Executed, Failure, FailureKind, Value, reply};
use crate::protocol::script::{Call, Needs, Note, Purpose};
use crate::sync::Mutex;

/// A server with its connections.
pub(crate) struct Server {
    pub(super) host: Arc<Host>,
    pub(super) pipes: Pipes,
    /// For which kinds the user's permissions were found to be enough, and when, as the host counts.
    permitted: Mutex<Vec<(Needs, u64)>>,
    /// The scripts that it has executed, by their digests. Releases carry their source until then: no thread may be there to answer that it is unknown.
    known: Mutex<Vec<&'static str>>,
}

/// What a call has to go by.
pub(crate) struct Exchange<'a> {
    pub(crate) servers: &'a [Server],
    pub(crate) arrivals: &'a Arrivals,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) call: &'a Arc<Call>,
    /// Releases and renewals go before attempts.
    pub(crate) is_urgent: bool,
    pub(crate) by: Tick,
}

/// How far the call has come at one server.
enum Leg {
    /// Waits for a connection. So many attempts to connect had failed.
    Waits(u64),
    /// A release for a server that is left out: it is written where that takes no time, and not waited for.
    Passes(Failure),
    Flies {
        pipe: Arc<Pipe>,
        note: Note,
        permissions: u64,
    },
    Over(Result<Value, Failure>),
}

/// The legs of one exchange.
struct Course<'a> {
    exchange: &'a Exchange<'a>,
    trip: Arc<Trip>,
    legs: Vec<Leg>,
    /// Which servers had it once, on a connection that broke.
    again: Vec<bool>,
    started: Tick,
    deadline: Tick,
    duplicate: bool,
}

impl Server {
    pub(crate) fn new(host: Arc<Host>, pipes: Pipes) -> Server {
        Server { host, pipes, permitted: Mutex::default(), known: Mutex::default() }
    }

    /// The failure for which it is left out at the moment.
    fn outage(&self) -> Option<Failure> {
        let hung = || Failure::unsent(FailureKind::LeftOut, "left out: does not answer what was written before");
        self.host.breaker.outage().or_else(|| self.pipes.is_hung().then(hung))
    }

    /// What a transmission of a call tells the script: see [`note`](crate::node::ride::note).
    fn note(&self, call: &Call, permissions: u64) -> Note {
        let is_known = |needs| self.permitted.lock().contains(&(needs, permissions));
        if call.script.needs.is_none_or(is_known) { Note::Nothing } else { Note::Check }
    }

    /// A restart forgets all scripts, and breaks all connections.
    fn forget_scripts(&self) {
        self.known.lock().clear();
    }

    fn knows(&self, call: &Call) -> bool {
        self.known.lock().contains(&&*call.script.sha)
    }

    fn note_known(&self, call: &Call) {
        if call.purpose == Purpose::Release && !self.knows(call) {
            self.known.lock().push(&call.script.sha);
        }
    }

    /// What a reply says of the server.
    fn judged(
        &self,
        call: &Call,
        note: Note,
        permissions: u64,
        result: Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        if result.is_ok() {
            self.note_known(call);
        }
        match &result {
            Ok(_) if note == Note::Check => {
                let mut permitted = self.permitted.lock();
                permitted.retain(|(needs, _)| Some(*needs) != call.script.needs);
                permitted.extend(call.script.needs.map(|needs| (needs, permissions)));
            }
            Err(failure) => {
                self.permitted.lock().clear();
                self.host.refused_call(failure);
                if reply::wants_new_connection(failure) {
                    self.pipes.all().iter().for_each(|pipe| pipe.end(Broken::Cut("has to log in anew".into())));
                }
            }
            Ok(_) => {}
        }
        self.host.replied(call, &result);
        result.map_err(|failure| self.host.meant(failure))
    }
}

impl Exchange<'_> {
    /// Sends the call to the servers that `ask` names; `need` are a majority.
    pub(crate) fn run(&self, ask: Ask<'_>, need: usize) -> Answers {
        let started = self.clock.now();
        let patience = self.servers.first().map_or_else(Default::default, |server| server.pipes.patience);
        let outages: Vec<_> = self.servers.iter().map(Server::outage).collect();
        let spares = outages.iter().filter(|outage| outage.is_none()).count() >= need;
        let leg = |(i, outage): (usize, Option<Failure>)| match outage.filter(|_| spares) {
            _ if !ask(i) => Leg::Over(Err(Failure::unsent(FailureKind::LeftOut, "not asked"))),
            // It may have to go behind what is unanswered there.
            Some(outage) if self.call.purpose == Purpose::Release => Leg::Passes(outage),
            Some(outage) => Leg::Over(Err(outage)),
            None => Leg::Waits(self.arrivals.failures(i)),
        };
        let legs = outages.into_iter().enumerate().map(leg).collect();
        let mut course = Course {
            exchange: self,
            trip: Trip::new(self.servers.len(), None),
            legs,
            again: vec![false; self.servers.len()],
            started,
            deadline: self.by.min(started.after(patience)),
            duplicate: false,
        };
        course.run();
        let results = course.legs.into_iter().map(|leg| match leg {
            Leg::Over(result) => result,
            Leg::Waits(_) | Leg::Passes(_) | Leg::Flies { .. } => Err(timed_out(Executed::Maybe, "was not answered")),
        });
        Answers { results: results.collect(), started, duplicate: course.duplicate }
    }
}

impl Course<'_> {
    fn run(&mut self) {
        self.pass();
        loop {
            // Before the look: what comes after it ends the wait.
            let seen = self.exchange.arrivals.news();
            self.set_out();
            let flying: Vec<(usize, Arc<Pipe>)> = self.flying().collect();
            let waiting: Vec<usize> = self.waiting().collect();
            if flying.is_empty() && waiting.is_empty() {
                return;
            }
            if flying.is_empty() {
                self.exchange.arrivals.wait(&waiting, seen, self.deadline, self.exchange.clock);
            } else if wait(&self.trip, &flying, self.patience(), self.exchange.clock) != Wait::Goes {
                self.take_outcomes();
                continue;
            }
            if self.exchange.clock.now() >= self.deadline {
                return self.leave();
            }
        }
    }

    /// While others wait for connections, those are looked for from time to time.
    fn patience(&self) -> Tick {
        let now = self.exchange.clock.now();
        let a_little = now.after(self.deadline.since(self.started) / 8);
        if self.waiting().next().is_none() { self.deadline } else { self.deadline.min(a_little) }
    }

    fn flying(&self) -> impl Iterator<Item = (usize, Arc<Pipe>)> {
        self.legs.iter().enumerate().filter_map(|(i, leg)| match leg {
            Leg::Flies { pipe, .. } => Some((i, Arc::clone(pipe))),
            _ => None,
        })
    }

    fn waiting(&self) -> impl Iterator<Item = usize> {
        self.legs.iter().enumerate().filter(|(_, leg)| matches!(leg, Leg::Waits(_))).map(|(i, _)| i)
    }

    /// Writes where it does not wait for an answer.
    fn pass(&mut self) {
        for (i, server) in self.exchange.servers.iter().enumerate() {
            let Some(Leg::Passes(outage)) = self.legs.get(i) else { continue };
            let mut failure = outage.clone();
            if let Some(Leg::Flies { pipe, .. }) = self.fly(i, server, false) {
                pipe.leave(&self.trip, i, true);
                failure.executed = Executed::Maybe;
            }
            self.put(i, Leg::Over(Err(failure)));
        }
    }

    /// Writes wherever there is a connection.
    fn set_out(&mut self) {
        for (i, server) in self.exchange.servers.iter().enumerate() {
            let Some(Leg::Waits(failures)) = self.legs.get(i) else { continue };
            let failure = self.exchange.arrivals.failure_since(i, *failures);
            if let Some(leg) = self.fly(i, server, false).or_else(|| failure.map(|failure| Leg::Over(Err(failure)))) {
                self.put(i, leg);
            }
        }
    }

    /// Sends the call over a connection, if there is one.
    fn fly(&self, i: usize, server: &Server, with_source: bool) -> Option<Leg> {
        let call = self.exchange.call;
        let (claim, pipe) = server.pipes.claim(call.first_key().unwrap_or_default())?;
        let permissions = server.host.permissions();
        let note = server.note(call, permissions);
        let with_source = with_source || call.purpose == Purpose::Release && !server.knows(call);
        let load = Load::Script { call: Arc::clone(call), note, with_source, asks: false };
        pipe.send(self.trip.flight(i, load, self.exchange.is_urgent, Some(claim)));
        Some(Leg::Flies { pipe, note, permissions })
    }

    fn put(&mut self, i: usize, leg: Leg) {
        if let Some(place) = self.legs.get_mut(i) {
            *place = leg;
        }
    }

    /// What has become of the call where it has an outcome.
    fn take_outcomes(&mut self) {
        for (i, server) in self.exchange.servers.iter().enumerate() {
            let Some(Leg::Flies { note, permissions, .. }) = self.legs.get(i) else { continue };
            let (note, permissions) = (*note, *permissions);
            let leg = match self.trip.take(i) {
                None => continue,
                Some(Outcome::Replied(said)) if is_noscript(&said) => {
                    self.fly(i, server, true).unwrap_or_else(|| Leg::Waits(self.exchange.arrivals.failures(i)))
                }
                Some(Outcome::Replied(said)) => {
                    Leg::Over(server.judged(self.exchange.call, note, permissions, value(said)))
                }
                Some(Outcome::Cut { was_written, why }) => self.after_cut(i, server, was_written, &why),
            };
            self.put(i, leg);
        }
    }

    /// A connection broke: the call is sent once more, on another one.
    fn after_cut(&mut self, i: usize, server: &Server, was_written: bool, why: &Broken) -> Leg {
        self.duplicate |= was_written;
        server.forget_scripts();
        let again = self.again.get_mut(i).is_some_and(|again| std::mem::replace(again, true));
        let failure = match why {
            Broken::Unfit(why) => Failure::unsent(FailureKind::Misuse, why.clone()),
            Broken::Cut(why) => Failure::new(FailureKind::Unreachable, executed(was_written), format!("lost: {why}")),
            Broken::TimedOut | Broken::Slow => timed_out(executed(was_written), "timed out while writing"),
        };
        if !again && !failure.kind.is_misuse() {
            return Leg::Waits(self.exchange.arrivals.failures(i));
        }
        server.host.note(&failure, During::Call);
        Leg::Over(Err(failure))
    }

    /// The time is up.
    fn leave(&mut self) {
        let waited = self.exchange.clock.now().since(self.started);
        let is_release = self.exchange.call.purpose == Purpose::Release;
        for (i, server) in self.exchange.servers.iter().enumerate() {
            let pipe = match self.legs.get(i) {
                Some(Leg::Flies { pipe, .. }) => Arc::clone(pipe),
                Some(Leg::Waits(_)) => {
                    self.put(i, Leg::Over(Err(timed_out(Executed::No, "no connection in time"))));
                    continue;
                }
                _ => continue,
            };
            let failure = match pipe.leave(&self.trip, i, is_release) {
                Parting::Answered => {
                    self.take_outcomes();
                    continue;
                }
                Parting::Unsent => Failure::unsent(
                    FailureKind::Overloaded,
                    "not sent: other calls to this server were not written or answered in that time",
                ),
                Parting::Sent => timed_out(Executed::Maybe, &format!("timed out after {waited:.0?}")),
                Parting::WillBeSent => {
                    timed_out(Executed::Maybe, &format!("timed out after {waited:.0?}; it will be written"))
                }
            };
            // A call with little time says nothing of the server.
            if failure.kind == FailureKind::TimedOut && waited >= server.pipes.patience / 2 {
                server.host.note(&failure, During::Call);
            }
            self.put(i, Leg::Over(Err(failure)));
        }
    }
}

/// Waits until all that was written to these servers is executed and answered, and what was left in the outboxes is written; at most until then. What comes
/// before an answer on a connection is executed before it: so one call on each is enough.
pub(crate) fn flush<'a>(servers: impl Iterator<Item = &'a Pipes>, by: Tick, clock: &dyn Clock) {
    let pipes: Vec<_> = servers.flat_map(Pipes::all).filter(|pipe| pipe.len() > 0).enumerate().collect();
    let trip = Trip::new(pipes.len(), None);
    for (seat, pipe) in &pipes {
        pipe.send(trip.flight(*seat, Load::Command(Cow::Borrowed(b"*1\r\n$4\r\nPING\r\n")), false, None));
    }
    // A broken connection has nothing more to write.
    while wait(&trip, &pipes, by, clock) == Wait::Cut {
        for (seat, _) in &pipes {
            drop(trip.take(*seat));
        }
    }
}

fn executed(was_written: bool) -> Executed {
    if was_written { Executed::Maybe } else { Executed::No }
}

fn timed_out(executed: Executed, message: &str) -> Failure {
    Failure::new(FailureKind::TimedOut, executed, message)
}

fn is_noscript(reply: &Reply) -> bool {
    matches!(reply, Reply::Raw(bytes) if bytes.starts_with(b"-NOSCRIPT"))
}

/// A reply in the crate's own terms.
fn value(said: Reply) -> Result<Value, Failure> {
    match said {
        Reply::Nil => Ok(Value::Nil),
        Reply::Okay => Ok(Value::Text(b"OK".to_vec())),
        Reply::Int(n) => Ok(Value::Int(n)),
        Reply::Raw(bytes) => redis::parse_redis_value(&bytes).map_or_else(
            |_| Err(Failure::new(FailureKind::Refused, Executed::Maybe, "replied with something unexpected")),
            reply::value,
        ),
    }
}
