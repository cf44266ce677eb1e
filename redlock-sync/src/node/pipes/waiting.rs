//! How a thread waits for the outcomes of its call: it reads, or sleeps while others read.

use std::sync::Arc;
use std::time::Duration;

use super::flight::{Trip, Wait};
use super::pipe::{MANY, Pipe};
use crate::clock::{Clock, Tick};

/// How often a thread looks after its call where no pump does.
const ALONE: Duration = Duration::from_millis(1);

/// Waits until each server that was asked has an outcome, or a connection broke; at most until then. What has come by then is read.
pub(crate) fn wait(trip: &Arc<Trip>, asked: &[(usize, Arc<Pipe>)], by: Tick, clock: &dyn Clock) -> Wait {
    loop {
        // Written to all before, and read one after the other: it takes as long as the slowest server. Among many the pump reads for all. Of several servers
        // one that is slow does not keep this thread for long: its call to another one may be in an outbox, and the pumps see to all of them.
        for (seat, pipe) in asked {
            if pipe.len() < MANY && trip.is_awaited(*seat) {
                let until = if asked.len() > 1 { by.min(clock.now().after(pipe.patience / 8)) } else { by };
                pipe.read_for(trip, *seat, until);
            }
        }
        let wait = trip.wait();
        if wait != Wait::Goes || clock.now() >= by {
            return wait;
        }
        let relies = |(seat, pipe): &(usize, Arc<Pipe>)| !trip.is_awaited(*seat) || pipe.rely_on_pump();
        let has_pumps = asked.iter().filter(|asked| !relies(asked)).count() == 0;
        trip.sleep(if has_pumps { by } else { by.min(clock.now().after(ALONE)) }, clock);
    }
}
