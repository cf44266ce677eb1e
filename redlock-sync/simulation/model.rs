//! Each script on a mutex is a step of the models in `tests/proof`. The keys before it, its arguments and the clients
//! that listen are given to the functions that both models use for their servers. The keys after it and its reply have
//! to be what these functions say.
//!
//! Not compared: the time to live of a queue, and its record of pauses. The models have no replication; what one server
//! does is compared there too.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_proof::scripts::{self as model, Attempt, Heard, Lock, Pause, Release, Reply, Span};

use super::kinds::{DrawnKind, id_of, random_of};
use super::scripts::{self, Execution};
use super::server::short;
use super::world::World;
use crate::node::memory::{Data, Item, Store};
use crate::node::{Failure, Value};

/// The length of a random part.
const RANDOM: usize = 32;
/// A wait that polls is granted the lock for this long, in ms.
const POLL_SPAN: u64 = 300;
/// Where the wait begins in the token of a grant.
const WAIT: usize = 41;

/// The wait of a token that was granted.
pub(super) fn wait_of(token: &str) -> Option<&str> {
    token.get(..WAIT)?.ends_with(":granted:").then(|| &token[WAIT..])
}

/// The arguments without that of `permissions.lua`.
pub(super) fn args(call: &Execution) -> &[String] {
    match call.args.split_last() {
        Some((last, args)) if last.starts_with("check ") => args,
        _ => &call.args,
    }
}

/// The members of a queue in their order.
fn members(item: &Item) -> Vec<String> {
    let Data::Sorted(set) = &item.data else { return Vec::new() };
    let mut members: Vec<(f64, &Vec<u8>)> = set.iter().map(|(member, score)| (*score, member)).collect();
    members.sort_by(|a, b| a.0.total_cmp(&b.0));
    members.into_iter().map(|(_, member)| String::from_utf8_lossy(member).into_owned()).collect()
}

/// When the next pause is due: the negative score of the record, which is the first member.
fn due_of(queue: &Item) -> u64 {
    let Data::Sorted(set) = &queue.data else { return 0 };
    set.iter().find(|(member, _)| member.starts_with(b"*")).map_or(0, |(_, score)| -score as u64)
}

/// What a reply says to an attempt, an extension or a release, with the fence that comes with it. `None`: an error.
pub(super) fn meaning(script: &str, reply: &Result<Value, Failure>) -> Option<(Reply, Option<u64>)> {
    let Ok(value) = reply else { return None };
    let plain = |reply| Some((reply, None));
    match (script, value) {
        ("release", Value::Int(2)) => plain(Reply::Granted),
        ("release", Value::Int(3)) => plain(Reply::Reserved),
        (_, Value::Okay | Value::Int(1..)) => plain(Reply::Yes),
        (_, Value::Nil | Value::Int(0)) => plain(Reply::Nowhere),
        (_, Value::Int(..0)) => plain(Reply::Absent),
        (_, Value::List(said)) => match &said[..] {
            // That of an extension is the number of waits.
            [Value::Int(1), Value::Text(fence)] if script != "extend" => {
                Some((Reply::Yes, std::str::from_utf8(fence).ok()?.parse().ok()))
            }
            [Value::Int(1), _] => plain(Reply::Yes),
            [Value::Int(0), .., Value::Int(1)] => plain(Reply::New),
            [Value::Int(0), .., Value::Int(2)] => plain(Reply::Kept),
            _ => plain(Reply::Nowhere),
        },
        _ => None,
    }
}

/// The keys of a lock on a server.
#[derive(Debug, Clone, Default, PartialEq)]
struct Keys {
    token: Option<String>,
    /// The end of the lock, in ms of the server's clock: not before, and not after.
    ends: (u64, u64),
    /// The ids of the waits in the queue, in their order.
    queue: Vec<String>,
    /// When the next pause is due, in ms of the server's clock; 0: the lock was not handed over yet.
    due: u64,
    fence: u64,
}

