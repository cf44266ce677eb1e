//! What one run of a model has: a clock that moves when the model says so, the threads that sleep until some moment, and the threads that the library
//! started.
//!
//! All threads of a run are on one thread of the system, so it can be kept there.

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

    /// True if it was asleep until this call. [`Sleeper::go_on`] must follow.
    pub(crate) fn wakes_up(&self) -> bool {
        !self.is_awake.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn go_on(&self) {
        self.door.release(1);
    }
}

/// The threads that the library started and that have not ended.
pub(crate) struct Alive {
    pub(crate) count: Mutex<usize>,
    pub(crate) changed: Condvar,
    /// Touched where another thread may run.
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

/// A new world, for one run of a model.
pub(crate) fn begin() {
    let alive = Arc::new(Alive { count: Mutex::new(0), changed: Condvar::new(), point: AtomicBool::new(false) });
    // Some time after the start: zero has a meaning of its own in places.
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

/// Lets the time pass until that moment; those whose sleep ends by then wake. Another thread may run before.
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

/// Waits, without letting any time pass, until every thread that the library started has ended.
pub(crate) fn until_all_threads_ended() {
    let alive = alive();
    let mut count = alive.count.lock();
    while *count > 0 {
        alive.changed.wait(&mut count);
    }
}

/// The model's time, for the library.
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
