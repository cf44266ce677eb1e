//! The scripts that run on the servers, and one call of one of them.
//!
//! Each script is a `.lua` file whose first lines state its keys, arguments and replies. A line `-- include push`
//! stands for the text of that file, whose functions several scripts have. Before that line, a script may have a fast
//! path, which ends it while there is no wait. Then no function is made.
//!
//! A script is called by its digest. A node that does not know the digest answers NOSCRIPT, and gets the source in the
//! same round.
//!
//! The scripts of all kinds of locks have their arguments in one order. A part in brackets can be absent.
//!
//! - acquire: token, lease, those of the kind, [wait, its life, fence, life of the counter, more of the kind]
//! - extend: token, lease, those of the kind
//! - fence: token, fence, life of the counter, those of the kind
//! - release: token, those of the kind, [wait, for how long the lock is kept, more of the kind]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::token::LockId;

/// A server-side script with its digest.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Script {
    /// The name of its file in `lua/`, without the ending.
    pub file: &'static str,
    /// What it does, in the words of the library's users. Two scripts can have the same operation.
    pub operation: &'static str,
    /// With the text of the files that it includes.
    pub source: String,
    /// The digest of the source.
    pub sha: String,
    /// Its bit in a set of scripts.
    pub(crate) bit: u64,
    /// The scripts of the same kind of lock, for which a user needs the same permissions.
    pub(crate) kin: u64,
    /// `EVALSHA` and the digest, in the form in which Redis reads commands.
    head: Vec<u8>,
    pub(crate) purpose: Purpose,
    /// The argument that asks it to check first whether the user may run all commands of its kind of lock, or of queues
    /// (`lua/permissions.lua`).
    pub(crate) needs: Option<&'static str>,
    /// A call carries bodies of tasks.
    pub(crate) takes_bodies: bool,
    /// A reply carries bodies of tasks.
    pub(crate) brings_bodies: bool,
    /// It gives or lengthens a lease, or stores what a failover must not lose. Its yes comes with a write, even when it
    /// is executed a second time. A server reports which replicas have a write only on the connection that made it.
    pub(crate) is_for_replicas: bool,
    /// With this many of its first keys, the script still does what matters. A cluster that moves the slot needs that:
    /// no server accepts a call that names both keys it has and keys it does not have. Zero: there is no such form.
    pub(crate) min_keys: usize,
}

impl Script {
    pub(crate) fn new(operation: &'static str, text: &str) -> Script {
        let source = assembled(text, included);
        let sha = sha1_smol::Sha1::from(&source).hexdigest();
        let mut head = Vec::new();
        push(&mut head, "EVALSHA");
        push(&mut head, &sha);
        Script { operation, source, sha, head, ..Script::default() }
    }
}

/// A command in place of a script, since not every server lets scripts publish. It has no source and no keys.
static PUBLISH: LazyLock<Script> =
    LazyLock::new(|| Script { operation: "listen", head: b"$7\r\nPUBLISH\r\n".to_vec(), ..Script::default() });

/// The text of a script with that of other files in the place of each line `-- include push, grant`.
pub(crate) fn assembled(text: &str, file: impl Fn(&str) -> String) -> String {
    let whole = |line: &str| match line.strip_prefix("-- include ") {
        Some(names) => names.trim_end().split(", ").map(&file).collect(),
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(whole).collect()
}

/// The text of a file that scripts include. A server refuses a script that includes any other name.
fn included(file: &str) -> String {
    macro_rules! text_of {
        ($($name:literal)+) => {
            match file {
                $($name => include_str!(concat!("lua/", $name, ".lua")),)+
                _ => "There is no such file.",
            }
        };
    }
    text_of!("contention" "end_with_last" "fence_counter" "grant" "permissions" "push" "q_task" "q_wake" "rw" "slots")
        .to_owned()
}

macro_rules! scripts {
    ($(
        $ident:ident = $file:literal for $operation:literal $({ $($field:ident: $value:expr),+ })?
    ),+ $(,)?) => {
        $(pub(crate) static $ident: LazyLock<Script> = LazyLock::new(|| {
            let known = Script::new($operation, include_str!(concat!("lua/", $file, ".lua")));
            Script { file: $file, bit: 1 << Number::$ident as u32, kin: kin($file), $($($field: $value,)+)? ..known }
        });)+

        /// The place of each script in this list. A set of scripts is one `u64`, so there are at most 64.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the statics")]
        enum Number { $($ident),+ }

        /// The scripts of the same kind of lock as this file.
        fn kin(file: &str) -> u64 {
            let files = [$($file),+];
            let same_kind = files.iter().enumerate().filter(|(_, other)| lock_kind(other) == lock_kind(file));
            same_kind.fold(0, |kin, (i, _)| kin | 1 << i)
        }

        /// Every script of the crate.
        pub(crate) fn all() -> Vec<&'static Script> {
            vec![$(&*$ident),+]
        }
    };
}

