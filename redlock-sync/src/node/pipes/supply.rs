//! What gives connections to one server: a pool of `r2d2`, which makes them and makes them anew, or a server that connects in no time.

use std::fmt;
#[cfg(test)]
use std::sync::Weak;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use r2d2::event::{AcquireEvent, HandleEvent};
use r2d2::{ManageConnection, NopErrorHandler, Pool};

use super::arrivals::Arrivals;
use super::ends::{Ends, Made};
use crate::node::host::Host;
use crate::node::{Failure, FailureKind};

/// The pool tries again after half of it, as long as a connection is ordered.
const RETRY: Duration = Duration::from_millis(500);

/// How many connections that do not answer are kept beside those in use.
pub(super) const MOST_OLD: usize = 2;

pub(crate) trait Supply: Send + Sync {
    /// A connection that is there.
    fn take(&self) -> Option<Made>;

    /// A connection that is there. If there is none, one is made: [`Arrivals`] then learn that it has come, or why it has not.
    fn order(&self) -> Option<Made>;
}

/// What suits the server.
pub(crate) fn supply(host: &Arc<Host>, place: usize, arrivals: &Arc<Arrivals>, most: usize) -> Box<dyn Supply> {
    let (host, reports) = (Arc::clone(host), Reports { place, arrivals: Arc::clone(arrivals) });
    if !host.server.may_wait() {
        return Box::new(AtOnce { host, reports });
    }
    #[cfg(test)]
    if host.background.is_simulated() {
        return ByJob::boxed(host, reports);
    }
    Box::new(Pooled { pool: OnceLock::new(), making: Mutex::new(()), host, reports, most })
}

fn connect(host: &Host) -> Result<Made, Failure> {
    let mut link = host.connect(host.settings.node_timeout)?;
    let connection = link.take().ok_or_else(|| Failure::unsent(FailureKind::Unreachable, "connection is gone"))?;
    let (sink, source, shut) = connection.split();
    let ends = Ends { sink, source, shut, keeper: Box::new(()) };
    Ok(Made { ends, generation: link.generation, validity: link.validity })
}

/// Makes connections to a server: it dials, logs in, and asks which server it is.
#[derive(Debug)]
struct Connector {
    host: Arc<Host>,
    reports: Reports,
}

/// A connection of the pool. It is taken out, so one that comes back to the pool is none. The pool takes it for broken, and makes another one when it is
/// asked for one.
struct Place(Mutex<Option<Made>>);

/// Why none was made.
#[derive(Debug)]
struct Refused(Failure);

#[derive(Clone)]
struct Reports {
    place: usize,
    arrivals: Arc<Arrivals>,
}

impl ManageConnection for Connector {
    type Connection = Place;
    type Error = Refused;

    fn connect(&self) -> Result<Place, Refused> {
        connect(&self.host).map(|made| Place(Mutex::new(Some(made)))).map_err(|failure| {
            self.reports.arrivals.failed(self.reports.place, failure.clone());
            Refused(failure)
        })
    }

    fn is_valid(&self, _: &mut Place) -> Result<(), Refused> {
        Ok(())
    }

    fn has_broken(&self, place: &mut Place) -> bool {
        place.0.get_mut().is_none()
    }
}

impl HandleEvent for Reports {
    /// In a moment it can be taken out of the pool.
    fn handle_acquire(&self, _: AcquireEvent) {
        self.arrivals.came(self.place);
    }
}

/// The pool of one server: that number of connections for calls, and a few more while the server does not answer. It makes none before it is needed.
struct Pooled {
    pool: OnceLock<Pool<Connector>>,
    /// Held while it is made.
    making: Mutex<()>,
    host: Arc<Host>,
    reports: Reports,
    most: usize,
}

impl Pooled {
    fn pool(&self) -> Option<&Pool<Connector>> {
        if let Some(pool) = self.pool.get() {
            return Some(pool);
        }
        let _making = self.making.lock();
        if let Some(pool) = self.pool.get() {
            return Some(pool);
        }
        let threads = match self.host.background.threads() {
            Ok(threads) => threads,
            // The next call tries again.
            Err(failure) => {
                self.reports.arrivals.gave_up(self.reports.place, failure);
                return None;
            }
        };
        let most = u32::try_from(self.most.saturating_add(MOST_OLD)).unwrap_or(u32::MAX);
        let pool = Pool::builder()
            .max_size(most)
            .min_idle(Some(0))
            .max_lifetime(None)
            .idle_timeout(None)
            .test_on_check_out(false)
            .connection_timeout(RETRY)
            .error_handler(Box::new(NopErrorHandler))
            .event_handler(Box::new(self.reports.clone()))
            .thread_pool(Arc::clone(threads))
            .build_unchecked(Connector { host: Arc::clone(&self.host), reports: self.reports.clone() });
        Some(self.pool.get_or_init(|| pool))
    }
}

impl Supply for Pooled {
    fn take(&self) -> Option<Made> {
        made(self.pool()?.try_get()?)
    }

    /// `try_get` orders nothing.
    fn order(&self) -> Option<Made> {
        made(self.pool()?.get_timeout(Duration::ZERO).ok()?)
    }
}

fn made(place: r2d2::PooledConnection<Connector>) -> Option<Made> {
    let mut made = place.0.lock().take()?;
    made.ends.keeper = Box::new(place);
    Some(made)
}

/// Connects in no time.
struct AtOnce {
    host: Arc<Host>,
    reports: Reports,
}

impl Supply for AtOnce {
    fn take(&self) -> Option<Made> {
        None
    }

    fn order(&self) -> Option<Made> {
        let made = connect(&self.host);
        // There is nothing that tries again.
        made.inspect_err(|failure| self.reports.arrivals.gave_up(self.reports.place, failure.clone())).ok()
    }
}

/// Connects by jobs, and tries again as a pool does.
#[cfg(test)]
struct ByJob {
    host: Arc<Host>,
    reports: Reports,
    made: Mutex<Option<Made>>,
    this: Weak<ByJob>,
}

#[cfg(test)]
struct Shared(Arc<ByJob>);

#[cfg(test)]
impl ByJob {
    fn boxed(host: Arc<Host>, reports: Reports) -> Box<dyn Supply> {
        Box::new(Shared(Arc::new_cyclic(|this| ByJob { host, reports, made: Mutex::new(None), this: this.clone() })))
    }

    fn dial_after(&self, pause: Duration) {
        let this = self.this.clone();
        self.host.background.after(pause, move || {
            let Some(this) = this.upgrade() else { return };
            match connect(&this.host) {
                Ok(made) => {
                    *this.made.lock() = Some(made);
                    this.reports.arrivals.came(this.reports.place);
                }
                Err(failure) => {
                    this.reports.arrivals.failed(this.reports.place, failure);
                    this.dial_after(RETRY / 2);
                }
            }
        });
    }
}

#[cfg(test)]
impl Supply for Shared {
    fn take(&self) -> Option<Made> {
        self.0.made.lock().take()
    }

    fn order(&self) -> Option<Made> {
        let made = self.take();
        if made.is_none() {
            self.0.dial_after(Duration::ZERO);
        }
        made
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {}", self.place)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Refused {}
