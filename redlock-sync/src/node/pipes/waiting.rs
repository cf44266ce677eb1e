//! How a thread waits for the outcomes of its calls: it reads, or sleeps while others read.

use std::sync::Arc;
use std::time::Duration;

use super::command::Outcomes;
use super::pipe::{MANY_CALLS, Pipe};
use crate::clock::{Clock, Tick};

/// How often a thread checks its call if there is no pump.
const WITHOUT_PUMP: Duration = Duration::from_millis(1);

/// Waits until each call has an outcome, or a connection broke, or until the deadline. Replies that have arrived by
/// then are read. Returns false if the deadline ended the wait.
///
/// Behind many calls, the thread lets the pump read. If there is no outcome after an eighth of a node timeout, it reads
/// for itself, because the pump may get no CPU time. With several servers, it waits for a slow one no longer than that
/// at a time. Its call to another server may still be in an outbox. The pumps of all servers then write and read for
/// it.
pub(crate) fn wait(outcomes: &Arc<Outcomes>, asked: &[(usize, Arc<Pipe>)], by: Tick, clock: &dyn Clock) -> bool {
    let node_timeout = asked.iter().map(|(_, pipe)| pipe.node_timeout).max().unwrap_or_default();
    let soon = |now: Tick| by.min(now.after(node_timeout / 8));
    let mut is_slow = false;
    loop {
        // The calls were already written to all servers, so reading one after the other takes as long as the slowest
        // server.
        for (index, pipe) in asked {
            if (is_slow || pipe.len() < MANY_CALLS) && outcomes.is_awaited(*index) {
                pipe.read_for(outcomes, *index, if asked.len() > 1 { soon(clock.now()) } else { by });
            }
        }
        if !outcomes.is_pending() {
            return true;
        }
        let now = clock.now();
        if now >= by {
            return false;
        }
        let relies = |(index, pipe): &(usize, Arc<Pipe>)| !outcomes.is_awaited(*index) || pipe.rely_on_pump();
        let has_pumps = asked.iter().filter(|asked| !relies(asked)).count() == 0;
        outcomes.sleep(if has_pumps { soon(now) } else { by.min(now.after(WITHOUT_PUMP)) }, clock);
        is_slow = true;
    }
}
