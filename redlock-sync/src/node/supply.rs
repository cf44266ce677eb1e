//! Makes connections to one server. An `r2d2` pool makes them in the background. A server in memory is connected to at
//! once.

use std::any::Any;
use std::io;
#[cfg(test)]
use std::sync::Weak;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(test)]
use parking_lot::Mutex;
use r2d2::event::{AcquireEvent, HandleEvent};
use r2d2::{ManageConnection, NopErrorHandler, Pool};

use super::host::Host;
use super::link::Link;
use super::order::Order;

/// While a connection is ordered, the pool retries after half of this time.
const RETRY: Duration = Duration::from_millis(500);

/// How many unresponsive connections are kept beside those in use.
pub(super) const MAX_OLD: usize = 2;

/// A new connection, and its place in the pool. When the place is dropped, the pool can make another connection.
pub(super) type NewConnection = (Link, Box<dyn Any + Send>);

/// Makes connections for the pool: dials, logs in, and asks for the server's identity.
#[derive(Clone, Debug)]
struct Connector {
    host: Arc<Host>,
    order: Order,
}

impl ManageConnection for Connector {
    /// A slot with a connection. The connection is taken out at once, so the slot comes back empty. The pool then takes
    /// it for broken and makes another one on request.
    type Connection = Option<Link>;
    /// Without the cause: the order has it.
    type Error = io::Error;

    fn connect(&self) -> io::Result<Self::Connection> {
        self.host.connect().map(Some).map_err(|failure| {
            self.order.failed(failure);
            io::ErrorKind::NotConnected.into()
        })
    }

    fn is_valid(&self, _: &mut Self::Connection) -> io::Result<()> {
        Ok(())
    }

    fn has_broken(&self, slot: &mut Self::Connection) -> bool {
        slot.is_none()
    }
}

impl HandleEvent for Connector {
    /// The connection can be taken out of the pool in a moment.
    fn handle_acquire(&self, _: AcquireEvent) {
        self.order.came();
        self.host.tell_health_soon();
    }
}

/// Makes connections to one server. It makes none before one is needed. The caller holds the mutex of the open
/// connections. For a server in memory, only [`take_or_order`](Supply::take_or_order) is called.
pub(super) struct Supply {
    host: Arc<Host>,
    pub(super) order: Order,
    /// The size of the pool is this number of connections for calls plus [`MAX_OLD`].
    max: usize,
    /// The pool is made when the first connection is ordered.
    pool: OnceLock<Pool<Connector>>,
    #[cfg(test)]
    jobs: Option<Arc<JobConnector>>,
}

impl Supply {
    pub(super) fn new(host: &Arc<Host>, max: usize) -> Supply {
        let order = Order::default();
        Supply {
            host: Arc::clone(host),
            max,
            pool: OnceLock::new(),
            #[cfg(test)]
            jobs: host.context.background.is_simulated().then(|| JobConnector::new(host, &order)),
            order,
        }
    }

    /// Takes a connection that is available.
    pub(super) fn take(&self) -> Option<NewConnection> {
        #[cfg(test)]
        if let Some(jobs) = &self.jobs {
            return jobs.take();
        }
        take_out(self.pool()?.try_get()?)
    }

    /// Takes a connection that is available, or orders one unless an order is under way. [`Order`] records that the
    /// connection has come, or why it failed.
    pub(super) fn take_or_order(&self) -> Option<NewConnection> {
        if !self.order.begin() {
            return None;
        }
        if !self.host.server.may_wait() {
            // Nothing tries again.
            let made = self.host.connect().inspect_err(|failure| self.order.gave_up(failure.clone()));
            self.host.tell_health_soon();
            return Some((made.ok()?, Box::new(())));
        }
        #[cfg(test)]
        if let Some(jobs) = &self.jobs {
            return jobs.take_or_order();
        }
        // `try_get` would not order a connection.
        take_out(self.pool()?.get_timeout(Duration::ZERO).ok()?)
    }

    fn pool(&self) -> Option<&Pool<Connector>> {
        if let Some(pool) = self.pool.get() {
            return Some(pool);
        }
        // After a failure, the next call tries again.
        let threads = self.host.context.background.threads().inspect_err(|failure| self.order.gave_up(failure.clone()));
        let max = u32::try_from(self.max.saturating_add(MAX_OLD)).unwrap_or(u32::MAX);
        let connector = Connector { host: Arc::clone(&self.host), order: self.order.clone() };
        let pool = Pool::builder()
            .max_size(max)
            .min_idle(Some(0))
            .max_lifetime(None)
            .idle_timeout(None)
            .test_on_check_out(false)
            .connection_timeout(RETRY)
            .error_handler(Box::new(NopErrorHandler))
            .event_handler(Box::new(connector.clone()))
            .thread_pool(threads.ok()?)
            .build_unchecked(connector);
        Some(self.pool.get_or_init(|| pool))
    }
}

fn take_out(mut slot: r2d2::PooledConnection<Connector>) -> Option<NewConnection> {
    Some((slot.take()?, Box::new(slot)))
}

/// Connects by jobs of the simulation, and retries like a pool.
#[cfg(test)]
struct JobConnector {
    host: Arc<Host>,
    order: Order,
    made: Mutex<Option<Link>>,
    this: Weak<JobConnector>,
}

#[cfg(test)]
impl JobConnector {
    fn new(host: &Arc<Host>, order: &Order) -> Arc<JobConnector> {
        let (host, order) = (Arc::clone(host), order.clone());
        Arc::new_cyclic(|this| JobConnector { host, order, made: Mutex::new(None), this: this.clone() })
    }

    fn take(&self) -> Option<NewConnection> {
        Some((self.made.lock().take()?, Box::new(())))
    }

    fn take_or_order(&self) -> Option<NewConnection> {
        let made = self.take();
        if made.is_none() {
            self.dial_after(Duration::ZERO);
        }
        made
    }

    fn dial_after(&self, pause: Duration) {
        let this = self.this.clone();
        self.host.context.background.after(pause, move || {
            let Some(this) = this.upgrade() else { return };
            match this.host.connect() {
                Ok(made) => {
                    *this.made.lock() = Some(made);
                    this.order.came();
                    this.host.tell_health_soon();
                }
                Err(failure) => {
                    this.order.failed(failure);
                    this.dial_after(RETRY / 2);
                }
            }
        });
    }
}
