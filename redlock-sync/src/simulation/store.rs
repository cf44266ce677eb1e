//! What an in-memory node stores, and the commands that the scripts use. Keys expire by the node's own clock, when they are looked at.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A reply in the terms of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Nil,
    Ok,
    Int(i64),
    Bulk(Vec<u8>),
    List(Vec<Vec<u8>>),
    /// Bulk strings, some of which are missing.
    Some(Vec<Option<Vec<u8>>>),
    Error(&'static str),
}

const WRONG_TYPE: Reply = Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value");
const BAD_EXPIRY: Reply = Reply::Error("ERR invalid expire time in 'set' command");

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, f64>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) data: Data,
    /// Milliseconds of the node's clock.
    pub(super) expires: Option<u64>,
}

/// A lock, as a node has it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) text: String,
    pub(super) expires: Option<u64>,
    /// How long it lives.
    pub(super) left: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    items: BTreeMap<Vec<u8>, Item>,
    /// The node's wall clock in microseconds.
    pub(super) clock: u64,
    /// Microseconds that pass with each command: a server does not stop its clock while a script runs.
    pub(super) creep: u64,
    /// The clients that listen, by channel.
    pub(super) listeners: BTreeMap<Vec<u8>, i64>,
    /// The user of the call may not publish.
    pub(super) refuses: bool,
    /// What was published, with its channel.
    pub(super) published: Vec<(Vec<u8>, Vec<u8>)>,
    /// The millisecond at which the script began that runs now: until its end no further key expires.
    script_began: Option<u64>,
}

impl Store {
    fn ms(&self) -> u64 {
        self.clock / 1000
    }

    pub(super) fn script_begins(&mut self) {
        self.script_began = Some(self.ms());
    }

    pub(super) fn script_ends(&mut self) {
        self.script_began = None;
    }

    /// The item, unless its time has passed; as a server does, a key lives through its last millisecond.
    fn item(&mut self, key: &[u8]) -> Option<&mut Item> {
        let now = self.script_began.unwrap_or(self.ms());
        if self.items.get(key)?.expires.is_some_and(|at| now > at) {
            self.items.remove(key);
            return None;
        }
        self.items.get_mut(key)
    }

