//! The data of a server in memory, and the commands that scripts use. Expired keys are removed when they are accessed.

use std::borrow::Cow;
use std::collections::BTreeMap;
#[cfg(test)]
use std::time::Duration;

use super::rules::{Rule, refused_in_script};
use crate::protocol::permits::MAX_PERMITS;

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MemoryReply {
    Nil,
    Ok,
    Int(i64),
    Bulk(Vec<u8>),
    List(Vec<MemoryReply>),
    Error(Cow<'static, str>),
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, f64>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) data: Data,
    /// The end of the key, in milliseconds of the server's clock.
    pub(crate) expires: Option<u64>,
}

/// The data of one server.
#[derive(Debug, Default)]
pub(crate) struct Store {
    items: BTreeMap<Vec<u8>, Item>,
    /// The server's wall clock, in microseconds.
    pub(crate) clock: u64,
    /// How far each command advances the clock. The clock of a real server goes on while a script runs.
    pub(crate) microseconds_per_command: u64,
    /// The number of connections subscribed to each channel.
    pub(crate) listeners: BTreeMap<Vec<u8>, i64>,
    /// True if the user lacks the permission to publish.
    pub(crate) refuses: bool,
    /// The published messages, each with its channel.
    pub(crate) published: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if a command has written something, even if nothing changed.
    #[cfg_attr(not(test), allow(dead_code, reason = "only the simulation asks"))]
    pub(crate) has_written: bool,
    /// The time at which the running script began, in milliseconds. No further key expires until the script ends.
    pub(super) script_began: Option<u64>,
    /// The keys of the running script.
    pub(super) script_keys: Vec<Vec<u8>>,
    /// How the server differs from Redis.
    pub(crate) rules: Vec<Rule>,
}

fn error(message: &'static str) -> MemoryReply {
    MemoryReply::Error(Cow::Borrowed(message))
}

