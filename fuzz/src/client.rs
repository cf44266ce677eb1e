//! Settings: they work or are refused by a `Config` error, as the documentation says, and a client that is made does not connect.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use redlock_sync::{Error, Redlock, Retry};

use crate::refusal;

/// A length of time, often near a limit.
#[derive(Debug, Clone, Copy)]
struct Span(Duration);

impl<'a> Arbitrary<'a> for Span {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Span> {
        const EDGES: [u64; 12] = [0, 1, 2, 9, 10, 11, 250, 264, 265, 266, 86_400_000, u64::MAX];
        let nanos = Duration::from_nanos(u.int_in_range(0..=3_u64)?);
        let span = match u.int_in_range(0..=4_u8)? {
            0 => Duration::from_millis(*u.choose(&EDGES)?).saturating_add(nanos),
            1 => Duration::from_millis(*u.choose(&EDGES)?).saturating_sub(nanos),
            2 => Duration::from_millis(u64::from(u.arbitrary::<u16>()?)),
            3 => Duration::from_secs(u.int_in_range(0..=90_000_u64)?),
            _ => Duration::new(u.arbitrary()?, u.int_in_range(0..=999_999_999_u32)?),
        };
        Ok(Span(span))
    }
}

/// Mostly the default, so that few of many settings are wrong at a time.
#[derive(Debug, Clone, Copy)]
struct Set<T>(Option<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for Set<T> {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Set<T>> {
        Ok(Set(if u.ratio(1, 3)? { Some(u.arbitrary()?) } else { None }))
    }
}

impl<T> Set<T> {
    /// The object with that setting, or as it was.
    fn onto<O>(self, object: O, set: impl FnOnce(O, T) -> O) -> O {
        match self.0 {
            Some(value) => set(object, value),
            None => object,
        }
    }
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Pauses {
    first: Span,
    last: Span,
    jitter: Set<f64>,
    max_attempts: Set<u32>,
}

impl Pauses {
    fn retry(self) -> Retry {
        let retry = Retry::growing(self.first.0, self.last.0);
        self.max_attempts.onto(self.jitter.onto(retry, Retry::jitter), Retry::max_attempts)
    }

    fn can_work(self) -> bool {
        let jitter = self.jitter.0.is_none_or(|part| (0.0..=1.0).contains(&part));
        self.first.0 <= self.last.0 && jitter && self.max_attempts.0 != Some(0)
    }
}

/// How a lock is used.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Call {
    Lock,
    TryLock,
    TryLockFor(Span),
}

/// Every setting there is.
#[derive(Debug, Arbitrary)]
pub struct Drawn<'a> {
    // Of the client.
    nodes: Set<Vec<u8>>,
    prefix: Set<&'a str>,
    default_lease: Set<Span>,
    default_retry: Set<Pauses>,
    node_timeout: Set<Span>,
    unavailable_after: Set<Span>,
    connections: Set<u32>,
    restart_guard: bool,
    // Of the lock.
    name: &'a str,
    reentrant: bool,
    lease: Set<Span>,
    renew: bool,
    min_hold: Set<Span>,
    max_hold: Set<Span>,
    max_renewals: Set<u32>,
    retry: Set<Pauses>,
    holder_name: Set<&'a str>,
    call: Call,
    /// Whether a lock that can work is tried on an address on which no server listens. That starts threads, so it is rare.
    is_tried: u8,
}

