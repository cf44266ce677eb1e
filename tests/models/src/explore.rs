//! Runs a model under many schedules.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::world;

/// The number of schedules of each kind.
const SCHEDULES: usize = 100;
/// The largest number of steps of a run. A run with more steps has an endless loop.
const MOST_STEPS: usize = 20_000;
/// The largest number of changes of thread priorities in one run.
const DEPTH: usize = 4;

/// Runs the model under schedules that are drawn at random. There are two kinds.
///
/// 1. One kind chooses a thread at each step.
/// 2. The other kind (PCT) gives each thread a priority, and changes priorities at a few steps. It finds failures that
///    need few but unlikely changes.
///
/// `REDLOCK_MODELS_FACTOR` multiplies the number of schedules, `REDLOCK_MODELS_SEED` draws other schedules, and
/// `REDLOCK_MODELS_REPLAY` repeats a schedule that failed.
pub fn explore(name: &str, model: fn()) {
    if let Ok(schedule) = env::var("REDLOCK_MODELS_REPLAY") {
        run(ReplayScheduler::new_from_encoded(schedule.trim()), model);
        return;
    }
    let schedules = SCHEDULES * number("REDLOCK_MODELS_FACTOR", 1);
    let seed = number("REDLOCK_MODELS_SEED", 1);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        run(RandomScheduler::new_from_seed(seed, schedules), model);
        run(PctScheduler::new_from_seed(seed, DEPTH, schedules), model);
    }));
    if let Err(panic) = outcome {
        eprintln!(
            "\nto run this schedule again, with the text between the quotation marks above:\n\
             REDLOCK_MODELS_REPLAY=… cargo test -p redlock-models -- --exact {name}"
        );
        resume_unwind(panic);
    }
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) {
    let mut config = Config::new();
    config.stack_size = 128 * 1024;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    Runner::new(scheduler, config).run(move || {
        world::begin();
        model();
    });
}

fn number<N: std::str::FromStr>(variable: &str, default: N) -> N {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} = {text:?} is no number")),
        Err(_) => default,
    }
}
