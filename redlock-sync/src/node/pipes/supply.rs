//! Makes connections to one server. An `r2d2` pool makes them in the background. A server in memory is connected to at
//! once.

use std::io;
#[cfg(test)]
use std::sync::Weak;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use r2d2::event::{AcquireEvent, HandleEvent};
use r2d2::{ManageConnection, NopErrorHandler, Pool};

use super::arrivals::ServerArrivals;
use super::halves::NewConnection;
use crate::node::Failure;
use crate::node::host::Host;
use crate::node::link::Link;

/// While a connection is ordered, the pool retries after half of this time.
const RETRY: Duration = Duration::from_millis(500);

/// How many unresponsive connections are kept beside those in use.
pub(super) const MAX_OLD: usize = 2;

pub(crate) trait Supply: Send + Sync {
    /// Takes a connection that is available.
    fn take(&self) -> Option<NewConnection>;

    /// Takes a connection that is available, or orders one. In the second case [`ServerArrivals`] records that the
    /// connection has arrived, or why it failed.
    fn order(&self) -> Option<NewConnection>;
}

/// The supply that suits the server.
pub(crate) fn supply(host: &Arc<Host>, arrivals: ServerArrivals, max: usize) -> Box<dyn Supply> {
    let host = Arc::clone(host);
    if !host.server.may_wait() {
        return Box::new(ImmediateSupply { host, arrivals });
    }
    #[cfg(test)]
    if host.background.is_simulated() {
        return JobConnector::boxed(host, arrivals);
    }
    Box::new(PooledSupply { pool: OnceLock::new(), making: Mutex::new(()), host, arrivals, max })
}

fn connect(host: &Host) -> Result<NewConnection, Failure> {
    let Link { connection, generation, validity } = host.connect(host.settings.node_timeout)?;
    Ok(NewConnection { halves: connection.split(), pool_slot: Box::new(()), generation, validity })
}

/// Makes connections for the pool: dials, logs in, and asks for the server's identity.
#[derive(Debug)]
struct Connector {
    host: Arc<Host>,
    arrivals: ServerArrivals,
}

impl ManageConnection for Connector {
    /// A slot with a connection. The connection is taken out at once, so the slot comes back empty. The pool then takes
    /// it for broken and makes another one on request.
    type Connection = Mutex<Option<NewConnection>>;
    /// Without the cause: the arrivals have it.
    type Error = io::Error;

    fn connect(&self) -> io::Result<Self::Connection> {
        connect(&self.host).map(|made| Mutex::new(Some(made))).map_err(|failure| {
            self.arrivals.failed(failure);
            io::ErrorKind::NotConnected.into()
        })
    }

    fn is_valid(&self, _: &mut Self::Connection) -> io::Result<()> {
        Ok(())
    }

    fn has_broken(&self, slot: &mut Self::Connection) -> bool {
        slot.get_mut().is_none()
    }
}

impl HandleEvent for ServerArrivals {
    /// The connection can be taken out of the pool in a moment.
    fn handle_acquire(&self, _: AcquireEvent) {
        self.came();
    }
}

/// The pool of one server. Its size is the number of connections for calls plus [`MAX_OLD`]. It makes no connection
/// before one is needed.
struct PooledSupply {
    pool: OnceLock<Pool<Connector>>,
    /// Held while the pool is made.
    making: Mutex<()>,
    host: Arc<Host>,
    arrivals: ServerArrivals,
    max: usize,
}

impl PooledSupply {
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
                self.arrivals.gave_up(failure);
                return None;
            }
        };
        let max = u32::try_from(self.max.saturating_add(MAX_OLD)).unwrap_or(u32::MAX);
        let pool = Pool::builder()
            .max_size(max)
            .min_idle(Some(0))
            .max_lifetime(None)
            .idle_timeout(None)
            .test_on_check_out(false)
            .connection_timeout(RETRY)
            .error_handler(Box::new(NopErrorHandler))
            .event_handler(Box::new(self.arrivals.clone()))
            .thread_pool(Arc::clone(threads))
            .build_unchecked(Connector { host: Arc::clone(&self.host), arrivals: self.arrivals.clone() });
        Some(self.pool.get_or_init(|| pool))
    }
}

impl Supply for PooledSupply {
    fn take(&self) -> Option<NewConnection> {
        take_out(self.pool()?.try_get()?)
    }

    /// `get_timeout` orders a connection. `try_get` would not.
    fn order(&self) -> Option<NewConnection> {
        take_out(self.pool()?.get_timeout(Duration::ZERO).ok()?)
    }
}

fn take_out(slot: r2d2::PooledConnection<Connector>) -> Option<NewConnection> {
    let mut made = slot.lock().take()?;
    made.pool_slot = Box::new(slot);
    Some(made)
}

/// Connects at once, without waiting.
struct ImmediateSupply {
    host: Arc<Host>,
    arrivals: ServerArrivals,
}

impl Supply for ImmediateSupply {
    fn take(&self) -> Option<NewConnection> {
        None
    }

    fn order(&self) -> Option<NewConnection> {
        let made = connect(&self.host);
        // Nothing tries again.
        made.inspect_err(|failure| self.arrivals.gave_up(failure.clone())).ok()
    }
}

/// Connects by jobs of the simulation, and retries like a pool.
#[cfg(test)]
struct JobConnector {
    host: Arc<Host>,
    arrivals: ServerArrivals,
    made: Mutex<Option<NewConnection>>,
    this: Weak<JobConnector>,
}

#[cfg(test)]
struct JobSupply(Arc<JobConnector>);

#[cfg(test)]
impl JobConnector {
    fn boxed(host: Arc<Host>, arrivals: ServerArrivals) -> Box<dyn Supply> {
        Box::new(JobSupply(Arc::new_cyclic(|this| JobConnector {
            host,
            arrivals,
            made: Mutex::new(None),
            this: this.clone(),
        })))
    }

    fn dial_after(&self, pause: Duration) {
        let this = self.this.clone();
        self.host.background.after(pause, move || {
            let Some(this) = this.upgrade() else { return };
            match connect(&this.host) {
                Ok(made) => {
                    *this.made.lock() = Some(made);
                    this.arrivals.came();
                }
                Err(failure) => {
                    this.arrivals.failed(failure);
                    this.dial_after(RETRY / 2);
                }
            }
        });
    }
}

#[cfg(test)]
impl Supply for JobSupply {
    fn take(&self) -> Option<NewConnection> {
        self.0.made.lock().take()
    }

    fn order(&self) -> Option<NewConnection> {
        let made = self.take();
        if made.is_none() {
            self.0.dial_after(Duration::ZERO);
        }
        made
    }
}
