//! Users without some of the permissions that a lock needs (21).

use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{ConfigKind, Error, Redlock};
use redlock_tests::{Server, Stopwatch, eventually, patient, servers};

use crate::faults::rig::{
    LONG, NODE_TIMEOUT, SLACK, SOON, assert_misuse, assert_refused_for_now, refused_at_once, within,
};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_21_a_command_that_the_server_does_not_have;
    mutexes:
    fault_21_the_documented_permissions_are_enough,
    fault_21_each_needed_permission_is_asked_for_before_anything_is_set,
    fault_21_what_may_be_left_out_is_not_missed,
    fault_21_keys_beside_the_lock_that_are_forbidden,
    fault_21_a_permission_that_is_taken_away_and_given_back
);

/// The documented permissions that a user can lack.
const OPTIONAL: [&str; 5] = ["+publish", "+subscribe", "+info", "+select", "&redlock-sync:*"];

fn docs() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md")).unwrap()
}

/// The words after `ACL SETUSER` in the documentation. Of the commands, the result has only those that the table row
/// with this title needs, and the optional ones.
pub(super) fn documented_for(title: &str) -> Vec<String> {
    let (docs, needed) = (docs(), needed_for(title));
    let lines: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("ACL SETUSER ")).collect();
    let [line] = lines[..] else { panic!("one line for ACL SETUSER, but: {lines:?}") };
    let is_for = |word: &String| !word.starts_with('+') || OPTIONAL.contains(&word.as_str()) || needed.contains(word);
    line.split(' ').map(str::to_owned).filter(is_for).collect()
}

/// The commands in that table row.
pub(super) fn needed_for(title: &str) -> Vec<String> {
    let docs = docs();
    let row = docs.lines().find(|line| line.starts_with(&format!("| {title}"))).unwrap();
    row.split(['`', ' ']).filter(|word| word.starts_with('+')).map(str::to_owned).collect()
}

fn documented() -> Vec<String> {
    documented_for("mutexes")
}

/// Redis 6 knows fewer rules, and a client cannot query all permissions on it.
pub(super) fn is_redis_6(server: &Server) -> bool {
    server.info("redis_version").is_some_and(|version| version.starts_with("6."))
}

fn needed() -> Vec<String> {
    needed_for("mutexes")
}

/// A server with the documented user, which lacks one of the rules.
fn without(rule: &str) -> (Server, Redlock) {
    let server = Server::start();
    let rules: Vec<String> = documented().into_iter().filter(|word| word != rule).collect();
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg(rules));
    let locks = open(&server, "");
    (server, locks)
}

pub(super) fn open(server: &Server, database: &str) -> Redlock {
    let url = format!("redis://locks:secret@{}/{database}", server.addr());
    Redlock::builder().node(url).lease(LONG).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// Calls all operations, some of them while another client waits.
fn use_all<K: Kind>(server: &Server, database: &str) {
    let (locks, others) = (open(server, database), open(server, database));
    for key in ["order:42", "order:{7}:cart"] {
        let lock = K::new(&locks, key);
        let guard = lock.lock().unwrap();
        guard.extend(LONG).unwrap();
        guard.fencing_token().unwrap();
        assert!(lock.is_locked().unwrap() && lock.inspect().unwrap().is_some());
        hand_over::<K>(server, database, guard, &K::new(&others, key));
        // This lock raises the fence counter in the acquire, and has a minimum hold that a release does not shorten.
        let held = lock.clone().min_hold(Duration::from_millis(50)).lock().unwrap();
        hand_over::<K>(server, database, held, &K::new(&others, key));
    }
}

/// Releases the lock while `other` waits. Then `other` must get the lock.
fn hand_over<K: Kind>(server: &Server, database: &str, guard: K::Guard, other: &K) {
    thread::scope(|scope| {
        let other = scope.spawn(|| K::unlock(other.lock().unwrap()).unwrap());
        until_waiting(server, database);
        K::unlock(guard).unwrap();
        other.join().unwrap();
    });
}

/// Waits until a client is in the queue on the server.
fn until_waiting(server: &Server, database: &str) {
    let mut client = server.client();
    cmd("SELECT").arg(database.parse().unwrap_or(0)).exec(&mut client).unwrap();
    let mut marks = || cmd("KEYS").arg("*:waits").query::<Vec<String>>(&mut client).unwrap();
    eventually("a client waits", SOON, || !marks().is_empty());
}

/// The entries in the server's log of refused commands.
pub(super) fn refusals(server: &Server) -> Vec<String> {
    let log: Vec<redis::Value> = server.ask(cmd("ACL").arg("LOG"));
    log.iter().map(|entry| format!("{entry:?}")).collect()
}

fn fault_21_the_documented_permissions_are_enough<K: Kind>() {
    let (server, _) = without("");
    use_all::<K>(&server, "");
    use_all::<K>(&server, "1");
    let (held, waiting) = (open(&server, ""), open(&server, ""));
    let guard = K::new(&held, "order:42").lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| K::new(&waiting, "order:42").lock().err().unwrap());
        until_waiting(&server, "");
        within(Duration::from_secs(1), "close()", || waiting.shutdown(Duration::ZERO).unwrap());
        assert_eq!(waiter.join().unwrap(), Error::Closed);
    });
    K::unlock(guard).unwrap();
    assert_eq!(refusals(&server), Vec::<String>::new(), "a query for permissions counted as a refused command");
}

