//! An in-memory node: its store, its clock, and the connections to it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::kinds::token_of;
use super::network::{Connection, Packet};
use super::plan::{MS, Plan, Time, US};
use super::scripts;
use super::settings::ROUNDING;
use super::world::{Event, World};
use crate::node::memory::{self, Data, Item, State, Store};
use crate::node::{Failure, Value};
use crate::protocol::script::Script;

/// A wall clock far from both ends, in microseconds.
const EPOCH: u64 = 1_700_000_000_000_000;

/// The scripts that may set a key.
const TAKERS: [&str; 2] = ["acquire", "foreign_set"];

#[derive(Debug)]
pub(super) struct Server {
    pub(super) is_up: bool,
    /// Raised by each restart; connections belong to one.
    pub(super) epoch: u32,
    run_id: String,
    /// The scripts that it knows, by digest.
    scripts: BTreeSet<&'static str>,
    /// The wall clock at the start, in seconds.
    started: u64,
    rate: i64,
    offset: i64,
    pub(super) store: Store,
    pub(super) busy_until: Time,
    /// When its wall clock jumped last.
    pub(super) jumped: Option<Time>,
    /// By so many ms its wall clock was set back in all: what it has lives for longer.
    pub(super) set_back: u64,
}

/// What a client asks of a node.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Script {
        execution: Rc<Execution>,
        /// With its source, and not by its digest.
        has_source: bool,
    },
    Subscribe(String),
    Info,
    Ping,
}

#[derive(Debug)]
pub(super) struct Execution {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<String>,
}

impl Command {
    /// From the words in which it was written.
    pub(super) fn read(words: &[&[u8]]) -> Command {
        let text = |word: &&[u8]| String::from_utf8_lossy(word).into_owned();
        let script = |digest: &str, rest: &[&[u8]], has_source| {
            let many: usize = text(&rest[0]).parse().unwrap();
            let (keys, args) = rest[1..].split_at(many);
            let (keys, args) = (keys.iter().map(text).collect(), args.iter().map(text).collect());
            let execution = Rc::new(Execution { script: scripts::find(digest), keys, args });
            Command::Script { execution, has_source }
        };
        match words {
            [b"EVALSHA", digest, rest @ ..] => script(&text(digest), rest, false),
            [b"EVAL", source, rest @ ..] => script(&sha1_smol::Sha1::from(source).hexdigest(), rest, true),
            [b"SUBSCRIBE", channel] => Command::Subscribe(text(channel)),
            [b"INFO", _] => Command::Info,
            [b"PING"] => Command::Ping,
            _ => panic!("no node knows {words:?}"),
        }
    }
}

impl Server {
    pub(super) fn new(plan: &Plan) -> Server {
        let offset = fastrand::i64(-plan.offsets..=plan.offsets) * 1000;
        Server {
            is_up: true,
            epoch: 0,
            run_id: new_run_id(),
            scripts: BTreeSet::new(),
            started: EPOCH / 1_000_000 - 3600,
            rate: fastrand::i64(-plan.rates..=plan.rates),
            offset,
            store: Store::default(),
            busy_until: 0,
            jumped: None,
            set_back: 0,
        }
    }

    /// Its wall clock in microseconds.
    fn clock(&self, now: Time) -> u64 {
        let fast = now as i64 / 1_000_000 * self.rate / 1000;
        (EPOCH + now / 1000).saturating_add_signed(self.offset + fast)
    }

    /// Its data as they are now.
    pub(super) fn store(&mut self, now: Time) -> &mut Store {
        self.store.clock = self.clock(now);
        self.store.creep = 0;
        &mut self.store
    }

    /// Whether it can run the script; from now on it can if it was given the source.
    fn knows(&mut self, script: &'static Script, has_source: bool) -> bool {
        if has_source {
            self.scripts.insert(&script.sha);
        }
        self.scripts.contains(&*script.sha)
    }

    fn info(&self, now: Time) -> String {
        let (run_id, seconds) = (&self.run_id, self.uptime_in_seconds(now));
        format!("run_id:{run_id}\r\nuptime_in_seconds:{seconds}\r\nrole:master\r\n")
    }

    /// What INFO tells.
    pub(super) fn uptime_in_seconds(&self, now: Time) -> u64 {
        (self.clock(now) / 1_000_000).saturating_sub(self.started)
    }
}

