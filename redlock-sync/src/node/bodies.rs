//! Calls that carry the bodies of tasks. Other calls are a few hundred bytes as a rule, and the node timeout is for
//! them, however long their names are; a body takes time of its own, and what travels with it waits. So such a call
//! goes alone, over a line that no other call uses. Its time grows by what it moves.
//!
//! How large a call is that brings a body to the server is known before. What a reply will bring is not: the call is
//! sent as any other, and when its time is up while bytes come in, it fails, and those after it go alone for a while.

use std::time::Duration;

use parking_lot::Mutex;

use super::line::Line;
use super::link::at_the_floor;
use crate::clock::Tick;
use crate::protocol::script::Call;

/// For so long a client takes bodies for slow after one that was.
const REMEMBERED: Duration = Duration::from_secs(60);
/// A call waits for the line for as long as this many calls, each of them as slow as the slowest so far.
const MAY_WAIT: u32 = 8;

/// What a client has for them.
pub(super) struct Bodies {
    pub(super) line: Mutex<Line>,
    slow: Mutex<Option<Slow>>,
    node_timeout: Duration,
}

/// Bodies have been slow.
#[derive(Clone, Copy)]
struct Slow {
    until: Tick,
    /// What the slowest took.
    took: Duration,
}

/// The time of a call beyond that of others.
#[derive(Clone, Copy)]
pub(super) struct Extra {
    /// For what it sends.
    pub(super) sent: Duration,
    /// To wait for the line.
    pub(super) waits: Duration,
}

impl Bodies {
    pub(super) fn new(node_timeout: Duration) -> Bodies {
        Bodies { line: Mutex::new(Line::new()), slow: Mutex::default(), node_timeout }
    }

    /// The extra time of a call that has to go alone; nothing for any other.
    pub(super) fn extra(&self, call: &Call, now: Tick) -> Option<Extra> {
        let sent = at_the_floor(call.len());
        if call.script.takes_bodies() && sent > self.node_timeout / 2 {
            return Some(Extra { sent, waits: sent });
        }
        if !call.script.brings_bodies() {
            return None;
        }
        let slow = self.slow.lock().filter(|slow| now < slow.until)?;
        Some(Extra { sent: Duration::ZERO, waits: slow.took.saturating_mul(MAY_WAIT) })
    }

    /// A body took so long, to the server or from it. What takes long one way does the other way too.
    pub(super) fn note(&self, took: Duration, now: Tick) {
        if took > self.node_timeout / 4 {
            let mut slow = self.slow.lock();
            let longest = slow.filter(|slow| now < slow.until).map_or(took, |slow| slow.took.max(took));
            *slow = Some(Slow { until: now.after(REMEMBERED), took: longest });
        }
    }
}
