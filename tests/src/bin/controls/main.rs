//! The negative controls. The patches in `tests/controls/` break the library, each in one way. The chaos run and the
//! simulation must notice each of them. `tests/CHAOS.md` says how to run this and how to read its output.
//!
//! 1. `scratch.rs`: a copy of the workspace. A patch is applied to it, and it is built.
//! 2. `trial.rs`: one control in the chaos run, or in the simulation.
//!
//! With chaos runs, two threads share the work. One thread applies a patch, builds, and runs the simulation. The other
//! thread makes the chaos runs of an earlier control.
//!
//! Without chaos runs, two threads do the same work, each with a copy of its own. Most of a build needs only one
//! processor.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a rig that cannot do its work fails with a message"
)]

mod scratch;
mod trial;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::thread;

use redlock_tests::control::{self, Control};

use scratch::{Rig, Scratch, is_of_scripts};
use trial::Found;

/// The number of threads with a copy of their own, if there are no chaos runs.
const LANES: usize = 2;

const USAGE: &str = "\
controls [OPTIONS] [CONTROL…]
  applies each of these controls, or all in tests/controls, to a copy of the workspace, and shows that it is noticed
  --simulation      only in the simulation, from its fixed first seed on: no load turns that
  --seed N          of the first chaos run of each control; default: a fresh one, which is printed";

fn main() -> ExitCode {
    match parse(env::args().skip(1)) {
        Ok(wanted) => try_all(&wanted),
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

struct Wanted {
    controls: Vec<Control>,
    /// True if the controls run without their chaos runs.
    simulation_only: bool,
    seed: u64,
}

fn parse(words: impl IntoIterator<Item = String>) -> Result<Wanted, String> {
    let (mut names, mut simulation_only, mut seed) = (Vec::new(), false, fastrand::u64(..1_000_000));
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--simulation" => simulation_only = true,
            "--seed" => seed = words.next().and_then(|seed| seed.parse().ok()).ok_or("--seed wants a number")?,
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            _ => names.push(word),
        }
    }
    let all = control::all();
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|control| control.name != **name)) {
        return Err(format!("there is no control {unknown}"));
    }
    let is_wanted = |control: &Control| {
        (names.is_empty() || names.contains(&control.name)) && !(simulation_only && control.simulation.is_empty())
    };
    Ok(Wanted { controls: all.into_iter().filter(is_wanted).collect(), simulation_only, seed })
}

/// Prints a row for each trial. The exit code is 1 if a trial had an unexpected result.
fn try_all(wanted: &Wanted) -> ExitCode {
    let seed = wanted.seed;
    let escaped = Mutex::new(Vec::new());
    let tell = |control: &Control, rig: &str, found: Found| {
        let is_escaped = found.is_err();
        let found = found.unwrap_or_else(|problem| format!("**{problem}**"));
        let row = format!("| `{}` | {} | {rig} | {found} |", control.name, control.about);
        println!("{row}");
        if is_escaped {
            escaped.lock().unwrap().push(row);
        }
    };
    println!("seed {seed}\n\n| control | what is broken | rig | found |\n|---|---|---|---|");
    if wanted.simulation_only {
        // The controls that change only scripts come first, because the library is built only once for them.
        let (of_scripts, of_code): (Vec<_>, Vec<_>) =
            wanted.controls.iter().partition(|control| is_of_scripts(control));
        let controls = Mutex::new(of_scripts.into_iter().chain(of_code));
        thread::scope(|scope| {
            for lane in 0..LANES {
                let (controls, tell) = (&controls, &tell);
                scope.spawn(move || {
                    let scratch = Scratch::new(&lane.to_string(), Rig::Simulation);
                    while let Some(control) = next(controls) {
                        simulate(&scratch, control, tell);
                    }
                });
            }
        });
    } else {
        with_chaos(wanted, &tell);
    }
    let escaped = escaped.into_inner().unwrap();
    if !escaped.is_empty() {
        println!("\n{} did not end as they must:\n{}", escaped.len(), escaped.join("\n"));
    }
    ExitCode::from(u8::from(!escaped.is_empty()))
}

fn next<'a>(controls: &Mutex<impl Iterator<Item = &'a Control>>) -> Option<&'a Control> {
    controls.lock().unwrap().next()
}

/// Applies a control to the copy, and runs the simulation with each of its settings. Returns false if the control
/// cannot be applied.
fn simulate(scratch: &Scratch, control: &Control, tell: &impl Fn(&Control, &str, Found)) -> bool {
    if control.simulation.is_empty() {
        return true;
    }
    if let Err(problem) = scratch.apply(control) {
        tell(control, "none", Err(problem));
        return false;
    }
    for settings in &control.simulation {
        tell(control, "simulation", trial::simulation(scratch, control, settings));
    }
    true
}

fn with_chaos(wanted: &Wanted, tell: &(impl Fn(&Control, &str, Found) + Sync)) {
    let (simulation, chaos) = (Scratch::new("0", Rig::Simulation), Scratch::new("chaos", Rig::Chaos));
    let seed = wanted.seed;
    thread::scope(|scope| {
        let (built, to_run) = mpsc::channel::<(&Control, PathBuf)>();
        scope.spawn(move || {
            for (control, program) in to_run {
                tell(control, "chaos", trial::chaos(&program, control, seed));
                fs::remove_file(program).expect("the program is there");
            }
        });
        for control in &wanted.controls {
            if !simulate(&simulation, control, tell) {
                continue;
            }
            if control.chaos.is_some() {
                match chaos.apply(control).and_then(|()| chaos.chaos(&control.name)) {
                    Ok(program) => built.send((control, program)).expect("the other thread waits for programs"),
                    Err(problem) => tell(control, "chaos", Err(problem)),
                }
            }
        }
        drop(built);
    });
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn words(line: &str) -> Result<(Vec<String>, u64), String> {
        let wanted = parse(line.split_whitespace().map(str::to_owned))?;
        Ok((wanted.controls.into_iter().map(|control| control.name).collect(), wanted.seed))
    }

    #[test]
    fn controls_are_chosen_by_name() {
        assert_eq!(words("--seed 7 young-votes nothing"), Ok((vec!["nothing".into(), "young-votes".into()], 7)));
        assert!(words("").is_ok_and(|(all, _)| all.len() > 20));
        assert!(words("--simulation nothing").is_ok_and(|(none, _)| none.is_empty()));
        for wrong in ["--seed", "--seed x", "--sed 7", "everything"] {
            words(wrong).unwrap_err();
        }
    }
}
