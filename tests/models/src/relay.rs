//! A model of the queue and the renewal threads together: a lock that passes from thread to thread, with its renewal
//! thread. A guard here does what the library's `Lease::finish_within` and `LeaseInner::pass_on` do.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::clock::Tick;
use crate::counted_lease::inner::LeaseInner;
use crate::counted_lease::renewal::{RenewalThread, Renewer};
use crate::handover::thread_queue::{QueueHead, QueueOutcome};
use crate::options::{Kind, LockOptions, Mode};
use crate::queue::{Rig, unexpected};
use crate::world::{self, ModelClock};

const KIND: Kind = Kind { name: "mutex", mode: Mode::Exclusive };

/// A guard. It is handed over to the next thread in the queue.
#[derive(Debug)]
struct Lease {
    head: QueueHead<Lease>,
    inner: Arc<LeaseInner>,
    worker: Arc<RenewalThread>,
    renewer: Arc<Renewer>,
}

impl Lease {
    /// Holds the lock. In some runs it waits until the lease has been renewed.
    fn hold(&self, rig: &Rig<Lease>) {
        rig.hold();
        if thread_rng().r#gen() {
            world::pass_until(self.inner.due());
            self.inner.until_rounds(1);
        }
    }

    fn finish(self) {
        let Some((inner, thread)) = self.inner.pass_on(|| self.head.successor(KIND, &LockOptions::default())) else {
            self.renewer.retire(&self.worker, world::now());
            self.inner.retired();
            self.inner.end();
            return;
        };
        self.renewer.transfer(&self.worker, Arc::clone(&inner));
        self.inner.retired();
        thread.hand_over(Lease { inner, ..self });
    }
}

fn take_part(rig: &Rig<Lease>, renewer: &Arc<Renewer>) {
    let lease = match rig.enter(Tick::NEVER) {
        QueueOutcome::Head(head) => {
            let inner = LeaseInner::every(Duration::from_millis(20));
            let worker = renewer.assign(&inner).unwrap();
            Lease { head, inner, worker, renewer: Arc::clone(renewer) }
        }
        QueueOutcome::Handed(lease) => lease,
        other => unexpected(&other),
    };
    lease.hold(rig);
    lease.finish();
}

/// Each thread gets the lock from the queue or from any other thread. The lease is renewed when that is due, on any
/// renewal thread. Then the renewal threads end.
pub fn from_hand_to_hand() {
    let (rig, renewer) = (Rig::new(), Renewer::new(Arc::new(ModelClock)));
    let threads = [(); 3].map(|()| {
        let (rig, renewer) = (rig.clone(), Arc::clone(&renewer));
        thread::spawn(move || take_part(&rig, &renewer))
    });
    for thread in threads {
        thread.join().unwrap();
    }
    rig.assert_empty();
    renewer.close();
    world::until_all_threads_ended();
}

/// Threads do the same as in `from_hand_to_hand` while time passes. Renewals can come at any time, even between the end
/// of one lease and the start of the next.
pub fn from_hand_to_hand_in_time() {
    let time = thread::spawn(|| {
        for _ in 0..3 {
            world::pass(Duration::from_millis(10));
        }
    });
    from_hand_to_hand();
    time.join().unwrap();
}
