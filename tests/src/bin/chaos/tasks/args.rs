//! The command line of a run with workers.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::checkers;
use super::nemesis::Kind;

pub(crate) const USAGE: &str = "\
chaos --tasks N [OPTIONS]
  --tasks N         tasks that are pushed during the run
  --sentinel        the queue is on a Sentinel group, to which other faults belong
  --clients N       worker processes, default 8
  --threads N       threads of each, default 4
  --seconds N       length of the run, default 60
  --lease MS        of a claim, default 1000
  --burst N         so many tasks come at once every two seconds, the others one by one; default 100
  --gap MS          longest time between two faults of the server, and of the workers; default 1000
  --steady          faults as often as --gap says, from the begin to the end, without calms
  --faults A,B,…    only these faults, or `none`; `--schedule` shows their names
  --seed N          default: a fresh one, which is printed
  --out DIR         where the logs go, default: chaos/ in the target directory
  --schedule        print the schedule of faults and end
  --until A,B,…     end as soon as one of these checkers has found something
  --safety          only the checkers that a busy machine cannot turn fail the run; the others print figures
  --keys N          not used: there is one queue";

#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) tasks: u32,
    pub(crate) sentinel: bool,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    pub(crate) seconds: u64,
    pub(crate) lease: Duration,
    pub(crate) burst: u32,
    pub(crate) gap: u64,
    pub(crate) is_steady: bool,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) seed: u64,
    pub(crate) out: Option<PathBuf>,
    pub(crate) until: Vec<&'static str>,
    pub(crate) safety: bool,
    pub(crate) is_schedule: bool,
}

impl Options {
    /// The name of the folder of the run, without the seed.
    pub(crate) fn name(&self) -> &'static str {
        if self.sentinel { "tasks-sentinel" } else { "tasks" }
    }
}

pub(crate) fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        tasks: 0,
        sentinel: false,
        clients: 8,
        threads: 4,
        seconds: 60,
        lease: Duration::from_secs(1),
        burst: 100,
        gap: 1000,
        is_steady: false,
        kinds: Kind::ALL.to_vec(),
        seed: fastrand::u64(..1_000_000),
        out: None,
        until: Vec::new(),
        safety: false,
        is_schedule: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(String::as_str).ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--tasks" => options.tasks = number(value()?, 1, 10_000_000)?,
            "--sentinel" => options.sentinel = true,
            "--steady" => options.is_steady = true,
            "--clients" => options.clients = number(value()?, 1, 64)?,
            "--threads" => options.threads = number(value()?, 1, 64)?,
            "--seconds" => options.seconds = number(value()?, 2, 86_400)?,
            "--lease" => options.lease = Duration::from_millis(number(value()?, 500, 3_600_000)?),
            "--burst" => options.burst = number(value()?, 1, 1_000_000)?,
            "--gap" => options.gap = number(value()?, 12, 600_000)?,
            "--faults" => options.kinds = kinds(value()?)?,
            "--seed" => options.seed = number(value()?, 0, u64::MAX)?,
            "--out" => options.out = Some(value()?.into()),
            "--until" => options.until = value()?.split(',').map(checker).collect::<Result<_, _>>()?,
            "--safety" => options.safety = true,
            "--keys" => _ = number(value()?, 1, u32::MAX)?,
            "--schedule" => options.is_schedule = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn kinds(words: &str) -> Result<Vec<Kind>, String> {
    if words == "none" { Ok(Vec::new()) } else { words.split(',').map(Kind::from_str).collect() }
}

fn checker(word: &str) -> Result<&'static str, String> {
    checkers::NAMES.into_iter().find(|name| *name == word).ok_or(format!("unknown checker {word}"))
}

fn number<T: FromStr + PartialOrd + std::fmt::Display + Copy>(word: &str, least: T, most: T) -> Result<T, String> {
    let number = word.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.ok_or(format!("`{word}` is no number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let options = words("--tasks 50 --clients 3 --faults murder,full --until stale --safety").unwrap();
        assert_eq!((options.tasks, options.clients, options.until), (50, 3, vec!["stale"]));
        assert_eq!(options.kinds, [Kind::Murder, Kind::Full]);
        assert!(options.safety);
        assert!(words("--tasks 1 --faults none").is_ok_and(|options| options.kinds.is_empty()));
        for wrong in ["--tasks 0", "--tasks", "--faults dance", "--until dance", "--task 7"] {
            words(wrong).unwrap_err();
        }
    }
}