fn wrong_type() -> MemoryReply {
    error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

fn unknown() -> MemoryReply {
    error("ERR unknown command, or arguments that no script of the library gives it")
}

fn not_a_number() -> MemoryReply {
    error("ERR value is not an integer or out of range")
}

impl Store {
    pub(super) fn ms(&self) -> u64 {
        self.clock / 1000
    }

    #[cfg(test)]
    pub(crate) fn items(&self) -> &BTreeMap<Vec<u8>, Item> {
        &self.items
    }

    #[cfg(test)]
    pub(crate) fn set_items(&mut self, items: BTreeMap<Vec<u8>, Item>) {
        self.items = items;
    }

    /// The item at a key, unless it has expired. As on a server, a key still exists in its last millisecond.
    fn item(&mut self, key: &[u8]) -> Option<&mut Item> {
        let now = self.script_began.unwrap_or(self.ms());
        if self.items.get(key)?.expires.is_some_and(|at| now > at) {
            self.items.remove(key);
            return None;
        }
        self.items.get_mut(key)
    }

    /// Replaces or removes the item at a key. Returns the former one.
    pub(crate) fn replace(&mut self, key: &[u8], item: Option<Item>) -> Option<Item> {
        match item {
            Some(item) => self.items.insert(key.to_vec(), item),
            None => self.items.remove(key),
        }
    }

    /// A string with this time to live.
    pub(crate) fn lasting(&self, text: &str, ms: u64) -> Item {
        Item { data: Data::Text(text.as_bytes().to_vec()), expires: Some(self.ms().saturating_add(ms)) }
    }

    /// A semaphore with every slot lent for this time.
    pub(crate) fn exhausted(&self, token: &str, ms: u64) -> Item {
        self.ending((0..MAX_PERMITS).map(|slot| format!("{slot} {token}")), ms)
    }

    /// A read-write lock held by a writer for this time.
    pub(crate) fn written(&self, token: &str, ms: u64) -> Item {
        self.ending([format!("w{token}")], ms)
    }

    /// A sorted set in which each member, and the set itself, ends after this time.
    fn ending(&self, members: impl IntoIterator<Item = String>, ms: u64) -> Item {
        let ends = self.ms().saturating_add(ms);
        #[allow(clippy::cast_precision_loss, reason = "scores are no other numbers")]
        let members = members.into_iter().map(|member| (member.into_bytes(), ends as f64));
        Item { data: Data::Sorted(members.collect()), expires: Some(ends) }
    }

    /// All keys that have not expired.
    pub(crate) fn live(&mut self) -> impl Iterator<Item = (&Vec<u8>, &Item)> {
        let now = self.ms();
        self.items.retain(|_, item| item.expires.is_none_or(|at| now <= at));
        self.items.iter()
    }

    /// Executes one command of a script.
    pub(super) fn command_of_script(&mut self, words: &[&[u8]]) -> MemoryReply {
        refused_in_script(&self.rules, &self.script_keys, words).map_or_else(|| self.command(words), error)
    }

    /// Executes one command.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> MemoryReply {
        self.clock += self.microseconds_per_command;
        match words {
            [b"TIME"] => {
                let parts = [self.clock / 1_000_000, self.clock % 1_000_000];
                MemoryReply::List(parts.map(|part| MemoryReply::Bulk(part.to_string().into_bytes())).to_vec())
            }
            [b"INFO"] => MemoryReply::Bulk(b"role:master\r\n".to_vec()),
            [b"GET", key] => self.get(key),
            [b"GETRANGE", key, b"0", last] => {
                let Some(last) = number(last).and_then(|last| usize::try_from(last).ok()) else {
                    return not_a_number();
                };
                match self.get(key) {
                    MemoryReply::Bulk(text) => {
                        MemoryReply::Bulk(text.into_iter().take(last.saturating_add(1)).collect())
                    }
                    MemoryReply::Nil => MemoryReply::Bulk(Vec::new()),
                    other => other,
                }
            }
            [b"MGET", keys @ ..] => {
                let text = |reply| if matches!(reply, MemoryReply::Bulk(_)) { reply } else { MemoryReply::Nil };
                MemoryReply::List(keys.iter().map(|key| text(self.get(key))).collect())
            }
            [b"SET", key, value, options @ ..] => self.set(key, value, options),
            [b"DEL", keys @ ..] => {
                let is_gone = |key: &&&[u8]| self.item(key).is_some() && self.items.remove(**key).is_some();
                count(keys.iter().filter(is_gone).count())
            }
            [b"EXISTS", keys @ ..] => {
                MemoryReply::Int(keys.iter().map(|key| i64::from(self.item(key).is_some())).sum())
            }
            [b"PTTL", key] => {
                let now = self.ms();
                let left = |item: &mut Item| {
                    item.expires.map_or(-1, |at| i64::try_from(at.saturating_sub(now)).unwrap_or(i64::MAX))
                };
                MemoryReply::Int(self.item(key).map_or(-2, left))
            }
            [b"PEXPIRE", key, ms] => self.expire(key, number(ms)),
            [b"PERSIST", key] => {
                let had_an_end = self.item(key).is_some_and(|item| item.expires.take().is_some());
                MemoryReply::Int(i64::from(had_an_end))
            }
            [b"SCAN", b"0", b"MATCH", pattern, b"COUNT", _] => {
                let keys = self.live().map(|(key, _)| key).filter(|key| glob(pattern, key));
                let keys = keys.map(|key| MemoryReply::Bulk(key.clone())).collect();
                MemoryReply::List(vec![MemoryReply::Bulk(b"0".to_vec()), MemoryReply::List(keys)])
            }
            [b"KEYS", b"*"] => MemoryReply::List(self.live().map(|(key, _)| MemoryReply::Bulk(key.clone())).collect()),
            [b"PUBLISH", channel, message] => self.publish(channel, message),
            [command, key, rest @ ..] => self.collection(command, key, rest),
            _ => unknown(),
        }
    }

    fn get(&mut self, key: &[u8]) -> MemoryReply {
        match self.item(key) {
            None => MemoryReply::Nil,
            Some(Item { data: Data::Text(text), .. }) => MemoryReply::Bulk(text.clone()),
            Some(_) => wrong_type(),
        }
    }

    fn publish(&mut self, channel: &[u8], message: &[u8]) -> MemoryReply {
        if self.refuses {
            return error("NOPERM this user has no permissions to access one of the channels used as arguments");
        }
        let receivers = self.listeners.get(channel).copied().unwrap_or(0);
        if receivers > 0 {
            self.published.push((channel.to_vec(), message.to_vec()));
        }
        MemoryReply::Int(receivers)
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &[&[u8]]) -> MemoryReply {
        let (only_new, ms) = match options {
            [] => (false, None),
            [b"NX", b"PX", ms] => (true, Some(ms)),
            [b"PX", ms] | [b"PX", ms, b"GET"] => (false, Some(ms)),
            _ => return error("ERR syntax error"),
        };
        let ms = ms.map(|ms| number(ms).and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0));
        if ms == Some(None) {
            return error("ERR invalid expire time in 'set' command");
        }
        if only_new && self.item(key).is_some() {
            return MemoryReply::Nil;
        }
        let before = if options.ends_with(&[b"GET"]) { self.get(key) } else { MemoryReply::Ok };
        if matches!(before, MemoryReply::Error(_)) {
            return before;
        }
        let expires = ms.flatten().map(|ms| self.ms().saturating_add(ms));
        self.items.insert(key.to_vec(), Item { data: Data::Text(value.to_vec()), expires });
        self.has_written = true;
        before
    }

    fn expire(&mut self, key: &[u8], ms: Option<i64>) -> MemoryReply {
        let Some(ms) = ms else { return not_a_number() };
        let now = self.ms();
        let Some(item) = self.item(key) else { return MemoryReply::Int(0) };
        item.expires = Some(now.saturating_add_signed(ms));
        if ms <= 0 {
            self.items.remove(key);
        }
        self.has_written = true;
        MemoryReply::Int(1)
    }

    /// Executes a command on a list, a hash or a sorted set. When it is empty, its key is removed.
    fn collection(&mut self, command: &[u8], key: &[u8], rest: &[&[u8]]) -> MemoryReply {
        let mut new = match command {
            b"RPUSH" => Data::List(Vec::new()),
            [b'H', ..] => Data::Hash(BTreeMap::new()),
            [b'Z', ..] => Data::Sorted(BTreeMap::new()),
            _ => return unknown(),
        };
        let data = self.item(key).map_or(&mut new, |item| &mut item.data);
        let (reply, is_empty) = match (data, command) {
            (Data::List(list), b"RPUSH") => {
                list.extend(rest.iter().map(|value| value.to_vec()));
                (count(list.len()), list.is_empty())
            }
            (Data::Hash(fields), [b'H', ..]) => (on_hash(fields, command, rest), fields.is_empty()),
            (Data::Sorted(set), [b'Z', ..]) => (on_sorted(set, command, rest), set.is_empty()),
            _ => return wrong_type(),
        };
        if is_empty {
            self.items.remove(key);
        } else if !self.items.contains_key(key) {
            self.items.insert(key.to_vec(), Item { data: new, expires: None });
        }
        reply
    }
}

