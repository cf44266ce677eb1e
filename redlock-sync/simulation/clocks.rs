//! The clocks of the clients.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::sync::Condvar;
use super::world::{Event, sleep, sleep_on, with};
use crate::clock::{Clock, Tick, Waiting};

/// The clock of one client.
#[derive(Debug)]
pub(super) struct VirtualClock {
    pub(super) client: usize,
}

impl VirtualClock {
    pub(super) fn shared(client: usize) -> Arc<dyn Clock> {
        Arc::new(VirtualClock { client })
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Tick {
        with(|world| world.tick(self.client))
    }

    fn sleep(&self, d: Duration) {
        sleep(self.client, d);
    }

    fn wait(&self, condvar: &Arc<Condvar>, waiting: &mut dyn Waiting, until: Tick, _: bool) {
        let time = until.since(self.now());
        waiting.unlocked(&mut || sleep_on(self.client, time, Some(Arc::as_ptr(condvar).addr())));
        with(|world| {
            let task = world.current;
            world.sleepers.retain(|(_, waiter)| waiter.0 != task);
        });
    }

    fn start(&self, _: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        with(|world| world.plan_at(world.now, Event::Job { client: self.client, job }));
        Ok(())
    }
}
