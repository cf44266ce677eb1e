//! The handshake on a new connection: log in, choose the database, and ask the server for its identity, and one of a cluster for the map of the slots. One
//! write, one round trip.

use std::collections::HashMap;
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::cluster::slots_reply::SlotsReply;
use super::identities::Identity;
use super::link::Link;
use super::url::host_port;
use super::{Failure, FailureKind, redis_reply};
use crate::clock::{Clock, Tick};

/// The oldest Redis that is not refused. Tests run on 6.2; 6.0 has no less of what the scripts use, and many systems come with it.
const OLDEST: u32 = 6;

/// What a handshake is about.
pub(super) struct Handshake<'a> {
    pub(super) login: &'a RedisConnectionInfo,
    /// The server is to be one of a cluster.
    pub(super) in_cluster: bool,
    pub(super) by: Tick,
    pub(super) clock: &'a dyn Clock,
}

/// What the server said.
pub(super) struct Greeting {
    pub(super) identity: Identity,
    /// Nothing if the user may not ask, or the cluster has no slots yet.
    pub(super) slots: Option<SlotsReply>,
}

/// Logs in and asks. An error for a server that cannot be used at all.
pub(super) fn greet(link: &mut Link, about: &Handshake<'_>) -> Result<Greeting, Failure> {
    match attempt(link, about, about.login.username()) {
        // Before Redis 6 there were no users.
        Err(e) if about.login.username().is_some() && e.message.contains("wrong number of arguments") => {
            attempt(link, about, None)
        }
        result => result,
    }
}

fn attempt(link: &mut Link, about: &Handshake<'_>, user: Option<&str>) -> Result<Greeting, Failure> {
    let Handshake { login, in_cluster, by, clock } = *about;
    let mut pipe = redis::pipe();
    if let Some(password) = login.password() {
        pipe.cmd("AUTH").arg(user).arg(password);
    }
    if login.db() != 0 {
        pipe.cmd("SELECT").arg(login.db());
    }
    let required = pipe.len();
    pipe.cmd("INFO").arg("server").cmd("INFO").arg("replication");
    if in_cluster {
        pipe.cmd("CLUSTER").arg("SLOTS");
    }
    link.send(&pipe.get_packed_pipeline()).map_err(|broken| broken.while_doing("connecting"))?;
    let mut refusal = None;
    for _ in 0..required {
        let answer = receive(link, by, clock)?;
        refusal = refusal.or(refused(answer));
    }
    let mut facts = HashMap::new();
    for _ in 0..2 {
        let answer = receive(link, by, clock)?;
        refusal = refusal.or(read_facts(answer, &mut facts));
    }
    let slots = if in_cluster { SlotsReply::read(&receive(link, by, clock)?) } else { None };
    // The mode and the version come first: for either a server may refuse the login or the database.
    let identity = identity(&facts, clock.now());
    unfit(&facts, in_cluster).or_else(|| outdated(&facts)).or(refusal).map_or(Ok(Greeting { identity, slots }), Err)
}

/// A server in a mode in which it cannot keep locks. Redis calls the field `redis_mode`, Valkey `server_mode`.
fn unfit(facts: &HashMap<String, String>, in_cluster: bool) -> Option<Failure> {
    let mode = facts.get("redis_mode").or_else(|| facts.get("server_mode"))?;
    let why = match mode.as_str() {
        "cluster" if !in_cluster => {
            "belongs to a Redis Cluster: give the client the cluster as `redis+cluster://host:port,host:port`"
        }
        "standalone" if in_cluster => {
            "is not a member of a Redis Cluster: give the client this server as `redis://host:port`"
        }
        "sentinel" => {
            "is a Redis Sentinel, which keeps no keys: give the client the servers that it watches, or `redis+sentinel://` and the name of the group"
        }
        _ => return None,
    };
    Some(Failure::unsent(FailureKind::Misuse, why))
}

/// A Redis that nothing is tested with. What is compatible with Redis may claim any version, and names its own beside it.
fn outdated(facts: &HashMap<String, String>) -> Option<Failure> {
    let version = facts.get("redis_version")?;
    let numbers: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
    let is_old = *numbers.ok()?.first()? < OLDEST;
    let is_redis = |name: &str| !name.ends_with("_version") || ["redis_version", "gcc_version"].contains(&name);
    (is_old && facts.keys().all(|name| is_redis(name))).then(|| {
        let why = format!("is Redis {version}, which is too old: this library needs Redis 6.2 or later, or Valkey");
        Failure::unsent(FailureKind::Misuse, why)
    })
}

fn receive(link: &mut Link, by: Tick, clock: &dyn Clock) -> Result<redis::Value, Failure> {
    let answer = link.receive(by.since(clock.now())).map_err(|broken| broken.while_doing("connecting"))?;
    match &answer {
        // The one error after which the server closes without having read anything.
        redis::Value::ServerError(e) if e.details().is_some_and(|d| d.contains("max number of clients")) => {
            let failure = redis_reply::failure(e);
            Err(Failure::unsent(FailureKind::Unreachable, failure.message))
        }
        redis::Value::ServerError(e) if e.code() == "DENIED" => {
            let failure = redis_reply::failure(e);
            Err(Failure::unsent(FailureKind::Misuse, failure.message))
        }
        _ => Ok(answer),
    }
}

/// A demand that was not met: wrong password, no such database.
fn refused(answer: redis::Value) -> Option<Failure> {
    let redis::Value::ServerError(error) = answer else { return None };
    let failure = redis_reply::failure(&error);
    let kind = if failure.kind == FailureKind::Transient { FailureKind::Transient } else { FailureKind::Misuse };
    Some(Failure::unsent(kind, failure.message))
}

/// Reads `name:value` lines. A server that hides them from us is no error, one that wants a password is.
fn read_facts(answer: redis::Value, facts: &mut HashMap<String, String>) -> Option<Failure> {
    if let redis::Value::ServerError(error) = &answer {
        return (error.code() == "NOAUTH").then(|| refused(answer)).flatten();
    }
    let Ok(super::Value::Text(text)) = redis_reply::value(answer) else { return None };
    let text = String::from_utf8_lossy(&text);
    let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    facts.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    None
}

fn identity(facts: &HashMap<String, String>, now: Tick) -> Identity {
    let fact = |name: &str| facts.get(name).cloned().unwrap_or_default();
    // The server subtracts whole seconds of its wall clock: it can have been up for nearly a second less than it says.
    let at_least = |seconds: u64| Duration::from_secs(seconds.saturating_sub(1));
    let uptime = fact("uptime_in_seconds").parse().ok().map(|seconds| (at_least(seconds), now));
    let is_replica = matches!(fact("role").as_str(), "slave" | "replica");
    let master = is_replica.then(|| host_port(&fact("master_host"), fact("master_port").parse().unwrap_or(0)));
    Identity { run_id: fact("run_id"), replid: fact("master_replid"), master, uptime }
}
