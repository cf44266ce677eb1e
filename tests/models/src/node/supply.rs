//! Replaces the library's `supply`: a thread of the model makes the connections, in place of the pool.

use std::any::Any;
use std::sync::Arc;

use shuttle::thread;

use super::host::{Dials, Host, Link};
use super::order::Order;
use super::{Failure, FailureKind};

pub(crate) const MAX_OLD: usize = 2;

pub(crate) type NewConnection = (Link, Box<dyn Any + Send>);

pub(crate) struct Supply {
    pub(super) order: Order,
    host: Arc<Host>,
}

impl Supply {
    pub(crate) fn new(host: &Arc<Host>, _: usize) -> Supply {
        Supply { order: Order::default(), host: Arc::clone(host) }
    }

    pub(crate) fn take(&self) -> Option<NewConnection> {
        Some((self.host.made.lock().take()?, Box::new(())))
    }

    pub(crate) fn take_or_order(&self) -> Option<NewConnection> {
        if self.order.begin() {
            let (host, order) = (Arc::clone(&self.host), self.order.clone());
            thread::spawn(move || dial(&host, &order));
        }
        None
    }
}

/// The scheduler chooses the times.
fn dial(host: &Host, order: &Order) {
    let Dials { failures, gives_up, announces_first } = host.dials;
    let refused = || Failure::unsent(FailureKind::Unreachable, "refused");
    for _ in 0..failures {
        order.failed(refused());
        thread::yield_now();
    }
    if gives_up {
        return order.gave_up(refused());
    }
    if announces_first {
        order.came();
    }
    *host.made.lock() = Some(Link { halves: host.server.0.halves(), master_changes: 0, validity: None });
    if !announces_first {
        order.came();
    }
}
