//! Runs a model under many schedules.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::world;

/// As many schedules of each kind are tried.
const SCHEDULES: usize = 100;
/// A run with more steps goes in a circle.
const MOST_STEPS: usize = 20_000;
/// Up to so many changes of the threads' priorities in one run.
const DEPTH: usize = 4;

/// Runs the model under schedules drawn at random: some that choose at each step, and some that give each thread a priority and change it in a
/// few places (PCT), which finds what takes few but unlikely changes.
///
/// `REDLOCK_MODELS_FACTOR` multiplies their number, `REDLOCK_MODELS_SEED` draws others, `REDLOCK_MODELS_REPLAY` runs one that failed.
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
