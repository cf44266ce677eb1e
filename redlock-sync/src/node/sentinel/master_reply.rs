//! The answer of a Sentinel about the master. Does no I/O.

use std::collections::HashMap;
use std::time::Duration;

use redis::RedisConnectionInfo;

use crate::clock::Tick;
use crate::node::url::host_port;
use crate::node::{Failure, FailureKind, credentials, redis_reply};

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MasterReply {
    pub(super) host: String,
    pub(super) port: u16,
    /// The number of the failover that promoted this master. Sentinels agree on it, and later failovers have larger
    /// numbers.
    pub(super) epoch: Option<u64>,
    /// The least time for which the server had been the master when the answer came. A restarted Sentinel reports
    /// less.
    pub(super) age: Duration,
    /// When the answer came.
    pub(super) at: Tick,
}

impl MasterReply {
    pub(super) fn address(&self) -> String {
        host_port(&self.host, self.port)
    }

    /// True if the failover that promoted this master came after the one that promoted `other`.
    pub(super) fn is_after(&self, other: &MasterReply) -> bool {
        self.epoch > other.epoch
    }

    /// Later failovers are greater. Among answers about the same one, those with the longest time as master are.
    pub(super) fn order(&self, now: Tick) -> impl Ord + use<> {
        (self.epoch, self.age(now))
    }

    /// The least time for which the server has been the master, at `now`.
    pub(super) fn age(&self, now: Tick) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }
}

/// The request to a Sentinel, in one packet, and the number of replies that belong to the login.
pub(super) fn request(login: Option<&RedisConnectionInfo>, name: &str) -> (Vec<u8>, usize) {
    let mut pipe = redis::pipe();
    if let Some(auth) = login.and_then(|login| credentials::auth(login, login.username())) {
        pipe.add_command(auth);
    }
    let logins = pipe.len();
    // Some users may run only the first command, and it shows a failover first. The second has the numbers.
    pipe.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    pipe.cmd("SENTINEL").arg("MASTER").arg(name);
    (pipe.get_packed_pipeline(), logins)
}

/// Parses the two replies.
pub(super) fn parse(address: redis::Value, facts: redis::Value, name: &str, now: Tick) -> Result<MasterReply, Failure> {
    let found = redis::from_redis_value::<Option<(String, u16)>>(accepted(address)?);
    let found = found.map_err(|_| lasting("sent an unexpected reply"))?;
    let unknown = || lasting(&format!("watches no master named `{}`", crate::names::escaped(name)));
    let (host, port) = found.ok_or_else(unknown)?;
    // Empty if the user lacks the permission.
    let facts: HashMap<String, String> = redis::from_redis_value(facts).unwrap_or_default();
    let fact = |name: &str| facts.get(name).map(String::as_str);
    let number = |name: &str| fact(name)?.parse().ok();
    // During a failover, the second reply still describes the former master.
    let is_it =
        fact("ip") == Some(&host) && number("port") == Some(u64::from(port)) && fact("role-reported") == Some("master");
    let age = number("role-reported-time").filter(|_| is_it).map_or(Duration::ZERO, Duration::from_millis);
    Ok(MasterReply { host, port, epoch: number("config-epoch"), age, at: now })
}

/// The answer, or the failure if a Sentinel refused the login or the question.
pub(super) fn accepted(answer: redis::Value) -> Result<redis::Value, Failure> {
    match &answer {
        redis::Value::ServerError(error) => {
            let message = redis_reply::failure(error).message;
            // The remedies for servers, in brackets, are not those for Sentinels.
            let said = message.split(" (").next().unwrap_or_default();
            let hint = match error.code() {
                "NOAUTH" => " (add the login of the sentinels to the URL: `?sentinel_password=…`)",
                "WRONGPASS" => " (correct `sentinel_user` and `sentinel_password` in the URL)",
                _ if said.contains("unknown command") => " (this server is no Sentinel)",
                _ => "",
            };
            Err(lasting(&format!("{said}{hint}")))
        }
        _ => Ok(answer),
    }
}

fn lasting(why: &str) -> Failure {
    Failure::unsent(FailureKind::Denied, why)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> redis::Value {
        redis::Value::Array(words.iter().map(|word| redis::Value::BulkString(word.as_bytes().to_vec())).collect())
    }

    fn error(line: &str) -> redis::Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    fn answer(port: u16, epoch: Option<u64>, age: u64) -> MasterReply {
        MasterReply { host: "a".into(), port, epoch, age: Duration::from_secs(age), at: Tick::ZERO }
    }

    #[test]
    fn an_answer_has_the_address_the_failover_and_the_time_since() {
        let facts = list(&[
            "ip",
            "a",
            "port",
            "1",
            "role-reported",
            "master",
            "role-reported-time",
            "4000",
            "config-epoch",
            "7",
        ]);
        assert_eq!(parse(list(&["a", "1"]), facts.clone(), "main", Tick::ZERO).unwrap(), answer(1, Some(7), 4));
        // The second reply describes the former master.
        assert_eq!(parse(list(&["a", "2"]), facts, "main", Tick::ZERO).unwrap(), answer(2, Some(7), 0));
        let few = parse(list(&["a", "1"]), error("NOPERM no"), "main", Tick::ZERO).unwrap();
        assert_eq!((few.address(), few.epoch), ("a:1".into(), None));
        let later = Tick::ZERO.after(Duration::from_secs(2));
        assert_eq!(answer(1, None, 4).age(later), Duration::from_secs(6));
    }

    #[test]
    fn what_is_no_answer_says_why() {
        let why = |address: redis::Value| {
            let failure = parse(address, redis::Value::Nil, "main", Tick::ZERO).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Denied);
            failure.message
        };
        assert!(why(redis::Value::Nil).contains("watches no master named `main`"));
        assert!(why(error("ERR unknown command 'SENTINEL'")).contains("is no Sentinel"));
        assert!(why(error("NOAUTH Authentication required.")).contains("NOAUTH"));
        assert!(why(list(&["a"])).contains("unexpected") && why(list(&["a", "b"])).contains("unexpected"));
    }
}
