//! Tokens and ids, as seen on the wire. Each has one use, and tokens that were given up disappear from the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::connection::Packet;
use super::kinds::{id_of, random_of, token_of};
use super::known::{Arrival, Trace, Wait};
use super::plan::{MS, Time, nanos};
use super::rules::Rule;
use super::scripts::{self, Execution};
use super::server::{Command, short};
use super::world::World;

/// The longest time that a token may stay on a node after the faults have ended, or after it was given up. Some node
/// timeouts are added. A probe that hangs ends after a second. The repeated release then causes a new probe, and the
/// release half a second later reaches the server.
const GRACE: Duration = Duration::from_millis(3500);
/// The number of times that the nodes are checked after that.
const LOOKS: u64 = 4;

impl World {
    /// Records a command that is about to be written. The same command may go to several nodes, or be repeated.
    pub(super) fn note_command(&mut self, command: &Command) {
        let Command::Script { execution, .. } = command else { return };
        let Execution { script, keys, args, .. } = &**execution;
        let script = scripts::name(script);
        match (script, &args[..]) {
            ("native_set", [token, ms]) => {
                self.note_attempt(&keys[0], token);
                self.note_length("acquire", token, ms);
            }
            ("acquire", [token, ms, _, rest @ ..]) => {
                self.note_attempt(&keys[0], token);
                self.note_length(script, token, ms);
                if let [wait, _, ..] = rest {
                    self.note_wait(wait, token);
                    self.note_random(wait);
                }
            }
            ("rw_acquire", [token, ms, _, rest @ ..]) | ("semaphore_acquire", [token, ms, _, _, rest @ ..]) => {
                self.note_attempt(&keys[0], token);
                self.note_length("acquire", token, ms);
                // On the fast path, this place is the last one and has the argument of `permissions.lua`.
                if let [_, wait, _, ..] = rest {
                    self.note_wait(wait, token);
                }
            }
            ("adopt", [token, ..]) => self.note_attempt(&keys[0], token),
            ("rw_extend" | "semaphore_extend", [token, ms, ..]) => {
                self.note_length("extend", token, ms);
            }
            ("rw_release", [token, _, rest @ ..]) | ("semaphore_release", [token, _, _, rest @ ..]) => {
                self.note_release(token);
                if let Some(wait) = rest.get(1) {
                    self.note_leaver(wait);
                }
            }
            ("extend", [token, ms]) => {
                self.counts.renewals += 1;
                self.note_length(script, token, ms);
            }
            ("release", [token, _, rest @ ..]) => {
                self.note_release(token);
                if let [wait, ..] = rest {
                    self.note_leaver(wait);
                }
            }
            _ => {}
        }
    }

    fn note_attempt(&mut self, key: &str, token: &str) {
        let (client, now) = (self.client, self.now);
        let trace =
            self.invariants.tokens.traces.entry(token.to_owned()).or_insert_with(|| Trace::new(client, key, now));
        trace.used = now;
        if trace.is_released {
            self.violate(format!("{} is asked for after its release was sent", short(token)));
        } else if trace.client != client || trace.key != key {
            let what = format!(
                "a token for two attempts: client {} asks for `{}` by {}, and client {client} for `{key}`",
                trace.client,
                trace.key,
                short(token)
            );
            self.breaks(Rule::Ids, what);
        }
    }

    fn note_release(&mut self, token: &str) {
        let now = self.now;
        if let Some(trace) = self.invariants.tokens.traces.get_mut(token)
            && !std::mem::replace(&mut trace.is_released, true)
        {
            trace.used = trace.used.max(now);
        }
    }

    /// The random part of the token of the grants to a wait.
    fn note_random(&mut self, wait: &str) {
        let random = random_of(wait);
        if random.is_empty() {
            return;
        }
        let new = (self.client, id_of(wait).to_owned());
        let known = self.invariants.tokens.granted.entry(random.to_owned()).or_insert_with(|| new.clone()).clone();
        if known != new {
            let what = format!("a token for two waits: those of {known:?} and {new:?} bring {}", short(random));
            self.breaks(Rule::Ids, what);
        }
    }

    fn note_wait(&mut self, wait: &str, token: &str) {
        let id = id_of(wait);
        let Some(task) = self.drawer(token).filter(|_| !id.is_empty()) else { return };
        let new = Wait { client: self.client, task, turn: self.tasks[task].turn };
        let known = *self.invariants.tokens.waits.entry(id.to_owned()).or_insert(new);
        if known != new {
            self.breaks(Rule::Ids, format!("an id for two waits: {id} is of {known:?} and of {new:?}"));
        }
    }

