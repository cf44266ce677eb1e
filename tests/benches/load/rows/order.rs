//! One key, and many clients that come one after the other while it is held. The library must serve them in that order.

use std::thread;
use std::time::Duration;

use redlock_sync::Mutex;
use redlock_tests::Server;
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

const CLIENTS: usize = 30;
/// The time between two clients. It is so long that nothing changes their order on the way.
const APART: Duration = Duration::from_millis(20);
/// The time for which each client holds the lock. All holds together last longer than any part of the queue may live.
const HOLD: Duration = Duration::from_millis(200);
const ROUNDS: usize = 2;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let clients = (0..CLIENTS).map(|_| one(&server)).collect::<Outcome<Vec<_>>>()?;
    let (mut all, mut most) = (Vec::new(), Vec::new());
    for _ in 0..if plan.quick { 1 } else { ROUNDS } {
        let overtaken = overtaken(&round(&clients, plan.span(HOLD))?);
        all.push(float(overtaken.iter().sum()));
        most.push(float(overtaken.iter().copied().max().unwrap_or(0)));
    }
    Ok(vec![
        Line::new("overtakings", "", Rounds::alone(all), Bar::AtMost(0.0)),
        Line::new("most of one client", "", Rounds::alone(most), Bar::None),
    ])
}

fn one(server: &Server) -> Outcome<Mutex> {
    let mutex = client(&[server.url()]).build()?.mutex("order");
    mutex.lock()?.unlock()?;
    Ok(mutex)
}

/// The times at which the clients got the lock, in the order in which they came.
fn round(clients: &[Mutex], hold: Duration) -> Outcome<Vec<u64>> {
    let first = clients[0].lock()?;
    thread::scope(|scope| {
        let wait = |mutex: &Mutex| -> Outcome<u64> {
            let guard = mutex.lock()?;
            let got = clock::now();
            thread::sleep(hold);
            guard.unlock()?;
            Ok(got)
        };
        let mut waiting = Vec::new();
        for mutex in &clients[1..] {
            waiting.push(scope.spawn(move || wait(mutex)));
            thread::sleep(APART);
        }
        thread::sleep(hold);
        first.unlock()?;
        waiting.into_iter().map(|thread| thread.join().map_err(|_| "a waiter panicked")?).collect()
    })
}

/// For each client, the number of later clients that got the lock before it.
fn overtaken(served: &[u64]) -> Vec<u64> {
    let before = |(nth, at): (usize, &u64)| served[nth..].iter().filter(|later| *later < at).count() as u64;
    served.iter().enumerate().map(before).collect()
}