impl Drawn<'_> {
    fn prefix(&self) -> &str {
        self.prefix.0.unwrap_or("")
    }

    /// Which of the addresses of this machine are nodes.
    fn hosts(&self) -> Vec<u8> {
        let one = || vec![1];
        self.nodes.0.as_ref().map_or_else(one, |nodes| nodes.iter().take(7).map(|host| host % 8 + 1).collect())
    }

    fn default_lease(&self) -> Duration {
        self.default_lease.0.map_or(Duration::from_secs(30), |lease| lease.0)
    }

    fn node_timeout(&self) -> Duration {
        self.node_timeout.0.map_or(Duration::from_millis(250), |timeout| timeout.0)
    }

    /// Whether a lease of that length has time left after what a round can take from it.
    fn outlasts(&self, span: Duration) -> bool {
        let drift = span / 100 + Duration::from_millis(2);
        let spent = drift.saturating_add(self.node_timeout()).saturating_add(Duration::from_millis(10));
        span >= Duration::from_millis(10) && span > spent
    }

    fn is_lease(&self, lease: Duration) -> bool {
        self.outlasts(lease) && lease <= Duration::from_secs(24 * 60 * 60)
    }

    /// What the documentation of the builder says.
    fn client_can_work(&self) -> bool {
        let hosts = self.hosts();
        let twice = (1..hosts.len()).any(|at| hosts[..at].contains(&hosts[at]));
        !hosts.is_empty()
            && !twice
            && self.connections.0.is_none_or(|each| (1..=10_000).contains(&each))
            && self.node_timeout() >= Duration::from_millis(1)
            && self.is_lease(self.default_lease())
            && self.default_retry.0.is_none_or(Pauses::can_work)
    }

    fn key_can_be(&self) -> bool {
        let key = format!("{}{}", self.prefix(), self.name);
        let tag =
            key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty());
        let is_helper = tag && [":fence", ":waiting", ":wake"].iter().any(|suffix| key.ends_with(suffix));
        !self.name.is_empty() && key.len() <= 1024 && !is_helper
    }

    /// What the documentation of a lock's handle says.
    fn lock_can_work(&self) -> bool {
        let lease = self.lease.0.map_or(self.default_lease(), |lease| lease.0);
        self.key_can_be()
            && self.is_lease(lease)
            && self.min_hold.0.is_none_or(|hold| hold.0 <= lease)
            && self.max_hold.0.is_none_or(|hold| self.outlasts(hold.0))
            && self.retry.0.is_none_or(Pauses::can_work)
            && self.holder_name.0.is_none_or(|id| (1..=200).contains(&id.len()))
    }

    fn build(&self, port: u16) -> Result<Redlock, Error> {
        let urls = self.hosts().into_iter().map(|host| format!("redis://127.0.0.{host}:{port}/"));
        let builder = Redlock::builder().nodes(urls).restart_guard(self.restart_guard);
        let builder = self.prefix.onto(builder, redlock_sync::Builder::key_prefix);
        let builder = self.default_lease.onto(builder, |builder, lease| builder.lease(lease.0));
        let builder = self.default_retry.onto(builder, |builder, pauses| builder.retry(pauses.retry()));
        let builder = self.node_timeout.onto(builder, |builder, timeout| builder.node_timeout(timeout.0));
        let builder = self.unavailable_after.onto(builder, |builder, patience| builder.unavailable_after(patience.0));
        let builder = self.connections.onto(builder, redlock_sync::Builder::connections);
        _ = format!("{builder:?}");
        builder.build()
    }
}

/// The calls of a lock of either kind.
macro_rules! use_lock {
    ($drawn:expr, $lock:expr, $call:expr) => {{
        let lock = $lock.renew($drawn.renew);
        let lock = $drawn.lease.onto(lock, |lock, lease| lock.lease(lease.0));
        let lock = $drawn.min_hold.onto(lock, |lock, hold| lock.min_hold(hold.0));
        let lock = $drawn.max_hold.onto(lock, |lock, hold| lock.max_hold(hold.0));
        let lock = $drawn.max_renewals.onto(lock, |lock, times| lock.max_renewals(times));
        let lock = $drawn.retry.onto(lock, |lock, pauses| lock.retry(pauses.retry()));
        let lock = $drawn.holder_name.onto(lock, |lock, id| lock.holder_name(id));
        _ = format!("{lock:?}");
        if !$drawn.key_can_be() {
            refusal(&lock.is_locked().unwrap_err());
            refusal(&lock.inspect().unwrap_err());
        }
        $call.map(|call| match call {
            Call::Lock => lock.lock().map(drop),
            Call::TryLock => lock.try_lock().map(drop),
            Call::TryLockFor(wait) => lock.try_lock_for(wait.0).map(drop),
        })
    }};
}

/// Makes a client and a lock of these settings. What cannot work is refused before anything is sent.
///
/// # Panics
/// If something is not as it must be.
pub fn settings(drawn: &Drawn<'_>) {
    static NODES: LazyLock<TcpListener> = LazyLock::new(|| {
        let nodes = TcpListener::bind("0.0.0.0:0").expect("a port");
        nodes.set_nonblocking(true).expect("a socket");
        nodes
    });
    let can_work = drawn.lock_can_work();
    // A lock that can work would be waited for, so it is used only where the answer comes at once.
    let is_tried = can_work && drawn.is_tried == 0;
    let port = if is_tried { 1 } else { NODES.local_addr().expect("an address").port() };
    let locks = match drawn.build(port) {
        Ok(locks) => locks,
        Err(error) => {
            assert!(!drawn.client_can_work(), "refused: {}", refusal(&error));
            return;
        }
    };
    assert!(drawn.client_can_work(), "accepted: {locks:?}");
    let call = match can_work {
        false => Some(drawn.call),
        true => is_tried.then_some(Call::TryLock),
    };
    let outcome = if drawn.reentrant {
        use_lock!(drawn, locks.reentrant_mutex(drawn.name), call)
    } else {
        use_lock!(drawn, locks.mutex(drawn.name), call)
    };
    match outcome.map(|outcome| outcome.expect_err("no server is here")) {
        Some(error) if is_tried => assert!(error.is_unavailable(), "{error}"),
        Some(error) => drop(refusal(&error).to_owned()),
        None => {}
    }
    drop(locks);
    let knock = NODES.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(knock, Err(ErrorKind::WouldBlock), "a client connected");
}
