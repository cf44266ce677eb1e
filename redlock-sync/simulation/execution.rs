//! Events at a node: it executes packets, it restarts, or its clock jumps.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::connection::{Connection, Packet};
use super::kinds::token_of;
use super::plan::{MS, Time, US};
use super::scripts::{self, Execution};
use super::server::{Command, Told, new_run_id, short};
use super::settings::ROUNDING;
use super::world::{Event, World};
use crate::node::memory::{self, Data, Item, MemoryReply, Store, StoredText, encoded};
use crate::node::{Failure, Value};
use crate::protocol::script::Script;

/// The scripts that may set a key.
const TAKERS: [&str; 3] = ["acquire", "native_set", "foreign_set"];

impl World {
    /// Executes the commands of a packet. Returns the bytes of the replies, and those to scripts.
    pub(super) fn execute(&mut self, packet: &Packet) -> (Vec<u8>, Vec<Told>) {
        let Packet { connection, ref commands, .. } = *packet;
        let Connection { client, node, .. } = self.connections[connection];
        let mut told = Vec::new();
        let execute = |command: &Command| match command {
            Command::Script { execution, has_source } => {
                let said = if self.servers[node].knows(execution.script, *has_source) {
                    let before = self.before_write(node);
                    let said = self.run(node, client, execution);
                    self.after_write(connection, node, before);
                    said
                } else {
                    MemoryReply::Error("NOSCRIPT No matching script.".into())
                };
                let started = self.servers[node].started;
                told.push(Told { execution: Rc::clone(execution), reply: said.clone(), started });
                Some(said)
            }
            Command::Subscribe(channel) => Some(self.subscribe(connection, channel)),
            Command::Info => Some(MemoryReply::Bulk(self.servers[node].info(self.now).into_bytes())),
            Command::Ping => Some(MemoryReply::Bulk(b"PONG".to_vec())),
            // The reply follows later.
            Command::Wait(long) => {
                self.wait_for_replica(connection, *long);
                None
            }
        };
        let bytes = commands.iter().filter_map(execute).flat_map(|reply| encoded(&reply)).collect();
        (bytes, told)
    }

    fn run(&mut self, node: usize, client: usize, execution: &Execution) -> MemoryReply {
        let microseconds_per_command = self.plan.microseconds_per_command;
        self.counts.scripts += 1;
        let Execution { script, keys, args, .. } = execution;
        let is_refused = self.clients[client].is_refused;
        let names = &self.plan.names;
        let server = &mut self.servers[node];
        let now = self.now.max(server.busy_until);
        let started = server.clock(now);
        let store = server.store(now);
        store.microseconds_per_command = microseconds_per_command;
        store.refuses = is_refused;
        let locks: Vec<&String> = keys.iter().filter(|key| names.contains(&key.as_str())).collect();
        let before: Vec<Option<StoredText>> = locks.iter().map(|lock| store.state(lock)).collect();
        self.note_claim(execution);
        let step = self.begin_step(node, execution);
        let server = &mut self.servers[node];
        let store = &mut server.store;
        let said = scripts::reply(store, script, keys, args);
        let reply = memory::outcome(&said);
        // Before a look removes keys that have ended meanwhile.
        let step = step.map(|step| (step.difference(store, &reply), step.span(store)));
        let after: Vec<Option<StoredText>> = locks.iter().map(|lock| store.state(lock)).collect();
        let published = std::mem::take(&mut store.published);
        let took = store.clock - started;
        server.busy_until = now + took * US;
        self.log(|_| {
            let args: Vec<String> = args.iter().map(|arg| short(arg)).collect();
            let (name, key) = (scripts::name(script), keys.first().map_or("", String::as_str));
            format!("node {node}: {name} `{key}` {} of client {client}: {}", args.join(" "), shown(&reply))
        });
        if let Some((difference, span)) = step {
            self.end_step(execution, difference, span);
        }
        if let Err(failure) = &reply
            && !(is_refused && scripts::name(script) == "publish")
        {
            self.violate(format!("a script failed: {}.lua: {}", scripts::name(script), failure.message));
        }
        for (lock, change) in locks.into_iter().zip(before.into_iter().zip(after)) {
            self.check_change(client, script, lock, change);
        }
        let endless = |(key, item): (&Vec<u8>, &Item)| {
            (item.expires.is_none() && !is_of_queue(key)).then(|| String::from_utf8_lossy(key).into_owned())
        };
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
        said
    }

