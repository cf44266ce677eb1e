//! What the clients do: threads that take locks, work, renew, and let go, or fail to.

use std::sync::Arc;
use std::time::Duration;

use super::invariants::{self, Claim, Holder};
use super::kinds::Access;
use super::plan::{Plan, Time, chance, nanos};
use super::scripts::{FOREIGN_DELETE, FOREIGN_SET};
use super::settings;
use super::wire::SimulatedServer;
use super::world::{Event, VirtualClock, sleep, with};
use crate::acquire::{Wait, acquire};
use crate::clock::Tick;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lease::{Lease, Next};
use crate::node::{Background, Dial, Lane, NodeSettings, Nodes};
use crate::options::{ClientOptions, LockOptions, drift};
use crate::protocol::reply::{Acquired, Released};
use crate::protocol::script::{self, Arg, Purpose};
use crate::protocol::{Request, TypedCall};
use crate::quorum::Quorum;

/// A thread of a client.
pub(super) struct Thread {
    pub(super) client: usize,
    pub(super) inner: Arc<ClientInner>,
}

pub(super) fn quorum(client: usize, nodes: usize, limits: ClientOptions) -> Quorum {
    let server = |node| Arc::new(SimulatedServer::new(client, node)) as Arc<dyn Dial>;
    let settings = NodeSettings { node_timeout: limits.node_timeout, ..NodeSettings::default() };
    let background = Background::given_to(Box::new(move |delay, job| {
        with(|world| {
            let at = world.true_time(client, delay);
            world.plan_at(at, Event::Job { client, job });
        });
    }));
    let clock = VirtualClock::shared(client);
    let nodes = Nodes::with((0..nodes).map(server).collect(), settings, &clock, background.clone(), background);
    Quorum::new(nodes, clock, limits)
}

/// Runs what may make rounds. The end of the client and a round of another of its threads must not wait for each other: they are one thread to
/// the system.
pub(super) fn in_round<R>(client: usize, f: impl FnOnce() -> R) -> R {
    while with(|world| world.clients[client].is_closing) {
        sleep(client, Duration::from_millis(1));
    }
    with(|world| world.clients[client].in_rounds += 1);
    let result = f();
    with(|world| world.clients[client].in_rounds -= 1);
    result
}

impl Thread {
    fn is_dead(&self) -> bool {
        with(|world| world.clients[self.client].is_dead)
    }

    fn now(&self) -> Tick {
        with(|world| world.tick(self.client))
    }

    /// Sleeps for a random time, up to about that.
    fn rest(&self, most: Duration) {
        sleep(self.client, most.mul_f64(fastrand::f64().powi(2)));
    }

    /// All that the thread does.
    pub(super) fn live(&self) {
        let plan = with(|world| world.plan.clone());
        for _ in 0..plan.turns {
            self.rest(plan.pace / 2);
            let key = fastrand::usize(0..plan.names.len());
            let options = plan.draw_options();
            let full = Key::new("", plan.names[key], 100).unwrap();
            let (protocol, access) = plan.kinds[key].draw_side(full.clone(), &plan);
            let request = Request { key: full, protocol, options };
            let time = plan.pace.mul_f64(fastrand::f64() * 3.0);
            let wait = match fastrand::u32(0..10) {
                0..2 => Wait::No,
                2..6 => Wait::Until(self.now().after(time)),
                _ => Wait::Forever,
            };
            with(|world| {
                let client = self.client;
                world.log(|_| format!("client {client} wants key {key}, {access:?}, {wait:?}, {:?}", request.options));
            });
            let asked = invariants::wants(key, &request.options);
            let began = self.now();
            let outcome = acquire(&self.inner, &request, wait);
            invariants::has_waited(key);
            if self.is_dead() {
                return;
            }
            self.note_time(wait, began, &plan);
            match outcome {
                Ok(lease) => self.hold(key, lease, &plan, (&request.options, access), asked),
                Err(error) if !self.note_error(&error) => return,
                Err(_) => {}
            }
            if self.is_dead() {
                return;
            }
        }
        if chance(50) {
            self.close();
        }
    }

