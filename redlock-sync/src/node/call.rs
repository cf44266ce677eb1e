//! One call that is on its way.

use std::mem;

use super::condition::During;
use super::link::Broken;
use super::manager::PooledLink;
use super::pool::Taken;
use super::server::RedisNode;
use super::{Answer, Executed, Failure, Lane, Patience, Pending, Trouble, Value, reply};
use crate::clock::Tick;
use crate::script::{Call, Note};

/// A call that was written, or whose connection broke while it was.
pub(super) struct InFlight<'a> {
    node: &'a RedisNode,
    call: &'a Call,
    lane: Lane,
    sent_at: Tick,
    /// What the last transmission tells the script.
    told: Note,
    stage: Stage,
}

/// How far a call has come.
pub(super) enum Stage {
    /// Its reply is due on this connection.
    Written(PooledLink),
    /// The connection broke before all of it was written; the server cannot execute a part.
    Cut(String),
    /// Answered or given up.
    Over,
}

/// A transmission that broke off.
struct Cut {
    why: String,
    /// The server has it, or may have.
    arrived: bool,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(
        node: &'a RedisNode,
        call: &'a Call,
        told: Note,
        lane: Lane,
        sent_at: Tick,
        stage: Stage,
    ) -> InFlight<'a> {
        InFlight { node, call, lane, sent_at, told, stage }
    }

    /// The reply, or the failure that ends the call, or a break after which it can be sent once more.
    fn read(&self, mut link: PooledLink, by: Tick) -> Result<Result<Value, Failure>, Cut> {
        match self.converse(&mut link, by) {
            Ok(reply) => Ok(self.judge(link, reply)),
            Err(Broken::TimedOut) => {
                let failure = self.node.timed_out(self.sent_at, Executed::Maybe);
                self.node.shelve(&mut link, self.call, 0);
                Ok(Err(failure))
            }
            Err(Broken::Cut(why) | Broken::Distrusted(why)) => {
                self.node.host.put_out_of_use(&mut link);
                Err(Cut { why, arrived: true })
            }
        }
    }

    /// Exactly one read for each command written.
    fn converse(&self, link: &mut PooledLink, by: Tick) -> Result<redis::Value, Broken> {
        let host = &self.node.host;
        let reply = link.receive(host.time_left(by))?;
        if !reply::is_noscript(&reply) {
            return Ok(reply);
        }
        link.send(&self.call.packed_with_source(self.told))?;
        link.receive(host.time_left(by))
    }

    fn judge(&self, mut link: PooledLink, reply: redis::Value) -> Result<Value, Failure> {
        let host = &self.node.host;
        let result = reply::value(reply).inspect_err(|failure| host.was_refused(&mut link, failure));
        host.replied(self.call, &result);
        result
    }

    /// Sends the call a second time: the scripts may be executed twice for the same token. One attempt: if a fresh connection
    /// breaks as well, it was not staleness.
    fn again(&mut self, first: &Cut, by: Tick) -> Answer {
        let result = self.second(first, by).map_err(|mut failure| {
            if first.arrived {
                failure.executed = Executed::Maybe;
            }
            failure
        });
        Answer { result, ghost: first.arrived }
    }

    fn second(&mut self, first: &Cut, by: Tick) -> Result<Value, Failure> {
        let mut link = match self.node.pools.take(self.lane, by, Patience::Wait) {
            Taken::Link(link) => link,
            Taken::Failed(failure) => return Err(Failure { message: both(&first.why, &failure.message), ..failure }),
            Taken::Nothing => return Err(self.unreachable(&first.why, Executed::No)),
        };
        self.sent_at = self.node.host.clock.now();
        self.told = self.node.host.note_for(self.call, &mut link);
        match link.send_call(self.call, self.told) {
            Ok(()) => {}
            Err(Broken::TimedOut) => return Err(self.node.timed_out(self.sent_at, Executed::No)),
            Err(Broken::Cut(why) | Broken::Distrusted(why)) => {
                self.node.host.put_out_of_use(&mut link);
                return Err(self.unreachable(&both(&first.why, &why), Executed::No));
            }
        }
        match self.read(link, by) {
            Ok(result) => result,
            Err(cut) => Err(self.unreachable(&both(&first.why, &cut.why), Executed::Maybe)),
        }
    }

    fn unreachable(&self, why: &str, executed: Executed) -> Failure {
        let failure = Failure::new(Trouble::Unreachable, executed, why);
        self.node.host.note(&failure, During::Call);
        failure
    }
}

fn both(first: &str, second: &str) -> String {
    if first == second { first.to_owned() } else { format!("{first}, then {second}") }
}

impl Pending for InFlight<'_> {
    fn finish(mut self: Box<Self>, by: Tick) -> Answer {
        let cut = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Written(link) => match self.read(link, by) {
                Ok(result) => return Answer { result, ghost: false },
                Err(cut) => cut,
            },
            Stage::Cut(why) => Cut { why, arrived: false },
            Stage::Over => Cut { why: "already over".into(), arrived: false },
        };
        self.again(&cut, by)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Stage::Written(mut link) = mem::replace(&mut self.stage, Stage::Over) {
            self.node.shelve(&mut link, self.call, 1);
        }
    }
}
