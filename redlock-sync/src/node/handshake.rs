//! The handshake on a new connection: log in, select the database, ask for the server's identity, and run a script. A
//! server of a cluster is also asked for the slot map. All commands are sent in one packet.

use std::collections::HashMap;
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::cluster::slots_reply::SlotsReply;
use super::identities::Identity;
use super::link::Link;
use super::url::host_port;
use super::{Failure, FailureKind, credentials, redis_reply};
use crate::clock::{Clock, Tick};

/// Older versions of Redis are refused. Tests run on 6.2. Version 6.0 has all that the scripts use, and many systems
/// ship it.
const OLDEST: u32 = 6;

/// Logs in and asks for the identity. `in_cluster`: the server must be a member of a cluster. The slots are `None` if
/// the user lacks the permission, or the cluster has no slots yet. Returns an error if the server cannot be used.
pub(super) fn greet(
    link: &mut Link,
    login: &RedisConnectionInfo,
    in_cluster: bool,
    by: Tick,
    clock: &dyn Clock,
) -> Result<(Identity, Option<SlotsReply>), Failure> {
    let mut attempt = |user| attempt(link, (login, user), in_cluster, by, clock);
    match attempt(login.username()) {
        // Redis before version 6 has no users, and takes the password alone.
        Err(e) if login.username().is_some() && e.message.contains("wrong number of arguments") => attempt(None),
        result => result,
    }
}

fn attempt(
    link: &mut Link,
    (login, user): (&RedisConnectionInfo, Option<&str>),
    in_cluster: bool,
    by: Tick,
    clock: &dyn Clock,
) -> Result<(Identity, Option<SlotsReply>), Failure> {
    let mut pipe = redis::pipe();
    if let Some(auth) = credentials::auth(login, user) {
        pipe.add_command(auth);
    }
    if login.db() != 0 {
        pipe.cmd("SELECT").arg(login.db());
    }
    let required = pipe.len();
    pipe.cmd("INFO").arg("server").cmd("INFO").arg("replication");
    if in_cluster {
        pipe.cmd("CLUSTER").arg("SLOTS");
    }
    // A server that executes no writes for a while, as in a failover, does not execute this either. So it makes no
    // connection until it can execute calls.
    pipe.cmd("EVAL").arg("return 1").arg(0);
    link.send(&pipe.get_packed_pipeline(), by, clock).map_err(|broken| broken.while_doing("connecting"))?;
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
    let impossible = |why| Failure::unsent(FailureKind::Misuse, why);
    let slots = if in_cluster { SlotsReply::read(&receive(link, by, clock)?).map_err(impossible)? } else { None };
    // Any reply will do. The first call tells what the user may not run.
    receive(link, by, clock)?;
    // The mode and the version are checked first, since a server may refuse the login or the database because of
    // either.
    let identity = identity(&facts, clock.now());
    unfit(&facts, in_cluster).or_else(|| outdated(&facts)).or(refusal).map_or(Ok((identity, slots)), Err)
}

/// Refuses a server in a mode in which it cannot keep locks. Redis calls the field `redis_mode`, Valkey `server_mode`.
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
    Some(Failure::unsent(FailureKind::Denied, why))
}

/// Refuses an old Redis, which the tests do not cover. Servers compatible with Redis may claim any version, and state
/// their own version beside it.
fn outdated(facts: &HashMap<String, String>) -> Option<Failure> {
    let version = facts.get("redis_version")?;
    let numbers: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
    let is_old = *numbers.ok()?.first()? < OLDEST;
    let is_redis = |name: &str| !name.ends_with("_version") || ["redis_version", "gcc_version"].contains(&name);
    (is_old && facts.keys().all(|name| is_redis(name))).then(|| {
        let why = format!("is Redis {version}, which is too old: this library needs Redis 6.2 or later, or Valkey");
        Failure::unsent(FailureKind::Denied, why)
    })
}

fn receive(link: &mut Link, by: Tick, clock: &dyn Clock) -> Result<redis::Value, Failure> {
    let answer = link.receive(by, clock).map_err(|broken| broken.while_doing("connecting"))?;
    match &answer {
        // After this error the server closes the connection and has read no command.
        redis::Value::ServerError(e) if e.details().is_some_and(|d| d.contains("max number of clients")) => {
            Err(Failure::unsent(FailureKind::Unreachable, redis_reply::failure(e).message))
        }
        redis::Value::ServerError(e) if e.code() == "DENIED" => {
            Err(Failure::unsent(FailureKind::Denied, redis_reply::failure(e).message))
        }
        _ => Ok(answer),
    }
}

/// The failure if the login or the database was refused.
fn refused(answer: redis::Value) -> Option<Failure> {
    let redis::Value::ServerError(error) = answer else { return None };
    let failure = redis_reply::failure(&error);
    let kind = if failure.kind == FailureKind::Transient { FailureKind::Transient } else { FailureKind::Denied };
    Some(Failure::unsent(kind, failure.message))
}

/// Reads lines of the form `name:value`. It is no error if the server hides them, but it is one if the server requires
/// a password.
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
    // The server subtracts whole seconds of its wall clock. The true uptime can be nearly one second less than
    // reported.
    let at_least = |seconds: u64| Duration::from_secs(seconds.saturating_sub(1));
    let uptime = fact("uptime_in_seconds").parse().ok().map(|seconds| (at_least(seconds), now));
    let is_replica = matches!(fact("role").as_str(), "slave" | "replica");
    let master = is_replica.then(|| host_port(&fact("master_host"), fact("master_port").parse().unwrap_or(0)));
    Identity {
        run_id: fact("run_id"),
        replid: fact("master_replid"),
        former_replid: fact("master_replid2"),
        master,
        uptime,
    }
}
