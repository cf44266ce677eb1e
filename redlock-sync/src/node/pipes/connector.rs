//! How `r2d2` makes connections to one server, and makes them anew.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use r2d2::event::{AcquireEvent, HandleEvent};
use r2d2::{ManageConnection, NopErrorHandler, Pool};

use super::arrivals::Arrivals;
use super::ends::Ends;
use super::server::{MOST_OLD, Supply};
use crate::node::host::Host;
use crate::node::link::{Connection, Halves};
use crate::node::{Background, Failure, FailureKind};

/// The pool tries again after half of it, as long as a connection is ordered.
const RETRY: Duration = Duration::from_millis(500);

/// Makes connections to a server: it dials, logs in, and asks which server it is.
#[derive(Debug)]
pub(crate) struct Connector {
    host: Arc<Host>,
    news: News,
}

/// A connection of the pool. A pipe takes its two ends, so a connection that comes back to the pool has none. The pool takes it for broken, and makes
/// another connection when it is asked for one.
pub(crate) struct Made(Mutex<Option<Halves>>);

/// Why none was made.
#[derive(Debug)]
pub(crate) struct Refused(Failure);

#[derive(Clone)]
struct News {
    server: usize,
    arrivals: Arc<Arrivals>,
}

impl ManageConnection for Connector {
    type Connection = Made;
    type Error = Refused;

    fn connect(&self) -> Result<Made, Refused> {
        let made = self.host.connect(self.host.settings.node_timeout).and_then(|mut link| {
            let halves = link.take().and_then(Connection::split);
            halves.ok_or_else(|| Failure::unsent(FailureKind::Unreachable, "has no ends"))
        });
        made.map(|halves| Made(Mutex::new(Some(halves)))).map_err(|failure| {
            self.news.arrivals.failed(self.news.server, failure.clone());
            Refused(failure)
        })
    }

    fn is_valid(&self, _: &mut Made) -> Result<(), Refused> {
        Ok(())
    }

    fn has_broken(&self, made: &mut Made) -> bool {
        made.0.get_mut().is_none()
    }
}

impl HandleEvent for News {
    /// In a moment it can be taken out of the pool.
    fn handle_acquire(&self, _: AcquireEvent) {
        self.arrivals.came(self.server);
    }
}

/// The pool of one server.
pub(crate) struct Pooled(Pool<Connector>);

impl Pooled {
    /// A pool with that number of connections for calls, and a few more while the server does not answer. It makes none before it is needed.
    pub(crate) fn new(
        host: &Arc<Host>,
        server: usize,
        arrivals: &Arc<Arrivals>,
        background: &Background,
    ) -> Result<Pooled, Failure> {
        let news = News { server, arrivals: Arc::clone(arrivals) };
        let beside = u32::try_from(MOST_OLD).unwrap_or(u32::MAX);
        let pool = Pool::builder()
            .max_size(host.settings.connections.saturating_add(beside))
            .min_idle(Some(0))
            .max_lifetime(None)
            .idle_timeout(None)
            .test_on_check_out(false)
            .connection_timeout(RETRY)
            .error_handler(Box::new(NopErrorHandler))
            .event_handler(Box::new(news.clone()))
            .thread_pool(Arc::clone(background.threads()?))
            .build_unchecked(Connector { host: Arc::clone(host), news });
        Ok(Pooled(pool))
    }
}

impl Supply for Pooled {
    fn take(&self) -> Option<Ends> {
        ends(self.0.try_get()?)
    }

    /// `try_get` orders nothing.
    fn order(&self) -> Option<Ends> {
        ends(self.0.get_timeout(Duration::ZERO).ok()?)
    }
}

fn ends(made: r2d2::PooledConnection<Connector>) -> Option<Ends> {
    let (sink, source, shut) = made.0.lock().take()?;
    Some(Ends { sink, source, shut, keeper: Box::new(made) })
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.server)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Refused {}
