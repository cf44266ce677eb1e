//! Mutexes and condition variables of the library for threads that are coroutines. A wait yields to the other
//! coroutines.

use std::time::Duration;

use parking_lot::MutexGuard;

use super::world::{sleep, try_with};

/// The first and the longest pause of a coroutine that finds a mutex locked. The holder of such a mutex is in a round.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// A condition variable whose notifications also wake waiting coroutines.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn notify_one(&self) -> bool {
        self.notify(1);
        self.0.notify_one()
    }

    pub(crate) fn notify_all(&self) -> usize {
        self.notify(usize::MAX);
        self.0.notify_all()
    }

    fn notify(&self, most: usize) {
        try_with(|world| world.notify(std::ptr::from_ref(self).addr(), most));
    }
}

impl std::ops::Deref for Condvar {
    type Target = parking_lot::Condvar;

    fn deref(&self) -> &parking_lot::Condvar {
        &self.0
    }
}

/// A mutex that coroutines may hold while they wait. Threads outside of a schedule block as usual.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.0.try_lock() {
                Some(guard) => return guard,
                None if give_way(pause).is_some() => pause = LONGEST_PAUSE.min(pause * 2),
                None => return self.0.lock(),
            }
        }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    pub(crate) fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        let (mut pause, mut left) = (FIRST_PAUSE, time);
        loop {
            match self.0.try_lock() {
                Some(guard) => return Some(guard),
                None if left.is_zero() => return None,
                None if give_way(pause.min(left)).is_none() => return self.0.try_lock_for(time),
                None => {
                    left = left.saturating_sub(pause);
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
            }
        }
    }
}

/// Yields for this time. Returns `None` outside of a schedule.
fn give_way(pause: Duration) -> Option<()> {
    let client = try_with(|world| world.client)?;
    sleep(client, pause);
    Some(())
}
