//! The renewal threads. Each guard has one while it lives; then another guard may get it.
//!
//! The usual path (lock, unlock, no renewal due) must not wake a thread. A thread whose guard is gone sleeps on until
//! the moment that it had planned. A new guard that takes it over notifies it only if that moment is later than its own
//! first renewal. One cell has both what the thread plans and what it is given, so no wake-up is lost. A lost wake-up
//! would be a false loss of the lock.
//!
//! Threads sleep in slices, because the clock of a sleeping thread stops while the machine is suspended. So some thread
//! wakes each second. It asks the servers whether they still have the locks of this client, some hundred in a call. The
//! thread of a lease that they may have lost is woken, and asks for that lease.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::inner::{LeaseInner, suspects};
use crate::clock::{Clock, Tick};
use crate::parker::Parker;
use crate::sync::Mutex;

/// Longest sleep until a thread reads the lease's own clock again, and checks whether the lease was lost, or whether it
/// has to be renewed earlier since a Sentinel group has a new master. Also the time from one look for lost locks to the
/// next.
const SLICE: Duration = Duration::from_secs(1);
/// The pause after a look, as a multiple of the time that the look took, if that is longer than a second.
const LOOK_SHARE: u32 = 4;
/// A thread whose renewal is due sooner than this makes no look: far from the servers, the look would find nothing.
const SHORTEST_LOOK: Duration = Duration::from_millis(500);
/// A thread without a guard ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// The renewal threads of one client.
#[derive(Debug)]
pub(crate) struct Renewer {
    clock: Arc<dyn Clock>,
    /// The threads without a lease. `None` once the client is closed.
    idle: Mutex<Option<Vec<Arc<RenewalThread>>>>,
    /// The live leases, each with its thread.
    leases: Mutex<Vec<(Weak<LeaseInner>, Arc<RenewalThread>)>>,
    /// From then on, the first thread that wakes looks for lost locks.
    next_look: Mutex<Tick>,
}

/// One renewal thread, as other threads see it.
#[derive(Debug)]
pub(crate) struct RenewalThread {
    slot: Arc<Parker<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    assignment: Option<Assignment>,
    /// When the thread checks the slot next; zero while it does not sleep.
    wakes_at: Tick,
    /// A round or a look is under way. The thread itself rejoins the idle threads after it.
    is_running: bool,
    /// When the last assignment ended.
    idle_since: Tick,
    /// How long to sleep without an assignment. It equals the last interval, so that the next guard of that kind needs
    /// no wake-up.
    nap: Duration,
    is_closed: bool,
}

#[derive(Debug)]
struct Assignment {
    inner: Arc<LeaseInner>,
    due: Tick,
    /// The servers may have lost the lock.
    is_suspect: bool,
}

/// When the look after one that took this time is due: a second after its begin, or later over a slow link.
fn next_look(began: Tick, ended: Tick) -> Tick {
    began.after(SLICE).max(ended.after(ended.since(began).saturating_mul(LOOK_SHARE)))
}

/// What a thread does next.
enum Work {
    Renew(Arc<LeaseInner>),
    /// Asks whether the servers have lost this lock, until then at most.
    Check(Arc<LeaseInner>, Tick),
    /// Looks for lost locks of all leases, until then at most.
    Look(Tick),
}