    /// What is left, without what has expired.
    pub(super) fn live(&mut self) -> impl Iterator<Item = (&Vec<u8>, &Item)> {
        let now = self.ms();
        self.items.retain(|_, item| item.expires.is_none_or(|at| now <= at));
        self.items.iter()
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    pub(super) fn text(&mut self, key: &str) -> Option<&[u8]> {
        match self.item(key.as_bytes()) {
            Some(Item { data: Data::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    /// What stands there, if it is a text.
    pub(super) fn state(&mut self, key: &str) -> Option<State> {
        let text = String::from_utf8_lossy(self.text(key)?).into_owned();
        let expires = self.item(key.as_bytes())?.expires;
        let left = expires.map_or(Duration::MAX, |at| Duration::from_millis(at.saturating_sub(self.ms())));
        Some(State { text, expires, left })
    }

    pub(super) fn command(&mut self, args: &[&[u8]]) -> Reply {
        self.clock += self.creep;
        match args {
            [b"TIME"] => {
                let parts = [self.clock / 1_000_000, self.clock % 1_000_000];
                Reply::List(parts.map(|part| part.to_string().into_bytes()).to_vec())
            }
            [b"GET", key] => match self.item(key) {
                None => Reply::Nil,
                Some(Item { data: Data::Text(text), .. }) => Reply::Bulk(text.clone()),
                Some(_) => WRONG_TYPE,
            },
            [b"MGET", keys @ ..] => {
                let mut text = |key: &&[u8]| match self.item(key) {
                    Some(Item { data: Data::Text(text), .. }) => Some(text.clone()),
                    _ => None,
                };
                Reply::Some(keys.iter().map(&mut text).collect())
            }
            [b"SET", key, value, options @ ..] => self.set(key, value, options),
            [b"DEL", keys @ ..] => Reply::Int(
                keys.iter().filter(|key| self.item(key).is_some() && self.items.remove(**key).is_some()).count() as i64,
            ),
            [b"EXISTS", key] => Reply::Int(i64::from(self.item(key).is_some())),
            [b"PTTL", key] => {
                let now = self.ms();
                Reply::Int(
                    self.item(key).map_or(-2, |item| item.expires.map_or(-1, |at| at.saturating_sub(now) as i64)),
                )
            }
            [b"PEXPIRE", key, ms] => self.expire(key, number(ms)),
            [b"RPUSH", key, values @ ..] => self.push(key, values),
            [b"PUBLISH", channel, message] => self.publish(channel, message),
            [command, key, rest @ ..] if command.starts_with(b"Z") => self.sorted(command, key, rest),
            _ => Reply::Error("ERR unknown command, or its arguments are not those of the scripts"),
        }
    }

    fn publish(&mut self, channel: &[u8], message: &[u8]) -> Reply {
        if self.refuses {
            return Reply::Error("NOPERM this user has no permissions to access one of the channels used as arguments");
        }
        let heard = self.listeners.get(channel).copied().unwrap_or(0);
        if heard > 0 {
            self.published.push((channel.to_vec(), message.to_vec()));
        }
        Reply::Int(heard)
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &[&[u8]]) -> Reply {
        let (only_new, px) = match options {
            [b"NX", b"PX", ms] => (true, ms),
            [b"PX", ms] => (false, ms),
            _ => return Reply::Error("ERR syntax error"),
        };
        let Some(ms) = number(px).and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0) else { return BAD_EXPIRY };
        if only_new && self.item(key).is_some() {
            return Reply::Nil;
        }
        let expires = Some(self.ms() + ms);
        self.items.insert(key.to_vec(), Item { data: Data::Text(value.to_vec()), expires });
        Reply::Ok
    }

    fn expire(&mut self, key: &[u8], ms: Option<i64>) -> Reply {
        let Some(ms) = ms else { return Reply::Error("ERR value is not an integer or out of range") };
        let now = self.ms();
        let Some(item) = self.item(key) else { return Reply::Int(0) };
        item.expires = Some(now.saturating_add_signed(ms));
        if ms <= 0 {
            self.items.remove(key);
        }
        Reply::Int(1)
    }

    fn push(&mut self, key: &[u8], values: &[&[u8]]) -> Reply {
        if self.item(key).is_none() {
            self.items.insert(key.to_vec(), Item { data: Data::List(VecDeque::new()), expires: None });
        }
        match self.item(key) {
            Some(Item { data: Data::List(list), .. }) => {
                list.extend(values.iter().map(|value| value.to_vec()));
                Reply::Int(list.len() as i64)
            }
            _ => WRONG_TYPE,
        }
    }

    fn sorted(&mut self, command: &[u8], key: &[u8], rest: &[&[u8]]) -> Reply {
        if command == b"ZADD" && self.item(key).is_none() {
            self.items.insert(key.to_vec(), Item { data: Data::Sorted(BTreeMap::new()), expires: None });
        }
        let set = match self.item(key) {
            Some(Item { data: Data::Sorted(set), .. }) => set,
            Some(_) => return WRONG_TYPE,
            None if [&b"ZRANGE"[..], b"ZREVRANGE", b"ZPOPMIN"].contains(&command) => return Reply::List(Vec::new()),
            None => return Reply::Int(0),
        };
        let reply = match (command, rest) {
            (b"ZADD", [b"NX", _, member]) if set.contains_key(*member) => Reply::Int(0),
            (b"ZADD", [b"NX", score, member] | [score, member]) => {
                Reply::Int(i64::from(set.insert(member.to_vec(), float(score)).is_none()))
            }
            (b"ZREM", [member]) => Reply::Int(i64::from(set.remove(*member).is_some())),
            (b"ZCARD", []) => Reply::Int(set.len() as i64),
            (b"ZRANGE", [low, high, with @ ..]) => {
                Reply::List(shown(&within(&ordered(set), low, high), !with.is_empty()))
            }
            (b"ZREVRANGE", [low, high, with @ ..]) => {
                let mut all = ordered(set);
                all.reverse();
                Reply::List(shown(&within(&all, low, high), !with.is_empty()))
            }
            (b"ZPOPMIN", []) => {
                let first = within(&ordered(set), b"0", b"0");
                for (member, _) in &first {
                    set.remove(member);
                }
                Reply::List(shown(&first, true))
            }
            (b"ZREMRANGEBYRANK", [low, high]) => {
                let gone = within(&ordered(set), low, high);
                for (member, _) in &gone {
                    set.remove(member);
                }
                Reply::Int(gone.len() as i64)
            }
            _ => Reply::Error("ERR unknown command, or its arguments are not those of the scripts"),
        };
        if set.is_empty() {
            self.items.remove(key);
        }
        reply
    }
}

type Members = Vec<(Vec<u8>, f64)>;

/// By score, and those of the same score by their bytes.
fn ordered(set: &BTreeMap<Vec<u8>, f64>) -> Members {
    let mut all: Members = set.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all
}

/// Those from one rank to another, both included; -1 is the last.
fn within(all: &Members, low: &[u8], high: &[u8]) -> Members {
    let rank = |text| usize::try_from(number(text).unwrap_or(0)).unwrap_or(all.len());
    all.iter().take(rank(high).saturating_add(1)).skip(rank(low)).cloned().collect()
}

fn shown(members: &Members, with_scores: bool) -> Vec<Vec<u8>> {
    let score = |score: &f64| with_scores.then(|| format!("{score}").into_bytes());
    members.iter().flat_map(|(member, s)| std::iter::once(member.clone()).chain(score(s))).collect()
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn float(text: &[u8]) -> f64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}
