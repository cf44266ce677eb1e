//! Tests of the nodes with real servers.
//!
//! 1. `server_replies.rs`: replies of a server that works.
//! 2. `reconnects.rs`: cold, stale and shared connections.
//! 3. `late_replies.rs`: replies that come too late.
//! 4. `outages.rs`: servers that go away and come back.
//! 5. `server_identities.rs`: the detection of the servers behind the nodes.

mod late_replies;
mod outages;
mod reconnects;
mod server_identities;
mod server_replies;

use std::sync::Arc;
use std::time::Duration;

use super::members::Node;
use super::*;
use crate::clock::{Clock, SystemClock, Tick};
use crate::key::Key;
use crate::options::ClientOptions;
use crate::protocol::Exclusive;
use crate::protocol::script::Call;
use crate::protocol::{AcquireArgs, Next, QueuePolicy, ReleaseArgs};
use crate::token::LockId;

/// A time that is longer than any test takes.
const SOON: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(200);
const LEASE: Duration = Duration::from_secs(60);

fn now() -> Tick {
    SystemClock.now()
}

fn nodes_with(urls: &[String], settings: &ClientOptions) -> Nodes {
    let urls: Vec<_> = urls.iter().map(|url| NodeUrl::parse(url).unwrap()).collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Nodes::new(&urls, settings, &clock).unwrap()
}

fn settings(node_timeout: Duration) -> ClientOptions {
    ClientOptions { node_timeout, ..ClientOptions::default() }
}

fn nodes(urls: &[String]) -> Nodes {
    nodes_with(urls, &settings(TIMEOUT))
}

/// Nodes for tests in which nothing may time out.
fn patient(urls: &[String]) -> Nodes {
    nodes_with(urls, &settings(SOON))
}

/// One node of a client, which a test asks alone.
#[derive(Clone, Copy)]
struct At<'a> {
    nodes: &'a Nodes,
    index: usize,
}

impl std::ops::Deref for At<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.nodes.all[self.index]
    }
}

fn at(nodes: &Nodes, index: usize) -> At<'_> {
    At { nodes, index }
}

fn first(nodes: &Nodes) -> At<'_> {
    at(nodes, 0)
}

fn exclusive(key: &str) -> Exclusive {
    Exclusive { key: Key::new("", key).unwrap() }
}

fn acquire(key: &str, token: &str) -> Arc<Call> {
    let id = LockId::from_server(token);
    exclusive(key)
        .acquire(&AcquireArgs {
            id: &id,
            lease: LEASE,
            fence: Some(0),
            wait: None,
            policy: QueuePolicy::None,
            take_over: &[],
        })
        .call
}

fn release(key: &str, token: &str) -> Arc<Call> {
    let id = LockId::from_server(token);
    exclusive(key).release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody }).call
}

/// The answer of one node.
#[derive(Debug)]
struct Answer {
    result: Result<Value, Failure>,
    duplicate: bool,
}

/// Asks one node with a deadline.
fn ask_until(node: At<'_>, call: &Arc<Call>, by: Tick) -> Answer {
    let nodes = node.nodes;
    // A majority of all nodes is needed, so none is left out.
    let Answers { mut results, duplicate, .. } = nodes.call(call, by, &|i| i == node.index, nodes.len());
    Answer { result: results.swap_remove(node.index), duplicate }
}

fn ask(node: At<'_>, call: &Arc<Call>) -> Answer {
    ask_until(node, call, now().after(node.server().host.context.settings.node_timeout))
}

fn is_yes(answer: &Answer) -> bool {
    matches!(&answer.result, Ok(Value::List(items)) if items.first() == Some(&Value::Int(1)))
}

fn failure(answer: Answer) -> Failure {
    answer.result.unwrap_err()
}