/// The kind of lock of a script, by the name of its file. A script that no kind needs stands alone, and so does one
/// that only reads: it needs fewer permissions.
fn lock_kind(file: &str) -> &str {
    if ["inspect", "look", "peek", "count", "is_paused"].iter().any(|reads| file.ends_with(reads)) {
        return file;
    }
    let kinds = ["semaphore_", "rw_", "q_"];
    let of_mutexes = ["acquire", "adopt", "extend", "fence", "release", "unreserve", "latch_"];
    match kinds.into_iter().find(|kind| file.starts_with(kind)) {
        Some(kind) => kind,
        None if of_mutexes.iter().any(|part| file.starts_with(part)) => "mutex",
        None => file,
    }
}

scripts! {
    ACQUIRE = "acquire" for "acquire" { purpose: Purpose::Acquire, needs: Some("check mutex"), is_for_replicas: true },
    ADOPT = "adopt" for "adopt" { purpose: Purpose::Acquire, needs: Some("check mutex"), is_for_replicas: true },
    EXTEND = "extend" for "extend" { is_for_replicas: true, min_keys: 1 },
    FENCE = "fence" for "fence" { is_for_replicas: true },
    RELEASE = "release" for "release" { purpose: Purpose::Release, min_keys: 1 },
    UNRESERVE = "unreserve" for "release",
    INSPECT = "inspect" for "inspect",
    HELD = "held" for "check",
    CHECK_LOCKS = "check_locks" for "check",
    LIST = "list" for "list",
    WRONG_TYPE = "wrong_type" for "look for a wrong type of",
    HEALTH = "health" for "ask for the health of",
    PROBE = "probe" for "write to",
    REMOVE_KEYS = "remove_keys" for "remove the keys of",
    SEMAPHORE_ACQUIRE = "semaphore_acquire" for "acquire"
        { purpose: Purpose::Acquire, needs: Some("check semaphore"), is_for_replicas: true },
    SEMAPHORE_EXTEND = "semaphore_extend" for "extend" { is_for_replicas: true },
    SEMAPHORE_FENCE = "semaphore_fence" for "fence" { is_for_replicas: true },
    SEMAPHORE_RELEASE = "semaphore_release" for "release" { purpose: Purpose::Release, min_keys: 1 },
    SEMAPHORE_INSPECT = "semaphore_inspect" for "inspect",
    RW_ACQUIRE = "rw_acquire" for "acquire"
        { purpose: Purpose::Acquire, needs: Some("check rw"), is_for_replicas: true },
    RW_EXTEND = "rw_extend" for "extend" { is_for_replicas: true, min_keys: 1 },
    RW_FENCE = "rw_fence" for "fence" { is_for_replicas: true },
    RW_RELEASE = "rw_release" for "release" { purpose: Purpose::Release, min_keys: 1 },
    RW_INSPECT = "rw_inspect" for "inspect",
    LATCH_ARRIVE = "latch_arrive" for "count down" { needs: Some("check mutex"), is_for_replicas: true },
    LATCH_LOOK = "latch_look" for "wait for",
    LATCH_RESET = "latch_reset" for "reset",
    Q_PUSH = "q_push" for "push" { needs: Some("check queue"), takes_bodies: true, is_for_replicas: true },
    Q_CLAIM = "q_claim" for "claim"
        { purpose: Purpose::Acquire, needs: Some("check queue"), brings_bodies: true, is_for_replicas: true },
    Q_EXTEND = "q_extend" for "extend" { is_for_replicas: true },
    Q_FINISH = "q_finish" for "finish" { purpose: Purpose::Release, min_keys: 3 },
    Q_POP = "q_pop" for "pop" { needs: Some("check queue"), brings_bodies: true },
    Q_PEEK = "q_peek" for "peek" { brings_bodies: true },
    Q_REMOVE = "q_remove" for "remove" { needs: Some("check queue") },
    Q_REVIVE = "q_revive" for "revive" { needs: Some("check queue") },
    Q_PURGE = "q_purge" for "purge" { needs: Some("check queue") },
    Q_CLEAR = "q_clear" for "clear" { needs: Some("check queue") },
    Q_PAUSE = "q_pause" for "pause" { needs: Some("check queue") },
    Q_IS_PAUSED = "q_is_paused" for "ask for a pause of",
    Q_COUNT = "q_count" for "count",
    Q_LEAVE = "q_leave" for "leave",
}

