//! Many guards at once, in a process of their own that watches them.

use std::time::Duration;
use std::{fs, thread};

use redlock_sync::MutexGuard;
use redlock_tests::Server;
use redlock_tests::bench::raw::extending_cpu;
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::worker::{Worker, answer_orders};
use redlock_tests::bench::{Outcome, Plan, client, clock};

const GUARDS: u32 = 1000;
/// Each guard is renewed at a third of its lease, which makes 500 renewals a second.
const LEASE: Duration = Duration::from_secs(6);
const SPAN: Duration = Duration::from_secs(20);
/// The pause between two checks of the guards.
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let span = if plan.quick { LEASE } else { SPAN };
    let raw_cpu = extending_cpu(&server.url(), GUARDS / 2, plan.span(Duration::from_secs(5)))?;
    let mut worker = Worker::start("guards", &[server.url()])?;
    worker.order(&clock::nanos(span).to_string())?;
    let answer = worker.answer(span + Duration::from_secs(60))?;
    let [latest, lost, kib, cpu] = answer[..] else { return Err(format!("four numbers, not {answer:?}").into()) };
    let share = float(cpu) / float(clock::nanos(span)) * 100.0;
    let cpu = Rounds { ours: vec![share], raw: vec![raw_cpu] };
    Ok(vec![
        Line::beside("processor time, of one core", "%", cpu, "bare extensions by one thread").gate(Gate::AtMost(10.0)),
        Line::alone("resident memory of the process", "MiB", vec![float(kib) / 1024.0]).gate(Gate::AtMost(64.0)),
        Line::alone("latest renewal, late by", "ms", vec![float(latest) / 1e6]).gate(Gate::AtMost(1000.0)),
        Line::none("locks lost", lost),
    ])
}

/// The main function of the holder: `URL`. The order is the time for which it holds the guards, in nanoseconds.
pub(super) fn child(urls: &[String]) -> Outcome<()> {
    let locks = client(urls).lease(LEASE).build()?;
    answer_orders(|words| {
        let take = |i: u32| locks.mutex(format!("guard:{i}")).lock();
        let guards = (0..GUARDS).map(take).collect::<Result<Vec<_>, _>>()?;
        let answer = watch(&guards, Duration::from_nanos(words[0].parse()?))?;
        guards.into_iter().try_for_each(MutexGuard::unlock)?;
        Ok(answer)
    })
}

/// Returns the lateness of the latest renewal, the number of lost guards, the memory, and the processor time.
fn watch(guards: &[MutexGuard], span: Duration) -> Outcome<Vec<u64>> {
    // A renewal is due at a third of the lease. If less than this remains, the renewal is late. The library shortens
    // the lease by 1 % and 2 ms for clocks that differ.
    let due = (LEASE * 2 / 3).saturating_sub(LEASE / 100 + Duration::from_millis(2));
    let mut latest = Duration::ZERO;
    let before = clock::process_cpu();
    let end = clock::now() + clock::nanos(span);
    while clock::now() < end {
        let least = guards.iter().map(|guard| guard.remaining()).min().unwrap_or_default();
        latest = latest.max(due.saturating_sub(least));
        thread::sleep(LOOK);
    }
    let cpu = clock::process_cpu() - before;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    Ok(vec![clock::nanos(latest), lost as u64, resident_kib()?, cpu])
}

/// The resident memory of this process.
fn resident_kib() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("there is a VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
