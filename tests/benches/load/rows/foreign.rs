//! Programs of other libraries: one beside four processes of ours, and four of them alone.

use std::thread;
use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::ring::{Field, Use};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Gate, Line};
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::foreign::{Library, Work};

const PROCESSES: usize = 4;
const KEY: &str = "lock:handed";
const HOLD: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(2);
/// The first long pause of our processes, which a program that polls can meet, comes after up to 11 s.
const TOGETHER: Duration = Duration::from_secs(20);
const ALONE: Duration = Duration::from_secs(4);
/// The time by which the program starts later than ours. It ends earlier by the same time.
const LATER: Duration = Duration::from_millis(200);
const ROUNDS: usize = 3;
/// Without pauses for other programs the ratio is 0.95 to 0.96, and the pauses take 3 % of that.
const LEAST_ALONE: Gate = Gate::RatioAtLeast(0.85);

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let mut lines = vec![ours_alone(plan)?];
    for library in Library::ALL.into_iter().filter(|library| library.is_here()) {
        lines.push(alone(library, plan));
        lines.extend(beside(library, plan)?);
    }
    Ok(lines)
}

/// Measures ours alone, compared with a token. The token leaves no free time to other programs.
fn ours_alone(plan: Plan) -> Outcome<Line> {
    let mut field = Field::start(PROCESSES, KEY)?;
    let wanted = Use { block: plan.span(ALONE) / 2, hold: HOLD, pause: PAUSE };
    field.raw(wanted.warm_up())?;
    field.ours(wanted.warm_up())?;
    let mut rate = Rounds::default();
    for _ in 0..ROUNDS {
        let of_raw = field.raw(wanted)?;
        rate.push(field.ours(wanted)?.per_second, of_raw.per_second);
    }
    Ok(Line::beside("four of redlock-sync", "/s", rate, "a list with BLPOP").gate(LEAST_ALONE))
}

fn alone(library: Library, plan: Plan) -> Line {
    let server = Server::start();
    let mut programs: Vec<_> = (0..PROCESSES).map(|_| library.start(&server.url(), KEY)).collect();
    let span = plan.span(ALONE);
    for program in &mut programs {
        program.begin(Work { span, hold: HOLD, pause: PAUSE });
    }
    let turns = programs.into_iter().flat_map(redlock_tests::foreign::Program::turns).filter(|(_, got)| *got < span);
    let rate = float(turns.count() as u64) / span.as_secs_f64();
    Line::alone(format!("four of {}", library.name()), "/s", vec![rate])
}

fn beside(library: Library, plan: Plan) -> Outcome<[Line; 2]> {
    // The processes are started anew for each program, because the old ones would remember the program before.
    let mut field = Field::start(PROCESSES, KEY)?;
    let span = plan.span(TOGETHER);
    let within = span.saturating_sub(2 * LATER);
    let mut program = library.start(&field.server.url(), KEY);
    let (turns, block) = thread::scope(|scope| {
        let turns = scope.spawn(|| {
            thread::sleep(LATER);
            program.begin(Work { span: within, hold: HOLD, pause: PAUSE });
            program.turns()
        });
        let block = field.ours(Use { block: span, hold: HOLD, pause: PAUSE });
        (turns.join(), block)
    });
    let mut turns = turns.map_err(|_| "the program broke off")?;
    turns.retain(|(_, got)| *got < within);
    let theirs = float(turns.len() as u64);
    let share = theirs / (theirs + float(block?.acquisitions as u64)) * 100.0;
    let longest = longest_wait(&turns, within).as_secs_f64();
    let line = |what: &str, unit, value| Line::alone(format!("one of {}: {what}", library.name()), unit, vec![value]);
    Ok([line("its share", "%", share), line("its longest wait", "s", longest).gate(Gate::AtMost(3.0))])
}

/// The longest wait after the first turn. By the first turn, our processes have noticed that there is another program.
/// The program also waited from its last turn to the end, or nearly so.
fn longest_wait(turns: &[(Duration, Duration)], end: Duration) -> Duration {
    let last = turns.last().map_or(Duration::ZERO, |(_, got)| *got);
    let waits = turns.iter().copied().skip(1).chain([(last + HOLD + PAUSE, end)]);
    waits.map(|(wanted, got)| got.saturating_sub(wanted)).max().unwrap_or_default()
}