    /// A release removes the mark of a wait of the same client that has ended.
    fn note_leaver(&mut self, wait: &str) {
        let id = id_of(wait);
        let client = self.client;
        if let Some(known) = self.invariants.tokens.waits.get(id).filter(|known| known.client != client) {
            let what = format!("an id for two waits: {id} is of {known:?}, and client {client} has waited by it");
            self.breaks(Rule::Ids, what);
        }
        let left = self.invariants.tokens.wait_of(id);
        let is_of = |arrival: &&mut Arrival| Some((arrival.task, arrival.turn)) == left;
        self.invariants.arrivals.iter_mut().filter(is_of).for_each(|arrival| arrival.is_over = true);
    }

    /// Records a packet that is executed although its connection is broken.
    pub(super) fn note_duplicate(&mut self, packet: &Packet) {
        for command in &packet.commands {
            if let Command::Script { execution, .. } = command
                && let Some(trace) = self.invariants.tokens.traces.get_mut(scripts::token(execution))
            {
                let name = scripts::name(execution.script);
                trace.is_late |= name.ends_with("acquire") || matches!(name, "adopt" | "native_set");
            }
        }
    }

    /// Records that a script has extended a lock. After a release with a minimum hold, the token is still on the node.
    pub(super) fn note_late(&mut self, script: &str, token: &str) {
        if let Some(trace) = self.invariants.tokens.traces.get_mut(token) {
            trace.is_late |= trace.is_released && script == "extend";
        }
    }

    /// Records that the client holds the lock by this token.
    pub(super) fn note_holder(&mut self, key: &str, token: &str) {
        let (client, now) = (self.client, self.now);
        let trace =
            self.invariants.tokens.traces.entry(token.to_owned()).or_insert_with(|| Trace::new(client, key, now));
        trace.used = now;
        trace.was_held = true;
    }

    /// Records that a holder gives up this token. The lock stays taken for this time.
    pub(super) fn note_end(&mut self, token: &str, keep: Duration) {
        let now = self.now;
        if let Some(trace) = self.invariants.tokens.traces.get_mut(token) {
            trace.used = now + nanos(keep);
        }
    }

    // --- what is left ------------------------------------------------------------------------------------------------

    fn grace(&self) -> Time {
        nanos(GRACE + self.plan.settings.node_timeout * 4)
    }

    /// The times at which the nodes are checked.
    pub(super) fn looks(&self) -> impl Iterator<Item = Time> + use<> {
        let (healed, grace) = (self.plan.healed, self.grace());
        (1..=LOOKS).map(move |look| healed + MS + grace / 2 * (look + 1))
    }

    /// Checks that no node has a token that a live client has given up. Such a node would be missing from the
    /// majorities of the next holders. Schedules with a replica are excluded: a release does not wait for replicas, so
    /// a failover can bring back a token that was given up.
    pub(super) fn look(&mut self) {
        if self.plan.has_replica {
            return;
        }
        for (key, name) in self.plan.names.clone().into_iter().enumerate() {
            for (token, nodes) in self.tokens_of(name) {
                if self.is_left(&token) && !self.invariants.is_unseen(key) {
                    self.tell_left(name, &token, nodes);
                }
            }
        }
    }

    /// The tokens that hold a lock, each with its number of nodes. A node whose clock was set back is excluded, since a
    /// key with a minimum hold lives longer there.
    fn tokens_of(&mut self, name: &str) -> BTreeMap<String, usize> {
        let now = self.now;
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for server in self.servers.iter_mut().filter(|server| server.set_back == 0) {
            let held = server.store(now).holders(name);
            let tokens: BTreeSet<&str> = held.iter().map(|one| token_of(one)).collect();
            for token in tokens {
                *found.entry(token.to_owned()).or_default() += 1;
            }
        }
        found
    }

    fn is_left(&self, token: &str) -> bool {
        let Some(trace) = self.invariants.tokens.traces.get(token) else { return false };
        let client = &self.clients[trace.client];
        let since = trace.used.max(self.plan.healed).max(client.paused_until);
        // A closed client no longer sends anything.
        let is_over = !trace.is_late && !client.is_dead && !client.is_closed && !self.invariants.is_held(token);
        is_over && self.now > since + self.grace()
    }

    fn tell_left(&mut self, name: &str, token: &str, nodes: usize) {
        let Trace { client, used, was_held, .. } = self.invariants.tokens.traces[token];
        let ms = (self.now - used) / MS;
        let short = short(token);
        if nodes <= self.plan.nodes / 2 {
            let what = format!(
                "a node keeps a token: `{name}` has {short} of client {client} on {nodes} nodes, which gave it up {ms} ms ago"
            );
            self.breaks(Rule::Nodes, what);
        } else if was_held {
            let what = format!("a lock is left: `{name}` has {short} of client {client}, which gave it up {ms} ms ago");
            self.breaks(Rule::Releases, what);
        } else {
            let what = format!("an attempt is left: `{name}` has {short} of client {client}, which failed {ms} ms ago");
            self.breaks(Rule::Attempts, what);
        }
    }
}