impl Renewer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Renewer> {
        let (idle, leases, next_look) = (Mutex::new(Some(Vec::new())), Mutex::default(), Mutex::default());
        Arc::new(Renewer { clock, idle, leases, next_look })
    }

    /// Gives a lease its thread.
    ///
    /// # Errors
    /// No thread is idle, and the system starts no new one.
    pub(crate) fn assign(self: &Arc<Self>, inner: &Arc<LeaseInner>) -> io::Result<Arc<RenewalThread>> {
        let thread = self.thread_for(Arc::clone(inner))?;
        self.register(inner, &thread);
        Ok(thread)
    }

    fn thread_for(self: &Arc<Self>, inner: Arc<LeaseInner>) -> io::Result<Arc<RenewalThread>> {
        let assignment = Assignment { due: inner.first_due(), inner, is_suspect: false };
        let idle = self.idle.lock().as_mut().and_then(Vec::pop);
        if let Some(thread) = idle {
            thread.give(assignment);
            return Ok(thread);
        }
        let slot = Slot { assignment: Some(assignment), nap: SLICE, ..Slot::default() };
        let thread = Arc::new(RenewalThread { slot: Parker::new(slot) });
        let (mine, renewer) = (Arc::clone(&thread), Arc::clone(self));
        self.clock.start("redlock-renew", Box::new(move || mine.run(&renewer)))?;
        Ok(thread)
    }

    fn register(&self, inner: &Arc<LeaseInner>, thread: &Arc<RenewalThread>) {
        let mut all = self.leases.lock();
        // Dead entries are removed when the list would have to grow. The cost per lock is constant, and the list has at
        // most twice as many entries as there are live leases.
        if all.len() == all.capacity() {
            all.retain(|(lease, _)| lease.strong_count() > 0);
            let live = all.len();
            all.reserve(live.max(16));
        }
        all.push((Arc::downgrade(inner), Arc::clone(thread)));
    }

    pub(crate) fn live(&self) -> Vec<Arc<LeaseInner>> {
        self.leases.lock().iter().filter_map(|(lease, _)| lease.upgrade()).collect()
    }

    /// Wakes the threads of the leases that the servers may have lost, so that they ask again. Over a slow link, looks
    /// are rare.
    pub(crate) fn look(&self, by: Tick) {
        let began = self.clock.now();
        let live = |(lease, thread): &(Weak<LeaseInner>, _)| Some((lease.upgrade()?, Arc::clone(thread)));
        let (leases, threads): (Vec<_>, Vec<_>) = self.leases.lock().iter().filter_map(live).unzip();
        let suspects = suspects(&leases, by);
        suspects.into_iter().filter_map(|place| threads.get(place)).for_each(|thread| thread.check(&*self.clock));
        *self.next_look.lock() = next_look(began, self.clock.now());
    }

    /// True for the first thread that asks after a second has passed. It then looks, and plans the next look. If it
    /// panics, as in the logger of a program, another thread looks after a minute.
    fn take_look(&self, now: Tick) -> bool {
        let mut next = self.next_look.lock();
        let is_due = now >= *next;
        if is_due {
            *next = now.after(60 * SLICE);
        }
        is_due
    }

    /// Replaces the lease that the thread has by its successor, which has the same keys and is due at the same time.
    pub(crate) fn transfer(&self, thread: &Arc<RenewalThread>, inner: Arc<LeaseInner>) {
        self.register(&inner, thread);
        let mut slot = thread.slot.lock();
        let Some(assignment) = &mut slot.assignment else { return };
        assignment.inner = inner;
        if assignment.due == Tick::NEVER {
            // The thread found the former lease ended and planned nothing. But the renewal is still due.
            assignment.due = Tick::ZERO;
            drop(slot);
            thread.slot.notify();
        }
    }

    /// Takes the lease away from its thread. A round under way ends by itself. The lease's own lock keeps that round
    /// apart from what follows.
    pub(crate) fn retire(&self, thread: &Arc<RenewalThread>, now: Tick) {
        let mut slot = thread.slot.lock();
        slot.assignment = None;
        slot.idle_since = now;
        let is_free = !slot.is_running;
        drop(slot);
        if is_free {
            self.put_back(thread);
        }
    }

    fn put_back(&self, thread: &Arc<RenewalThread>) {
        match &mut *self.idle.lock() {
            Some(idle) => idle.push(Arc::clone(thread)),
            None => thread.close(),
        }
    }

    /// Ends the idle threads. A thread with a guard ends after it.
    pub(crate) fn close(&self) {
        let mut idle = self.idle.lock();
        idle.take().into_iter().flatten().for_each(|thread| thread.close());
    }

    /// True if the thread was idle until now. Then it cannot be given a lease any more.
    fn forget(&self, thread: &Arc<RenewalThread>) -> bool {
        let mut idle = self.idle.lock();
        let Some(idle) = &mut *idle else { return false };
        let place = idle.iter().position(|other| Arc::ptr_eq(other, thread));
        place.map(|i| idle.swap_remove(i)).is_some()
    }
}

