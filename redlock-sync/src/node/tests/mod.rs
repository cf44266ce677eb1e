//! The node layer against real servers.
//!
//! 1. `calls.rs`: what comes back from a server that works.
//! 2. `lines.rs`: connections: none, stale, shared by many threads.
//! 3. `late.rs`: replies that do not come in time.
//! 4. `outage.rs`: servers that are gone, and come back.
//! 5. `members.rs`: which servers the nodes really are.

mod calls;
mod late;
mod lines;
mod members;
mod outage;

use std::sync::Arc;
use std::time::Duration;

use super::members::Node;
use super::*;
use crate::clock::{Clock, SystemClock, Tick};
use crate::key::Key;
use crate::protocol::Exclusive;
use crate::protocol::script::Call;
use crate::protocol::{AcquireArgs, Next, Order, ReleaseArgs};
use crate::token::LockId;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(200);
const LEASE: Duration = Duration::from_secs(60);

fn now() -> Tick {
    SystemClock.now()
}

fn nodes_with(urls: &[String], settings: NodeSettings) -> Nodes {
    let urls: Vec<_> = urls.iter().map(|url| NodeUrl::parse(url).unwrap()).collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Nodes::new(&urls, settings, &clock).unwrap()
}

fn settings(node_timeout: Duration) -> NodeSettings {
    NodeSettings { node_timeout, ..NodeSettings::default() }
}

fn nodes(urls: &[String]) -> Nodes {
    nodes_with(urls, settings(TIMEOUT))
}

/// For tests in which nothing is supposed to time out.
fn patient(urls: &[String]) -> Nodes {
    nodes_with(urls, settings(SOON))
}

/// A node of a client, to be asked alone.
#[derive(Clone, Copy)]
struct At<'a> {
    nodes: &'a Nodes,
    place: usize,
}

impl std::ops::Deref for At<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.nodes.get(self.place).unwrap()
    }
}

fn at(nodes: &Nodes, place: usize) -> At<'_> {
    At { nodes, place }
}

fn first(nodes: &Nodes) -> At<'_> {
    at(nodes, 0)
}

fn exclusive(key: &str) -> Exclusive {
    Exclusive { key: Key::new("", key, 1024).unwrap() }
}

fn acquire(key: &str, token: &str) -> Arc<Call> {
    let id = LockId::from_server(token);
    exclusive(key)
        .acquire(&AcquireArgs {
            id: &id,
            lease: LEASE,
            fence: Some(0),
            wait: None,
            order: Order::None,
            leftover_tokens: &[],
        })
        .call
}

fn release(key: &str, token: &str) -> Arc<Call> {
    let id = LockId::from_server(token);
    exclusive(key).release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody }).call
}

/// What one node said.
#[derive(Debug)]
struct Answer {
    result: Result<Value, Failure>,
    duplicate: bool,
}

/// A round about one node, which has until then.
fn ask_until(node: At<'_>, call: &Arc<Call>, lane: Lane, by: Tick) -> Answer {
    let nodes = node.nodes;
    // All nodes are needed: none can be left out.
    let Answers { mut results, duplicate, .. } = nodes.call(call, lane, by, &|i| i == node.place, nodes.len());
    Answer { result: results.swap_remove(node.place), duplicate }
}

fn ask_on(node: At<'_>, call: &Arc<Call>, lane: Lane) -> Answer {
    ask_until(node, call, lane, now().after(node.server().host.settings.node_timeout))
}

fn ask(node: At<'_>, call: &Arc<Call>) -> Answer {
    ask_on(node, call, Lane::Ordinary)
}

fn is_yes(answer: &Answer) -> bool {
    matches!(&answer.result, Ok(Value::List(items)) if items.first() == Some(&Value::Int(1)))
}

fn failure(answer: Answer) -> Failure {
    answer.result.unwrap_err()
}
