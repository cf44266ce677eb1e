//! The cost of threads that only wait, for a lock each or for a task.

use std::thread;
use std::time::Duration;

use redlock_sync::{MutexGuard, Redlock};
use redlock_tests::Server;
use redlock_tests::bench::counts::requests;
use redlock_tests::bench::stats::float;
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::worker::{Worker, answer_orders};
use redlock_tests::bench::{Outcome, Plan, client, clock};

const THREADS: u16 = 1000;
/// It is longer than the longest time between two checks of a waiter.
const SPAN: Duration = Duration::from_secs(10);
/// The time until all threads wait.
const SETTLE: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(120);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let holder = Redlock::builder().node(server.url()).lease(LEASE).build()?;
    let _held = (0..THREADS).map(|i| holder.mutex(key(i)).renew(false).lock()).collect::<Result<Vec<_>, _>>()?;
    let mut lines = wait("locks", plan, &server)?;
    lines.extend(wait("tasks", plan, &Server::start())?);
    Ok(lines)
}

fn wait(what: &'static str, plan: Plan, server: &Server) -> Outcome<Vec<Line>> {
    let mut waiters = Worker::start("waiters", &[what.to_owned(), server.url()])?;
    thread::sleep(SETTLE);
    let span = plan.span(SPAN);
    let before = requests(server);
    waiters.order(&clock::nanos(span).to_string())?;
    let used = waiters.answer(span + Duration::from_secs(30))?;
    let sent = float(requests(server) - before) / span.as_secs_f64();
    let cpu = float(used[0]) / float(clock::nanos(span)) * 100.0;
    Ok(vec![
        Line::alone(format!("for {what}: requests to the server"), "/s", vec![sent]).gate(Gate::AtMost(10.0)),
        Line::alone(format!("for {what}: processor time, of one core"), "%", vec![cpu]).gate(Gate::AtMost(5.0)),
    ])
}

fn key(nth: u16) -> String {
    format!("waited:{nth}")
}

/// The main function of a worker: `locks|tasks URL`. Each order is a time in nanoseconds. The answer is the processor
/// time that the process used in it.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [what, url] = args else { return Err("waiters need to know what for, and where".into()) };
    let locks = client(std::slice::from_ref(url)).build()?;
    let idle = locks.queue("idle");
    let _worker = match what.as_str() {
        "tasks" => Some(idle.worker(THREADS.into(), |_| ())?),
        _ => None,
    };
    for nth in 0..if what == "locks" { THREADS } else { 0 } {
        let mutex = locks.mutex(key(nth));
        thread::spawn(move || mutex.lock().and_then(MutexGuard::unlock));
    }
    answer_orders(|words| {
        let before = clock::process_cpu();
        thread::sleep(Duration::from_nanos(words[0].parse()?));
        Ok(vec![clock::process_cpu() - before])
    })
}