impl Keys {
    /// The keys of a call, without those that had ended at `now`.
    fn of(store: &Store, keys: &[String], now: u64) -> Keys {
        let item = |place: usize| -> Option<&Item> {
            let item = store.items().get(keys.get(place)?.as_bytes())?;
            item.expires.is_none_or(|at| now <= at).then_some(item)
        };
        let text = |item: &Item| match &item.data {
            Data::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        let ends = item(0).and_then(|item| item.expires).unwrap_or_default();
        let mut queue = item(1).map_or_else(Vec::new, members);
        let due = item(1).map_or(0, due_of);
        queue.retain(|member| !member.starts_with('*'));
        for member in &mut queue {
            member.truncate(id_of(member).len());
        }
        let fence = keys.last().filter(|key| key.ends_with(":fence"));
        let fence = fence.and_then(|key| store.items().get(key.as_bytes())).and_then(text);
        let fence = fence.and_then(|fence| fence.parse().ok()).unwrap_or_default();
        Keys { token: item(0).and_then(text), ends: (ends, ends), queue, due, fence }
    }

    /// Whether these are keys that the model permits.
    fn is_as(&self, model: &Keys) -> bool {
        let is_in_time = self.token.is_none() || (model.ends.0..=model.ends.1).contains(&self.ends.0);
        self.token == model.token && is_in_time && self.queue == model.queue
    }

    fn shown(&self) -> String {
        let token = self.token.as_deref().map_or("free".to_owned(), short);
        format!("{token} until {:?}, queue {:?}", self.ends, self.queue)
    }
}

/// A call of a script on a mutex, with what the server knows before it runs.
pub(super) struct Step<'a> {
    script: &'static str,
    call: &'a Execution,
    several: bool,
    before: Keys,
    /// The server's clock before it, in µs.
    began: u64,
    /// Who would hear of a grant: for each wait in the queue.
    heard: BTreeMap<String, Heard>,
    /// The random part of the grant to each wait.
    randoms: BTreeMap<String, String>,
}

impl<'a> Step<'a> {
    fn new(script: &'static str, call: &'a Execution, several: bool, store: &Store) -> Step<'a> {
        let now = store.clock / 1000;
        let before = Keys::of(store, &call.keys, now);
        let queue = call.keys.get(1).and_then(|queue| store.items().get(queue.as_bytes()));
        let members = queue.map_or_else(Vec::new, members);
        let randoms: BTreeMap<String, String> =
            members.iter().map(|member| (id_of(member).to_owned(), random_of(member).to_owned())).collect();
        let is_marked = |wait: &str| {
            let random = randoms.get(wait).map_or("", String::as_str);
            let mark = call.keys.get(1).map(|queue| format!("{queue}:{wait} {random}")).unwrap_or_default();
            store.items().get(mark.as_bytes()).is_some_and(|item| item.expires.is_none_or(|at| now <= at))
        };
        let heard = |wait: &String| {
            let channel = wait.split('/').next().unwrap_or_default();
            let listens = store.listeners.get(channel.as_bytes()).is_some_and(|many| *many > 0);
            let is_alive = wait.strip_prefix('-').map_or(listens, |rest| !rest.contains(':') || is_marked(wait));
            match is_alive {
                _ if store.refuses && !wait.starts_with('-') => Heard::Refused,
                true => Heard::Somebody,
                false => Heard::Nobody,
            }
        };
        let heard = before.queue.iter().map(|wait| (wait.clone(), heard(wait))).collect();
        Step { script, call, several, before, began: store.clock, heard, randoms }
    }

    fn number(&self, place: usize) -> u64 {
        args(self.call).get(place).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn text(&self, place: usize) -> String {
        args(self.call).get(place).cloned().unwrap_or_default()
    }

    /// The random part of the grant that the call has made, and its span.
    pub(super) fn span(&self, store: &Store) -> Option<(String, Duration)> {
        let token = Keys::of(store, &self.call.keys, self.began / 1000).token?;
        let is_new = wait_of(&token).is_some() && self.before.token.as_ref() != Some(&token);
        is_new.then(|| (token[..RANDOM].to_owned(), Duration::from_millis(Copy::new(self, 0, 0).span)))
    }

    /// What is different from the model's step: the keys after the script, or its reply.
    pub(super) fn difference(&self, store: &Store, reply: &Result<Value, Failure>) -> Option<String> {
        let (said, fence) = meaning(self.script, reply)?;
        let after = Keys::of(store, &self.call.keys, self.began / 1000);
        let took = (store.clock / 1000).saturating_sub(self.began / 1000);
        // The script reads the clock at any moment in between.
        let steps = [0, took].map(|late| {
            let mut copy = Copy::new(self, took, late);
            let reply = copy.run(self);
            (copy, reply)
        });
        let is_it =
            |(copy, reply): &&(Copy, Option<Reply>)| after.is_as(&copy.keys) && reply.is_none_or(|reply| reply == said);
        let Some((copy, _)) = steps.iter().find(is_it) else {
            let (copy, reply) = &steps[0];
            return Some(format!(
                "it was {}; the model's is {} with {reply:?}; it is {} with {said:?}",
                self.before.shown(),
                copy.keys.shown(),
                after.shown()
            ));
        };
        self.wrong_fence(copy, &after, fence, store.clock)
    }

    fn wrong_fence(&self, copy: &Copy, after: &Keys, fence: Option<u64>, ended: u64) -> Option<String> {
        let stored = self.before.fence;
        if after.fence < stored {
            return Some(format!("the fence falls from {stored} to {}", after.fence));
        }
        // A grant raises it too.
        let (Some(fence), false) = (fence, copy.has_published) else { return None };
        let wanted = match self.script {
            "acquire" => self.number(5),
            "fence" => self.number(1),
            _ => 0,
        };
        let [least, most] = [self.began, ended].map(|clock| model::raised(stored, wanted, clock));
        let is_right = (least..=most).contains(&fence) && after.fence == fence;
        (!is_right).then(|| format!("the fence is {fence} after {stored}, and the model's is {least} to {most}"))
    }
}

