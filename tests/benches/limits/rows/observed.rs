//! A client with an observer against one without.

use std::sync::atomic::{AtomicU64, Ordering};

use redlock_sync::{Event, Observer};
use redlock_tests::Server;
use redlock_tests::bench::stats::{Rounds, p50_in_turns};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client};

use super::pairs;

const BLOCK: usize = 50;

/// Does the least that is of any use.
#[derive(Default)]
struct Counter(AtomicU64);

impl Observer for Counter {
    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let settings = client(&[server.url()]);
    let bare = settings.clone().build()?.mutex("order:42");
    let observed = settings.observer(Counter::default()).build()?.mutex("order:42").named("order:{id}");
    let rounds =
        p50_in_turns(plan.rounds(), plan.count(50), &mut |samples| pairs(&bare, BLOCK, samples), &mut |samples| {
            pairs(&observed, BLOCK, samples)
        })?;
    let added: Rounds = rounds.differences();
    Ok(vec![
        Line::new("lock + unlock, p50 (raw: no observer)", "us", rounds, Bar::None),
        Line::new("more with an observer", "us", added, Bar::AtMost(1.0)),
    ])
}