fn fault_21_each_needed_permission_is_asked_for_before_anything_is_set<K: Kind>() {
    let needed = needed();
    assert_eq!(needed.len(), 15, "{needed:?}");
    for (rule, has_scripts) in needed.iter().flat_map(|rule| [(rule, false), (rule, true)]) {
        let (server, locks) = without(rule);
        if has_scripts {
            // A user with all permissions brings the scripts. Then the library needs EVAL for a client's first release.
            let lock = K::new(&redlock_tests::open(server.url()), "order:42");
            lock.lock().unwrap().fencing_token().unwrap();
            server.del("{order:42}:fence");
            if is_redis_6(&server) && rule == "+eval" {
                // On Redis 6, a script cannot ask for this permission.
                let error = K::unlock(K::new(&locks, "order:42").lock().unwrap()).unwrap_err();
                assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
                continue;
            }
        }
        let name = rule.trim_start_matches('+');
        for _ in 0..2 {
            let lock = K::new(&locks, "order:42");
            for error in [lock.lock(), lock.try_lock(), lock.try_lock_for(SOON)].map(|result| result.err().unwrap()) {
                assert!(matches!(error, Error::Config { .. }), "without {rule}: {error}");
                assert!(error.to_string().to_lowercase().contains(name), "without {rule}: {error}");
                assert!(error.to_string().contains("Permissions"), "the error names no remedy: {error}");
            }
        }
        assert_eq!(server.keys(), Vec::<String>::new(), "nothing is left behind without {rule}");
        server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(rule));
        K::unlock(K::new(&locks, "order:42").lock().expect(rule)).expect(rule);
    }
}

fn fault_21_what_may_be_left_out_is_not_missed<K: Kind>() {
    for rule in OPTIONAL {
        let (server, locks) = without(rule);
        use_all::<K>(&server, "");
        let guard = K::new(&open(&server, ""), "order:42").lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| K::new(&locks, "order:42").lock().err().unwrap());
            until_waiting(&server, "");
            let start = Stopwatch::start();
            locks.shutdown(Duration::ZERO).unwrap();
            assert_eq!(waiter.join().unwrap(), Error::Closed);
            assert!(start.elapsed() < Duration::from_secs(5) + NODE_TIMEOUT + SLACK, "without {rule}");
        });
        K::unlock(guard).unwrap();
        if rule == "+select" {
            assert_misuse(
                &refused_at_once::<K>(&open(&server, "1")),
                ConfigKind::Permission,
                &server.addr().to_string(),
                "select",
            );
        }
    }
}

fn fault_21_keys_beside_the_lock_that_are_forbidden<K: Kind>() {
    for rules in [
        &["~order:*"][..],
        &["~{order:*}:*"],
        &["~order:*", "~{order:*}:waits"],
        &["~order:*", "~{order:*}:fence"],
        &["~order:*", "%R~{order:*}:*"],
        &["%R~*"],
    ] {
        let (server, locks) = without("");
        if is_redis_6(&server) && rules.iter().any(|rule| rule.starts_with('%')) {
            continue;
        }
        server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg("resetkeys").arg(rules));
        for first in [true, false] {
            let lock = K::new(&locks, "order:42");
            let error = within(NODE_TIMEOUT, "lock()", || lock.lock().err().unwrap());
            assert_misuse(
                &error,
                ConfigKind::Permission,
                &server.addr().to_string(),
                "access one of the keys|access a key",
            );
            assert!(error.to_string().contains("Permissions"), "names the remedy: {error}");
            assert_eq!(server.keys(), Vec::<String>::new(), "nothing is left behind with {rules:?}, first: {first}");
        }
    }
    // A key without permission for one lock does not affect other locks.
    let (server, locks) = without("");
    assert_misuse(
        &K::new(&locks, "cart:1").lock().err().unwrap(),
        ConfigKind::Permission,
        &server.addr().to_string(),
        "key",
    );
    K::unlock(K::new(&locks, "order:42").lock().unwrap()).unwrap();
}

/// After a refusal, the client asks again on its existing connections.
fn fault_21_a_permission_that_is_taken_away_and_given_back<K: Kind>() {
    let (server, locks) = without("");
    let rule = |rule: &str| server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(rule));
    let guard = K::new(&locks, "order:42").lock().unwrap();
    rule("-time");
    // The server has served this kind of lock before, so each refusal counts as an outage.
    assert_refused_for_now(&guard.fencing_token().unwrap_err(), "permission|user");
    guard.check().unwrap();
    assert_refused_for_now(&K::new(&locks, "order:43").try_lock().err().unwrap(), "may not run TIME");
    assert_eq!(server.holder("order:43"), None);
    rule("+time");
    guard.fencing_token().unwrap();
    K::unlock(guard).unwrap();
    K::unlock(K::new(&locks, "order:43").lock().unwrap()).unwrap();
}