    /// A wait ends at its deadline, or one node timeout later if requests are under way then.
    fn note_time(&self, wait: Wait, began: Tick, plan: &Plan) {
        let until = match wait {
            Wait::No => began,
            Wait::Until(until) => until.max(began),
            Wait::Forever => return,
        };
        let late = self.now().since(until);
        with(|world| {
            let was_paused = world.clients[self.client].paused_until > 0;
            // What came too late is taken back, for which there is a quarter of a timeout more; and in both rounds a reply that is there is read, which
            // takes a simulated millisecond for each of up to five nodes.
            let most = plan.limits.node_timeout * 5 / 4 + Duration::from_millis(11);
            if !was_paused && late > most {
                world.violate(format!("client {} waited {late:?} longer than it wanted", self.client));
            }
        });
    }

    /// False if the client is closed.
    fn note_error(&self, error: &Error) -> bool {
        with(|world| {
            let client = self.client;
            world.log(|_| format!("client {client} got no lock: {error}"));
            match error {
                Error::Busy { .. } => world.counts.busy += 1,
                Error::Unavailable { .. } => world.counts.unavailable += 1,
                Error::Closed if world.clients[client].is_closed => return false,
                _ => world.violate(format!("client {client} got an error that cannot be: {error}")),
            }
            true
        })
    }

    fn hold(&self, key: usize, lease: Lease, plan: &Plan, (options, access): (&LockOptions, Access), asked: Time) {
        self.begin(key, &lease, plan, (options, access), asked);
        let renews = !chance(plan.careless);
        self.work_to_the_end(&lease, plan, renews);
        for _ in 0..fastrand::u32(0..5) {
            match fastrand::u32(0..10) {
                0..5 => self.work(&lease, plan.pace.mul_f64(fastrand::f64().powi(4) * 1.5), renews),
                5..8 => self.work(&lease, Duration::from_micros(fastrand::u64(0..3000)), renews),
                8 if chance(300) => self.extend(&lease, plan.lease * 2),
                _ => {}
            }
            if self.is_dead() {
                break;
            }
            if lease.check().is_err() {
                invariants::ran_out(key);
                break;
            }
            invariants::act(key);
            if chance(plan.fences)
                && let Ok(fence) = in_round(self.client, || lease.fencing_token())
                && !self.is_dead()
            {
                invariants::fence(key, fence);
            }
        }
        if lease.check().is_err() && !self.is_dead() {
            invariants::ran_out(key);
        }
        invariants::end(key, options.min_hold);
        let outcome = if chance(800) {
            in_round(self.client, || lease.finish())
        } else {
            in_round(self.client, || drop(lease));
            Ok(())
        };
        with(|world| {
            let client = self.client;
            world.log(|_| format!("client {client} has let go of key {key}: {outcome:?}"));
        });
    }

    /// The lock is this thread's from now on.
    fn begin(&self, key: usize, lease: &Lease, plan: &Plan, (options, access): (&LockOptions, Access), asked: Time) {
        let (name, token) = (plan.names[key], lease.id().as_str());
        let task = with(|world| world.current);
        let claim = Claim::Lease(Arc::clone(lease.core()));
        invariants::begin(key, name, Holder::new(self.client, task, token, claim, access));
        settings::begin(name, lease, options, asked);
        let first = lease.core().first_due();
        // A lock that was handed over is due when it was due before.
        with(|world| {
            let due = world.clients[self.client].due.entry(token.to_owned()).or_insert(first);
            if *due == Tick::NEVER {
                *due = first;
            }
        });
    }

    /// Works on at times until the lease has run out, for it is not renewed, or as its settings say.
    fn work_to_the_end(&self, lease: &Lease, plan: &Plan, renews: bool) {
        if !renews && chance(600) {
            self.work(lease, plan.pace * 2, false);
        } else if let Some(rest) = settings::rest(lease)
            && rest < plan.pace * 8
            && chance(400)
        {
            self.work(lease, rest, renews);
        }
    }