impl RenewalThread {
    fn give(&self, assignment: Assignment) {
        let mut slot = self.slot.lock();
        let must_wake = slot.wakes_at > assignment.due;
        slot.assignment = Some(assignment);
        drop(slot);
        if must_wake {
            self.slot.notify();
        }
    }

    /// Has the thread ask whether the servers have lost the lock of its lease.
    fn check(&self, clock: &dyn Clock) {
        if let Some(assignment) = &mut self.slot.lock().assignment {
            assignment.is_suspect = true;
        }
        self.slot.wake_idle(clock);
    }

    /// Ends the thread once it has no assignment. Lock order: the idle list, then the slot.
    fn close(&self) {
        self.slot.change(|slot| slot.is_closed = true);
    }

    fn run(self: &Arc<Self>, renewer: &Renewer) {
        while let Some(work) = self.next_work(renewer) {
            match work {
                Work::Renew(inner) => {
                    let started = renewer.clock.now();
                    let due = inner.tick();
                    self.file_next(renewer, &inner, started, due);
                }
                Work::Check(inner, by) => {
                    inner.check_on_servers(by);
                    self.rejoin(renewer);
                }
                Work::Look(by) => {
                    renewer.look(by);
                    self.rejoin(renewer);
                }
            }
        }
    }

    /// Sleeps until there is something to do. `None` when the thread must end.
    fn next_work(self: &Arc<Self>, renewer: &Renewer) -> Option<Work> {
        let mut slot = self.slot.lock();
        loop {
            let now = renewer.clock.now();
            let sleep = match &slot.assignment {
                Some(Assignment { inner, due, .. })
                    if now >= *due || inner.has_unreported_loss() || inner.has_new_master() =>
                {
                    let inner = Arc::clone(inner);
                    slot.is_running = true;
                    return Some(Work::Renew(inner));
                }
                // The next renewal is not late by this.
                Some(Assignment { inner, due, is_suspect: true }) => {
                    let work = Work::Check(Arc::clone(inner), *due);
                    slot.assignment.iter_mut().for_each(|assignment| assignment.is_suspect = false);
                    slot.is_running = true;
                    return Some(work);
                }
                // Its own renewal leaves it time enough.
                Some(Assignment { due, .. }) if due.since(now) >= SHORTEST_LOOK && renewer.take_look(now) => {
                    let work = Work::Look(*due);
                    slot.is_running = true;
                    return Some(work);
                }
                Some(assignment) => assignment.due.since(now).min(assignment.inner.longest_sleep()),
                None if slot.is_closed => return None,
                None if now.since(slot.idle_since) >= IDLE => {
                    // Lock order: the idle list, then the slot. If an assignment arrives in between, the list no longer
                    // has this thread.
                    drop(slot);
                    if renewer.forget(self) {
                        return None;
                    }
                    slot = self.slot.lock();
                    slot.idle_since = now;
                    continue;
                }
                None => slot.nap,
            };
            let until = now.after(sleep.min(SLICE));
            // Set under the lock of the slot, like the assignment: `give` and `transfer` compare the two there.
            slot.wakes_at = until;
            self.slot.idle(&*renewer.clock, &mut slot, until);
            slot.wakes_at = Tick::ZERO;
        }
    }

    /// Plans the next renewal of this lease, if the thread still has it.
    fn file_next(self: &Arc<Self>, renewer: &Renewer, inner: &Arc<LeaseInner>, started: Tick, due: Tick) {
        let mut slot = self.slot.lock();
        // This includes a lease that ended by itself: the thread stays with its guard, which will retire it.
        if let Some(assignment) = slot.assignment.as_mut().filter(|assignment| Arc::ptr_eq(&assignment.inner, inner)) {
            assignment.due = due;
            slot.nap = due.since(started).clamp(Duration::from_millis(5), SLICE);
        }
        drop(slot);
        self.rejoin(renewer);
    }

