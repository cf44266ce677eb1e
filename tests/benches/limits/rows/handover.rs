//! A lock that four processes hand over, compared with a token that they pass on.

use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::ring::{Field, Use};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::Worker;
use redlock_tests::bench::{Outcome, Plan};

use super::LONG_ROUNDS;

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
    let mut field = field()?;
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

/// Starts four processes, which contend for one key on a server of their own.
pub(super) fn field() -> Outcome<Field> {
    let one = |server: &Server, _| Worker::start("ring", &[KEY.to_owned(), server.url()]);
    Field::start(Server::start(), PROCESSES, KEY, one)
}
