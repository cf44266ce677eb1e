//! Makes one run with servers, proxies, clients and faults, and collects its history.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::Queue;
use redlock_tests::{Group, Proxy, Server, poll};

use crate::args::Options;
use crate::client::{self, Log, Order};
use crate::clock::{SEC, now};
use crate::feeder::Feeder;
use crate::group;
use crate::history::{Deleted, History, IdOf, Left, LeftTasks, Sighting, Struck};
use crate::names::{self, QUEUE};
use crate::nemesis::{self, Clients, Field};
use crate::plan;
use crate::store::Store;
use crate::timing::LONGEST_LEASE;
use crate::until::{self, Ending};
use crate::watch::watch;
use crate::wire::{Heard, sweep};

/// The time that clients get to end, after the run has ordered them to.
const LAST_WORDS: Duration = Duration::from_secs(75);

/// The time limit for the tasks that are left after all faults.
const LAST_WORK: Duration = Duration::from_secs(60);

/// The name of the file that lists the number of violations of each checker and the time of the first one.
pub(crate) const FOUND: &str = "found.txt";

/// The records of a run, besides the logs of clients.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) struck: Mutex<Vec<Struck>>,
    pub(crate) deleted: Mutex<Vec<Deleted>>,
    seen: Mutex<Vec<Sighting>>,
    heard: Mutex<Heard>,
}

/// Makes the run that the options describe.
pub(crate) fn run(options: &Options, dir: &Path) -> History {
    let faults = plan::schedule(options);
    let group = options.sentinel.then(group::start);
    let servers = servers(if options.sentinel { 0 } else { options.nodes });
    let other = Server::start();
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let distance = Duration::from_millis(options.round_trip) / 2;
    for proxy in &proxies {
        proxy.distance(distance);
    }
    let store = Store::start();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).chain(group.as_ref().map(Group::url)).collect();
    let order = |client| Order {
        client: u8::try_from(client).expect("few clients"),
        life: 0,
        seed: options.seed,
        threads: options.threads,
        keys: options.keys,
        lease: if options.has_tasks() { options.lease } else { 0 },
        store: store.addr(),
        dir: dir.to_owned(),
        urls: urls.clone(),
    };
    let clients = Clients::start(dir, (0..options.clients).map(order), options.forked);
    let begin = now();
    let (records, ending, is_over) = (Records::default(), Ending::default(), AtomicBool::new(false));
    let field = Field {
        servers: &servers,
        group: group.as_ref(),
        proxies: &proxies,
        other: &other,
        clients: &clients,
        beyond: options.beyond,
        distance,
        records: &records,
        ending: &ending,
    };
    let tasks = options.has_tasks().then(|| client::queue(&urls, Duration::from_millis(options.lease)));
    let so_far = |end| history(options, (begin, end), &records, &clients, &store);
    let (end, is_done) = thread::scope(|scope| {
        let fed = tasks.as_ref().map(|queue| {
            let feeder = Feeder { options, queue, log: Log::create(&dir.join("pushes.log")), ending: &ending };
            scope.spawn(move || feeder.feed(begin))
        });
        for (node, server) in servers.iter().enumerate().filter(|_| tasks.is_none()) {
            let (is_over, seen) = (&is_over, &records.seen);
            scope.spawn(move || watch(node, server, options.keys, is_over, seen));
        }
        scope.spawn(|| sweep(&proxies, &is_over, &records.heard));
        scope.spawn(|| until::look(&options.until, &ending, || so_far(now())));
        nemesis::run(&field, begin, &faults);
        ending.sleep_until(begin + options.seconds * SEC);
        ending.end();
        if let Some(fed) = fed {
            fed.join().expect("the tasks are pushed");
        }
        let is_done = tasks.as_ref().is_some_and(|tasks| poll(LAST_WORK, || is_empty(tasks)).is_some());
        let end = now();
        clients.end(LAST_WORDS);
        // The locks of killed clients end with their leases.
        thread::sleep(Duration::from_millis(LONGEST_LEASE + 500));
        is_over.store(true, Ordering::SeqCst);
        (end, is_done)
    });
    let nodes: Vec<&Server> = servers.iter().chain(group.as_ref().map(Group::master)).collect();
    if options.has_tasks() {
        return History { left_tasks: Some(left_tasks(nodes[0], is_done)), ..so_far(end) };
    }
    let left = nodes.into_iter().enumerate().flat_map(|(node, server)| left(node, server)).collect();
    History { left, ..so_far(end) }
}

/// Collects the history up to now.
fn history(options: &Options, span: (u64, u64), records: &Records, clients: &Clients, store: &Store) -> History {
    let mut struck = records.struck.lock().unwrap().clone();
    struck.sort_by_key(|struck| struck.from);
    let heard = records.heard.lock().unwrap();
    let history = History {
        nodes: options.nodes,
        sentinel: options.sentinel,
        has_tasks: options.has_tasks(),
        keys: options.keys,
        clients: options.clients,
        begin: span.0,
        end: span.1,
        beyond: options.beyond,
        struck,
        sightings: records.seen.lock().unwrap().clone(),
        waits: heard.count(IdOf::Wait),
        grants: heard.count(IdOf::Grant),
        extended: heard.extended.clone(),
        reused: heard.reused.clone(),
        stored: store.writes(),
        deleted: records.deleted.lock().unwrap().clone(),
        fallen: clients.fallen(),
        ..History::default()
    };
    drop(heard);
    history.with_events(clients.events())
}

/// Starts servers that keep their data when they are killed. A server passes each write to the operating system before
/// it acknowledges it.
fn servers(n: usize) -> Vec<Server> {
    let settings = Server::builder().persistent().arg("--appendfsync").arg("no");
    thread::scope(|scope| {
        let starting: Vec<_> = (0..n).map(|_| scope.spawn(|| settings.start())).collect();
        starting.into_iter().map(|server| server.join().expect("a server did not start")).collect()
    })
}

fn left(node: usize, server: &Server) -> Vec<Left> {
    let ttl = |key: String| {
        let ttl: i64 = server.ask(cmd("PTTL").arg(&key));
        // The reply is -2 if the key expired between the two commands.
        (ttl != -2).then(|| Left { node, key, ttl: u64::try_from(ttl).ok() })
    };
    server.keys().into_iter().filter_map(ttl).collect()
}

fn is_empty(tasks: &Queue) -> Option<()> {
    tasks.is_empty().unwrap_or(false).then_some(())
}

/// The data of the queue on its server.
fn left_tasks(server: &Server, is_done: bool) -> LeftTasks {
    let size = |command: &str, part: &str| {
        server.ask::<usize>(cmd(command).arg(format!("{{{}}}:q2:{part}", names::of(QUEUE))))
    };
    LeftTasks {
        is_done,
        tasks: size("ZCARD", "due"),
        dead: size("ZCARD", "dead"),
        fields: size("HLEN", "tasks"),
        claims: size("HLEN", "claims"),
    }
}

/// Creates the empty folder of this run.
pub(crate) fn folder(options: &Options) -> PathBuf {
    let nodes = if options.sentinel { "sentinel".to_owned() } else { format!("n{}", options.nodes) };
    let tasks = if options.has_tasks() { "tasks-" } else { "" };
    let name = format!("{tasks}{nodes}-seed{}", options.seed);
    let dir = options.out.clone().unwrap_or_else(|| redlock_tests::find::target_dir().join("chaos").join(name));
    _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("cannot make `{}`: {error}", dir.display()));
    dir.canonicalize().expect("it is there")
}
