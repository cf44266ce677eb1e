//! Converts replies of a server to values and failures.

use redis::ServerError;

use super::transport::framer::WireReply;
use super::{Executed, Failure, FailureKind, Value};

/// The longest error text that is passed on. A server's error can fill a page.
const MAX_TEXT: usize = 200;

/// True if the server does not know the digest of the script.
pub(super) fn is_noscript(said: &WireReply) -> bool {
    matches!(said, WireReply::Raw(bytes) if bytes.starts_with(b"-NOSCRIPT"))
}

/// The reply as the `redis` crate would read it. `None` if it is malformed.
pub(super) fn parsed(said: &WireReply) -> Option<redis::Value> {
    Some(match said {
        WireReply::Nil => redis::Value::Nil,
        WireReply::Okay => redis::Value::Okay,
        WireReply::Int(n) => redis::Value::Int(*n),
        WireReply::Raw(bytes) => return redis::parse_redis_value(bytes).ok(),
    })
}

/// Converts a reply to a value, or to the failure that it stands for.
pub(super) fn read(said: &WireReply) -> Result<Value, Failure> {
    parsed(said).map_or_else(|| Err(unexpected()), value)
}

/// Like [`read`], for a reply that the `redis` crate has parsed.
pub(super) fn value(reply: redis::Value) -> Result<Value, Failure> {
    Ok(match reply {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(n) => Value::Int(n),
        redis::Value::BulkString(bytes) => Value::Text(bytes),
        redis::Value::SimpleString(text) => Value::Text(text.into_bytes()),
        redis::Value::Okay => Value::Okay,
        redis::Value::Array(items) => Value::List(items.into_iter().map(value).collect::<Result<_, _>>()?),
        redis::Value::ServerError(error) => return Err(failure(&error)),
        _ => return Err(unexpected()),
    })
}

fn unexpected() -> Failure {
    Failure::new(FailureKind::Refused, Executed::Maybe, "sent an unexpected reply")
}

/// True if the connection must be replaced. The next one logs in again and asks for the server's role.
pub(super) fn wants_new_connection(failure: &Failure) -> bool {
    let words = ["NOAUTH", "WRONGPASS"];
    let wants_login = || words.iter().any(|word| failure.message.contains(word));
    failure.kind == FailureKind::Replica || failure.kind == FailureKind::Denied && wants_login()
}

/// True if the server refused the user or the password.
pub(super) fn is_wrong_password(failure: &Failure) -> bool {
    failure.kind == FailureKind::Denied && failure.message.starts_with("WRONGPASS")
}

/// Replaces the redirect errors of a cluster by a message for users.
pub(super) fn in_cluster(failure: Failure) -> Failure {
    match failure.message.split(' ').next() {
        Some("MOVED" | "ASK") => {
            let message = "the cluster redirected the call from server to server; its slots are being moved";
            Failure::unsent(FailureKind::Transient, message)
        }
        Some("TRYAGAIN") => {
            let message =
                "the slot of this key is being moved to another server; the call has to wait until that is done";
            Failure { message: message.into(), ..failure }
        }
        _ => failure,
    }
}

/// True if the user lacks a permission.
pub(super) fn lacks_permission(failure: &Failure) -> bool {
    failure.kind == FailureKind::Denied && is_about_permission(&failure.message)
}

/// True if the message of a failure says that the user lacks a permission.
pub(crate) fn is_about_permission(message: &str) -> bool {
    FORBIDDEN_IN_SCRIPT.iter().chain(&["NOPERM"]).any(|words| message.contains(words))
}

/// True if the first acquire found that this user may not run all commands, whatever the key (`lua/permissions.lua`).
pub(super) fn lacks_commands(failure: &Failure) -> bool {
    let begins = |words| failure.message.starts_with(words);
    let is_forbidden = failure.kind == FailureKind::Denied && begins("NOPERM this user may not run ");
    is_forbidden || failure.kind == FailureKind::Misuse && begins("NOCOMMAND ")
}

/// The failure that an error reply stands for.
pub(super) fn failure(error: &ServerError) -> Failure {
    classify(error.code(), error.details().unwrap_or_default())
}

