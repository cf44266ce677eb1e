//! Breaks one thing on purpose, so that the chaos run can show that its checkers notice (`tests/CHAOS.md`).
//!
//! Only in a build with `--cfg redlock_sabotage`, which no feature sets, and in the unit tests, where the simulation breaks it. In any other one
//! everything here is known at compile time to be false, and nothing is left of it. What the build has broken is named by the environment
//! variable `REDLOCK_SABOTAGE`.

/// Whether the thing of this name is to be broken.
#[cfg(not(any(redlock_sabotage, test)))]
pub(crate) const fn is(_name: &str) -> bool {
    false
}

#[cfg(all(test, not(redlock_sabotage)))]
pub(crate) use crate::simulation::is_broken as is;

/// The source of a script, as it is.
#[cfg(not(redlock_sabotage))]
pub(crate) const fn script(_name: &str, source: &'static str) -> &'static str {
    source
}

#[cfg(redlock_sabotage)]
pub(crate) use broken::{is, script};

#[cfg(redlock_sabotage)]
mod broken {
    use std::sync::LazyLock;

    static BROKEN: LazyLock<String> = LazyLock::new(|| std::env::var("REDLOCK_SABOTAGE").unwrap_or_default());

    /// What is broken, in which scripts, and what stands in its place.
    const SCRIPTS: [(&str, &[&str], &str, &str); 8] = [
        ("release-without-compare", &["release"], "if held ~= token and not is_own_grant then", "if held == nil then"),
        (
            "extend-creates",
            &["extend"],
            "if held == false then return -1 end",
            "if held == false then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1 end",
        ),
        (
            "failed-extend-deletes",
            &["extend"],
            "if held ~= ARGV[1] then return 0 end",
            "if held ~= ARGV[1] then redis.call('DEL', KEYS[1]) return 0 end",
        ),
        (
            "grant-twice",
            &["acquire"],
            "string.sub(held, 33) == ':granted:' .. wait",
            "string.sub(held, 33, 41) == ':granted:'",
        ),
        ("fence-without-write-back", &["acquire", "release", "fence"], "now[1] * 1000000 + now[2]", "0"),
        ("acquire-steals", &["acquire"], "local free = held and", "local free = true or held and"),
        (
            "fence-without-end",
            &["acquire"],
            "redis.call('SET', KEYS[3], fence, 'PX', life)",
            "redis.call('SET', KEYS[3], fence)",
        ),
        (
            "fence-without-end",
            &["fence"],
            "redis.call('SET', KEYS[2], fence, 'PX', life)",
            "redis.call('SET', KEYS[2], fence)",
        ),
    ];

    pub(crate) fn is(name: &str) -> bool {
        *BROKEN == name
    }

    pub(crate) fn script(name: &str, source: &'static str) -> &'static str {
        let mut text = source.to_owned();
        for (broken, scripts, good, bad) in SCRIPTS {
            if is(broken) && scripts.contains(&name) {
                assert!(text.contains(good), "{name}.lua has no `{good}` any more");
                text = text.replace(good, bad);
            }
        }
        text.leak()
    }
}