    fn extend(&self, lease: &Lease, long: Duration) {
        in_round(self.client, || {
            settings::extend(lease, long);
            drop(lease.extend(long));
            settings::extend(lease, long);
        });
    }

    /// Works for so long, while the lease is renewed when that is due.
    fn work(&self, lease: &Lease, long: Duration, renews: bool) {
        let end = self.now().after(long);
        let token = lease.id().as_str();
        loop {
            settings::observe(lease);
            let now = self.now();
            let due = with(|world| world.clients[self.client].due.get(token).copied()).filter(|_| renews);
            let due = due.unwrap_or(Tick::NEVER);
            if now >= end || self.is_dead() {
                return;
            }
            if now < due {
                sleep(self.client, end.min(due).since(now));
                continue;
            }
            with(|world| world.counts.renewals += 1);
            let next = match in_round(self.client, || lease.core().tick()) {
                Next::At(at) => at,
                Next::Done => Tick::NEVER,
            };
            with(|world| world.clients[self.client].due.insert(token.to_owned(), next));
        }
    }

    fn close(&self) {
        while with(|world| world.clients[self.client].in_rounds > 0 || world.clients[self.client].is_closing) {
            sleep(self.client, Duration::from_millis(1));
        }
        with(|world| {
            let client = self.client;
            world.clients[client].is_closing = true;
            world.clients[client].is_closed = true;
            world.counts.closes += 1;
            // Its waits are over, though its threads do not know yet.
            world.end_arrivals(|world, task| world.tasks[task].client == client);
            world.log(|_| format!("client {client} closes"));
        });
        _ = self.inner.close();
        with(|world| world.clients[self.client].is_closing = false);
    }
}

// --- programs in other languages --------------------------------------------------------------------------------------

/// A client as the Redis documentation has it: it polls, and knows nothing of grants.
pub(super) fn live_as_foreigner(client: usize, quorum: &Quorum) {
    let plan = with(|world| world.plan.clone());
    let now = || with(|world| world.tick(client));
    let is_dead = || with(|world| world.clients[client].is_dead);
    let mut got = 0;
    for attempt in 0..plan.turns * 6 {
        sleep(client, plan.pace.mul_f64(fastrand::f64() / 3.0));
        let key = fastrand::usize(0..plan.names.len());
        let token = format!("foreign-{client}-{attempt}");
        let keys = [plan.names[key]];
        let (token_arg, ms) = (Arg::Text(&token), Arg::Number(nanos(plan.lease) / 1_000_000));
        let call = |script, args: &[Arg<'_>]| script::Call::new(script, Purpose::Other, None, plan.lease, &keys, args);
        let by = || now().after(plan.limits.node_timeout);
        let started = now();
        let set = TypedCall::<Acquired>::from(call(&FOREIGN_SET, &[token_arg, ms]));
        let mut ballot = quorum.round(&set, Lane::Ordinary, by(), &|_| true);
        quorum.disqualify_restarted(&mut ballot.votes);
        let until = started.after(plan.lease).before(drift(plan.lease));
        if is_dead() {
            return;
        }
        if ballot.tally().won() && now() < until {
            let task = with(|world| world.current);
            invariants::begin(
                key,
                plan.names[key],
                Holder::new(client, task, &token, Claim::Until(until), Access::Alone),
            );
            with(|world| world.counts.foreign += 1);
            sleep(client, plan.pace.mul_f64(fastrand::f64().powi(3)));
            if now() < until && !is_dead() {
                invariants::act(key);
            }
            invariants::end(key, Duration::ZERO);
            got += 1;
        }
        let delete = TypedCall::<Released>::from(call(&FOREIGN_DELETE, &[token_arg]));
        quorum.round(&delete, Lane::Reserved, by(), &|_| true);
        if is_dead() || got >= plan.turns {
            return;
        }
    }
}
