//! Problems and warnings that follow from the answers of the servers. Nothing here does I/O.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use super::NodeHealth;
use crate::names::printable;
use crate::protocol::reply::{Failure, FailureKind, Vote};

/// The part of `maxmemory`, in per cent, from which a warning says that the server will soon refuse writes.
const NEARLY_FULL: u64 = 95;
/// The difference between the clocks of two servers from which a warning is given.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// The facts that one server reported about itself.
pub(super) struct Facts {
    values: HashMap<String, String>,
    failure: Option<Failure>,
    /// The number of replicas that must confirm a lock: `min_replicas_ack`.
    acks: u64,
}

impl Facts {
    pub(super) fn parse(answer: Vote<String>, acks: u32) -> Facts {
        let (values, failure) = match answer {
            Vote::Yes(text) => {
                let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
                (pairs.map(|(name, value)| (name.into(), printable(value))).collect(), None)
            }
            Vote::Failed(failure) => (HashMap::new(), Some(failure)),
            Vote::Taken { .. } | Vote::Absent | Vote::Void => (HashMap::new(), None),
        };
        Facts { values, failure, acks: acks.into() }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn says(&self, name: &str, value: &str) -> bool {
        self.text(name) == Some(value)
    }

    pub(super) fn node(&self, address: String, written: &Vote<()>, key: &str) -> NodeHealth {
        NodeHealth {
            problem: self.problem(written, key),
            version: self.text("valkey_version").or_else(|| self.text("redis_version")).map(str::to_owned),
            uptime: self.number("uptime_in_seconds").map(Duration::from_secs),
            clock: self.number("now_ms").and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms))),
            used_memory: self.number("used_memory"),
            max_memory: self.number("maxmemory"),
            eviction_policy: self.text("maxmemory_policy").map(str::to_owned),
            evicted_keys: self.number("evicted_keys"),
            append_only: self.number("aof_enabled").map(|on| on == 1),
            replicas: self.replicas(),
            address,
        }
    }

    /// Why no lock can be taken on this server now.
    fn problem(&self, written: &Vote<()>, key: &str) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(failure.message.clone());
        }
        // In a cluster, a replica redirects the writes to its master.
        if self.says("role", "slave") && !self.says("cluster_enabled", "1") {
            return Some("is a replica, which takes no writes: give the client its master".into());
        }
        match written {
            Vote::Failed(failure) if is_of_other_keys(failure) => None,
            Vote::Failed(failure) => Some(failure.message.clone()),
            Vote::Yes(()) if self.is_full() => Some(format!(
                "its memory is full, so it takes no new keys such as `{key}`: raise maxmemory, or remove data"
            )),
            _ => self.lacks_replicas(),
        }
    }

    fn replicas(&self) -> Option<u64> {
        self.number("connected_slaves")
    }

    /// Nodes in memory report no number of replicas, and always confirm.
    fn lacks_replicas(&self) -> Option<String> {
        let acks = self.acks;
        if acks > 0 && self.says("may_wait", "0") {
            return Some(format!("min_replicas_ack is {acks}, and the user may not run WAIT: give the user +wait"));
        }
        let replicas = self.replicas().filter(|replicas| *replicas < acks)?;
        Some(format!(
            "{replicas} replicas are connected to it, but {acks} must confirm each lock (min_replicas_ack): start the \
             missing replicas and check their `replicaof`, or lower min_replicas_ack"
        ))
    }

    fn used_part(&self) -> Option<u64> {
        let max = self.number("maxmemory").filter(|max| *max > 0)?;
        Some(self.number("used_memory")?.saturating_mul(100) / max)
    }

    fn evicts(&self) -> bool {
        self.text("maxmemory_policy").is_some_and(|policy| policy != "noeviction")
    }

    fn is_full(&self) -> bool {
        !self.evicts() && self.used_part().is_some_and(|part| part >= 100)
    }

    /// The warnings that concern this server alone.
    pub(super) fn warnings(&self, node: &NodeHealth, nodes: usize, written: &Vote<()>) -> Vec<String> {
        let mut all: Vec<Option<String>> = vec![node.problem.as_ref().map(|why| format!("cannot be used: {why}"))];
        if self.failure.is_none() {
            all.extend([self.hides(), self.keeps_clients_waiting(), of_keys(written)]);
            all.extend([self.may_evict(), has_evicted(node), self.is_nearly_full(node)]);
            all.extend([self.forgets(nodes), self.failed_to_save(), self.may_fail_over(nodes)]);
        }
        all.into_iter().flatten().map(|what| format!("{} {what}", node.address)).collect()
    }

    fn hides(&self) -> Option<String> {
        let why = self.text("refused")?;
        Some(format!(
            "does not let this user run INFO ({why}), so `health` knows little about it and `restart_guard` has no \
             effect: give the user +info"
        ))
    }

    fn keeps_clients_waiting(&self) -> Option<String> {
        self.says("may_listen", "0").then(|| {
            "does not let this user publish and subscribe, so threads that wait for a lock poll: give the user \
             &redlock-sync:* +publish +subscribe"
                .into()
        })
    }

    fn may_evict(&self) -> Option<String> {
        let max = self.number("maxmemory").filter(|max| *max > 0)?;
        let policy = self.text("maxmemory_policy").filter(|_| self.evicts())?;
        Some(format!(
            "may evict locks that are held: maxmemory-policy is {policy} at {max} bytes; set it to noeviction"
        ))
    }

    fn is_nearly_full(&self, node: &NodeHealth) -> Option<String> {
        let part = self.used_part().filter(|part| *part >= NEARLY_FULL && !self.evicts() && node.problem.is_none())?;
        Some(format!(
            "uses {part} % of its maxmemory, and takes no new locks at 100 %: raise maxmemory, or remove data"
        ))
    }

    /// With several servers, a restarted one casts no vote for a while, so this is no problem.
    fn forgets(&self, nodes: usize) -> Option<String> {
        (nodes == 1 && self.says("aof_enabled", "0")).then(|| {
            "has no append-only file, so a restart loses held locks and the tasks of queues: set appendonly yes, or \
             use three servers"
                .into()
        })
    }

    fn failed_to_save(&self) -> Option<String> {
        let failed = ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"];
        let which = failed.into_iter().find(|name| self.says(name, "err"))?;
        Some(format!("could not write its data to disk ({which} is err): check its log and its disk"))
    }

    /// `INFO` has the number of good replicas only if `min-replicas-to-write` is set.
    fn may_fail_over(&self, nodes: usize) -> Option<String> {
        let replicas = self.replicas().filter(|replicas| *replicas > self.acks)?;
        if nodes > 1 || self.text("min_slaves_good_slaves").is_some() {
            return None;
        }
        // The servers of a cluster have no guard.
        let guard = if self.says("cluster_enabled", "1") { "" } else { "failover_guard and " };
        Some(match self.acks {
            0 => format!(
                "has {replicas} replicas and waits for none of them, so a failover can lose the latest locks: set \
                 min-replicas-to-write 1, or use {guard}min_replicas_ack({replicas}), three masters, or fencing tokens"
            ),
            acks => format!(
                "has {replicas} replicas, but only {acks} must confirm each lock, so a failover to another replica can \
                 lose the latest locks: use min_replicas_ack({replicas})"
            ),
        })
    }
}