impl World {
    /// Does what a packet asks for.
    pub(super) fn execute(&mut self, packet: &Packet) -> Vec<redis::Value> {
        let Packet { connection, ref commands, .. } = *packet;
        let Connection { client, node, .. } = self.connections[connection];
        let execute = |command: &Command| match command {
            Command::Script { execution, has_source } => {
                if !self.servers[node].knows(execution.script, *has_source) {
                    return redis::parse_redis_value(b"-NOSCRIPT No matching script.\r\n").unwrap();
                }
                self.run(node, client, execution)
            }
            Command::Subscribe(channel) => self.subscribe(connection, channel),
            Command::Info => redis::Value::BulkString(self.servers[node].info(self.now).into_bytes()),
            Command::Ping => redis::Value::SimpleString("PONG".into()),
        };
        commands.iter().map(execute).collect()
    }

    fn run(&mut self, node: usize, client: usize, execution: &Execution) -> redis::Value {
        let creep = self.plan.creep;
        self.counts.scripts += 1;
        let Execution { script, keys, args } = execution;
        let is_refused = self.clients[client].is_refused;
        let names = &self.plan.names;
        let server = &mut self.servers[node];
        let now = self.now.max(server.busy_until);
        let started = server.clock(now);
        let store = server.store(now);
        store.creep = creep;
        store.refuses = is_refused;
        let locks: Vec<&String> = keys.iter().filter(|key| names.contains(&key.as_str())).collect();
        let before: Vec<Option<State>> = locks.iter().map(|lock| store.state(lock)).collect();
        let said = scripts::reply(store, script, keys, args);
        let after: Vec<Option<State>> = locks.iter().map(|lock| store.state(lock)).collect();
        let published = std::mem::take(&mut store.published);
        let took = store.clock - started;
        server.busy_until = now + took * US;
        let reply = memory::outcome(said.clone());
        self.log(|_| {
            let args: Vec<String> = args.iter().map(|arg| short(arg)).collect();
            let (name, key) = (scripts::name(script), keys.first().map_or("", String::as_str));
            format!("node {node}: {name} `{key}` {} of client {client}: {}", args.join(" "), shown(&reply))
        });
        if let Err(failure) = &reply
            && !(is_refused && scripts::name(script) == "publish")
        {
            self.violate(format!("a script failed: {}.lua: {}", scripts::name(script), failure.message));
        }
        for (lock, change) in locks.into_iter().zip(before.into_iter().zip(after)) {
            self.check_change(client, script, lock, change);
        }
        let endless =
            |(key, item): (&Vec<u8>, &Item)| item.expires.is_none().then(|| String::from_utf8_lossy(key).into_owned());
        let found = self.servers[node].store.live().find_map(endless);
        if let Some(key) = found {
            self.violate(format!("no time-to-live: `{key}` after {}.lua", scripts::name(script)));
        }
        for (channel, text) in published {
            self.publish(node, &channel, &text);
        }
        if scripts::name(script).ends_with("_extend") {
            self.note_late("extend", scripts::token(execution));
        }
        self.note_place(execution, &reply);
        memory::on_the_wire(said)
    }

    /// What a script may make of a lock.
    fn check_change(&mut self, client: usize, script: &Script, lock: &str, change: (Option<State>, Option<State>)) {
        let script = scripts::name(script);
        match change {
            (None, Some(_)) if !TAKERS.contains(&script) => {
                self.violate(format!("a lock that was free is set: by {script}.lua"));
            }
            // What ends while the script looks at it is not the script's doing.
            (Some(before), None) if before.left < Duration::from_millis(10) => {}
            (Some(before), after) if after.as_ref().is_none_or(|after| after.text != before.text) => {
                self.check_end(client, lock, &before.text, script);
            }
            (Some(before), Some(after)) if after.expires != before.expires => {
                self.note_late(script, &after.text);
                // What was long before is so by a clock that was set back.
                if after.left > before.left + ROUNDING {
                    self.check_length(script, &after.text, after.left);
                }
            }
            _ => {}
        }
    }

    // --- what can happen to a node ------------------------------------------------------------------------------------