/// The keys as the model changes them.
struct Copy {
    keys: Keys,
    /// The server's clock in ms, and how long the script took.
    now: u64,
    began: u64,
    took: u64,
    several: bool,
    /// With several nodes: the random part of the grants that the call makes.
    random: String,
    randoms: BTreeMap<String, String>,
    /// The times of the call in ms.
    lease: u64,
    span: u64,
    keep: u64,
    /// Threads of the releasing process wait for the lock.
    threads_wait: bool,
    heard: BTreeMap<String, Heard>,
    has_published: bool,
}

impl Copy {
    fn new(step: &Step<'_>, took: u64, late: u64) -> Copy {
        let began = step.began / 1000;
        let mut copy = Copy {
            keys: step.before.clone(),
            now: began + late,
            began,
            took,
            several: step.several,
            random: String::new(),
            randoms: step.randoms.clone(),
            lease: step.number(1),
            span: 0,
            keep: 0,
            threads_wait: false,
            heard: step.heard.clone(),
            has_published: false,
        };
        match step.script {
            "acquire" => copy.span = step.number(7),
            "release" => {
                let grant = step.text(1);
                copy.span = grant.split(' ').nth(1).and_then(|span| span.parse().ok()).unwrap_or_default();
                copy.threads_wait = grant.split(' ').nth(3) == Some("1");
                copy.random =
                    step.text(0).get(..RANDOM).map_or_else(|| random_of(&step.text(2)).to_owned(), str::to_owned);
                copy.keep = step.number(3);
            }
            _ => {}
        }
        copy
    }

    /// The model's step. `None`: its reply is not compared.
    fn run(&mut self, step: &Step<'_>) -> Option<Reply> {
        let token = step.text(0);
        let wait = |place: usize| Some(id_of(&step.text(place)).to_owned()).filter(|wait| !wait.is_empty());
        Some(match step.script {
            "acquire" => {
                let is_last = step.text(4) == "0";
                let take_over = args(step.call).get(8..).unwrap_or_default();
                let may_follow = |held: &String| take_over.iter().any(|from| held.starts_with(from));
                model::acquire(
                    self,
                    &Attempt { token, wait: wait(3), is_last, is_fast: args(step.call).len() <= 3 },
                    may_follow,
                )
            }
            "native_set" | "foreign_set" => model::set_nx(self, token),
            "adopt" => model::adopt(self, token, &step.text(4)),
            "extend" => model::extend(self, token),
            "release" => {
                let offers = self.span > 0;
                let release = Release {
                    token: Some(token).filter(|token| !token.is_empty()),
                    wait: wait(2),
                    offers,
                    keeps: self.keep > 0,
                };
                model::release(self, &release)
            }
            "unreserve" => model::unreserve(self, |held| held.starts_with(&format!("{token}:granted:"))),
            "foreign_delete" => {
                model::release(self, &Release { token: Some(token), wait: None, offers: false, keeps: false });
                return None;
            }
            "fence" => match self.keys.token.as_ref() {
                None => Reply::Absent,
                Some(held) if *held == token => Reply::Yes,
                Some(_) => Reply::Nowhere,
            },
            // What only reads changes nothing.
            _ => return None,
        })
    }
}

