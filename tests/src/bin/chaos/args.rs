//! Parses the command line.

use std::path::PathBuf;
use std::str::FromStr;

use crate::checkers;
use crate::event::words;
use crate::names::MOST;
use crate::plan::{CALM, COMMANDS, GAP, Kind, STORM, TASK_COMMANDS};

pub(crate) const USAGE: &str = "\
chaos [OPTIONS]
  --nodes N         servers, default 3
  --sentinel        one node, which is a Sentinel group: other faults belong to it
  --tasks N         the clients are workers of a queue on one node, in which so many tasks are pushed
  --clients N       client processes, default 8
  --threads N       threads of each client, default 2; of a worker 4
  --crowd N         so many more that a client starts at once from time to time, default 48; 0 for none
  --round-trip MS   what each command takes besides, default 0
  --forked WHICH    some, all or none of the clients are forked from a common parent, default some
  --keys N          locks they want, besides some with long leases; default 4
  --lease MS        of a claim of a task, default 1000
  --burst N         so many tasks come at once every two seconds, the others one by one; default 100
  --seconds N       length of the run, default 60
  --storm MS        length of a storm of faults, default 20000, with tasks 10000
  --calm MS         length of the calm after it, default 9000, with tasks 8000; a shorter run is one storm
  --seed N          default: a fresh one, which is printed
  --faults A,B,…    only these faults, or `none`; `--schedule` shows their names
  --commands A,B,…  faults of single commands strike these only, such as extend or SUBSCRIBE
  --gap MS          longest time between two faults of a node, default 1200, with tasks 600; those of a client are rarer
  --beyond          also faults beyond what the library promises exclusion for; then overlap and tokens are not judged
  --out DIR         where the logs go, default: chaos/ in the target directory
  --schedule        print the schedule of faults and end
  --until A,B,…     end as soon as one of these checkers has found something
  --safety          only the checkers that a busy machine cannot turn fail the run; the others print figures
  --help            this text";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) nodes: usize,
    pub(crate) sentinel: bool,
    /// The number of tasks. With 0 the clients use locks.
    pub(crate) tasks: u64,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    pub(crate) crowd: usize,
    pub(crate) round_trip: u64,
    pub(crate) forked: Forked,
    pub(crate) keys: usize,
    /// The lease of a claim in ms.
    pub(crate) lease: u64,
    pub(crate) burst: u64,
    pub(crate) seconds: u64,
    pub(crate) storm: u64,
    pub(crate) calm: u64,
    pub(crate) seed: u64,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) commands: Vec<&'static str>,
    pub(crate) beyond: bool,
    pub(crate) gap: u64,
    pub(crate) out: Option<PathBuf>,
    pub(crate) until: Vec<&'static str>,
    pub(crate) safety: bool,
    pub(crate) what: Todo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Todo {
    Run,
    Schedule,
    Help,
}

words! {
    /// The clients that are forked from a common parent, like pre-forked workers. The other clients are started as new
    /// processes.
    Forked { None = "none", Some = "some", All = "all" }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            sentinel: false,
            tasks: 0,
            clients: 8,
            threads: 2,
            crowd: 48,
            round_trip: 0,
            forked: Forked::Some,
            keys: 4,
            lease: 1000,
            burst: 100,
            seconds: 60,
            storm: STORM,
            calm: CALM,
            seed: fastrand::u64(..1_000_000),
            kinds: Kind::ALL.to_vec(),
            commands: COMMANDS.to_vec(),
            beyond: false,
            gap: GAP,
            out: None,
            until: Vec::new(),
            safety: false,
            what: Todo::Run,
        }
    }
}

impl Options {
    /// The defaults of a run with tasks.
    fn of_tasks() -> Self {
        let commands = TASK_COMMANDS.to_vec();
        Self { nodes: 1, threads: 4, crowd: 0, storm: 10_000, calm: 8000, gap: 600, commands, ..Self::default() }
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks > 0
    }
}

