//! What a server was asked, by its command statistics.

use redis::cmd;

use crate::Server;

/// What clients send: scripts, blocking commands, and what a connection begins with.
const REQUESTS: &[&str] = &[
    "evalsha",
    "eval",
    "script|load",
    "fcall",
    "blpop",
    "brpop",
    "blmove",
    "bzpopmin",
    "bzpopmax",
    "xread",
    "subscribe",
    "unsubscribe",
    "ssubscribe",
    "psubscribe",
    "wait",
    "ping",
    "hello",
    "auth",
    "select",
    "client|setinfo",
    "client|setname",
    "client|id",
    "client|unblock",
    "multi",
    "exec",
];

/// What a bench asks while it measures.
const OWN: &[&str] = &["info", "client|list", "acl|setuser"];

/// How many requests clients have sent to a server. Commands inside scripts are no requests; INFO is left out, since the asking itself is
/// one. A PUBLISH that is no part of a script is missing: the statistics do not tell the two apart.
pub fn requests(server: &Server) -> u64 {
    calls(server, |name| REQUESTS.contains(&name))
}

/// How many commands a server has executed, those inside scripts included, those of the bench left out.
pub fn commands(server: &Server) -> u64 {
    calls(server, |name| !OWN.contains(&name))
}

fn calls(server: &Server, counts: impl Fn(&str) -> bool) -> u64 {
    let info: String = server.ask(cmd("INFO").arg("commandstats"));
    let calls = info.lines().filter_map(|line| {
        let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        counts(name).then(|| numbers.split(',').next()?.parse::<u64>().ok())?
    });
    calls.sum()
}
