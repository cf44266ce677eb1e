//! A line: one connection to each server, or a place for it. r2d2 keeps the lines of a client.

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
    /// By the numbers of the servers. Clusters can get new ones.
    links: Vec<Option<Link>>,
    pub(super) posts: Arc<Posts>,
}

impl Line {
    pub(super) fn new() -> Line {
        Line { links: Vec::new(), posts: Posts::new() }
    }

    pub(super) fn link(&mut self, server: usize) -> Option<&mut Link> {
        self.links.get_mut(server)?.as_mut()
    }

    pub(super) fn seat(&mut self, server: usize, link: Link) {
        // Those to servers that a cluster has no more.
        for seat in &mut self.links {
            seat.take_if(|link| link.is_orphan());
        }
        if self.links.len() <= server {
            self.links.resize_with(server + 1, || None);
        }
        if let Some(seat) = self.links.get_mut(server) {
            *seat = Some(link);
        }
    }

    pub(super) fn take(&mut self, server: usize) -> Option<Link> {
        self.links.get_mut(server)?.take()
    }
}

/// The lines that r2d2 keeps. Making one needs no I/O, and links break but lines do not: so the pool is full from the
/// start, none is ever replaced, and no thread waits in r2d2 for a connection.
pub(super) type LinePool = Pool<LineManager>;
pub(super) type PooledLine = r2d2::PooledConnection<LineManager>;

/// Makes lines without connections.
#[derive(Debug)]
pub(super) struct LineManager;

impl ManageConnection for LineManager {
    type Connection = Line;
    type Error = std::convert::Infallible;

    fn connect(&self) -> Result<Line, Self::Error> {
        Ok(Line::new())
    }

    fn is_valid(&self, _: &mut Line) -> Result<(), Self::Error> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Line) -> bool {
        false
    }
}

/// So many lines, all of which are there when this returns. That takes no time; the bound is for a machine that stands
/// still.
pub(super) fn pool(lines: u32, background: &Background) -> Result<LinePool, Failure> {
    let built = Pool::builder()
        .max_size(lines)
        .max_lifetime(None)
        .idle_timeout(None)
        .test_on_check_out(false)
        .connection_timeout(Duration::from_secs(30))
        .error_handler(Box::new(NopErrorHandler))
        .thread_pool(Arc::clone(background.threads()?))
        .build(LineManager);
    built.map_err(|why| {
        Failure::unsent(super::FailureKind::Unreachable, format!("cannot make the pool of connections: {why}"))
    })
}

/// Where a line waits for connections: a post for each server.
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
    pub(super) fn new() -> Arc<Posts> {
        Arc::new(Posts { list: Mutex::new(Vec::new()), arrived: Arc::new(Condvar::new()) })
    }

    /// True if there is no order for that server yet; then there is one from now on.
    pub(super) fn order(&self, server: usize) -> bool {
        let mut list = self.list.lock();
        if list.len() <= server {
            list.resize_with(server + 1, Post::default);
        }
        list.get_mut(server).is_some_and(|post| !std::mem::replace(&mut post.is_ordered, true))
    }

    /// Brings a connection, or says why there is none.
    pub(super) fn deliver(&self, server: usize, result: Result<Link, Failure>) {
        let mut list = self.list.lock();
        if let Some(post) = list.get_mut(server) {
            *post = Post { is_ordered: false, inbox: Some(result) };
        }
        self.arrived.notify_all();
    }

    /// What has come from that server.
    pub(super) fn take(&self, server: usize) -> Option<Result<Link, Failure>> {
        self.list.lock().get_mut(server)?.inbox.take()
    }

    /// Waits until something has come from one of these servers.
    pub(super) fn wait(&self, servers: &[usize], until: Tick, clock: &dyn Clock) {
        let mut list = self.list.lock();
        let has_come = |list: &[Post]| servers.iter().any(|&n| list.get(n).is_some_and(|post| post.inbox.is_some()));
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
