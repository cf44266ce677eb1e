//! The tests run the examples as users run them.
//!
//! `cargo test` of the workspace has built most of them beside this binary, in `target/…/examples`. The tests still ask
//! Cargo to build them, which then takes no time. So a run of this binary alone never tests an outdated example.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::time::Duration;
use std::{env, fs};

use redlock_tests::{Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The command that runs an example.
fn example(name: &str) -> Command {
    program(&format!("examples/{name}"))
}

/// The command that runs the shop, which is a separate package.
fn quickstart() -> Command {
    program("quickstart")
}

fn program(path: &str) -> Command {
    static BUILT: Once = Once::new();
    BUILT.call_once(build);
    let mut command = Command::new(profile_dir().join(path));
    // The environment of the tests must not matter: an example starts its own server unless a test names one.
    command.env_remove("REDIS_URL").env_remove("REDLOCK_NODES").stdin(Stdio::null());
    command
}

/// Builds the examples like `cargo test`, so that Cargo has nothing to do after a `cargo test`.
fn build() {
    let (dir, manifest) = (profile_dir(), concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    let profile = match dir.file_name().and_then(OsStr::to_str).unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut cargo = Command::new(env!("CARGO"));
    // Cargo sets variables for tests. If they differ, Cargo runs the build script of `ring` again. Then each `cargo
    // test` would build TLS and the library twice.
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
            cargo.env_remove(name);
        }
    }
    cargo.args(["build", "--quiet", "--workspace", "--examples", "--bin", "quickstart"]);
    cargo.args(["--manifest-path", manifest, "--profile", profile]);
    let status = cargo.arg("--target-dir").arg(dir.parent().unwrap()).status().unwrap();
    assert!(status.success(), "the examples cannot be built");
}

/// `target/debug` or the like, which contains this binary in `deps`.
fn profile_dir() -> PathBuf {
    let this = env::current_exe().unwrap();
    this.parent().unwrap().parent().unwrap().to_owned()
}

/// Runs the command to its end. Returns what it printed, and its exit code.
fn outcome(command: &mut Command) -> (String, Option<i32>) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = [stdout, stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), status.code())
}

/// Asserts that the command succeeds and prints each of these texts.
fn shows(command: &mut Command, texts: &[&str]) {
    let (said, code) = outcome(command);
    assert_eq!(code, Some(0), "{command:?} printed:\n{said}");
    for text in texts {
        assert!(said.contains(text), "{command:?} did not print `{text}` but:\n{said}");
    }
}

#[test]
fn those_to_copy_run_with_the_url_of_a_server() {
    let server = Server::start();
    let with_url = |name: &str| {
        let mut command = example(name);
        command.env("REDIS_URL", server.url());
        command
    };
    // With the examples' default node timeout, a call can fail on a busy machine. So the test repeats them.
    let says = |name: &str, text: &str| {
        eventually(name, SOON, || matches!(outcome(&mut with_url(name)), (said, Some(0)) if said.contains(text)));
    };
    says("rayon", "parcels in 200 orders");
    says("leader", "leads after 3 s: true");
    says("cron", "the report is written");
    let once = || outcome(with_url("cron_once").arg("2026-11-24"));
    eventually("cron_once", SOON, || once() == ("the report of 2026-11-24 is written\n".to_owned(), Some(0)));
    eventually("it is done", SOON, || once() == ("the report of 2026-11-24 was written before\n".to_owned(), Some(0)));
    // This call acts like another machine that starts late.
    eventually("another machine skips it", SOON, || outcome(&mut with_url("cron")) == (String::new(), Some(0)));
}

/// The example `service`, with a database of its own. The drop kills it, and removes the database.
struct Service {
    process: Child,
    address: String,
    orders: PathBuf,
}

impl Service {
    fn start(name: &str, url: String) -> Self {
        let orders = env::temp_dir().join(format!("redlock-it-{name}-{}.sqlite", std::process::id()));
        let mut command = example("service");
        command.arg("127.0.0.1:0").arg(&orders).env("REDIS_URL", url);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_owned();
        Self { process, address, orders }
    }

    /// The status line and all that follows it.
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// With the example's default node timeout, a call can fail on a busy machine. So this repeats it.
    fn replies(&self, request: &str, text: &str) {
        eventually(text, SOON, || self.ask(request).contains(text));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        _ = self.process.kill();
        self.process.wait().unwrap();
        _ = fs::remove_file(&self.orders);
    }
}

#[test]
fn a_service_has_a_lock_and_a_fence_for_each_order_and_stops_when_told_to() {
    let server = Server::start();
    let mut service = Service::start("fenced", server.url());
    service.replies("GET /ready", " 200 ");
    service.replies("POST /orders/42", "order 42 is shipped");
    let held = redlock_tests::open(server.url()).mutex("order:42").lock().unwrap();
    service.replies("POST /orders/42", " 423 ");
    held.unlock().unwrap();
    let db = rusqlite::Connection::open(&service.orders).unwrap();
    db.execute("UPDATE orders SET fence = 9007199254740992 WHERE id = 42", []).unwrap();
    service.replies("POST /orders/42", " 409 ");
    service.replies("POST /orders/7", "order 7 is shipped");
    kill_process(Pid::from_child(&service.process), Signal::TERM).unwrap();
    assert!(service.process.wait().unwrap().success());
}

#[test]
fn a_service_refuses_requests_while_its_server_is_down() {
    let server = Server::start();
    server.kill();
    let service = Service::start("down", server.url());
    assert!(service.ask("GET /ready").contains(" 503 "));
    assert!(service.ask("POST /orders/42").contains(" 503 "));
    server.restart();
    service.replies("POST /orders/42", "order 42 is shipped");
}

