//! The state of one run of a model: a clock that only the model advances, the threads that sleep until some time, and
//! the threads that the library has started.
//!
//! All threads of a run are on one thread of the system, so a thread-local variable can hold the state.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

use crate::clock::{Clock, Tick};
use crate::sync::{AtomicBool, Condvar, Mutex};

/// One wait of one thread.
pub(crate) struct Sleeper {
    until: Tick,
    is_awake: std::sync::atomic::AtomicBool,
    door: BatchSemaphore,
}

impl Sleeper {
    pub(crate) fn sleep(self: &Arc<Self>) {
        self.door.acquire_blocking(1).unwrap();
        WORLD.with_borrow_mut(|world| world.sleepers.retain(|other| !Arc::ptr_eq(other, self)));
    }

    /// Marks the thread as awake. Returns true if it was asleep until this call. Then [`Sleeper::go_on`] must follow.
    pub(crate) fn wakes_up(&self) -> bool {
        !self.is_awake.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn go_on(&self) {
        self.door.release(1);
    }
}

/// The threads that the library has started and that have not ended.
pub(crate) struct Alive {
    pub(crate) count: Mutex<usize>,
    pub(crate) changed: Condvar,
    /// An atomic that is read where the scheduler can switch threads.
    point: AtomicBool,
}

struct World {
    now: Tick,
    sleepers: Vec<Arc<Sleeper>>,
    alive: Option<Arc<Alive>>,
}

thread_local! {
    static WORLD: RefCell<World> = const { RefCell::new(World { now: Tick::ZERO, sleepers: Vec::new(), alive: None }) };
}

/// Resets the state for one run of a model.
pub(crate) fn begin() {
    let alive = Arc::new(Alive { count: Mutex::new(0), changed: Condvar::new(), point: AtomicBool::new(false) });
    // The clock does not start at zero, because zero has a special meaning in some places.
    let now = Tick::ZERO.after(Duration::from_secs(100));
    drop(WORLD.replace(World { now, sleepers: Vec::new(), alive: Some(alive) }));
}

pub(crate) fn now() -> Tick {
    WORLD.with_borrow(|world| world.now)
}

pub(crate) fn alive() -> Arc<Alive> {
    WORLD.with_borrow(|world| world.alive.clone()).unwrap()
}

pub(crate) fn fall_asleep(time: Duration) -> Arc<Sleeper> {
    WORLD.with_borrow_mut(|world| {
        let until = world.now.after(time);
        let door = BatchSemaphore::new(0, Fairness::StrictlyFair);
        let sleeper = Arc::new(Sleeper { until, is_awake: false.into(), door });
        world.sleepers.push(Arc::clone(&sleeper));
        sleeper
    })
}

/// Advances the clock to this time, and wakes the threads whose sleep ends by then. Another thread can run before that.
pub(crate) fn pass_until(moment: Tick) {
    alive().point.load(Ordering::SeqCst);
    let due = WORLD.with_borrow_mut(|world| {
        let now = world.now.max(moment);
        world.now = now;
        let is_due = |sleeper: &&Arc<Sleeper>| sleeper.until <= now && sleeper.wakes_up();
        world.sleepers.iter().filter(is_due).cloned().collect::<Vec<_>>()
    });
    for sleeper in due {
        sleeper.go_on();
    }
}

pub(crate) fn pass(time: Duration) {
    pass_until(now().after(time));
}

/// Waits until all threads that the library has started have ended. Lets no time pass.
pub(crate) fn until_all_threads_ended() {
    let alive = alive();
    let mut count = alive.count.lock();
    while *count > 0 {
        alive.changed.wait(&mut count);
    }
}

/// The clock of the model, for the library.
#[derive(Debug)]
pub(crate) struct ModelClock;

impl Clock for ModelClock {
    fn now(&self) -> Tick {
        now()
    }

    fn sleep(&self, time: Duration) {
        pass(time);
    }
}
