//! A process that holds many guards and watches them.

use std::time::Duration;
use std::{fs, thread};

use redlock_sync::MutexGuard;
use redlock_tests::bench::stats::float;
use redlock_tests::bench::worker::{Worker, answer_orders};
use redlock_tests::bench::{Outcome, client, clock};

/// The pause between two checks of the guards.
const LOOK: Duration = Duration::from_millis(250);

/// The results of the guards.
#[derive(Debug)]
pub(crate) struct Held {
    /// The time by which the latest renewal was late.
    pub(crate) latest_ms: f64,
    /// The number of guards with a renewal that was more than a second late.
    pub(crate) late: f64,
    pub(crate) lost: f64,
    pub(crate) resident_mib: f64,
    /// The processor time in per cent of one core.
    pub(crate) cpu: f64,
}

/// Holds `count` guards with this lease for the time `span`, in a process of its own.
pub(crate) fn hold(url: &str, count: usize, lease: Duration, span: Duration) -> Outcome<Held> {
    let args = [count.to_string(), clock::nanos(lease).to_string(), url.to_owned()];
    let mut worker = Worker::start("guards", &args)?;
    worker.order(&clock::nanos(span).to_string())?;
    match *worker.answer(span + Duration::from_secs(60))? {
        [latest, late, lost, kib, cpu] => Ok(Held {
            latest_ms: float(latest) / 1e6,
            late: float(late),
            lost: float(lost),
            resident_mib: float(kib) / 1024.0,
            cpu: float(cpu) / float(clock::nanos(span)) * 100.0,
        }),
        ref other => Err(format!("five numbers, not {other:?}").into()),
    }
}

/// The main function of the holder: `COUNT LEASE URL…`. The order is the time for which it holds the guards.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [count, lease, urls @ ..] = args else { return Err("guards need a number and a lease".into()) };
    let (count, lease) = (count.parse()?, Duration::from_nanos(lease.parse()?));
    let locks = client(urls).lease(lease).build()?;
    answer_orders(|words| {
        let take = |i: usize| locks.mutex(format!("guard:{i}")).lock();
        let guards = (0..count).map(take).collect::<Result<Vec<_>, _>>()?;
        let answer = watch(&guards, lease, Duration::from_nanos(words[0].parse()?))?;
        guards.into_iter().try_for_each(MutexGuard::unlock)?;
        Ok(answer)
    })
}

fn watch(guards: &[MutexGuard], lease: Duration, span: Duration) -> Outcome<Vec<u64>> {
    // A renewal is due at a third of the lease. If less than this remains, the renewal is late. The library shortens
    // the lease by 1 % and 2 ms for clocks that differ.
    let due = (lease * 2 / 3).saturating_sub(lease / 100 + Duration::from_millis(2));
    let mut latest = vec![Duration::ZERO; guards.len()];
    let before = clock::process_cpu();
    let end = clock::now() + clock::nanos(span);
    while clock::now() < end {
        for (guard, latest) in guards.iter().zip(&mut latest) {
            *latest = (*latest).max(due.saturating_sub(guard.remaining()));
        }
        thread::sleep(LOOK);
    }
    let cpu = clock::process_cpu() - before;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    let late = latest.iter().filter(|late| **late > Duration::from_secs(1)).count();
    let worst = latest.iter().max().copied().unwrap_or_default();
    Ok(vec![clock::nanos(worst), late as u64, lost as u64, resident_kib()?, cpu])
}

/// The resident memory of this process.
fn resident_kib() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("there is a VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
