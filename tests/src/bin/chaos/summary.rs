//! The report of a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::args::Options;
use crate::checkers::claims::unknown;
use crate::checkers::{Verdict, Verdicts, is_judged};
use crate::event::{Op, Outcome};
use crate::history::{EndOfClaim, History};

/// The largest number of lines that are printed of a counterexample. The logs have the rest.
const LINES: usize = 40;
/// The largest number of counterexamples that are printed for one checker.
const SHOWN: usize = 3;

pub(crate) fn text(options: &Options, history: &History, verdicts: &Verdicts, dir: &Path) -> String {
    let mut out = String::new();
    let seconds = (history.end - history.begin) / crate::clock::SEC;
    let &Options { nodes, clients, threads, crowd, keys, tasks, lease, seed, .. } = options;
    let uses = if options.has_tasks() {
        format!("{tasks} tasks with leases of {lease} ms")
    } else {
        format!("crowds of {crowd}, {keys} locks")
    };
    let place = if options.sentinel { "a Sentinel group".to_owned() } else { format!("{nodes} nodes") };
    let forked = options.forked.word();
    _ = writeln!(
        out,
        "\n{place}, {clients} clients ({forked} of them forked) with {threads} threads each, {uses}, {seconds} s, \
         seed {seed}"
    );
    let done = if options.has_tasks() { claims(history) } else { holds(history) };
    _ = writeln!(out, "\n{done}\n{}\n{}", outcomes(history), faults(history));
    _ = writeln!(out, "Verdicts");
    for (name, about, verdict) in verdicts {
        let word = match verdict {
            verdict if verdict.excused => "-",
            verdict if verdict.violations.is_empty() => "ok",
            _ if !is_judged(name) => "figure",
            _ => "FAILED",
        };
        _ = writeln!(out, "  {name:<9} {word:<7} {}", verdict.judged);
        if !verdict.violations.is_empty() {
            _ = writeln!(out, "            {} times: {about}", verdict.violations.len());
        }
    }
    for (name, _, verdict) in verdicts {
        for violation in verdict.violations.iter().take(SHOWN) {
            _ = writeln!(out, "\n{name}: at {}, {}", history.seconds(violation.at).trim(), violation.what);
            for line in violation.slice.iter().take(LINES) {
                _ = writeln!(out, "    {line}");
            }
            if violation.slice.len() > LINES {
                _ = writeln!(out, "    … {} lines more in the logs", violation.slice.len() - LINES);
            }
        }
    }
    _ = writeln!(out, "\nlogs: {}", dir.display());
    out
}

/// Returns a line for each checker that found a violation: its name, the number of violations, and the second of the
/// first one.
pub(crate) fn found(history: &History, verdicts: &Verdicts) -> String {
    let line = |(name, _, verdict): &(&str, &str, Verdict)| {
        let first = verdict.violations.iter().map(|violation| violation.at).min()?;
        let at = history.seconds(first);
        Some(format!("{name} {} {}\n", verdict.violations.len(), at.trim().trim_end_matches(" s")))
    };
    verdicts.iter().filter_map(line).collect()
}

fn holds(history: &History) -> String {
    let got = history.holds.len();
    let lost = history.holds.iter().filter(|hold| !hold.told.is_empty() || hold.saw_loss().is_some()).count();
    let released = history.holds.iter().filter(|hold| hold.unlocked.is_some_and(|(_, o)| o == Outcome::Ok)).count();
    let mut between = 0;
    for key in 0..history.keys {
        let holders: Vec<u8> = history.holds_of(key).map(|hold| hold.session.client).collect();
        between += holders.windows(2).filter(|two| two[0] != two[1]).count();
    }
    format!("{got} acquisitions, {between} of them from another process; {released} released, {lost} lost")
}

fn claims(history: &History) -> String {
    let ends = || history.claims.iter().filter_map(|claim| claim.end);
    let accepted = ends().filter(EndOfClaim::is_accepted).count();
    let refused = ends().filter(EndOfClaim::is_refused).count();
    format!(
        "{} pushes, {} claims ({} calls of unknown end); {accepted} ends accepted, {refused} refused, {} unknown",
        history.pushes.len(),
        history.claims.len(),
        unknown(history),
        ends().count() - accepted - refused
    )
}

/// Counts the calls by their outcome.
fn outcomes(history: &History) -> String {
    let mut counts: BTreeMap<Op, BTreeMap<&str, usize>> = BTreeMap::new();
    for call in &history.calls {
        let outcome = call.end.map_or("no end", |(_, outcome)| outcome.word());
        *counts.entry(call.op).or_default().entry(outcome).or_default() += 1;
    }
    let row = |(op, counts): (&Op, &BTreeMap<&str, usize>)| {
        let words: Vec<String> = counts.iter().map(|(outcome, n)| format!("{n} {outcome}")).collect();
        format!("  {:<13} {}\n", op.word(), words.join(", "))
    };
    format!("Calls\n{}", counts.iter().map(row).collect::<String>())
}

/// Counts the faults by their kind: how many were executed, and how many took effect.
fn faults(history: &History) -> String {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for struck in &history.struck {
        let count = counts.entry(struck.fault.kind.word()).or_default();
        count.0 += 1;
        count.1 += usize::from(struck.hits > 0);
    }
    let words: Vec<String> = counts
        .iter()
        .map(|(kind, (all, hit))| if all == hit { format!("{kind} {all}") } else { format!("{kind} {hit} of {all}") })
        .collect();
    let lines: Vec<String> = words.chunks(8).map(|line| format!("  {}\n", line.join(", "))).collect();
    format!("{} faults\n{}", history.struck.len(), lines.concat())
}
