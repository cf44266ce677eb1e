//! The node in memory and the server, and one call on both.

use std::sync::Arc;
use std::time::Duration;

use redlock_tests::Server;

use super::CHANNEL;
use super::texts::{are_alike, said, shown};
use crate::clock::{Clock, SystemClock, Tick};
use crate::node::memory::{Store, outcome, run};
use crate::node::{Failure, Heard, NodeUrl, Nodes, Subscriber, Value};
use crate::options::ClientOptions;
use crate::protocol::script::Call;

const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn in_memory() -> Store {
    let mut store = Store::default();
    store.clock = 1_700_000_000_000_000;
    store
}

pub(super) fn call_in_memory(store: &mut Store, call: &Arc<Call>) -> Result<Value, Failure> {
    fn words(texts: &[String]) -> Vec<&[u8]> {
        texts.iter().map(String::as_bytes).collect()
    }
    let (script, keys, args) = (call.script, call.keys(), call.args());
    outcome(&run(store, &script.sha, &script.source, &words(&keys), &words(&args)))
}

pub(super) fn listen_in_memory(store: &mut Store) {
    store.listeners.insert(CHANNEL.as_bytes().to_vec(), 1);
}

/// A server that is called by the library's own node layer.
struct Remote {
    nodes: Nodes,
    listener: Box<dyn Subscriber>,
    _server: Server,
}

impl Remote {
    fn start() -> Remote {
        let server = Server::start();
        let settings = ClientOptions { node_timeout: TIMEOUT, ..ClientOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let nodes = Nodes::new(&[NodeUrl::parse(&server.url()).unwrap()], &settings, &clock).unwrap();
        let by = SystemClock.now().after(TIMEOUT);
        let listener = nodes.members().next().unwrap().subscribe(CHANNEL, by).unwrap();
        Remote { nodes, listener, _server: server }
    }

    fn call(&self, call: &Arc<Call>) -> Result<Value, Failure> {
        let by = SystemClock.now().after(TIMEOUT);
        self.nodes.call(call, by, &|_| true, 1).results.remove(0)
    }

    /// Reads messages up to a mark. All earlier messages have arrived by then.
    fn heard(&mut self) -> Vec<String> {
        const MARK: &str = "that is all";
        self.call(&Call::publish(CHANNEL, MARK)).unwrap();
        let next = || match self.listener.receive(TIMEOUT) {
            Heard::Message(text) => Some(String::from_utf8(text).unwrap()).filter(|text| text != MARK),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(next).collect()
    }
}

/// Both sides, with a client that listens on [`CHANNEL`].
pub(super) struct Pair {
    memory: Store,
    remote: Remote,
}

impl Pair {
    pub(super) fn start() -> Pair {
        let mut memory = in_memory();
        listen_in_memory(&mut memory);
        Pair { memory, remote: Remote::start() }
    }

    /// Makes a call on both sides, and compares the replies and the messages. Returns the reply.
    pub(super) fn call(&mut self, call: &Arc<Call>, what: &str, run: &mut Run) -> String {
        // On a server, two calls are never executed in the same microsecond.
        self.memory.clock += 20;
        let replies = (shown(call_in_memory(&mut self.memory, call)), shown(self.remote.call(call)));
        let text = |(_, text): (Vec<u8>, Vec<u8>)| String::from_utf8(text).unwrap();
        let in_memory: Vec<String> = std::mem::take(&mut self.memory.published).into_iter().map(text).collect();
        let messages = (said(&in_memory), said(&self.remote.heard()));
        if !(are_alike(&replies) && are_alike(&messages)) {
            run.differs(&format!("replies {replies:?}, messages {messages:?} in memory, on a server: {what}"));
        }
        replies.0
    }

    pub(super) fn pass(&mut self, time: Duration) {
        if !time.is_zero() {
            self.memory.clock += u64::try_from(time.as_micros()).unwrap();
            SystemClock.sleep(time);
        }
    }
}

/// The shortest time on the server: that of a long pause. In memory less time passes, so a difference that shows later
/// proves nothing.
const SHORTEST: Duration = Duration::from_millis(200);

/// One run of a comparison.
pub(super) struct Run {
    start: Tick,
    /// A difference has shown after [`SHORTEST`].
    is_void: bool,
}

impl Run {
    fn differs(&mut self, how: &str) {
        assert!(SystemClock.now().since(self.start) > SHORTEST, "{how}");
        self.is_void = true;
    }
}

/// Repeats the run until it is not void.
pub(super) fn repeat(mut run: impl FnMut(&mut Run)) {
    let is_done = || {
        let mut this = Run { start: SystemClock.now(), is_void: false };
        run(&mut this);
        !this.is_void
    };
    assert!(std::iter::repeat_with(is_done).take(200).any(|is_done| is_done), "the machine is too slow for this test");
}
