//! The work of the clients: their threads acquire, renew and release locks, or fail to do so.

use std::sync::Arc;
use std::time::Duration;

use super::clocks::VirtualClock;
use super::kinds::{Access, DrawnKind};
use super::known::{Claim, Holder};
use super::plan::{Plan, Time, chance, nanos};
use super::scripts::{FOREIGN_DELETE, FOREIGN_SET};
use super::thread::Thread;
use super::wire::SimulatedServer;
use super::world::{Event, sleep, with};
use super::{invariants, jobs, latches, leaders, letters, queues, settings, several};
use crate::acquire::{MaxWait, acquire, join};
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::error::Error;
use crate::key::Key;
use crate::lease::{Lease, LeaseState};
use crate::node::{Background, Dial, Nodes};
use crate::options::{ClientOptions, LockOptions, Mode, drift};
use crate::protocol::reply::{Acquired, Released};
use crate::protocol::script::{self, Arg};
use crate::protocol::{LeaseCalls, Request, TypedCall};
use crate::quorum::Quorum;

/// The shortest time between two checks of a holder.
const LOOK: Duration = Duration::from_millis(1);

/// The time within which a wait notices that it was cancelled.
const SEEN: Duration = Duration::from_millis(10);

pub(super) fn quorum(client: usize, nodes: usize, settings: ClientOptions) -> Quorum {
    let server = |node| Arc::new(SimulatedServer::new(client, node)) as Arc<dyn Dial>;
    let background = Background::given_to(Box::new(move |delay, job| {
        with(|world| {
            let at = world.true_time(client, delay);
            world.plan_at(at, Event::Job { client, job });
        });
    }));
    let clock = VirtualClock::shared(client);
    let nodes = Nodes::of((0..nodes).map(server).collect(), &settings, &clock, Some(background));
    Quorum::new(nodes, clock, settings)
}

impl Thread {
    /// Sleeps for a random time, up to about this one.
    fn rest(&self, most: Duration) {
        sleep(self.client, most.mul_f64(fastrand::f64().powi(2)));
    }

    pub(super) fn live(&self) {
        let plan = with(|world| world.plan.clone());
        for _ in 0..plan.turns {
            self.rest(plan.pace / 2);
            if !self.turn(&plan) || self.is_dead() {
                return;
            }
        }
        if chance(50) {
            self.close();
        }
    }

    /// Makes one turn of the thread. Returns false if the client is closed.
    fn turn(&self, plan: &Plan) -> bool {
        let key = fastrand::usize(0..plan.names.len());
        let several = if plan.kinds[key] == DrawnKind::Mutex && chance(300) { several::draw(plan) } else { None };
        match (plan.kinds[key], several) {
            (DrawnKind::Latch { count }, _) => latches::visit(self, key, count, plan),
            (DrawnKind::Queue, _) => queues::visit(self, key, plan),
            (DrawnKind::Mutex, Some(keys)) => several::visit(self, &keys, plan),
            // Like a latch, the mark of a job or a leader is not promised to survive a failover.
            (DrawnKind::Mutex, None) if !plan.has_replica && chance(plan.jobs) => {
                if chance(300) {
                    leaders::visit(self, key, plan)
                } else {
                    jobs::visit(self, key, plan)
                }
            }
            _ => self.take(key, plan),
        }
    }