impl Lock for Copy {
    type Token = String;
    type Wait = String;

    fn is_several(&self) -> bool {
        self.several
    }

    fn held(&self) -> Option<String> {
        self.keys.token.clone()
    }

    fn set(&mut self, token: String, span: Span) {
        let polls = wait_of(&token).is_some_and(|wait| wait.starts_with('-'));
        let long = match span {
            Span::Lease => self.lease,
            // A reservation has the span of the call, whoever polls.
            Span::Grant if polls && self.heard.get(wait_of(&token).unwrap_or("")) == Some(&Heard::Somebody) => {
                POLL_SPAN
            }
            Span::Grant => self.span,
        };
        self.keys.token = Some(token);
        self.keys.ends = (self.began + long, self.began + self.took + long);
    }

    fn lengthen(&mut self) {
        let (least, most) = self.keys.ends;
        let new = self.began + self.lease;
        self.keys.ends = (least.max(new), most.max(new) + self.took);
    }

    fn keep(&mut self) {
        self.keys.ends = (self.began + self.keep, self.began + self.took + self.keep);
    }

    fn free(&mut self) {
        self.keys.token = None;
    }

    fn granted_to(&self, token: &String) -> Option<String> {
        wait_of(token).map(str::to_owned)
    }

    fn grant_of(&self, wait: &String) -> String {
        let random = if self.several { Some(&self.random) } else { self.randoms.get(wait) };
        format!("{}:granted:{wait}", random.map_or("", String::as_str))
    }

    fn publish(&mut self, wait: &String) -> Heard {
        self.has_published = true;
        self.heard.get(wait).copied().unwrap_or(Heard::Nobody)
    }

    fn pause(&self) -> Pause {
        let (due, now) = (self.keys.due, self.now);
        // A pause lasts at most a quarter of a second, and ends a second before the next one is due, unless the clock
        // was set back.
        if (1..=250).contains(&due.saturating_sub(1000 + now)) {
            return Pause::GoesOn;
        }
        let is_wanted = self.threads_wait || !self.keys.queue.is_empty();
        let is_over = now >= due || due - now > 1250;
        if is_wanted && due > 0 && is_over { Pause::Due } else { Pause::No }
    }

    fn nth(&self, place: usize) -> Option<String> {
        self.keys.queue.get(place).cloned()
    }

    fn is_queued(&self, wait: &String) -> bool {
        self.keys.queue.contains(wait)
    }

    fn enter(&mut self, wait: &String) {
        self.keys.queue.push(wait.clone());
    }

    fn take_out(&mut self, wait: &String) {
        self.keys.queue.retain(|member| member != wait);
    }

    fn drop_front(&mut self, many: usize) {
        self.keys.queue.drain(..many.min(self.keys.queue.len()));
    }
}

/// The scripts that use a mutex.
const SCRIPTS: [&str; 10] = [
    "acquire",
    "native_set",
    "foreign_set",
    "adopt",
    "extend",
    "release",
    "unreserve",
    "foreign_delete",
    "fence",
    "inspect",
];

impl World {
    /// The name of the mutex that a call is about.
    pub(super) fn mutex_of<'a>(&self, call: &'a Execution) -> Option<&'a str> {
        let name = call.keys.first()?.as_str();
        let is_mutex = |(known, kind): (&&str, &DrawnKind)| *known == name && *kind == DrawnKind::Mutex;
        let is_it = self.plan.names.iter().zip(&self.plan.kinds).any(is_mutex);
        (is_it && SCRIPTS.contains(&scripts::name(call.script))).then_some(name)
    }

    /// Called before a script runs on a server whose clock is set.
    pub(super) fn begin_step<'a>(&self, server: usize, call: &'a Execution) -> Option<Step<'a>> {
        self.mutex_of(call)?;
        let script = scripts::name(call.script);
        Some(Step::new(script, call, self.plan.nodes > 1, &self.servers[server].store))
    }

    /// Called after it.
    pub(super) fn end_step(&mut self, call: &Execution, difference: Option<String>, span: Option<(String, Duration)>) {
        self.counts.modelled += 1;
        if let Some((token, span)) = span {
            self.note_span(&token, span);
        }
        if let Some(what) = difference {
            self.refuse(&format!("{}.lua of `{}`: {what}", scripts::name(call.script), call.keys[0]));
        }
    }
}