/// Error codes and their meaning. Longer texts are searched for them in this order.
const CODES: [(&str, FailureKind); 21] = [
    ("WRONGTYPE", FailureKind::WrongType),
    ("READONLY", FailureKind::Replica),
    ("NOPERM", FailureKind::Denied),
    ("NOAUTH", FailureKind::Denied),
    ("WRONGPASS", FailureKind::Denied),
    ("DENIED", FailureKind::Denied),
    ("MOVED", FailureKind::Misuse),
    ("ASK", FailureKind::Misuse),
    ("CROSSSLOT", FailureKind::Misuse),
    // Errors of the library's own scripts. The server has no such command. The fence counter cannot rise, by its value
    // or its type.
    ("NOCOMMAND", FailureKind::Misuse),
    ("FENCEEND", FailureKind::Misuse),
    // A newer version of this library has entered its waits.
    ("LAYOUT", FailureKind::Misuse),
    ("LOADING", FailureKind::Transient),
    ("BUSY", FailureKind::Transient),
    ("MASTERDOWN", FailureKind::Transient),
    ("TRYAGAIN", FailureKind::Transient),
    ("CLUSTERDOWN", FailureKind::Transient),
    ("OOM", FailureKind::Refused),
    ("MISCONF", FailureKind::Refused),
    ("NOREPLICAS", FailureKind::Refused),
    ("NOSCRIPT", FailureKind::Refused),
];

/// The server returns these errors at the first write of a script at the latest. So nothing was done, even if the text
/// mentions a script.
const NEVER_HALF_DONE: [&str; 5] = ["WRONGTYPE", "READONLY", "OOM", "MISCONF", "NOREPLICAS"];

fn classify(code: &str, detail: &str) -> Failure {
    if code == "ERR" && detail.starts_with("unknown command") {
        return unknown_command(detail);
    }
    let known = known_code(code).or_else(|| wrapped_code(code, detail));
    let in_script = detail.contains("script");
    let (kind, executed) = match known {
        Some((code, kind)) if !in_script || NEVER_HALF_DONE.contains(&code) => (kind, Executed::No),
        Some((code, kind)) if code == "BUSY" || code == "NOSCRIPT" => (kind, Executed::No),
        Some((_, kind)) => (kind, Executed::Maybe),
        None => (FailureKind::Refused, Executed::Maybe),
    };
    let remedy = known.map_or("", |(code, _)| remedy(code));
    Failure::new(kind, executed, text(code, detail) + remedy)
}

/// The command was renamed or disabled, or the server is not Redis. Nothing was executed.
fn unknown_command(detail: &str) -> Failure {
    let what = text("ERR", detail.split(", with args").next().unwrap_or(detail));
    Failure::unsent(FailureKind::Misuse, what + remedy("NOCOMMAND"))
}

/// A hint for users, where the server's own message has none.
fn remedy(code: &str) -> &'static str {
    match code {
        "MOVED" | "ASK" | "CROSSSLOT" => {
            " (the server is in a Redis Cluster: give the client standalone servers, or a `redis+cluster://` URL)"
        }
        "NOPERM" => {
            " (section \"Permissions\" of the documentation of redlock-sync has one line for `ACL SETUSER` \
             with all that a lock needs)"
        }
        "NOCOMMAND" => {
            " (the library needs it under this name: remove its `rename-command` from the server's settings)"
        }
        "NOAUTH" => {
            " (the server wants a password: put it into the URL, as in `redis://:password@host/` or \
             `redis://user:password@host/`, or into a password file)"
        }
        "WRONGPASS" => {
            " (correct the user name or the password; in a URL, percent-encode special characters, such as `%40` for \
             `@`)"
        }
        // Of several calls that are sent together, only the first one brings the source (`Server::needs_source`).
        "NOSCRIPT" => " (the server forgot the script, or an earlier call that carried it failed)",
        _ => "",
    }
}

fn known_code(code: &str) -> Option<(&'static str, FailureKind)> {
    CODES.iter().copied().find(|(known, _)| *known == code)
}

