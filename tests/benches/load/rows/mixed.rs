//! One key and three processes, one of which also waits for other keys. Its turns must not come later because of that.

use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::Server;
use redlock_tests::bench::ring::{Field, Use};
use redlock_tests::bench::stats::Rounds;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::worker::Worker;
use redlock_tests::bench::{Outcome, Plan};

use crate::worker::waiters;

const KEY: &str = "mixed";
const PROCESSES: usize = 3;
const OTHER_WAITS: u16 = 16;
const ROUNDS: usize = 3;
const LEASE: Duration = Duration::from_secs(120);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let holder = Redlock::builder().node(server.url()).lease(LEASE).build()?;
    let take = |i| holder.mutex(waiters::key(i)).renew(false).lock();
    let _held = (0..OTHER_WAITS).map(take).collect::<Result<Vec<_>, _>>()?;
    let mut field = Field::start(server, PROCESSES, KEY, process)?;
    let wanted =
        Use { block: plan.span(Duration::from_secs(4)), hold: Duration::from_millis(1), pause: Duration::ZERO };
    field.ours(wanted.warm_up())?;
    let (mut jain, mut wait, mut rate) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let block = field.ours(wanted)?;
        jain.push(block.jain);
        wait.push(block.longest_wait_ms);
        rate.push(block.per_second);
    }
    Ok(vec![
        Line::new("Jain index over processes", "", Rounds::alone(jain), Bar::AtLeast(0.95)),
        Line::new("longest wait", "ms", Rounds::alone(wait), Bar::None),
        Line::new("acquisitions per second", "/s", Rounds::alone(rate), Bar::None),
    ])
}

/// Starts a process. The first one has the other waits.
fn process(server: &Server, nth: usize) -> Outcome<Worker> {
    let args = [KEY.to_owned(), server.url()];
    match nth {
        0 => Worker::start("busy-ring", &[&[OTHER_WAITS.to_string()], &args[..]].concat()),
        _ => Worker::start("ring", &args),
    }
}
