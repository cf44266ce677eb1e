//! `redlock inspect`, `ls` and `release`: shows the holders of locks, and releases locks by force.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_sync::{HeldLock, LockKind, Redlock, SeenLatch, SnapshotOptions};
use serde::Serialize;

use crate::ending::{Answer, BUSY, Failure, USAGE};
use crate::text::{cut, plain};

/// The number of characters of a token that are shown. A prefix must be as long to identify a token.
const SHOWN: usize = 8;

pub(crate) fn inspect(locks: &Redlock, key: &str, as_json: bool) -> Result<Answer, Failure> {
    let held = locks.holders(key)?;
    let code = u8::from(held.is_empty());
    Ok(match code {
        _ if as_json => Answer::json(BTreeMap::from([("locks", &held)]), code),
        0 => Answer::well(table(&held, &[])),
        _ => Answer::new(format!("{} is free\n", key.escape_debug()), code),
    })
}

#[derive(Serialize)]
struct Listed {
    locks: Vec<HeldLock>,
    latches: Vec<SeenLatch>,
}

pub(crate) fn list(locks: &Redlock, pattern: &str, as_json: bool) -> Result<Answer, Failure> {
    let seen = locks.snapshot(&SnapshotOptions::default().pattern(pattern))?;
    let listed = Listed { locks: seen.locks, latches: seen.latches };
    Ok(if as_json { Answer::json(listed, 0) } else { Answer::well(table(&listed.locks, &listed.latches)) })
}

/// Releases the lock of the given holder by force. The servers compare the whole token.
pub(crate) fn release(locks: &Redlock, key: &str, holder: &str) -> Result<Answer, Failure> {
    let one = of_holder(locks, key, holder)?;
    if !locks.mutex(key).force_unlock(&one.holder)? {
        return Err(gone(key, holder));
    }
    Ok(Answer::well(format!("released {}, which {} held\n", key.escape_debug(), one.holder.id)))
}

fn gone(key: &str, holder: &str) -> Failure {
    Failure::new(BUSY, format!("{holder} does not hold {}, or no longer holds it", key.escape_debug()))
}

/// The mutex with this key, if its holder has a token that begins with `holder`.
pub(crate) fn of_holder(locks: &Redlock, key: &str, holder: &str) -> Result<HeldLock, Failure> {
    let token = holder.split_once('…').map_or(holder, |(first, _)| first);
    if token.chars().count() < SHOWN {
        return Err(Failure::new(
            USAGE,
            format!("`{holder}` is too short: give the {SHOWN} characters that `redlock inspect` shows"),
        ));
    }
    let mut held = locks.holders(key)?.into_iter().filter(|held| held.holder.id.as_str().starts_with(token));
    let one = held.next().ok_or_else(|| gone(key, holder))?;
    if held.next().is_some() {
        return Err(Failure::new(
            USAGE,
            format!("several holders have tokens that begin with `{holder}`: give more characters"),
        ));
    }
    if one.kind != LockKind::Mutex {
        return Err(Failure::new(
            USAGE,
            format!("{} is held as `{}`; only a mutex can be taken away", one.name.escape_debug(), one.kind),
        ));
    }
    Ok(one)
}

const HEAD: [&str; 6] = ["NAME", "KIND", "ENDS IN", "WAIT", "SERVERS", "HOLDER"];

pub(crate) fn table(held: &[HeldLock], latches: &[SeenLatch]) -> String {
    let ends = |left: Option<Duration>| left.map_or_else(|| "never".to_owned(), |left| format!("{left:.1?}"));
    let row = |held: &HeldLock| {
        let servers = format!("{} of {}", held.nodes, held.of);
        let (name, kind) = (plain(&held.name), held.kind.to_string());
        [name, kind, ends(held.holder.remaining), held.waiting.to_string(), servers, held.holder.id.to_string()]
    };
    let latch = |latch: &SeenLatch| {
        let (name, kind, open) = (plain(&latch.name), "latch", if latch.is_open { ", open" } else { "" });
        let arrived = format!("{} arrived{open}", latch.arrived);
        [name, kind.to_owned(), ends(latch.remaining), latch.waiting.to_string(), String::new(), arrived]
    };
    let mut rows: Vec<_> = held.iter().map(row).chain(latches.iter().map(latch)).collect();
    rows.sort_by(|[one, ..], [other, ..]| one.cmp(other));
    columns(HEAD, rows.into_iter())
}

/// The longest cell, in characters. A longer one would make each line of the table as long.
const LONGEST: usize = 200;

/// Formats the head and the rows in aligned columns, without trailing spaces. Longer cells are cut, and end with `…`.
/// If there are no rows, only the head is returned.
pub(crate) fn columns<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows = rows.map(|row| row.map(|cell| cut(&cell, LONGEST)));
    let lines: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}
