//! A line: one connection to each node, or a place for it. r2d2 keeps the lines of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use r2d2::{ManageConnection, NopErrorHandler, Pool};

use super::link::Link;
use super::{Background, Failure};
use crate::clock::{Clock, Tick};
use crate::sync::{Condvar, Mutex};

/// A line of a client: what a leader has for itself.
#[derive(Debug)]
pub(super) struct Line {
    /// One for each node.
    pub(super) links: Vec<Option<Link>>,
    pub(super) posts: Arc<Posts>,
}

/// The lines that r2d2 keeps. Making one needs no I/O, and links break but lines do not: so the pool is full from the start, none is ever replaced, and
/// no thread waits in r2d2 for a connection.
pub(super) type LinePool = Pool<LineManager>;
pub(super) type PooledLine = r2d2::PooledConnection<LineManager>;

/// Makes lines without connections.
#[derive(Debug)]
pub(super) struct LineManager {
    nodes: usize,
}

impl ManageConnection for LineManager {
    type Connection = Line;
    type Error = std::convert::Infallible;

    fn connect(&self) -> Result<Line, Self::Error> {
        let links = (0..self.nodes).map(|_| None).collect();
        Ok(Line { links, posts: Posts::new(self.nodes) })
    }

    fn is_valid(&self, _: &mut Line) -> Result<(), Self::Error> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Line) -> bool {
        false
    }
}

/// So many lines to so many nodes, all of which are there when this returns. That takes no time; the bound is for a machine that stands still.
pub(super) fn pool(nodes: usize, lines: u32, background: &Background) -> Result<LinePool, Failure> {
    let built = Pool::builder()
        .max_size(lines)
        .max_lifetime(None)
        .idle_timeout(None)
        .test_on_check_out(false)
        .connection_timeout(Duration::from_secs(30))
        .error_handler(Box::new(NopErrorHandler))
        .thread_pool(Arc::clone(background.threads()?))
        .build(LineManager { nodes });
    built.map_err(|why| {
        Failure::unsent(super::FailureKind::Unreachable, format!("cannot make the pool of connections: {why}"))
    })
}

/// Where a line waits for connections: a post for each node.
pub(super) struct Posts {
    list: Mutex<Vec<Post>>,
    arrived: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct Post {
    /// A connection was ordered and has not come.
    is_ordered: bool,
    inbox: Option<Result<Link, Failure>>,
}

impl Posts {
    pub(super) fn new(nodes: usize) -> Arc<Posts> {
        let list = Mutex::new((0..nodes).map(|_| Post::default()).collect());
        Arc::new(Posts { list, arrived: Arc::new(Condvar::new()) })
    }

    /// True if there is no order for that node yet; then there is one from now on.
    pub(super) fn order(&self, node: usize) -> bool {
        let mut list = self.list.lock();
        list.get_mut(node).is_some_and(|post| !std::mem::replace(&mut post.is_ordered, true))
    }

    /// Brings a connection, or says why there is none.
    pub(super) fn deliver(&self, node: usize, result: Result<Link, Failure>) {
        let mut list = self.list.lock();
        if let Some(post) = list.get_mut(node) {
            *post = Post { is_ordered: false, inbox: Some(result) };
        }
        self.arrived.notify_all();
    }

    /// What has come for that node.
    pub(super) fn take(&self, node: usize) -> Option<Result<Link, Failure>> {
        self.list.lock().get_mut(node)?.inbox.take()
    }

    /// Waits until something has come for one of these nodes.
    pub(super) fn wait(&self, nodes: &[usize], until: Tick, clock: &dyn Clock) {
        let mut list = self.list.lock();
        let has_come = |list: &[Post]| nodes.iter().any(|&n| list.get(n).is_some_and(|post| post.inbox.is_some()));
        while !has_come(&list) {
            if clock.now() >= until {
                return;
            }
            clock.wait_until(&self.arrived, &mut list, until);
        }
    }
}

impl fmt::Debug for Posts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.lock().fmt(f)
    }
}
