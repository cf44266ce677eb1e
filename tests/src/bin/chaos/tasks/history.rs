//! The history of a run with workers. Each line of a log is an event:
//!
//! ```text
//! push ID FROM TO due|later REPLY             a push; the task was due at once or later; the reply of the push
//! wait THREAD FROM                            a thread of a worker began a call for a task
//! claim THREAD FROM TO ID FENCE ATTEMPT       the call returned a task
//! none THREAD FROM TO                         the call returned no task
//! failed THREAD FROM TO WHY                   the call returned an error
//! check ID FENCE FROM                         a check that began at FROM found the claim held
//! ending ID FENCE FROM HOW                    a worker began to end a claim
//! ended ID FENCE FROM TO HOW OUTCOME          that call returned
//! fault FROM TO WHAT                          the nemesis executed a fault
//! fallen AT CLIENT HOW                        a worker did not end as it should
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use crate::clock::SEC;

/// A file to which several threads write whole lines.
pub(crate) struct Log(Mutex<File>);

impl Log {
    pub(crate) fn new(file: File) -> Log {
        Log(Mutex::new(file))
    }

    pub(crate) fn line(&self, line: &str) {
        let mut file = self.0.lock().unwrap();
        file.write_all(format!("{line}\n").as_bytes()).expect("the log can be written");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Push {
    pub(crate) task: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// True if the task was due at once and was not queued before.
    pub(crate) is_fresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) task: u64,
    pub(crate) fence: u64,
    pub(crate) attempt: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) task: u64,
    pub(crate) fence: u64,
    pub(crate) from: u64,
}

/// The outcome of the end of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    Refused,
    /// The outcome is not known, or the call never returned.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) task: u64,
    pub(crate) fence: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// True for an ack or a failure. Then the task does not run again.
    pub(crate) is_last: bool,
    pub(crate) outcome: Outcome,
}

/// The data on the server at the end of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) is_done: bool,
    pub(crate) tasks: usize,
    pub(crate) dead: usize,
    /// The fields of the hash of tasks.
    pub(crate) fields: usize,
    pub(crate) claims: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) pushes: Vec<Push>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) checks: Vec<Check>,
    pub(crate) ends: Vec<End>,
    /// The number of calls whose outcome is not known. Each may have claimed a task.
    pub(crate) unknown: usize,
    /// The spans in which a thread waited for a task, by the worker and the thread.
    pub(crate) waits: BTreeMap<(String, u64), Vec<(u64, u64)>>,
    pub(crate) faults: Vec<(u64, u64, String)>,
    pub(crate) fallen: Vec<(u64, String)>,
    /// The data on the server. It is set at the end of the run.
    pub(crate) left: Option<Left>,
    /// The lines as they were written, each after the name of its log.
    pub(crate) lines: Vec<String>,
}

impl History {
    /// Reads all logs of the folder, as far as they are written.
    pub(crate) fn read(dir: &Path, begin: u64) -> History {
        let mut history = History { begin, end: crate::clock::now(), ..History::default() };
        for file in fs::read_dir(dir).expect("the folder of the run is there").flatten() {
            if file.path().extension().is_some_and(|end| end == "log") {
                let text = fs::read_to_string(file.path()).expect("a log can be read");
                history.add(&file.file_name().to_string_lossy(), &text);
            }
        }
        history.faults.sort_unstable();
        history
    }

    /// Parses the log of one process. Its last line may be incomplete.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ending: BTreeMap<u64, End> = BTreeMap::new();
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap_or_else(|_| panic!("cannot read `{line}`"));
            match words[0] {
                "push" => {
                    let is_fresh = words[4] == "due" && words[5] == "New";
                    self.pushes.push(Push { task: number(1), from: number(2), to: number(3), is_fresh });
                }
                "wait" => _ = open.insert(number(1), number(2)),
                what @ ("claim" | "none" | "failed") => {
                    open.remove(&number(1));
                    self.note_wait(name, number(1), (number(2), number(3)));
                    self.unknown += usize::from(what == "failed");
                    if what == "claim" {
                        let (task, fence, attempt) = (number(4), number(5), number(6));
                        self.claims.push(Claim { task, fence, attempt, from: number(2), to: number(3) });
                    }
                }
                "check" => self.checks.push(Check { task: number(1), fence: number(2), from: number(3) }),
                "ending" => {
                    let (task, fence, is_last) = (number(1), number(2), matches!(words[4], "ack" | "fail"));
                    let outcome = Outcome::Unknown;
                    ending.insert(fence, End { task, fence, from: number(3), to: u64::MAX, is_last, outcome });
                }
                "ended" => {
                    let Some(mut end) = ending.remove(&number(2)) else { panic!("no begin of `{line}`") };
                    end.outcome = match words[6] {
                        "ok" => Outcome::Accepted,
                        "lost" => Outcome::Refused,
                        _ => Outcome::Unknown,
                    };
                    end.to = if end.outcome == Outcome::Unknown { u64::MAX } else { number(4) };
                    self.ends.push(end);
                }
                "fault" => self.faults.push((number(1), number(2), words[3..].join(" "))),
                "fallen" => self.fallen.push((number(1), words[2..].join(" "))),
                _ => panic!("cannot read `{line}`"),
            }
            self.lines.push(format!("{name} {line}"));
        }
        self.unknown += open.len();
        self.ends.extend(ending.into_values());
    }

    /// Records that a thread waited for a task. Successive calls count as one wait.
    fn note_wait(&mut self, name: &str, thread: u64, (from, to): (u64, u64)) {
        let waits = self.waits.entry((name.to_owned(), thread)).or_default();
        match waits.last_mut() {
            Some(last) if from.saturating_sub(last.1) < SEC / 100 => last.1 = to,
            _ => waits.push((from, to)),
        }
    }

    pub(crate) fn seconds(&self, at: u64) -> f64 {
        std::time::Duration::from_nanos(at.saturating_sub(self.begin)).as_secs_f64()
    }

    /// All lines about a task.
    pub(crate) fn slice(&self, task: u64) -> Vec<String> {
        let word = task.to_string();
        let is_about = |line: &&String| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[1] {
                "claim" => words[5] == word,
                "push" | "check" | "ending" | "ended" => words[2] == word,
                _ => false,
            }
        };
        self.lines.iter().filter(is_about).cloned().collect()
    }

    /// A summary of the history for the report.
    pub(crate) fn told(&self) -> String {
        let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
        for (.., what) in &self.faults {
            *faults.entry(what.split(' ').next().unwrap_or("")).or_default() += 1;
        }
        let faults: Vec<String> = faults.into_iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        let count = |outcome| self.ends.iter().filter(|end| end.outcome == outcome).count();
        format!(
            "{} pushes, {} claims ({} calls of unknown end); {} ends accepted, {} refused, {} unknown\n{} faults: {}\n",
            self.pushes.len(),
            self.claims.len(),
            self.unknown,
            count(Outcome::Accepted),
            count(Outcome::Refused),
            count(Outcome::Unknown),
            self.faults.len(),
            faults.join(", ")
        )
    }
}