/// The texts of Redis and Valkey if a script runs a forbidden command. These errors have no code.
const FORBIDDEN_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// Finds the code of an error inside a script. Redis 6 puts it into the text of an `ERR`, or after the position in the
/// script. A forbidden command inside a script has no code on any server.
fn wrapped_code(code: &str, detail: &str) -> Option<(&'static str, FailureKind)> {
    if code != "@user_script:" && code != "ERR" || !detail.contains("script") {
        return None;
    }
    if FORBIDDEN_IN_SCRIPT.iter().any(|words| detail.contains(words)) {
        return known_code("NOPERM");
    }
    detail.split(|c: char| !c.is_ascii_alphanumeric()).find_map(known_code)
}

fn text(code: &str, detail: &str) -> String {
    let whole = format!("{code} {}", detail.trim());
    let line = whole.lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn of(line: &str) -> (FailureKind, Executed) {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let failure = value(reply).unwrap_err();
        assert!(failure.message.starts_with(line), "{}", failure.message);
        (failure.kind, failure.executed)
    }

    #[test]
    fn errors_before_the_run() {
        let no = |kind| (kind, Executed::No);
        assert_eq!(of("NOAUTH Authentication required."), no(FailureKind::Denied));
        assert_eq!(of("WRONGTYPE Operation against a key holding the wrong kind of value"), no(FailureKind::WrongType));
        assert_eq!(of("LOADING Redis is loading the dataset in memory"), no(FailureKind::Transient));
        assert_eq!(
            of("BUSY Redis is busy running a script. You can only call SCRIPT KILL"),
            no(FailureKind::Transient)
        );
        assert_eq!(of("MOVED 3999 127.0.0.1:6381"), no(FailureKind::Misuse));
        assert_eq!(of("OOM command not allowed when used memory > 'maxmemory'."), no(FailureKind::Refused));
        assert_eq!(of("NOPERM this user has no permissions to run the 'evalsha' command"), no(FailureKind::Denied));
        assert_eq!(of("READONLY You can't write against a read only replica."), no(FailureKind::Replica));
    }

    #[test]
    fn errors_inside_a_script() {
        let six = "ERR Error running script (call to f_6b1): @user_script:3: ";
        assert_eq!(
            of(&format!("{six}WRONGTYPE Operation against a key holding the wrong kind of value")),
            (FailureKind::WrongType, Executed::No)
        );
        assert_eq!(
            of(&format!("{six}@user_script: 3: -OOM command not allowed")),
            (FailureKind::Refused, Executed::No)
        );
        assert_eq!(of(&format!("{six}-READONLY You can't write")), (FailureKind::Replica, Executed::No));
        assert_eq!(of(&format!("{six}attempt to index a nil value")), (FailureKind::Refused, Executed::Maybe));
        assert_eq!(
            of("NOPERM ACL failure in script: User a has no permissions to access the 'k' key"),
            (FailureKind::Denied, Executed::Maybe)
        );
        assert_eq!(
            of(
                "ERR The user executing the script can't run this command or subcommand script: f6b1, on @user_script:1."
            ),
            (FailureKind::Denied, Executed::Maybe)
        );
        assert_eq!(
            of(
                "ERR ACL failure in script: User a has no permissions to run the 'set' command script: on @user_script:1."
            ),
            (FailureKind::Denied, Executed::Maybe)
        );
        // The error of Redis 6 if a script uses `pcall` and returns the error.
        assert_eq!(
            of("@user_script: 68: The user executing the script can't run this command or subcommand"),
            (FailureKind::Denied, Executed::Maybe)
        );
        assert_eq!(of("ERR something else"), (FailureKind::Refused, Executed::Maybe));
        assert_eq!(of("ERR the BUSY word alone"), (FailureKind::Refused, Executed::Maybe));
    }

    #[test]
    fn an_error_inside_a_list_is_an_error() {
        let reply = redis::parse_redis_value(b"*2\r\n:1\r\n-OOM no\r\n").unwrap();
        assert_eq!(value(reply).unwrap_err().kind, FailureKind::Refused);
        let reply = redis::parse_redis_value(b"*3\r\n:1\r\n$1\r\na\r\n$-1\r\n").unwrap();
        assert_eq!(value(reply).unwrap(), Value::List(vec![Value::Int(1), Value::Text(b"a".to_vec()), Value::Nil]));
    }
}