    fn take(&self, key: usize, plan: &Plan) -> bool {
        let mut options = plan.draw_options();
        let cancelled = self.draw_cancel(&mut options, plan);
        let full = Key::new("", plan.names[key]).unwrap();
        let (protocol, access) = plan.kinds[key].draw_side(full.clone(), plan.nodes, plan.settings.node_timeout);
        let request = Request { key: full, protocol, options: options.into() };
        if plan.kinds[key] == DrawnKind::Mutex
            && let Some(letter) = letters::find(key).filter(|_| chance(500))
        {
            return match letters::take(self, letter, &request) {
                Ok(Some((lease, asked))) => {
                    self.hold(key, lease, plan, (&request.options, Access::Alone), asked);
                    true
                }
                Ok(None) => true,
                Err(error) => self.note_error(&error),
            };
        }
        let time = plan.pace.mul_f64(fastrand::f64() * 3.0);
        let wait = match fastrand::u32(0..10) {
            0..2 => MaxWait::No,
            2..6 => MaxWait::Until(self.now().after(time)),
            _ => MaxWait::Forever,
        };
        with(|world| {
            let client = self.client;
            world.log(|_| format!("client {client} wants key {key}, {access:?}, {wait:?}, {:?}", request.options));
        });
        let asked = invariants::wants(key, &request.options);
        let began = self.now();
        let joined = join(&self.inner, request.key.as_str(), request.protocol.kind(), &request.options);
        let outcome = joined.map_or_else(|| acquire(&self.inner, &request, wait), Ok);
        invariants::has_waited(key);
        if self.is_dead() {
            return true;
        }
        self.note_time(wait, cancelled, began, request.protocol.kind().mode == Mode::Joint, plan);
        match outcome {
            Ok(lease) => {
                self.hold(key, lease, plan, (&request.options, access), asked);
                true
            }
            Err(error) => self.note_error(&error),
        }
    }

    /// With some probability, plans that the client cancels the wait. Returns the time by which the wait must have
    /// noticed that, by the client's clock.
    fn draw_cancel(&self, options: &mut LockOptions, plan: &Plan) -> Option<Tick> {
        if !chance(80) {
            return None;
        }
        let after = plan.pace.mul_f64(fastrand::f64().powi(2) * 2.0);
        options.cancel = Cancelling::by(&self.cancel_after(after));
        // The cancellation starts as a new thread of the client.
        Some(self.now().after(after + SEEN))
    }

    /// Checks that a wait ends at its deadline or when it is cancelled. It may end one node timeout later if requests
    /// are under way.
    fn note_time(&self, wait: MaxWait, cancelled: Option<Tick>, began: Tick, may_join: bool, plan: &Plan) {
        let until = match wait {
            MaxWait::No => began,
            MaxWait::Until(until) => until.max(began),
            MaxWait::Forever => Tick::NEVER,
        };
        let until = cancelled.map_or(until, |cancelled| until.min(cancelled.max(began)));
        if until == Tick::NEVER {
            return;
        }
        let late = self.now().since(until);
        with(|world| {
            let was_paused = world.clients[self.client].paused_until > 0;
            // The rollback of a late attempt takes another quarter of a timeout. Both rounds read the replies that have
            // arrived, which takes one simulated millisecond for each of up to five nodes. A thread that joins a shared
            // lease may have asked the servers for one timeout before. A cancelled wait leaves the queues in a round of
            // its own.
            let rounds = u32::from(may_join) + u32::from(cancelled.is_some());
            let looks = plan.settings.node_timeout * rounds;
            let most = looks + plan.settings.node_timeout * 5 / 4 + Duration::from_millis(11);
            if !was_paused && late > most {
                world.violate(format!("client {} waited {late:?} longer than it wanted", self.client));
            }
        });
    }

    fn hold(&self, key: usize, lease: Lease, plan: &Plan, (options, mut access): (&LockOptions, Access), asked: Time) {
        self.begin(key, &lease, plan, (options, access), asked);
        let renews = !chance(plan.careless);
        if !renews {
            lease.inner().renew_no_more();
        }
        self.work_to_the_end(&lease, plan, renews);
        for _ in 0..fastrand::u32(0..5) {
            match fastrand::u32(0..10) {
                0..5 => self.work(&lease, plan.pace.mul_f64(fastrand::f64().powi(4) * 1.5)),
                5..8 => self.work(&lease, Duration::from_micros(fastrand::u64(0..3000))),
                // Other threads may join a shared lease, and they did not ask for the extension.
                8 if chance(300) && access != Access::Reads => extend(&lease, plan.lease * 2),
                9 if chance(300) && access == Access::Alone && plan.kinds[key] == DrawnKind::ReadWrite => {
                    self.step_down(key, &lease);
                    access = Access::Reads;
                }
                _ => {}
            }
            if self.is_dead() {
                break;
            }
            if lease.check().is_err() {
                self.ran_out(key, &lease);
                break;
            }
            invariants::act(key);
            if chance(plan.fences)
                && let Ok(fence) = lease.fencing_token()
                && !self.is_dead()
            {
                invariants::fence(key, fence);
            }
        }
        if lease.check().is_err() && !self.is_dead() {
            self.ran_out(key, &lease);
        }
        let may_be_left = plan.kinds[key] == DrawnKind::Mutex && plan.nodes == 1 && options.min_hold.is_zero();
        let is_left = may_be_left && chance(150);
        if is_left && lease.check().is_ok() && letters::leave(self, key, &lease) {
            return;
        }
        invariants::end(key, options.min_hold);
        let outcome = if chance(500) {
            lease.release()
        } else {
            drop(lease);
            Ok(())
        };
        with(|world| {
            let client = self.client;
            world.log(|_| format!("client {client} has let go of key {key}: {outcome:?}"));
        });
    }

