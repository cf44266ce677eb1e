//! How a thread waits for the outcomes of its call: it reads, or sleeps while others read.

use std::sync::Arc;
use std::time::Duration;

use super::command::{Outcomes, WaitStatus};
use super::pipe::{MANY, Pipe};
use crate::clock::{Clock, Tick};

/// How often a thread looks after its call where no pump does.
const WITHOUT_PUMP: Duration = Duration::from_millis(1);

/// Waits until each server that was asked has an outcome, or a connection broke; at most until then. What has come by then is read.
///
/// Among many the pump reads for all, unless it does not in an eighth of a node timeout: it may get no processor time. Of several servers one that is slow
/// does not keep this thread for longer than that: its call to another one may be in an outbox, and the pumps see to all of them.
pub(crate) fn wait(outcomes: &Arc<Outcomes>, asked: &[(usize, Arc<Pipe>)], by: Tick, clock: &dyn Clock) -> WaitStatus {
    let patience = asked.iter().map(|(_, pipe)| pipe.patience).max().unwrap_or_default();
    let soon = || by.min(clock.now().after(patience / 8));
    let mut is_slow = false;
    loop {
        // Written to all before, and read one after the other: it takes as long as the slowest server.
        for (index, pipe) in asked {
            if (is_slow || pipe.len() < MANY) && outcomes.is_awaited(*index) {
                pipe.read_for(outcomes, *index, if asked.len() > 1 { soon() } else { by });
            }
        }
        let wait = outcomes.wait_status();
        if wait != WaitStatus::Pending || clock.now() >= by {
            return wait;
        }
        let relies = |(index, pipe): &(usize, Arc<Pipe>)| !outcomes.is_awaited(*index) || pipe.rely_on_pump();
        let has_pumps = asked.iter().filter(|asked| !relies(asked)).count() == 0;
        outcomes.sleep(if has_pumps { soon() } else { by.min(clock.now().after(WITHOUT_PUMP)) }, clock);
        is_slow = true;
    }
}
