//! Rules by which managed and compatible servers differ from Redis. A test lets a server in memory follow some of them,
//! to see what works there. A difference without a source is not here.

use crate::node::cluster::slots::slot_of;

/// A rule of a server, and where it comes from.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A script accesses only keys that its call names. Dragonfly:
    /// <https://www.dragonflydb.io/docs/managing-dragonfly/scripting>
    DeclaredKeys,
    /// A script with keys publishes only on channels of their hash slot. `ElastiCache` Serverless:
    /// <https://github.com/spring-projects/spring-integration/issues/10471>
    PublishInSlot,
    /// No script publishes. Garnet before this: <https://github.com/microsoft/garnet/pull/1927>
    NoPublishInScripts,
    /// There is no `INFO`. Twemproxy: <https://github.com/twitter/twemproxy/blob/master/notes/redis.md>
    NoInfo,
    /// `INFO` has neither id nor uptime nor role. Miniredis: <https://github.com/alicebob/miniredis#commands>
    ShortInfo,
    /// Scripts have no `redis.acl_check_cmd`. Redis before version 7:
    /// <https://redis.io/docs/latest/develop/programmability/lua-api/>
    NoAclCheck,
    /// Each second `EVALSHA` finds no script. `ElastiCache` Serverless:
    /// <https://github.com/Effect-TS/effect-smol/issues/2328>
    ForgetsScripts,
    /// There is no `SUBSCRIBE` and no `PUBLISH`. Twemproxy, as for [`Rule::NoInfo`].
    NoSubscribe,
}

impl Rule {
    /// All of them.
    #[doc(hidden)]
    pub const ALL: [Rule; 8] = [
        Rule::DeclaredKeys,
        Rule::PublishInSlot,
        Rule::NoPublishInScripts,
        Rule::NoInfo,
        Rule::ShortInfo,
        Rule::NoAclCheck,
        Rule::ForgetsScripts,
        Rule::NoSubscribe,
    ];
}

/// The error if a rule refuses this command to a client.
pub(super) fn refused(rules: &[Rule], words: &[&[u8]]) -> Option<&'static str> {
    let rule = match words.first()? {
        &b"INFO" => Rule::NoInfo,
        &b"SUBSCRIBE" | &b"PUBLISH" => Rule::NoSubscribe,
        _ => return None,
    };
    rules.contains(&rule).then_some("ERR unknown command")
}

/// The error if a rule refuses this command to a script with these keys.
pub(super) fn refused_in_script(rules: &[Rule], keys: &[Vec<u8>], words: &[&[u8]]) -> Option<&'static str> {
    let has = |rule| rules.contains(&rule);
    let used = match words {
        [b"PUBLISH", ..] if has(Rule::NoPublishInScripts) || has(Rule::NoSubscribe) => {
            return Some("ERR PUBLISH is disabled");
        }
        [b"PUBLISH", channel, ..] => {
            let is_elsewhere = keys.first().is_some_and(|key| slot_of(key) != slot_of(channel));
            return (is_elsewhere && has(Rule::PublishInSlot))
                .then_some("ERR Script attempted to access keys that do not hash to the same slot script");
        }
        [] | [b"TIME" | b"INFO" | b"SCAN" | b"KEYS", ..] => return None,
        [b"MGET" | b"DEL" | b"EXISTS", used @ ..] => used,
        [_, used @ ..] => used.get(..1)?,
    };
    let is_declared = |key: &&[u8]| keys.iter().any(|declared| declared == key);
    (has(Rule::DeclaredKeys) && !used.iter().all(is_declared)).then_some("ERR script tried accessing undeclared key")
}
