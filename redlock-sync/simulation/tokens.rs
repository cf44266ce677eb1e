//! What becomes of tokens and ids, as the wire shows it: each stands for one thing, and those that are given up are gone from the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::kinds::token_of;
use super::network::Packet;
use super::plan::{MS, Time, nanos};
use super::rules::Rule;
use super::scripts;
use super::server::{Command, Execution, short};
use super::world::World;

/// How long after all is well again, or after it was given up, a token may stand on a majority of the nodes; and some node timeouts.
const GRACE: Duration = Duration::from_secs(2);
/// The nodes are looked at so often after that.
const LOOKS: u64 = 8;

/// All tokens and ids of a schedule.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Of attempts, and of holders.
    traces: BTreeMap<String, Trace>,
    /// Random parts of grants, with the client that made each of them and the token that it released or asked for.
    granted: BTreeMap<String, (usize, String)>,
    /// Ids of waits.
    waits: BTreeMap<String, Wait>,
}

#[derive(Debug)]
struct Trace {
    client: usize,
    key: String,
    /// When it was used last: for an attempt, by a holder, or for its first release.
    used: Time,
    was_held: bool,
    is_released: bool,
    /// Something was executed after its release that set it again, or has it stay for longer; no release comes behind it.
    is_late: bool,
}

/// One call to acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    client: usize,
    task: usize,
    turn: u32,
}

impl Tokens {
    /// The task to which a wait belongs, and which of its turns it is.
    pub(super) fn wait_of(&self, id: &str) -> Option<(usize, u32)> {
        self.waits.get(id).map(|wait| (wait.task, wait.turn))
    }
}