/// What a node needs to know of the calls of a script besides their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Purpose {
    /// May set our token. A late execution has to be undone.
    Acquire,
    /// Removes our token. It has to be executed, also after a late acquire.
    Release,
    /// Changes nothing that could outlive the lease.
    #[default]
    Other,
}

/// An argument of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Number(u64),
    Bytes(&'a [u8]),
}

/// One script call. It is the same for every node of a round, and packed once.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    /// The token that the call is about.
    pub(crate) token: Option<LockId>,
    /// The lease, if the call can be sent as `SET NX`. That does the same if the key is free and no wait is in its
    /// queue. It costs the server a third of the script.
    pub(crate) set_nx: Option<Duration>,
    words: usize,
    /// The call by digest, in the form in which Redis reads commands: the number of words, then each with its length.
    packed: Vec<u8>,
    /// Where the words begin in `packed`.
    head: usize,
    /// Where the number of keys begins in `packed`. From there on, a call with the source is the same.
    tail: usize,
    /// For a call without keys, in a cluster: it goes to the server that serves this slot.
    pub(crate) slot: Option<usize>,
}

/// Most calls fit into this many bytes.
const USUAL: usize = 384;

impl Call {
    /// A call without a token.
    pub(crate) fn new(script: &'static Script, keys: &[&str], args: &[Arg<'_>]) -> Arc<Call> {
        Call::of_token(script, None, keys, args)
    }

    pub(crate) fn of_token(
        script: &'static Script,
        token: Option<&LockId>,
        keys: &[&str],
        args: &[Arg<'_>],
    ) -> Arc<Call> {
        let words = 3 + keys.len() + args.len();
        Arc::new(Call::packed(script, token.cloned(), words, |packed| {
            let mut number = itoa::Buffer::new();
            push(packed, number.format(keys.len()));
            for key in keys {
                push(packed, key);
            }
            for arg in args {
                match arg {
                    Arg::Text(text) => push(packed, text),
                    Arg::Number(n) => push(packed, number.format(*n)),
                    Arg::Bytes(bytes) => push_bytes(packed, bytes),
                }
            }
        }))
    }

    /// Publishes a message on a channel. The reply is the number of connections that receive it.
    pub(crate) fn publish(channel: &str, message: &str) -> Arc<Call> {
        Arc::new(Call::packed(&PUBLISH, None, 3, |packed| {
            push(packed, channel);
            push(packed, message);
        }))
    }

    /// `add` appends the number of keys, the keys and the arguments; for a command, its arguments.
    fn packed(script: &'static Script, token: Option<LockId>, words: usize, add: impl FnOnce(&mut Vec<u8>)) -> Call {
        let mut packed = Vec::with_capacity(USUAL);
        push_length(&mut packed, b'*', words);
        let head = packed.len();
        packed.extend_from_slice(&script.head);
        let tail = packed.len();
        add(&mut packed);
        Call { script, token, set_nx: None, words, packed, head, tail, slot: None }
    }

    /// A new call, for the server of a cluster that serves this slot.
    pub(crate) fn at_slot(slot: Option<usize>, mut call: Arc<Call>) -> Arc<Call> {
        if let Some(call) = Arc::get_mut(&mut call) {
            call.slot = slot;
        }
        call
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.packed.len()
    }

    /// True if both calls have the same words.
    pub(crate) fn is_like(&self, other: &Call) -> bool {
        self.packed == other.packed
    }

    /// Appends the call by its digest. `checks`: the script first checks whether the user may run all scripts of this
    /// kind.
    pub(crate) fn write_to(&self, bytes: &mut Vec<u8>, checks: bool) {
        match self.script.needs.filter(|_| checks) {
            None => bytes.extend_from_slice(&self.packed),
            Some(word) => {
                push_length(bytes, b'*', self.words + 1);
                bytes.extend_from_slice(self.packed.get(self.head..).unwrap_or_default());
                push(bytes, word);
            }
        }
    }

    /// Appends the call with its source, for a server that does not know the digest.
    pub(crate) fn write_source_to(&self, bytes: &mut Vec<u8>, checks: bool) {
        let word = self.script.needs.filter(|_| checks);
        bytes.reserve(self.script.source.len() + self.packed.len());
        push_length(bytes, b'*', self.words + usize::from(word.is_some()));
        push(bytes, "EVAL");
        push(bytes, &self.script.source);
        bytes.extend_from_slice(self.packed.get(self.tail..).unwrap_or_default());
        if let Some(word) = word {
            push(bytes, word);
        }
    }

    /// Appends the command `SET NX`, which does the same if the key is free.
    pub(crate) fn write_set_nx_to(&self, bytes: &mut Vec<u8>, lease: Duration) {
        push_length(bytes, b'*', 6);
        push(bytes, "SET");
        push_bytes(bytes, self.first_key().unwrap_or_default());
        push(bytes, self.token.as_ref().map_or("", LockId::as_str));
        push(bytes, "NX");
        push(bytes, "PX");
        push(bytes, itoa::Buffer::new().format(lease.as_millis()));
    }

    /// The key by which a cluster finds the server.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        let mut words = Words(self.packed.get(self.tail..).filter(|_| !self.script.source.is_empty())?);
        words.next().filter(|keys| *keys != b"0")?;
        words.next().filter(|key| !key.is_empty())
    }

    /// All keys of the call, as text.
    pub(crate) fn key_names(&self) -> Vec<String> {
        let mut words = Words(self.packed.get(self.tail..).unwrap_or_default());
        let count = words.next().and_then(|keys| std::str::from_utf8(keys).ok()?.parse().ok()).unwrap_or(0);
        words.take(count).map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// The same call with only as many of its keys as the script needs (`Script::min_keys`).
    pub(crate) fn with_min_keys(&self) -> Option<Call> {
        let few = self.script.min_keys;
        let mut words = Words(self.packed.get(self.tail..)?);
        let keys: usize = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let left_out = keys.checked_sub(few).filter(|_| few > 0)?;
        let mut rest: Vec<&[u8]> = words.by_ref().take(few).collect();
        rest.extend(words.skip(left_out));
        let (token, words) = (self.token.clone(), 3 + rest.len());
        Some(Call::packed(self.script, token, words, |packed| {
            push(packed, itoa::Buffer::new().format(few));
            for word in &rest {
                push_bytes(packed, word);
            }
        }))
    }
}

