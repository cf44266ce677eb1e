//! `redlock inspect`, `ls` and `release`: shows the holders of locks, and releases locks by force.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_sync::{HeldLock, LockKind, Redlock, SeenLatch, SnapshotOptions};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::ending::{Answer, BUSY, Failure, USAGE};
use crate::text::{cut, escaped};

/// The number of characters of a token that are shown. A prefix must be as long to identify a token.
const SHOWN: usize = 8;
/// The number of hexadecimal digits with which a token of the library begins.
const DIGITS: usize = 32;

pub(crate) fn inspect(locks: &Redlock, key: &str, as_json: bool) -> Result<Answer, Failure> {
    let held = locks.snapshot(&SnapshotOptions::default().name(key))?.locks;
    let code = u8::from(held.is_empty());
    Ok(match code {
        _ if as_json => {
            Answer::json(BTreeMap::from([("locks", held.iter().map(without_value).collect::<Vec<_>>())]), code)
        }
        0 => Answer::well(table(&held, &[])),
        _ => Answer::new(free(key), code),
    })
}

/// Returns true for a string that is no lock, so its value may be a secret. Locks of this library and of others have a
/// time to live.
fn is_no_lock(held: &HeldLock) -> bool {
    held.kind == LockKind::Mutex && held.holder.remaining.is_none()
}

/// The holder as JSON, without the value of a string that is no lock.
fn without_value(held: &HeldLock) -> Value {
    // This cannot fail: the keys of all maps are strings.
    let mut shown = serde_json::to_value(held).unwrap_or_default();
    if let (true, Some(fields)) = (is_no_lock(held), shown.as_object_mut()) {
        fields.extend(["holder", "holder_name"].map(|name| (name.to_owned(), Value::Null)));
    }
    shown
}

fn without_values<S: Serializer>(held: &[HeldLock], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(held.iter().map(without_value))
}

/// Says which key was looked at. A program with another prefix has another key for the same name.
fn free(name: &str) -> String {
    let prefix = std::env::var("REDLOCK_KEY_PREFIX").unwrap_or_default();
    let key = escaped(&format!("{prefix}{name}"));
    let all = if prefix.is_empty() { "" } else { "REDLOCK_KEY_PREFIX= " };
    // A `?` stands for what a pattern or a terminal would take for something else.
    let is_plain = |c: char| c == ' ' || c != '*' && escaped(c.encode_utf8(&mut [0; 4])).chars().eq([c]);
    let pattern: String = name.chars().map(|c| if is_plain(c) { c } else { '?' }).collect();
    format!(
        "{} is free: no lock has the key {key}\nIf its program has another key_prefix, this finds the key: \
         {all}redlock ls '*{}'\n",
        escaped(name),
        pattern.replace('\'', "'\\''")
    )
}

#[derive(Serialize)]
struct Listed {
    #[serde(serialize_with = "without_values")]
    locks: Vec<HeldLock>,
    latches: Vec<SeenLatch>,
}

pub(crate) fn list(locks: &Redlock, pattern: &str, as_json: bool) -> Result<Answer, Failure> {
    let seen = locks.snapshot(&SnapshotOptions::default().pattern(pattern))?;
    let listed = Listed { locks: seen.locks, latches: seen.latches };
    if as_json {
        return Ok(Answer::json(listed, 0));
    }
    Ok(Answer::well(table(&listed.locks, &listed.latches) + &total(&listed)))
}

/// The last line of the list: the number of locks, and of waits for them. Several lines can be about one lock.
fn total(listed: &Listed) -> String {
    let mut waiting: BTreeMap<&str, u64> = listed.locks.iter().map(|held| (&*held.name, held.waiting)).collect();
    let locks = waiting.len();
    waiting.extend(listed.latches.iter().map(|latch| (&*latch.name, latch.waiting)));
    let latches = waiting.len() - locks;
    let number =
        |number: u64, what: &str, more: &str| format!("{number} {what}{}", if number == 1 { "" } else { more });
    let mut parts = vec![number(locks as u64, "lock", "s")];
    if latches > 0 {
        parts.push(number(latches as u64, "latch", "es"));
    }
    parts.push(number(waiting.values().sum(), "waiter", "s"));
    parts.join(", ") + "\n"
}