    /// The work of the thread is over. If its lease has ended meanwhile, it is idle.
    fn rejoin(self: &Arc<Self>, renewer: &Renewer) {
        let mut slot = self.slot.lock();
        slot.is_running = false;
        let is_idle = slot.assignment.is_none();
        drop(slot);
        if is_idle {
            renewer.put_back(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::key::Key;
    use crate::lease::LeaseStart;
    use crate::node::{NodeUrl, Nodes};
    use crate::options::ClientOptions;
    use crate::protocol::reply::{Acquired, Vote};
    use crate::protocol::{Exclusive, Protocol};
    use crate::quorum::{Ballot, Quorum};
    use crate::token::TokenSource;

    /// A held lease of a client that never connects.
    fn inner() -> Arc<LeaseInner> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let settings = ClientOptions { connections: 1, ..ClientOptions::default() };
        let urls = [NodeUrl::parse("redis://127.0.0.1:1/").unwrap()];
        let quorum = Arc::new(Quorum::new(Nodes::new(&urls, &settings, &clock).unwrap(), Arc::clone(&clock), settings));
        let key = Key::new("", "key").unwrap();
        let start = LeaseStart {
            quorum,
            protocol: Arc::new(Protocol::Mutex(Exclusive { key: key.clone() })),
            key,
            id: TokenSource::new().fresh(None).unwrap(),
            options: Arc::default(),
            process: crate::fork::ForkGuard::new(),
            wait: None,
        };
        let ballot = Ballot { votes: [Vote::Yes(Acquired::default())].into(), started: clock.now(), duplicate: false };
        Arc::new(LeaseInner::won(start, &ballot))
    }

    fn thread(slot: Slot) -> Arc<RenewalThread> {
        Arc::new(RenewalThread { slot: Parker::new(slot) })
    }

    /// Otherwise, the looks of a client with many locks would use up a slow link, and its renewals would come late.
    #[test]
    fn looks_take_a_fifth_of_the_time_at_most() {
        let at = |ms| Tick::ZERO.after(Duration::from_millis(ms));
        assert_eq!(next_look(at(0), at(10)), at(1000));
        assert_eq!(next_look(at(0), at(2000)), at(10_000));
    }

    #[test]
    fn the_living_are_known_and_the_dead_forgotten() {
        let (renewer, thread) = (Renewer::new(Arc::new(SystemClock)), thread(Slot::default()));
        let living: Vec<_> = (0..40).map(|_| inner()).collect();
        for alive in &living {
            renewer.register(alive, &thread);
            (0..50).for_each(|_| renewer.register(&inner(), &thread));
        }
        assert_eq!(renewer.live().len(), living.len());
        let remembered = renewer.leases.lock().len();
        assert!(remembered <= 3 * living.len(), "it remembers {remembered}");
    }

    /// The thread checked a lease that was just handed over, and planned no further renewal of it. Only after that, its
    /// successor takes its place.
    #[test]
    fn a_successor_is_renewed_though_the_former_lease_was_found_ended() {
        let renewer = Renewer::new(Arc::new(SystemClock));
        let former = inner();
        let assignment = Assignment { inner: Arc::clone(&former), due: SystemClock.now(), is_suspect: false };
        let slot = Slot { assignment: Some(assignment), is_running: true, ..Slot::default() };
        let thread = thread(slot);
        thread.file_next(&renewer, &former, SystemClock.now(), Tick::NEVER);
        assert_eq!(thread.slot.lock().assignment.as_ref().unwrap().due, Tick::NEVER);
        let successor = inner();
        renewer.transfer(&thread, Arc::clone(&successor));
        let slot = thread.slot.lock();
        let assignment = slot.assignment.as_ref().unwrap();
        assert!(
            Arc::ptr_eq(&assignment.inner, &successor) && assignment.due <= SystemClock.now(),
            "due {:?}",
            assignment.due
        );
    }
}
