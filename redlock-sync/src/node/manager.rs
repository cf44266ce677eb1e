//! How r2d2 gets its connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use r2d2::{ManageConnection, NopErrorHandler, Pool};

use super::Failure;
use super::host::{Admission, Host};
use super::link::Link;

/// A pool of links to one server.
pub(super) type LinkPool = Pool<Manager>;
/// A link taken from its pool; goes back when dropped, unless it broke.
pub(super) type PooledLink = r2d2::PooledConnection<Manager>;

/// r2d2 repeats an attempt that returned an error after half of this, without keeping a thread meanwhile.
const REPEAT: Duration = Duration::from_millis(10);

/// Makes the links of one server. A server that cannot be reached is no error for r2d2, which would repeat the attempt while the
/// caller waits in vain: it gets a link that is dead on arrival and tells why.
#[derive(Debug)]
pub(super) struct Manager(Arc<Host>);

/// The attempt shall be made again soon.
#[derive(Debug)]
pub(super) struct Postponed;

impl ManageConnection for Manager {
    type Connection = Link;
    type Error = Postponed;

    fn connect(&self) -> Result<Link, Postponed> {
        match self.0.admit() {
            Admission::Go(slot) => {
                let link = self.0.connect();
                drop(slot);
                Ok(link)
            }
            Admission::LeftOut(outage) => Ok(Link::dead(outage, self.0.clock.now())),
            Admission::Later => Err(Postponed),
        }
    }

    fn is_valid(&self, _: &mut Link) -> Result<(), Postponed> {
        Ok(())
    }

    fn has_broken(&self, link: &mut Link) -> bool {
        self.0.is_stale(link)
    }
}

impl fmt::Display for Postponed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postponed until the attempt under way has ended")
    }
}

impl std::error::Error for Postponed {}

/// A pool that connects when a connection is asked for.
pub(super) fn pool(host: &Arc<Host>, size: u32) -> Result<LinkPool, Failure> {
    let threads = Arc::clone(host.background.threads()?);
    let pool = Pool::builder()
        .max_size(size.max(1))
        .min_idle(Some(0))
        .max_lifetime(None)
        .test_on_check_out(false)
        .connection_timeout(REPEAT)
        .error_handler(Box::new(NopErrorHandler))
        .thread_pool(threads)
        .build_unchecked(Manager(Arc::clone(host)));
    Ok(pool)
}
