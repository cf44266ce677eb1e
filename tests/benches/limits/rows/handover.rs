//! A lock that goes round between four processes, against a token that does.

use std::time::Duration;

use redis::cmd;
use redlock_tests::Server;

use super::{LONG_ROUNDS, Plan, requests};
use crate::Outcome;
use crate::stats::{Rounds, float};
use crate::table::{Bar, Line};
use crate::worker::ring::{Block, Ring, Use, list_of};

pub(super) const PROCESSES: usize = 4;
const KEY: &str = "handed";

pub(super) fn with_pause(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, Duration::from_millis(2))
}

pub(super) fn without_pause(plan: Plan) -> Outcome<Vec<Line>> {
    lines(plan, Duration::ZERO)
}

fn lines(plan: Plan, pause: Duration) -> Outcome<Vec<Line>> {
    let wanted = Use { block: plan.span(Duration::from_secs(2)), hold: Duration::from_millis(1), pause };
    let mut field = Field::start()?;
    field.raw(wanted.warm_up())?;
    field.ours(wanted.warm_up())?;
    let [mut rate, mut gap, mut jain, mut wait, mut asked] =
        [const { Rounds { ours: Vec::new(), raw: Vec::new() } }; 5];
    for _ in 0..LONG_ROUNDS {
        let of_raw = field.raw(wanted)?;
        let before = requests(&field.server);
        let ours = field.ours(wanted)?;
        let sent = float(requests(&field.server) - before);
        rate.push(ours.per_second, of_raw.per_second);
        gap.push(ours.gap_us, of_raw.gap_us);
        jain.push(ours.jain, of_raw.jain);
        wait.push(ours.longest_wait_ms, of_raw.longest_wait_ms);
        asked.push(sent / float(ours.acquisitions as u64), 2.0);
    }
    Ok(vec![
        Line::new("acquisitions per second", "/s", rate, Bar::RatioAtLeast(0.95)),
        Line::new("gap release -> next holder, p50", "us", gap, Bar::RatioAtMost(2.2)),
        Line::new("Jain index over processes", "", jain, Bar::AtLeast(0.99)),
        Line::new("longest wait", "ms", wait, Bar::AtMost(50.0)),
        Line::new("requests per acquisition", "", asked, Bar::AtMost(6.0)),
    ])
}

impl Use {
    /// A short block that does not count.
    pub(super) fn warm_up(self) -> Self {
        Self { block: Duration::from_millis(300), ..self }
    }
}

/// A server and the processes that contend on it.
pub(super) struct Field {
    pub(super) server: Server,
    ring: Ring,
}

impl Field {
    pub(super) fn start() -> Outcome<Self> {
        let server = Server::start();
        let ring = Ring::start(PROCESSES, KEY, &[server.url()])?;
        Ok(Self { server, ring })
    }

    pub(super) fn raw(&mut self, wanted: Use) -> Outcome<Block> {
        let list = list_of(KEY);
        self.server.del(&list);
        self.server.ask::<()>(cmd("LPUSH").arg(&list).arg("token"));
        let block = self.ring.block("raw", wanted);
        self.server.del(&list);
        block
    }

    pub(super) fn ours(&mut self, wanted: Use) -> Outcome<Block> {
        self.ring.block("ours", wanted)
    }
}
