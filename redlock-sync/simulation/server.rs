//! An in-memory node: its store, its clock, and the commands that it receives.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::plan::{MS, Plan, Time};
use super::scripts::{self, Execution, NATIVE_PUBLISH, NATIVE_SET};
use crate::clock::Tick;
use crate::node::memory::{MemoryReply, Store};
use crate::protocol::script::Script;

/// The wall clock at the start of a schedule, in microseconds. It is far from both ends of its range.
const EPOCH: u64 = 1_700_000_000_000_000;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) is_up: bool,
    /// The number of restarts. Each connection belongs to one epoch.
    pub(super) epoch: u32,
    pub(super) run_id: String,
    /// The digests of the scripts that the server has loaded.
    pub(super) scripts: BTreeSet<&'static str>,
    /// The server's wall clock when it started, in seconds.
    pub(super) started: u64,
    rate: i64,
    pub(super) offset: i64,
    pub(super) store: Store,
    pub(super) busy_until: Time,
    /// The time of the last jump of the wall clock.
    pub(super) jumped: Option<Time>,
    /// The total time by which the wall clock was set back, in ms. The keys live longer by this time.
    pub(super) set_back: u64,
}

/// A command of a client to a node.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Script {
        execution: Rc<Execution>,
        /// True if the call has the source of the script instead of its digest.
        has_source: bool,
    },
    Subscribe(String),
    Info,
    Ping,
    /// Waits for the replica, at most for this time.
    Wait(Time),
}

/// A reply on its way to a client.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) execution: Rc<Execution>,
    pub(super) reply: MemoryReply,
    /// When the server had started, in seconds of its clock.
    pub(super) started: u64,
}

impl Command {
    /// Parses the words of a command that is written at this time by the client's clock.
    pub(super) fn read(words: &[&[u8]], sent: Tick) -> Command {
        let text = |word: &&[u8]| String::from_utf8_lossy(word).into_owned();
        let script = |script: &[u8], rest: &[&[u8]], has_source| {
            let script = scripts::find(script);
            let many: usize = text(&rest[0]).parse().unwrap();
            let (keys, args) = rest[1..].split_at(many);
            let (keys, args) = (keys.iter().map(text).collect(), args.iter().map(text).collect());
            let execution = Rc::new(Execution { script, keys, args, sent });
            Command::Script { execution, has_source }
        };
        match words {
            [b"EVALSHA", digest, rest @ ..] => script(digest, rest, false),
            [b"EVAL", b"return 1", b"0"] | [b"PING"] => Command::Ping,
            [b"EVAL", source, rest @ ..] => script(source, rest, true),
            [b"SET", key, token, b"NX", b"PX", ms] => {
                let execution =
                    Execution { script: &NATIVE_SET, keys: vec![text(key)], args: vec![text(token), text(ms)], sent };
                Command::Script { execution: Rc::new(execution), has_source: true }
            }
            [b"PUBLISH", channel, message] => {
                let args = vec![text(channel), text(message)];
                let execution = Execution { script: &NATIVE_PUBLISH, keys: Vec::new(), args, sent };
                Command::Script { execution: Rc::new(execution), has_source: true }
            }
            [b"SUBSCRIBE", channel] => Command::Subscribe(text(channel)),
            [b"INFO", _] => Command::Info,
            [b"WAIT", b"1", ms] => Command::Wait(text(ms).parse::<Time>().unwrap() * MS),
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

    /// The server's wall clock in microseconds.
    pub(super) fn clock(&self, now: Time) -> u64 {
        let fast = now as i64 / 1_000_000 * self.rate / 1000;
        (EPOCH + now / 1000).saturating_add_signed(self.offset + fast)
    }

    /// The server's store, with the clock set to this time.
    pub(super) fn store(&mut self, now: Time) -> &mut Store {
        self.store.clock = self.clock(now);
        self.store.microseconds_per_command = 0;
        &mut self.store
    }

    pub(super) fn set_clock_as(&mut self, other: &Server) {
        (self.rate, self.offset) = (other.rate, other.offset);
    }

    /// Returns true if the server can run the script. A call with the source also loads the script.
    pub(super) fn knows(&mut self, script: &'static Script, has_source: bool) -> bool {
        if has_source {
            self.scripts.insert(&script.sha);
        }
        self.scripts.contains(&*script.sha)
    }

    pub(super) fn info(&self, now: Time) -> String {
        let (run_id, seconds) = (&self.run_id, self.uptime_in_seconds(now));
        format!("run_id:{run_id}\r\nuptime_in_seconds:{seconds}\r\nrole:master\r\n")
    }

    /// The uptime that `INFO` reports.
    pub(super) fn uptime_in_seconds(&self, now: Time) -> u64 {
        (self.clock(now) / 1_000_000).saturating_sub(self.started)
    }
}

impl Server {
    pub(super) fn forgot_since(&self, now: Time, window: Time) -> bool {
        self.epoch > 0 && self.uptime_in_seconds(now) * 1000 * MS < window
    }
}

pub(super) fn new_run_id() -> String {
    format!("{:040x}", fastrand::u128(..))
}

/// A token, shortened for the log.
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