#[test]
fn a_server_in_the_environment_is_used() {
    let server = Server::start();
    let before = server.commands_processed();
    shows(example("transfer").env("REDIS_URL", server.url()), &["from REDIS_URL", "OK"]);
    assert!(server.commands_processed() > before);
}

#[test]
fn three_nodes_lose_one_and_go_on() {
    shows(&mut example("three_nodes"), &["with two servers of three", "no majority of nodes answered", "OK"]);
}

#[test]
fn fencing_refuses_the_late_write() {
    shows(&mut example("fencing"), &["never knew better", "write refused: no row has changed", "OK"]);
}

#[test]
fn mailer_loses_no_mail() {
    let texts = ["is killed", "OK: no mail was lost, none was acknowledged twice"];
    shows(&mut example("mailer"), &texts);
}

#[test]
fn cache_is_never_read_by_halves() {
    shows(&mut example("cache"), &["processes that found a half: 0", "OK"]);
}

#[test]
fn limiter_lets_no_more_in_than_it_should() {
    shows(&mut example("limiter"), &["is killed", "at a time of 20 threads", "OK"]);
}

#[test]
fn batch_goes_on_when_all_parts_are_there() {
    let texts = ["4 of 5 have arrived, the latch is closed", "the sum of 5000 numbers is 12497500", "OK"];
    shows(&mut example("batch"), &texts);
}

#[test]
fn transfer_keeps_the_money_together() {
    shows(&mut example("transfer"), &["160 transfers", "in all 4000 of 4000", "OK"]);
}

#[test]
fn with_tokio_holds_up_no_runtime() {
    shows(&mut example("with_tokio"), &["120 of 120 additions", "OK"]);
}

/// The names of the library's metrics, as its source has them.
fn metrics() -> BTreeSet<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../redlock-sync/src/facades/metrics.rs");
    names_in(&fs::read_to_string(source).unwrap())
}

fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let ends = ["_bucket", "_count", "_sum"];
    text.split(|c: char| !is_part(c))
        .filter(|word| word.starts_with("redlock_") && !["redlock_sync", "redlock_tests"].contains(word))
        .map(|word| ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned())
        .collect()
}

/// Two metrics are missing, because they count unconfirmed releases and unusable servers.
#[test]
fn metrics_are_exposed_by_name_and_not_by_key() {
    let (said, code) = outcome(&mut example("metrics"));
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "redlock_wait_seconds_bucket{lock=\"shelf:{number}\",outcome=\"acquired\"",
        "redlock_wait_seconds_count{lock=\"count\",outcome=\"busy\"}",
        "redlock_lost_total{lock=\"audit:{year}\",reason=\"revoked\"} 1",
        "redlock_held{lock=\"shelf:{number}\"} 0",
        "redlock_waiting{lock=\"count\"} 0",
        "mails\",verdict=\"done\"} 1",
        "redlock_job_wait_seconds_count{queue=",
        "/ready: ready: 1 of 1 servers",
    ] {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
    assert!(!said.contains("shelf:1") && !said.contains("audit:2026"), "{said}");
    let missing: Vec<String> = metrics().difference(&names_in(&said)).cloned().collect();
    assert_eq!(missing, ["redlock_node_up", "redlock_unconfirmed_total"], "{said}");
}

#[test]
fn the_dashboard_names_only_metrics_that_exist() {
    let dashboard = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/grafana.json");
    let text = fs::read_to_string(dashboard).unwrap();
    assert_eq!(names_in(&text), metrics(), "in docs/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let asked = queries(&dashboard);
    assert!(asked.len() >= metrics().len(), "{asked:?}");
    for query in asked {
        let named = labels(&query).into_iter();
        // Exporters add the label `le` to histograms.
        let unknown: Vec<String> =
            named.filter(|label| label != "le" && !known_labels(&query).contains(label)).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {query}");
    }
}

/// The queries of all panels.
fn queries(dashboard: &serde_json::Value) -> Vec<String> {
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// The labels by which a query groups and selects: `by (le, lock)`, `{lock=~"…", outcome="…"}`.
fn labels(query: &str) -> BTreeSet<String> {
    let grouped = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let selected = query.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let all = grouped.chain(selected).flat_map(|list| list.split(','));
    all.filter_map(|part| part.split('=').next()).map(|name| name.trim().to_owned()).collect()
}

/// The labels of the query's metric, as docs/operations.md#metrics lists them.
fn known_labels(query: &str) -> BTreeSet<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md")).unwrap();
    let metric = names_in(query).into_iter().next().unwrap();
    let row = page.lines().find(|line| line.starts_with(&format!("| `{metric}` |"))).unwrap();
    row.split('|').nth(3).unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn quickstart_sells_no_unit_twice() {
    let texts = [
        "is killed",
        "is paused",
        "the fence refuses a late write",
        "dee: stopped: all locks are released",
        "whose worker was told to stop at it, was settled by dee",
        "OK: no unit was sold twice",
    ];
    shows(&mut quickstart(), &texts);
}

#[test]
fn quickstart_without_locks_shows_the_damage() {
    let (said, code) = outcome(quickstart().arg("--no-locks"));
    assert!(code == Some(1) && said.contains("DAMAGE"), "{code:?} {said}");
    let twice = said.lines().find_map(|line| line.trim().strip_prefix("units that were sold twice"));
    assert_ne!(twice.map(str::trim), Some("0"), "{said}");
}