    /// Goes down, and forgets everything if there are others.
    pub(super) fn go_down(&mut self, node: usize, long: Time) {
        let now = self.now;
        // Within what is promised: a minority at a time, until all that knew the lost keys have run out.
        let window = self.plan.window() + 2000 * MS;
        let others =
            self.servers.iter().enumerate().filter(|(i, s)| *i != node && (!s.is_up || s.forgot_since(now, window)));
        if self.plan.nodes > 1 && others.count() >= (self.plan.nodes - 1) / 2 || !self.servers[node].is_up {
            return;
        }
        self.counts.restarts += 1;
        let server = &mut self.servers[node];
        server.is_up = false;
        if self.plan.nodes > 1 {
            server.store = Store::default();
        }
        self.cut_lines(node);
        self.plan_at(now + long, Event::Up { node });
        self.log(|_| format!("node {node} goes down"));
    }

    pub(super) fn come_up(&mut self, node: usize) {
        let server = &mut self.servers[node];
        server.is_up = true;
        server.epoch += 1;
        server.run_id = new_run_id();
        server.scripts.clear();
        server.started = server.clock(self.now) / 1_000_000;
        self.log(|_| format!("node {node} is up again"));
    }

    /// The wall clock jumps, if the holders can spare the node: whatever it holds is held by all.
    pub(super) fn jump(&mut self, node: usize, by: i64) {
        let now = self.now;
        let window = self.plan.window();
        let recent = self.servers.iter().filter(|s| s.jumped.is_some_and(|at| now - at < window)).count();
        let spares = |world: &mut World, key: &str| {
            let held = world.servers[node].store(now).holders(key);
            held.iter().all(|one| world.supporters(key, token_of(one)).len() > world.plan.nodes / 2 + 1)
        };
        if by > 0 && (recent > 0 || !self.plan.names.clone().into_iter().all(|key| spares(self, key))) {
            return;
        }
        if by > 0 {
            self.servers[node].jumped = Some(now);
        }
        self.servers[node].set_back += by.min(0).unsigned_abs();
        self.servers[node].offset += by * 1000;
        self.counts.jumps += 1;
        self.log(|_| format!("the clock of node {node} jumps by {by} ms"));
    }

    /// The nodes on which the lock has this token; of a semaphore those that lent it the same slot.
    pub(super) fn supporters(&mut self, key: &str, token: &str) -> Vec<usize> {
        let now = self.now;
        let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (node, server) in self.servers.iter_mut().enumerate() {
            let held = server.store(now).holders(key).into_iter().filter(|one| one == token || token_of(one) == token);
            held.for_each(|one| found.entry(one).or_default().push(node));
        }
        found.into_values().max_by_key(Vec::len).unwrap_or_default()
    }

    /// What is left on the nodes, fence counters aside.
    pub(super) fn residue(&mut self) -> Option<String> {
        let now = self.now;
        self.servers.iter_mut().enumerate().find_map(|(node, server)| {
            let (key, item) = server.store(now).live().find(|(key, _)| !key.ends_with(b":fence"))?;
            let what = match &item.data {
                Data::Text(text) => short(&String::from_utf8_lossy(text)),
                other => format!("{other:?}"),
            };
            Some(format!("node {node} still has `{}` = {what}", String::from_utf8_lossy(key)))
        })
    }
}

impl Server {
    pub(super) fn forgot_since(&self, now: Time, window: Time) -> bool {
        self.epoch > 0 && self.uptime_in_seconds(now) * 1000 * MS < window
    }
}

fn new_run_id() -> String {
    format!("{:040x}", fastrand::u128(..))
}

/// A token without most of its digits.
pub(super) fn short(text: &str) -> String {
    text.split(' ')
        .map(
            |word| {
                if word.len() > 20 { word[..6].to_owned() + "…" + &word[word.len() - 7..] } else { word.to_owned() }
            },
        )
        .collect::<Vec<_>>()
        .join(" ")
}

fn shown(reply: &Result<Value, Failure>) -> String {
    fn value(whole: &Value) -> String {
        match whole {
            Value::Nil => "nil".into(),
            Value::Int(n) => n.to_string(),
            Value::Text(text) => short(&String::from_utf8_lossy(text)),
            Value::List(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
        }
    }
    reply.as_ref().map_or_else(|failure| failure.message.clone(), value)
}