/// The first count-down checks the same permissions, before it sets anything.
#[test]
fn fault_21_a_latch_is_not_counted_down_without_a_permission() {
    for rule in needed().iter().filter(|rule| !["+eval", "+evalsha"].contains(&rule.as_str())) {
        let (server, locks) = without(rule);
        let latch = locks.count_down_latch("order:42", 1);
        for _ in 0..2 {
            let error = latch.count_down().unwrap_err();
            assert_misuse(
                &error,
                ConfigKind::Permission,
                &server.addr().to_string(),
                &format!("may not run {}", rule[1..].to_uppercase()),
            );
        }
        assert_eq!(server.keys(), Vec::<String>::new(), "nothing is left behind without {rule}");
        server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(rule));
        latch.count_down().expect(rule);
        assert!(latch.is_open().unwrap(), "{rule}");
    }
}

/// Some administrators remove commands instead of denying them.
fn fault_21_a_command_that_the_server_does_not_have<K: Kind>() {
    let server = Server::builder().arg("--rename-command").arg("TIME").arg("").start();
    let error = refused_at_once::<K>(&redlock_tests::open(server.url()));
    assert_misuse(&error, ConfigKind::Server, &server.addr().to_string(), "this server has no TIME");
    assert!(error.to_string().contains("rename-command") && !error.to_string().contains("ACL"), "{error}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// Lua code that makes a current server answer a script as Redis 6 does.
const AS_REDIS_6: &str = "
local today = redis
local redis = { error_reply = today.error_reply }
function redis.pcall(...)
  local reply = today.pcall(...)
  local is_forbidden = type(reply) == 'table' and reply.err and string.find(reply.err, 'no permissions to run the', 1, true)
  return is_forbidden and { err = \"The user executing the script can't run this command or subcommand\" } or reply
end
";

/// On Redis 6 the client finds missing permissions by trial calls. These calls must change no keys.
#[test]
fn fault_21_redis_6_is_asked_by_trying() {
    let check = AS_REDIS_6.to_owned()
        + include_str!("../../../../redlock-sync/src/protocol/lua/permissions.lua")
        + "return #ARGV";
    let keys = ["order:42", "{order:42}:waits", "{order:42}:fence"];
    let ask = |server: &Server| {
        let client = redis::Client::open(format!("redis://locks:secret@{}/", server.addr())).unwrap();
        let mut eval = cmd("EVAL");
        eval.arg(&check).arg(keys.len()).arg(&keys).arg("token").arg("check mutex");
        eval.query::<usize>(&mut client.get_connection().unwrap())
    };
    for rule in needed().iter().filter(|rule| !["+eval", "+evalsha"].contains(&rule.as_str())) {
        let (server, _) = without(rule);
        let error = ask(&server).unwrap_err().to_string().to_lowercase();
        assert!(error.ends_with(&format!("may not run {}", &rule[1..])), "without {rule}: {error}");
        assert_eq!(server.keys(), Vec::<String>::new(), "without {rule}");
    }
    let (server, _) = without("");
    assert_eq!(ask(&server).unwrap(), 1, "the check left its own word in the arguments");
    assert_eq!(server.keys(), Vec::<String>::new());
    server.set(keys[0], "token");
    server.ask::<()>(cmd("ZADD").arg(keys[1]).arg(9).arg("waiter"));
    server.set(keys[2], "7");
    let dump = || keys.map(|key| server.ask::<Vec<u8>>(cmd("DUMP").arg(key)));
    let before = dump();
    assert_eq!((ask(&server).unwrap(), dump()), (1, before), "nothing that is there was changed");
    assert!(keys.iter().all(|key| server.pttl(key).is_none()));
}

/// The user may write the keys of locks whose names have a hash tag, and no helper keys of other names.
#[test]
fn no_lock_is_taken_that_the_user_may_not_release() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        for server in &servers {
            let rules = ["on", ">secret", "~order:*", "&redlock-sync:*", "+@all"];
            server.ask::<()>(cmd("ACL").arg("SETUSER").arg("ann").arg(&rules));
        }
        let urls = servers.iter().map(|server| format!("redis://ann:secret@{}/", server.addr()));
        let locks = patient().nodes(urls).build().unwrap();
        // No process waits for this key, so the next attempt can be a plain `SET NX`.
        locks.mutex("order:{7}:cart").lock().unwrap().unlock().unwrap();
        let refused = locks.mutex("order:42").try_lock().unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains("NOPERM"), "{refused}");
        assert!(servers.iter().all(|server| server.get("order:42").is_none()));
    }
}