fn has_evicted(node: &NodeHealth) -> Option<String> {
    let evicted = node.evicted_keys.filter(|evicted| *evicted > 0)?;
    Some(format!(
        "has evicted {evicted} keys since it started, and some may have been locks: set maxmemory-policy to noeviction"
    ))
}

/// True if the user may not use the key of the probe, but may use other keys.
fn is_of_other_keys(failure: &Failure) -> bool {
    let says = |words: &str| failure.message.contains(words);
    failure.kind == FailureKind::Denied && says("NOPERM") && says("key") && !says("may not run")
}

fn of_keys(written: &Vote<()>) -> Option<String> {
    match written {
        Vote::Failed(failure) if is_of_other_keys(failure) => Some(
            "does not let this user use the key that `health` tries to write, so it is not known whether it takes \
             writes: give the user ~PREFIXredlock-sync:health and ~{PREFIXredlock-sync:health}:*, where PREFIX is the \
             client's key_prefix"
                .into(),
        ),
        _ => None,
    }
}

/// The warnings that concern the servers together. `took` is how long the round took.
pub(super) fn common_warnings(nodes: &[NodeHealth], took: Duration, longest: Duration, guards: bool) -> Vec<String> {
    let mut all = Vec::new();
    if nodes.len() > 1 && nodes.len().is_multiple_of(2) {
        all.push(format!("{} servers tolerate no more failures than {}: use one more", nodes.len(), nodes.len() - 1));
    }
    all.extend(clocks(nodes, took));
    if guards && nodes.len() > 1 {
        all.extend(nodes.iter().filter_map(|node| restarted(node, longest)));
    }
    all
}

fn clocks(nodes: &[NodeHealth], took: Duration) -> Option<String> {
    let clocks = || nodes.iter().filter_map(|node| Some((node.clock?, &node.address)));
    let ((slow, behind), (fast, ahead)) = (clocks().min()?, clocks().max()?);
    let apart = fast.duration_since(slow).unwrap_or_default().saturating_sub(took);
    (apart >= CLOCKS_APART)
        .then(|| format!("the clock of {ahead} is {apart:.0?} ahead of that of {behind}: have a time daemon slew both"))
}

fn restarted(node: &NodeHealth, longest: Duration) -> Option<String> {
    let uptime = node.uptime.filter(|uptime| *uptime < longest && node.problem.is_none())?;
    Some(format!(
        "{} restarted {uptime:.0?} ago: until it has run for the longest lease ({longest:.0?}), it casts no vote if \
         another server has run longer",
        node.address
    ))
}

#[cfg(test)]
#[path = "judge/tests.rs"]
mod tests;