/// The words of a packed command.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == b'\r')?;
        let len: usize = std::str::from_utf8(self.0.get(1..end)?).ok()?.parse().ok()?;
        let word = self.0.get(end + 2..end + 2 + len)?;
        self.0 = self.0.get(end + 4 + len..)?;
        Some(word)
    }
}

/// Appends one word with its length.
fn push(bytes: &mut Vec<u8>, word: &str) {
    push_bytes(bytes, word.as_bytes());
}

fn push_bytes(bytes: &mut Vec<u8>, word: &[u8]) {
    push_length(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

/// Appends a mark with a length. Most lengths have one or two digits: arrays of a fixed size are copied without a call.
fn push_length(bytes: &mut Vec<u8>, mark: u8, length: usize) {
    match u8::try_from(length) {
        Ok(length @ 0..10) => bytes.extend_from_slice(&[mark, b'0' + length, b'\r', b'\n']),
        Ok(length @ 10..100) => {
            bytes.extend_from_slice(&[mark, b'0' + length / 10, b'0' + length % 10, b'\r', b'\n']);
        }
        _ => {
            bytes.push(mark);
            bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
}

/// For the simulation's nodes, which read calls without a wire.
#[cfg(test)]
#[allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]
impl Call {
    pub(crate) fn keys(&self) -> Vec<String> {
        let tail = self.tail_words();
        let n: usize = tail[0].parse().unwrap();
        tail[1..=n].to_vec()
    }

    pub(crate) fn args(&self) -> Vec<String> {
        self.tail_words().split_off(1 + self.keys().len())
    }

    fn tail_words(&self) -> Vec<String> {
        Words(&self.packed[self.tail..]).map(|word| String::from_utf8(word.to_vec()).unwrap()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_its_own_digest() {
        let mut digests: Vec<&str> = all().iter().map(|script| script.sha.as_str()).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), all().len());
        assert!(digests.iter().all(|sha| sha.len() == 40));
        let bits = all().iter().fold(0, |bits, script| bits ^ script.bit);
        assert_eq!(bits.count_ones() as usize, all().len());
    }

    fn packed_by_redis(words: &[&str]) -> String {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.extend(["$", &word.len().to_string(), "\r\n", word, "\r\n"]);
        }
        command
    }

    fn by_digest(call: &Call, checks: bool) -> String {
        let mut bytes = Vec::new();
        call.write_to(&mut bytes, checks);
        String::from_utf8(bytes).unwrap()
    }

    fn with_source(call: &Call, checks: bool) -> String {
        let mut bytes = Vec::new();
        call.write_source_to(&mut bytes, checks);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn calls_are_packed_in_the_form_of_the_protocol() {
        let id = LockId::from_server("t");
        let args = [Arg::Text("é \r\n"), Arg::Text(""), Arg::Number(0), Arg::Number(u64::MAX)];
        let call = Call::of_token(&RELEASE, Some(&id), &["k", "{k}:fence"], &args);
        let tail = ["2", "k", "{k}:fence", "é \r\n", "", "0", "18446744073709551615"];
        let sha = ["EVALSHA", &RELEASE.sha];
        let first = packed_by_redis(&[&sha[..], &tail].concat());
        assert_eq!(by_digest(&call, false), first);
        let source = ["EVAL", &RELEASE.source];
        assert_eq!(with_source(&call, false), packed_by_redis(&[&source[..], &tail].concat()));
        assert_eq!(call.keys(), ["k", "{k}:fence"]);
        assert_eq!(call.args().len(), 4);
    }

    #[test]
    fn a_call_can_go_with_its_first_keys_only() {
        let call = |keys: &[&str]| Call::new(&RELEASE, keys, &[Arg::Text("t"), Arg::Number(7)]);
        let reduced = call(&["k", "{k}:waits", "{k}:fence"]).with_min_keys().unwrap();
        assert_eq!(by_digest(&reduced, false), by_digest(&call(&["k"]), false));
        assert_eq!(with_source(&reduced, false), with_source(&call(&["k"]), false));
        assert_eq!(call(&["k", "l"]).first_key(), Some(&b"k"[..]));
        assert_eq!((call(&[]).first_key(), call(&[]).with_min_keys().is_none()), (None, true));
        let finish = |keys: &[&str]| Call::new(&Q_FINISH, keys, &[Arg::Text("t")]);
        let reduced = finish(&["a", "b", "c", "d", "e"]).with_min_keys().unwrap();
        assert_eq!(by_digest(&reduced, false), by_digest(&finish(&["a", "b", "c"]), false));
        assert!(Call::new(&Q_PUSH, &["a", "b"], &[]).with_min_keys().is_none());
    }

    #[test]
    fn a_script_that_sets_something_is_asked_for_a_check() {
        let call = |script| Call::new(script, &["k"], &[Arg::Text("t")]);
        let checked = by_digest(&call(&ACQUIRE), true);
        assert_eq!(checked, packed_by_redis(&["EVALSHA", &ACQUIRE.sha, "1", "k", "t", "check mutex"]));
        let checked = with_source(&call(&Q_PUSH), true);
        assert_eq!(checked, packed_by_redis(&["EVAL", &Q_PUSH.source, "1", "k", "t", "check queue"]));
        for other in [&RELEASE, &EXTEND, &Q_FINISH] {
            assert_eq!(by_digest(&call(other), true), by_digest(&call(other), false));
        }
        let is_told = |script: &&Script| script.source.contains(include_str!("lua/permissions.lua"));
        // A probe always asks, and its answer does not cover other keys.
        let probes = |script: &&Script| script.sha == PROBE.sha;
        assert!(all().iter().all(|script| is_told(script) == (script.needs.is_some() || probes(script))));
    }
}
