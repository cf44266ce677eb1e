//! `redlock inspect`, `ls` and `release`: what holds which lock.

use redlock_sync::{HeldLock, LockKind, Redlock};

use crate::ending::{Answer, BUSY, Failure, USAGE};

/// The fewest characters of a token that name it: those that are shown.
const SHOWN: usize = 8;

pub(crate) fn inspect(locks: &Redlock, key: &str) -> Result<Answer, Failure> {
    let held = locks.holders(key)?;
    let code = u8::from(held.is_empty());
    Ok(if held.is_empty() {
        Answer::new(format!("{} is free\n", key.escape_debug()), code)
    } else {
        Answer::well(table(&held))
    })
}

pub(crate) fn list(locks: &Redlock, pattern: &str) -> Result<Answer, Failure> {
    Ok(Answer::well(table(&locks.held_locks(pattern)?)))
}

/// Takes the lock from that holder: what is compared on the servers is its whole token.
pub(crate) fn release(locks: &Redlock, key: &str, holder: &str) -> Result<Answer, Failure> {
    let held = of_holder(locks.holders(key)?, holder)?;
    let gone = || Failure::new(BUSY, format!("{} is not held by {holder}, or not any more", key.escape_debug()));
    let [one] = &held[..] else { return Err(gone()) };
    if one.kind != LockKind::Mutex {
        return Err(Failure::new(
            USAGE,
            format!("{} is held as `{}`; only a mutex can be taken away", one.name.escape_debug(), one.kind),
        ));
    }
    if !locks.mutex(key).force_unlock(&one.holder)? {
        return Err(gone());
    }
    Ok(Answer::well(format!("released {}, which {} held\n", key.escape_debug(), one.holder.id)))
}

/// Those whose token begins with what `inspect` showed, or with more of it.
fn of_holder(mut held: Vec<HeldLock>, holder: &str) -> Result<Vec<HeldLock>, Failure> {
    let token = holder.split_once('…').map_or(holder, |(first, _)| first);
    if token.chars().count() < SHOWN {
        return Err(Failure::new(
            USAGE,
            format!("`{holder}` is too short: give the {SHOWN} characters that `redlock inspect` shows"),
        ));
    }
    held.retain(|held| held.holder.id.as_str().starts_with(token));
    if held.len() > 1 {
        return Err(Failure::new(USAGE, format!("`{holder}` begins the tokens of several holders: give more of it")));
    }
    Ok(held)
}

const HEAD: [&str; 5] = ["NAME", "KIND", "ENDS IN", "SERVERS", "HOLDER"];

fn table(held: &[HeldLock]) -> String {
    let row = |held: &HeldLock| {
        let ends = held.holder.remaining.map_or_else(|| "never".to_owned(), |left| format!("{left:.1?}"));
        let servers = format!("{} of {}", held.nodes, held.of);
        [held.name.escape_debug().to_string(), held.kind.to_string(), ends, servers, held.holder.id.to_string()]
    };
    columns(HEAD, held.iter().map(row))
}

/// Lines whose columns stand below each other, but for the last one; none below the head if there is no row.
pub(crate) fn columns<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let lines: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}