/// Releases the lock of the given holder by force. The servers compare the whole token.
pub(crate) fn release(locks: &Redlock, key: &str, holder: &str) -> Result<Answer, Failure> {
    let one = of_holder(locks, key, holder)?;
    if !locks.mutex(key).force_unlock(&one.holder)? {
        return Err(gone(key, holder));
    }
    Ok(Answer::well(format!("released {}, which {} held\n", escaped(key), one.holder.id)))
}

fn gone(key: &str, holder: &str) -> Failure {
    Failure::new(BUSY, format!("{} does not hold {}, or no longer holds it", escaped(holder), escaped(key)))
}

/// The mutex with this key, if its holder has a token that begins with `holder`.
///
/// The key is judged before its value is compared. Otherwise the answers would tell the value of a string that is no
/// lock, character by character.
pub(crate) fn of_holder(locks: &Redlock, key: &str, holder: &str) -> Result<HeldLock, Failure> {
    let usage = |why: String| Failure::new(USAGE, why);
    let start = start_of_token(holder).ok_or_else(|| {
        usage(format!("`{}` is no token: give the {SHOWN} characters that `redlock inspect` shows", escaped(holder)))
    })?;
    let held = locks.snapshot(&SnapshotOptions::default().name(key))?.locks;
    if let Some(other) = held.iter().find(|held| held.kind != LockKind::Mutex) {
        return Err(usage(format!("{} is held as `{}`; only a mutex can be taken away", escaped(key), other.kind)));
    }
    let is_free = held.is_empty();
    let (ours, _): (Vec<_>, Vec<_>) = held.into_iter().partition(is_of_library);
    if ours.is_empty() && !is_free {
        return Err(usage(format!("{} holds {FOREIGN}", escaped(key))));
    }
    let mut found = ours.into_iter().filter(|held| held.holder.id.as_str().starts_with(start));
    match (found.next(), found.next()) {
        (None, _) => Err(gone(key, holder)),
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => {
            let holder = escaped(holder);
            Err(usage(format!("several holders have tokens that begin with `{holder}`: give more characters")))
        }
    }
}

/// What a string is whose value is not shown.
const NO_LOCK: &str =
    "a string without a time to live: no lock of redlock-sync; a program of another library may hold it";

/// What a string is that is not to be released as a lock.
const FOREIGN: &str = "a value that is no token of redlock-sync, or that has no time to live: if no program needs it, \
                       delete the key by hand";

/// Returns true for a token in the form of this library, with a time to live, which this library always sets. Other
/// strings may hold any text.
pub(crate) fn is_of_library(held: &HeldLock) -> bool {
    let random = held.holder.id.as_str().split_once(':').map(|(random, _)| random);
    held.holder.remaining.is_some() && random.is_some_and(|random| random.len() == DIGITS && is_hex(random))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The digits with which a token begins: alone, as `inspect` shows them (`3f9a01bc…:name`), or in a whole token.
fn start_of_token(holder: &str) -> Option<&str> {
    let (start, is_whole) = match (holder.split_once('…'), holder.split_once(':')) {
        (Some((start, _)), _) => (start, false),
        (None, Some((start, _))) => (start, true),
        (None, None) => (holder, false),
    };
    let least = if is_whole { DIGITS } else { SHOWN };
    ((least..=DIGITS).contains(&start.len()) && is_hex(start)).then_some(start)
}

const HEAD: [&str; 6] = ["NAME", "KIND", "ENDS IN", "WAIT", "SERVERS", "HOLDER"];

pub(crate) fn table(held: &[HeldLock], latches: &[SeenLatch]) -> String {
    let ends = |left: Option<Duration>| left.map_or_else(|| "never".to_owned(), |left| format!("{left:.1?}"));
    let row = |held: &HeldLock| {
        let servers = format!("{} of {}", held.nodes, held.of);
        let (name, kind) = (escaped(&held.name), held.kind.to_string());
        let holder = if is_no_lock(held) { NO_LOCK.to_owned() } else { held.holder.id.to_string() };
        [name, kind, ends(held.holder.remaining), held.waiting.to_string(), servers, holder]
    };
    let latch = |latch: &SeenLatch| {
        let (name, kind, open) = (escaped(&latch.name), "latch", if latch.is_open { ", open" } else { "" });
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