impl World {
    /// Notes a command that is about to be written, perhaps to a further node or once more.
    pub(super) fn note_command(&mut self, command: &Command) {
        let Command::Script { execution, .. } = command else { return };
        let Execution { script, keys, args } = &**execution;
        let script = scripts::name(script);
        match (script, &args[..]) {
            ("acquire", [token, ms, _, rest @ ..]) => {
                self.note_attempt(&keys[0], token);
                self.note_length(script, token, ms);
                if let [wait, _, _, _, random, ..] = rest {
                    self.note_wait(wait, token);
                    self.note_grant(random, token);
                }
            }
            ("rw_acquire", [_, token, ms, _, wait, ..])
            | ("semaphore_acquire", [token, ms, _, _, _, _, _, wait, ..]) => {
                self.note_attempt(&keys[0], token);
                self.note_length("acquire", token, ms);
                self.note_wait(wait, token);
            }
            ("rw_extend", [_, token, ms, _]) | ("semaphore_extend", [token, _, ms]) => {
                self.note_length("extend", token, ms);
            }
            ("rw_release", [_, token, _, wait, ..]) | ("semaphore_release", [token, _, _, _, _, _, wait]) => {
                self.note_release(token);
                self.note_leaver(wait);
            }
            ("extend", [token, ms]) => self.note_length(script, token, ms),
            ("release_all", args) => args.iter().step_by(3).for_each(|token| self.note_release(token)),
            ("release", [token, wait, random, ..]) => {
                self.note_release(token);
                self.note_grant(random, token);
                self.note_leaver(wait);
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

    fn note_grant(&mut self, next: &str, released: &str) {
        if next.is_empty() {
            return;
        }
        let new = (self.client, released.to_owned());
        let known = self.invariants.tokens.granted.entry(next.to_owned()).or_insert_with(|| new.clone()).clone();
        if known != new {
            let what = format!("a token for two grants: clients {} and {} give {}", known.0, new.0, short(next));
            self.breaks(Rule::Ids, what);
        }
    }

    fn note_wait(&mut self, id: &str, token: &str) {
        let Some(task) = self.drawer(token).filter(|_| !id.is_empty()) else { return };
        let new = Wait { client: self.client, task, turn: self.tasks[task].turn };
        let known = *self.invariants.tokens.waits.entry(id.to_owned()).or_insert(new);
        if known != new {
            self.breaks(Rule::Ids, format!("an id for two waits: {id} is of {known:?} and of {new:?}"));
        }
    }

    /// A release takes the mark off the wait of its own client.
    fn note_leaver(&mut self, id: &str) {
        let client = self.client;
        if let Some(known) = self.invariants.tokens.waits.get(id).filter(|known| known.client != client) {
            let what = format!("an id for two waits: {id} is of {known:?}, and client {client} has waited by it");
            self.breaks(Rule::Ids, what);
        }
    }

    /// What is executed although its connection is broken.
    pub(super) fn note_duplicate(&mut self, packet: &Packet) {
        for command in &packet.commands {
            if let Command::Script { execution, .. } = command
                && let Some(trace) = self.invariants.tokens.traces.get_mut(scripts::token(execution))
            {
                trace.is_late |= scripts::name(execution.script).ends_with("acquire");
            }
        }
    }

    /// A script has had a lock stay for longer. After a release with a minimum hold the token still stands there.
    pub(super) fn note_late(&mut self, script: &str, token: &str) {
        if let Some(trace) = self.invariants.tokens.traces.get_mut(token) {
            trace.is_late |= trace.is_released && script == "extend";
        }
    }

    /// The client holds the lock by this token.
    pub(super) fn note_holder(&mut self, key: &str, token: &str) {
        let (client, now) = (self.client, self.now);
        let trace =
            self.invariants.tokens.traces.entry(token.to_owned()).or_insert_with(|| Trace::new(client, key, now));
        trace.used = now;
        trace.was_held = true;
    }

    /// A holder lets go of this token, and the lock stays taken for so long.
    pub(super) fn note_end(&mut self, token: &str, keep: Duration) {
        let now = self.now;
        if let Some(trace) = self.invariants.tokens.traces.get_mut(token) {
            trace.used = now + nanos(keep);
        }
    }

    // --- what is left -------------------------------------------------------------------------------------------------

    fn grace(&self) -> Time {
        nanos(GRACE + self.plan.limits.node_timeout * 4)
    }

    /// When the nodes are to be looked at.
    pub(super) fn looks(&self) -> impl Iterator<Item = Time> + use<> {
        let (healed, grace) = (self.plan.healed, self.grace());
        (1..=LOOKS).map(move |look| healed + MS + grace / 2 * (look + 1))
    }

    /// No majority of the nodes has a token which a client that is alive has given up.
    pub(super) fn look(&mut self) {
        for name in self.plan.names.clone() {
            for token in self.tokens_of_majority(name) {
                if self.is_left(&token) {
                    self.tell_left(name, &token);
                }
            }
        }
    }

    /// Nodes aside whose clock was set back: what a minimum hold keeps lives for longer there.
    fn tokens_of_majority(&mut self, name: &str) -> Vec<String> {
        let (now, need) = (self.now, self.plan.nodes / 2 + 1);
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for server in self.servers.iter_mut().filter(|server| server.set_back == 0) {
            let held = server.store(now).holders(name);
            let tokens: BTreeSet<&str> = held.iter().map(|one| token_of(one)).collect();
            for token in tokens {
                *found.entry(token.to_owned()).or_default() += 1;
            }
        }
        found.into_iter().filter(|(_, many)| *many >= need).map(|(token, _)| token).collect()
    }

    fn is_left(&self, token: &str) -> bool {
        let Some(trace) = self.invariants.tokens.traces.get(token) else { return false };
        let client = &self.clients[trace.client];
        let since = trace.used.max(self.plan.healed).max(client.paused_until);
        // A client that was closed sends nothing any more.
        let is_over = !trace.is_late && !client.is_dead && !client.is_closed && !self.invariants.is_held(token);
        is_over && self.now > since + self.grace()
    }

    fn tell_left(&mut self, name: &str, token: &str) {
        let Trace { client, used, was_held, .. } = self.invariants.tokens.traces[token];
        let ms = (self.now - used) / MS;
        let short = short(token);
        if was_held {
            let what = format!("a lock is left: `{name}` has {short} of client {client}, which gave it up {ms} ms ago");
            self.breaks(Rule::Releases, what);
        } else {
            let what = format!("an attempt is left: `{name}` has {short} of client {client}, which failed {ms} ms ago");
            self.breaks(Rule::Attempts, what);
        }
    }
}

impl Trace {
    fn new(client: usize, key: &str, used: Time) -> Trace {
        Trace { client, key: key.to_owned(), used, was_held: false, is_released: false, is_late: false }
    }
}