/// A string and its time to live.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct StoredText {
    pub(crate) text: String,
    pub(crate) expires: Option<u64>,
    pub(crate) left: Duration,
}

/// Access for the simulation.
#[cfg(test)]
impl Store {
    /// The string at a key.
    pub(crate) fn text(&mut self, key: &str) -> Option<&[u8]> {
        match self.item(key.as_bytes()) {
            Some(Item { data: Data::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    /// The holders of the lock at a key: the string, or the members that have not ended.
    pub(crate) fn holders(&mut self, key: &str) -> Vec<String> {
        let now = self.ms();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        #[allow(clippy::cast_precision_loss, reason = "scores are no other numbers")]
        match self.item(key.as_bytes()).map(|item| &item.data) {
            Some(Data::Text(bytes)) => vec![text(bytes)],
            Some(Data::Sorted(set)) => {
                set.iter().filter(|(_, ends)| **ends >= now as f64).map(|(m, _)| text(m)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The string at a key, with its time to live.
    pub(crate) fn state(&mut self, key: &str) -> Option<StoredText> {
        let text = String::from_utf8_lossy(self.text(key)?).into_owned();
        let expires = self.item(key.as_bytes())?.expires;
        let left = expires.map_or(Duration::MAX, |at| Duration::from_millis(at.saturating_sub(self.ms())));
        Some(StoredText { text, expires, left })
    }
}

fn on_hash(fields: &mut BTreeMap<Vec<u8>, Vec<u8>>, command: &[u8], rest: &[&[u8]]) -> MemoryReply {
    match (command, rest) {
        (b"HSET", pairs) => {
            let mut is_new = |field: &[u8], value: &[u8]| fields.insert(field.to_vec(), value.to_vec()).is_none();
            count(pairs.chunks(2).filter(|pair| matches!(pair, [field, value] if is_new(field, value))).count())
        }
        (b"HMGET", wanted) => {
            let value = |field: &&[u8]| fields.get(*field).cloned().map_or(MemoryReply::Nil, MemoryReply::Bulk);
            MemoryReply::List(wanted.iter().map(value).collect())
        }
        (b"HLEN", []) => count(fields.len()),
        (b"HGET", [field]) => fields.get(*field).cloned().map_or(MemoryReply::Nil, MemoryReply::Bulk),
        (b"HDEL", gone) => count(gone.iter().filter(|field| fields.remove(**field).is_some()).count()),
        _ => unknown(),
    }
}

fn on_sorted(set: &mut BTreeMap<Vec<u8>, f64>, command: &[u8], rest: &[&[u8]]) -> MemoryReply {
    match (command, rest) {
        (b"ZADD", [b"NX", _, member]) if set.contains_key(*member) => MemoryReply::Int(0),
        (b"ZADD", [b"NX", score, member] | [score, member]) => match float(score) {
            Some(score) => MemoryReply::Int(i64::from(set.insert(member.to_vec(), score).is_none())),
            None => error("ERR value is not a valid float"),
        },
        (b"ZREM", members @ [_, ..]) => count(members.iter().filter(|member| set.remove(**member).is_some()).count()),
        (b"ZSCORE", [member]) => {
            set.get(*member).map_or(MemoryReply::Nil, |score| MemoryReply::Bulk(score.to_string().into_bytes()))
        }
        (b"ZCARD", []) => count(set.len()),
        (b"ZCOUNT", [b"-inf", high]) => match float(high) {
            Some(high) => count(set.values().filter(|score| **score <= high).count()),
            None => error("ERR min or max is not a float"),
        },
        (b"ZREMRANGEBYSCORE", [b"-inf", end]) => match end.strip_prefix(b"(").and_then(float) {
            Some(end) => {
                let before = set.len();
                set.retain(|_, score| *score >= end);
                count(before - set.len())
            }
            None => error("ERR min or max is not a float"),
        },
        (b"ZRANGEBYSCORE", [b"-inf", high, b"WITHSCORES", b"LIMIT", b"0", most]) => {
            let (Some(high), Some(most)) = (float(high), number(most)) else { return not_a_number() };
            let most = usize::try_from(most).unwrap_or(set.len());
            let low: Members = ordered(set).into_iter().filter(|(_, score)| *score <= high).take(most).collect();
            shown(&low, true)
        }
        (b"ZRANGE", [low, high, with @ ..]) => range(&ordered(set), low, high, with),
        (b"ZREVRANGE", [low, high, with @ ..]) => {
            let mut all = ordered(set);
            all.reverse();
            range(&all, low, high, with)
        }
        (b"ZPOPMIN", []) => {
            let first: Members = ordered(set).into_iter().take(1).collect();
            remove(set, &first);
            shown(&first, true)
        }
        (b"ZREMRANGEBYRANK", [low, high]) => {
            let Some(gone) = within(&ordered(set), low, high) else { return not_a_number() };
            remove(set, &gone);
            count(gone.len())
        }
        _ => unknown(),
    }
}

type Members = Vec<(Vec<u8>, f64)>;

fn remove(set: &mut BTreeMap<Vec<u8>, f64>, members: &Members) {
    for (member, _) in members {
        set.remove(member);
    }
}

/// The members ordered by score, then by bytes.
fn ordered(set: &BTreeMap<Vec<u8>, f64>) -> Members {
    let mut all: Members = set.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all
}

fn range(all: &Members, low: &[u8], high: &[u8], with: &[&[u8]]) -> MemoryReply {
    within(all, low, high).map_or_else(not_a_number, |members| shown(&members, !with.is_empty()))
}

/// The members between two ranks, both included. Rank -1 is the last.
fn within(all: &Members, low: &[u8], high: &[u8]) -> Option<Members> {
    let rank = |text| Some(usize::try_from(number(text)?).unwrap_or(all.len()));
    let (low, high) = (rank(low)?, rank(high)?);
    Some(all.iter().take(high.saturating_add(1)).skip(low).cloned().collect())
}

fn shown(members: &Members, with_scores: bool) -> MemoryReply {
    let score = |score: &f64| with_scores.then(|| MemoryReply::Bulk(score.to_string().into_bytes()));
    let words =
        members.iter().flat_map(|(member, s)| std::iter::once(MemoryReply::Bulk(member.clone())).chain(score(s)));
    MemoryReply::List(words.collect())
}

fn count(n: usize) -> MemoryReply {
    MemoryReply::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn float(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|score: &f64| !score.is_nan())
}

/// True if the text matches the pattern. `*` and `?` are wildcards, and `\` escapes the next character.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], rest) => rest.is_empty(),
        ([b'*', pattern @ ..], _) => (0..=text.len()).any(|at| text.get(at..).is_some_and(|rest| glob(pattern, rest))),
        ([b'?', pattern @ ..], [_, text @ ..]) => glob(pattern, text),
        ([b'\\', c, pattern @ ..] | [c, pattern @ ..], [first, text @ ..]) => c == first && glob(pattern, text),
        (_, []) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn patterns_match_as_those_of_a_server() {
        let matches = |pattern: &str, text: &str| glob(pattern.as_bytes(), text.as_bytes());
        for (pattern, text) in
            [("", ""), ("*", ""), ("*:q2:d*", "{a}:q2:due"), ("or?er:*", "order:7"), (r"P\*a\\*", r"P*a\b")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("?", ""), ("order", "order:7"), ("*d", "order"), (r"P\*a", "PPa"), ("a", "")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
