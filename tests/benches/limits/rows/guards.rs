//! Many guards at once.

use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::raw::extending_cpu;
use redlock_tests::bench::stats::Rounds;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};

use crate::worker::guards::hold;

const GUARDS: u32 = 1000;
const LEASE: Duration = Duration::from_secs(6);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let span = if plan.quick { Duration::from_secs(9) } else { Duration::from_secs(60) };
    // Each guard is renewed at a third of its lease.
    let raw_cpu = extending_cpu(&server.url(), GUARDS / 2, plan.span(Duration::from_secs(5)))?;
    let held = hold(&server.url(), GUARDS as usize, LEASE, span)?;
    let alone = |value| Rounds::alone(vec![value]);
    Ok(vec![
        Line::new("latest renewal, late by", "ms", alone(held.latest_ms), Bar::AtMost(1000.0)),
        Line::new("guards renewed more than 1 s late", "", alone(held.late), Bar::AtMost(0.0)),
        Line::new("guards lost", "", alone(held.lost), Bar::AtMost(0.0)),
        Line::new("resident memory", "MiB", alone(held.resident_mib), Bar::AtMost(64.0)),
        Line::new("CPU of one core", "%", Rounds { ours: vec![held.cpu], raw: vec![raw_cpu] }, Bar::AtMost(10.0)),
    ])
}