    /// Checks the effect of a script on a lock.
    fn check_change(
        &mut self,
        client: usize,
        script: &Script,
        lock: &str,
        change: (Option<StoredText>, Option<StoredText>),
    ) {
        let script = scripts::name(script);
        match change {
            (None, Some(_)) if !TAKERS.contains(&script) => {
                self.violate(format!("a lock that was free is set: by {script}.lua"));
            }
            // A key that expires while the script reads it is not an effect of the script.
            (Some(before), None) if before.left < Duration::from_millis(10) => {}
            (Some(before), after) if after.as_ref().is_none_or(|after| after.text != before.text) => {
                self.check_end(client, lock, &before.text, script);
            }
            (Some(before), Some(after)) if after.expires != before.expires => {
                self.note_late(script, &after.text);
                // If the key had a longer TTL before the script, it got that TTL by a clock that was set back.
                if after.left > before.left + ROUNDING {
                    self.check_length(script, &after.text, after.left);
                }
            }
            _ => {}
        }
    }

    // --- what can happen to a node -----------------------------------------------------------------------------------

    /// Stops the node. It loses its data if there are other nodes.
    pub(super) fn go_down(&mut self, node: usize, long: Time) {
        let now = self.now;
        // The library's promises permit only a minority of restarted nodes at a time. A node counts until all leases
        // that knew the lost keys have ended.
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

    /// Lets the wall clock of a node jump, if all holders keep a majority without this node.
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

    /// The nodes on which the lock has this token. For a semaphore, the nodes that lent the same slot to it.
    pub(super) fn supporters(&mut self, key: &str, token: &str) -> Vec<usize> {
        let now = self.now;
        let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let counts = self.replication.counting(&self.plan);
        for (node, server) in self.servers.iter_mut().enumerate().filter(|(node, _)| counts.contains(node)) {
            let held = server.store(now).holders(key).into_iter().filter(|one| one == token || token_of(one) == token);
            held.for_each(|one| found.entry(one).or_default().push(node));
        }
        found.into_values().max_by_key(Vec::len).unwrap_or_default()
    }

    /// Finds a key that is left on a node. Fence counters and queues do not count.
    pub(super) fn residue(&mut self) -> Option<String> {
        let now = self.now;
        self.servers.iter_mut().enumerate().find_map(|(node, server)| {
            let (key, item) =
                server.store(now).live().find(|(key, _)| !key.ends_with(b":fence") && !is_of_queue(key))?;
            let what = match &item.data {
                Data::Text(text) => short(&String::from_utf8_lossy(text)),
                other => format!("{other:?}"),
            };
            Some(format!("node {node} still has `{}` = {what}", String::from_utf8_lossy(key)))
        })
    }
}

/// Returns true for a key of a queue. Such keys stay, and `queues` checks them.
fn is_of_queue(key: &[u8]) -> bool {
    key.windows(4).any(|part| part == b":q2:")
}

fn shown(reply: &Result<Value, Failure>) -> String {
    fn value(whole: &Value) -> String {
        match whole {
            Value::Nil => "nil".into(),
            Value::Okay => "OK".into(),
            Value::Int(n) => n.to_string(),
            Value::Text(text) => short(&String::from_utf8_lossy(text)),
            Value::List(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
        }
    }
    reply.as_ref().map_or_else(|failure| failure.message.clone(), value)
}