/// Parses the arguments of the program.
pub(crate) fn parse(words: Vec<String>) -> Result<Options, String> {
    let has_tasks = words.iter().any(|word| word == "--tasks");
    let mut options = if has_tasks { Options::of_tasks() } else { Options::default() };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--nodes" => options.nodes = number(&value()?, 1, if has_tasks { 1 } else { 9 })?,
            "--sentinel" => (options.sentinel, options.nodes) = (true, 1),
            "--tasks" => options.tasks = number(&value()?, 1, 10_000_000)?,
            "--clients" => options.clients = number(&value()?, 1, 64)?,
            "--threads" => options.threads = number(&value()?, 1, 16)?,
            "--crowd" => options.crowd = number(&value()?, 0, 1000)?,
            "--round-trip" => options.round_trip = number(&value()?, 0, 50)?,
            "--forked" => options.forked = value()?.parse()?,
            "--keys" => options.keys = number(&value()?, 1, MOST)?,
            "--lease" => options.lease = number(&value()?, 500, 3_600_000)?,
            "--burst" => options.burst = number(&value()?, 1, 1_000_000)?,
            "--seconds" => options.seconds = number(&value()?, 2, 86_400)?,
            "--storm" => options.storm = number(&value()?, 1000, 3_600_000)?,
            "--calm" => options.calm = number(&value()?, 1000, 3_600_000)?,
            "--seed" => options.seed = number(&value()?, 0, u64::MAX)?,
            "--faults" => options.kinds = kinds(&value()?)?,
            "--commands" => options.commands = value()?.split(',').map(command).collect::<Result<_, _>>()?,
            "--gap" => options.gap = number(&value()?, 12, 600_000)?,
            "--out" => options.out = Some(value()?.into()),
            "--until" => options.until = value()?.split(',').map(checker).collect::<Result<_, _>>()?,
            "--safety" => options.safety = true,
            "--beyond" => options.beyond = true,
            "--schedule" => options.what = Todo::Schedule,
            "--help" | "-h" => options.what = Todo::Help,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn kinds(words: &str) -> Result<Vec<Kind>, String> {
    if words == "none" { Ok(Vec::new()) } else { words.split(',').map(Kind::from_str).collect() }
}

fn command(word: &str) -> Result<&'static str, String> {
    COMMANDS.into_iter().chain(TASK_COMMANDS).find(|command| *command == word).ok_or(format!("unknown command {word}"))
}

fn checker(word: &str) -> Result<&'static str, String> {
    checkers::ALL.iter().map(|checker| checker.name).find(|name| *name == word).ok_or(format!("unknown checker {word}"))
}

fn number<T: FromStr + PartialOrd + std::fmt::Display + Copy>(word: &str, least: T, most: T) -> Result<T, String> {
    let number = word.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.ok_or(format!("`{word}` is no number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Options, String> {
        parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_read() {
        let options =
            words("--nodes 5 --clients 8 --seconds 60 --seed 7 --faults kill,stop --beyond --safety").unwrap();
        assert_eq!((options.nodes, options.clients, options.seconds, options.seed), (5, 8, 60, 7));
        assert_eq!(options.kinds, [Kind::Kill, Kind::Stop]);
        assert!(options.beyond && options.safety && options.what == Todo::Run);
        assert!(words("--faults none").is_ok_and(|options| options.kinds.is_empty()));
    }

    #[test]
    fn a_run_with_tasks_has_one_node_and_defaults_of_its_own() {
        let options = words("--threads 3 --tasks 50 --until stale,calls").unwrap();
        assert_eq!((options.tasks, options.nodes, options.threads, options.crowd), (50, 1, 3, 0));
        assert_eq!((options.until, options.commands), (vec!["stale", "calls"], TASK_COMMANDS.to_vec()));
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in [
            "--nodes 0",
            "--forked many",
            "--nodes",
            "--tasks 0",
            "--faults dance",
            "--commands dance",
            "--until dance",
            "--sed 7",
        ] {
            words(wrong).unwrap_err();
        }
    }
}
