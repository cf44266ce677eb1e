//! One program of another library beside four processes of ours.

use std::thread;
use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::ring::{Field, Use};
use redlock_tests::bench::stats::{Rounds, float};
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan};
use redlock_tests::foreign::{Library, Work};

use super::alone;
use super::handover::{KEY, PROCESSES, process};

const HOLD: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(2);
const TOGETHER: Duration = Duration::from_secs(20);
/// The time by which the program starts later than ours. It ends earlier by the same time.
const LATER: Duration = Duration::from_millis(200);
const ALONE: Duration = Duration::from_secs(2);
/// The bar for ours alone. Without pauses for other programs the ratio is 0.95 to 0.96, and the pauses take 3 % of
/// that.
const LEAST_ALONE: Bar = Bar::RatioAtLeast(0.92);
const ROUNDS: usize = 3;

pub(super) fn run(plan: Plan) -> Outcome<Vec<Line>> {
    let field = || Field::start(Server::start(), PROCESSES, KEY, process);
    let mut lines = vec![without(&mut field()?, plan)?];
    for library in Library::ALL.into_iter().filter(|library| library.is_here()) {
        // The processes are started anew for each program, because the old ones would remember the program before.
        lines.extend(with(&mut field()?, library, plan)?);
    }
    Ok(lines)
}

/// Measures ours alone, compared with a token. The token leaves no free time to other programs.
fn without(field: &mut Field, plan: Plan) -> Outcome<Line> {
    let wanted = Use { block: plan.span(ALONE), hold: HOLD, pause: PAUSE };
    field.raw(wanted.warm_up())?;
    field.ours(wanted.warm_up())?;
    let mut rate = Rounds::default();
    for _ in 0..ROUNDS {
        let of_raw = field.raw(wanted)?;
        rate.push(field.ours(wanted)?.per_second, of_raw.per_second);
    }
    Ok(Line::new("ours alone (raw: a token)", "/s", rate, LEAST_ALONE))
}

fn with(field: &mut Field, library: Library, plan: Plan) -> Outcome<Vec<Line>> {
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
    let (mut turns, ours) = (turns.map_err(|_| "the program broke off")?, block?.acquisitions);
    turns.retain(|(_, got)| *got < within);
    let theirs = float(turns.len() as u64);
    let share = theirs / (theirs + float(ours as u64)) * 100.0;
    let longest = longest_wait(&turns, within).as_secs_f64();
    let first = turns.first().map_or(within, |(_, got)| *got);
    let name = library.name();
    Ok(vec![
        alone(format!("{name}: its share"), "%", share, Bar::AtLeast(5.0)),
        alone(format!("{name}: first turn"), "s", first.as_secs_f64(), Bar::None),
        alone(format!("{name}: longest wait after it"), "s", longest, Bar::AtMost(3.0)),
        alone(format!("{name}: ours beside it"), "/s", float(ours as u64) / span.as_secs_f64(), Bar::None),
    ])
}

/// The longest wait after the first turn. By the first turn, our processes have noticed that there is another program.
/// The program also waited from its last turn to the end, or nearly so.
fn longest_wait(turns: &[(Duration, Duration)], end: Duration) -> Duration {
    let last = turns.last().map_or(Duration::ZERO, |(_, got)| *got);
    let waits = turns.iter().copied().skip(1).chain([(last + HOLD + PAUSE, end)]);
    waits.map(|(wanted, got)| got.saturating_sub(wanted)).max().unwrap_or_default()
}
