//! A lock that four processes hand over, compared with a token that they pass on.

use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::counts::commands;
use redlock_tests::bench::ring::{Field, Use};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::Worker;
use redlock_tests::bench::{Outcome, Plan};

pub(super) const KEY: &str = "lock:handed";
pub(super) const PROCESSES: usize = 4;
const ROUNDS: usize = 4;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let wanted =
        Use { block: plan.span(Duration::from_secs(2)), hold: Duration::from_millis(1), pause: Duration::ZERO };
    let mut field = Field::start(Server::start(), PROCESSES, KEY, process)?;
    field.raw(wanted.warm_up())?;
    field.ours(wanted.warm_up())?;
    let [mut rate, mut gap, mut jain] = [const { Rounds { ours: Vec::new(), raw: Vec::new() } }; 3];
    let mut executed = Vec::new();
    for _ in 0..ROUNDS {
        let of_raw = field.raw(wanted)?;
        let before = commands(&field.server);
        let ours = field.ours(wanted)?;
        executed.push(float(commands(&field.server) - before) / float(ours.acquisitions as u64));
        rate.push(ours.per_second, of_raw.per_second);
        gap.push(ours.gap_us, of_raw.gap_us);
        jain.push(ours.jain, of_raw.jain);
    }
    Ok(vec![
        Line::new("acquisitions per second", "/s", rate, Bar::RatioAtLeast(0.94)),
        Line::new("gap release -> next holder, p50", "us", gap, Bar::RatioAtMost(2.0)),
        Line::new("commands per hand-over", "", Rounds::alone(executed), Bar::AtMost(14.0)),
        Line::new("Jain index over processes", "", jain, Bar::None),
    ])
}

/// Starts one of the processes, which connects as a user of its own.
pub(super) fn process(server: &Server, _: usize) -> Outcome<Worker> {
    Worker::start("ring", &[KEY.to_owned(), server.url()])
}