    /// Records that the hold of this thread has ended. Checks that no other thread has released a lease that both
    /// share.
    fn ran_out(&self, key: usize, lease: &Lease) {
        invariants::ran_out(key);
        if lease.inner().state() == LeaseState::Released {
            let what = format!("key {key} is released while a thread has it: one of client {}", self.client);
            with(|world| world.violate(what));
        }
    }

    /// Turns a writer into a reader.
    fn step_down(&self, key: usize, lease: &Lease) {
        // The node may admit readers as soon as it has the call. The lease lasts as if it began now.
        invariants::steps_down(key);
        settings::extend(lease, lease.inner().options.lease);
        let outcome = lease.downgrade();
        settings::extend(lease, lease.inner().options.lease);
        match outcome {
            _ if self.is_dead() => {}
            Ok(()) => {}
            Err(Error::Lost { .. }) => invariants::ran_out(key),
            Err(error) => with(|world| world.violate(format!("a downgrade fails: {error}"))),
        }
    }

    /// Records that the thread holds the lock from now on.
    fn begin(&self, key: usize, lease: &Lease, plan: &Plan, (options, access): (&LockOptions, Access), asked: Time) {
        let (name, token) = (plan.names[key], lease.id().as_str());
        let task = with(|world| world.current);
        let claim = Claim::Lease(Arc::clone(lease.inner()));
        invariants::begin(key, name, Holder::new(self.client, task, token, claim, access));
        settings::begin(name, lease, options, Some(asked));
    }

    /// Sometimes works until the lease has ended, if it is not renewed or its settings limit it.
    fn work_to_the_end(&self, lease: &Lease, plan: &Plan, renews: bool) {
        if !renews && chance(600) {
            self.work(lease, plan.pace * 2);
        } else if let Some(rest) = settings::rest(lease)
            && rest < plan.pace * 8
            && chance(400)
        {
            self.work(lease, rest);
        }
    }

    /// Works for this time, and checks the lease at intervals.
    fn work(&self, lease: &Lease, long: Duration) {
        let end = self.now().after(long);
        loop {
            settings::observe(lease);
            let left = end.since(self.now());
            if left.is_zero() || self.is_dead() {
                return;
            }
            sleep(self.client, left.min((long / 3).max(LOOK)));
        }
    }

    fn close(&self) {
        with(|world| {
            let client = self.client;
            world.clients[client].is_closed = true;
            world.counts.closes += 1;
            // The waits of the client have ended, although its threads do not know that yet.
            world.end_arrivals(|world, task| world.tasks[task].client == client);
            world.log(|_| format!("client {client} closes"));
        });
        _ = self.inner.end(Duration::ZERO);
    }
}

// --- programs in other languages -------------------------------------------------------------------------------------

/// A client as described in the Redis documentation: it polls, and takes no part in grants.
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
        let call = |script, args: &[Arg<'_>]| script::Call::new(script, &keys, args);
        let by = || now().after(plan.settings.node_timeout);
        let started = now();
        let set = TypedCall::<Acquired>::from(call(&FOREIGN_SET, &[token_arg, ms]));
        let mut ballot = quorum.round(&set, by());
        quorum.disqualify_restarted(&mut ballot.votes);
        let until = started.after(plan.lease).before(drift(plan.lease));
        if is_dead() {
            return;
        }
        if ballot.won() && now() < until {
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
        quorum.round(&delete, by());
        if is_dead() || got >= plan.turns {
            return;
        }
    }
}

fn extend(lease: &Lease, long: Duration) {
    settings::extend(lease, long);
    drop(lease.extend(long));
    settings::extend(lease, long);
}
