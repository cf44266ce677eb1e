//! The number of requests to a server, from its command statistics.

use redis::cmd;

use crate::Server;

/// The commands that clients send: scripts, blocking commands, and those at the beginning of a connection.
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

/// The commands that a bench sends while it measures.
const OWN: &[&str] = &["info", "client|list", "acl|setuser"];

/// The number of requests that clients have sent to a server. Commands within scripts are not requests. INFO does not
/// count, because this function sends it. PUBLISH does not count either, because the statistics cannot tell whether a
/// script executed it.
pub fn requests(server: &Server) -> u64 {
    calls(server, |name| REQUESTS.contains(&name))
}

/// The number of commands that a server has executed, including those within scripts. The commands of the bench do not
/// count.
pub fn commands(server: &Server) -> u64 {
    calls(server, |name| !OWN.contains(&name))
}

/// The number of times that a server has executed this command.
pub fn calls_of(server: &Server, command: &str) -> u64 {
    calls(server, |name| name == command)
}

fn calls(server: &Server, counts: impl Fn(&str) -> bool) -> u64 {
    let info: String = server.ask(cmd("INFO").arg("commandstats"));
    let calls = info.lines().filter_map(|line| {
        let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        counts(name).then(|| numbers.split(',').next()?.parse::<u64>().ok())?
    });
    calls.sum()
}
