//! The threads of a client. Ordinary threads do one job after the other. Each thread of a crowd does one job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redlock_sync::Redlock;

use super::Order;
use super::job::Job;
use super::log::Log;
use super::store::Store;
use super::styles::Play;
use crate::event::Session;
use crate::names::{
    self, BUSY_SLOWS, CROWD, JOB, LATCH, LEADER, PERMIT, PERMITS, READ, RW_LOCKS, SEVERAL, SLOW, SLOWS, WRITE,
};
use crate::timing::CROWD_WAIT;

/// The number of the first thread of a crowd. The ordinary threads and the thread for the slow locks come before it.
const FIRST_OF_CROWD: usize = 17;

/// A number that is larger than the number of terms of one candidate.
const TERMS: u32 = 1000;

/// The number of threads of a crowd that use common locks.
const TOGETHER: usize = 48;

/// The clients of the library in one process. They use the same locks.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) both: [Redlock; 2],
    /// The client for the slow locks.
    pub(super) slow: Redlock,
}

/// One thread of a client.
pub(super) struct Worker {
    clients: Clients,
    log: Arc<Log>,
    store: Store,
    random: fastrand::Rng,
    session: Session,
    keys: usize,
    nodes: usize,
}

impl Worker {
    pub(super) fn new(order: &Order, thread: usize, clients: Clients, log: &Arc<Log>) -> Self {
        let thread = u16::try_from(thread).expect("few threads");
        let session = Session { client: order.client, life: order.life, thread, number: 0 };
        let seed = order.seed ^ u64::from(order.client) << 40 ^ u64::from(order.life) << 48 ^ u64::from(thread) << 56;
        Worker {
            clients,
            log: Arc::clone(log),
            store: Store::new(order.store),
            random: fastrand::Rng::with_seed(seed),
            session,
            keys: order.keys,
            nodes: order.urls.len(),
        }
    }

    pub(super) fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.session.number += 1;
            let key = self.random.usize(..self.keys);
            self.play(key).any();
            let pause = self.random.u64(..15);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    /// The loop of the thread for the slow locks. The thread holds a slow lock most of the time. So a partition finds a
    /// lock whose release cannot reach the servers.
    pub(super) fn run_slowly(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.session.number += 1;
            // A lock with few threads shows the effects of a lost release. A busy lock is granted from one holder to
            // the next.
            let most = if self.random.u8(..4) > 0 { SLOWS } else { BUSY_SLOWS };
            let nth = self.random.usize(..most);
            self.play(SLOW + nth).slow();
            let pause = self.random.u64(..60);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    /// The loop of a thread for the kinds of lock that are no mutex.
    pub(super) fn run_with_any_kind(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.session.number += 1;
            let random = &mut self.random;
            let key = match random.u8(..100) {
                0..30 => READ + random.usize(..RW_LOCKS),
                30..45 => WRITE + random.usize(..RW_LOCKS),
                45..68 => PERMIT + random.usize(..PERMITS.len()),
                68..86 => SEVERAL,
                _ => LATCH,
            };
            self.play(key).of_its_kind();
            let pause = self.random.u64(..15);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    /// The loop of the thread for jobs that are run once.
    pub(super) fn run_jobs(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.session.number += 1;
            self.play(JOB).once();
            let pause = self.random.u64(20..100);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    /// The loop of the thread with a candidate for leader. Each term is a session.
    pub(super) fn run_for_leader(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.session.number += TERMS;
            self.play(LEADER).lead(is_over);
        }
    }

    fn play(&mut self, key: usize) -> Play<'_> {
        let nth = self.random.usize(..2);
        let locks = if names::is_slow(key) { &self.clients.slow } else { &self.clients.both[nth] };
        let job = Job { log: &self.log, store: &mut self.store, session: self.session, key };
        Play { job, random: &mut self.random, locks, nodes: self.nodes }
    }

    /// Starts a crowd of `size` threads. Most of them acquire the same lock. Each thread beyond [`TOGETHER`] acquires a
    /// lock of its own. The crowds of a client are numbered.
    pub(super) fn crowd(
        order: &Order,
        clients: &Clients,
        log: &Arc<Log>,
        number: u32,
        size: usize,
    ) -> Vec<JoinHandle<()>> {
        let mut random = fastrand::Rng::with_seed(order.seed ^ u64::from(order.client) << 40 ^ u64::from(number));
        let wanted = random.usize(..order.keys);
        let deadline = Duration::from_millis(random.u64(300..CROWD_WAIT));
        let mut start = |nth| {
            let mut worker = Worker::new(order, FIRST_OF_CROWD + nth, clients.clone(), log);
            worker.session.number = number;
            worker.random.seed(random.u64(..));
            let key = match worker.random.u8(..4) {
                _ if nth >= TOGETHER => CROWD + nth - TOGETHER,
                0 => worker.random.usize(..order.keys),
                _ => wanted,
            };
            thread::spawn(move || worker.play(key).in_a_crowd(deadline))
        };
        (0..size).map(&mut start).collect()
    }
}
