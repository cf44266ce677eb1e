//! What all threads of a proxy share.
//!
//! A request or a reply becomes a parcel in one of the two lanes of its link. The thread at the end of the lane waits
//! until the first parcel may pass: see [`State::next`]. So order within a connection holds whatever is done to a parcel.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::rules::Rule;
use super::traffic::Awaited;
use super::{Act, Seen};

/// The state, and the condition by which changes of it are told to tests that wait for a fault to act. The threads of a link wait on a
/// condition of their own: with hundreds of links, waking all of them for each command would take all of a small machine.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) target: SocketAddr,
    pub(super) latency: Duration,
    /// What the latency is without a fault.
    pub(super) distance: Duration,
    /// Nothing passes.
    pub(super) hole: bool,
    refusing: bool,
    pub(super) rules: Vec<Rule>,
    /// What became of each rule ever made; rules know their index.
    pub(super) faults: Vec<FaultState>,
    pub(super) seen: Vec<Seen>,
    /// Scripts' names by digest.
    pub(super) scripts: HashMap<String, String>,
    /// The open connections. A link that is not here any more is closed, and its threads end.
    pub(super) links: BTreeMap<u64, Link>,
    admitted: u64,
}

#[derive(Debug, Default)]
pub(super) struct FaultState {
    pub(super) hits: usize,
    pub(super) released: bool,
}

/// The two ends of a connection; the server's is there once the proxy is connected.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) client: TcpStream,
    pub(super) server: OnceLock<TcpStream>,
}

#[derive(Debug)]
pub(super) struct Link {
    sockets: Arc<Sockets>,
    /// Tells the link's threads that something of it has changed.
    pub(super) woken: Arc<Condvar>,
    pub(super) lanes: [VecDeque<Parcel>; 2],
    /// The requests whose replies are still to come.
    pub(super) awaited: VecDeque<Awaited>,
    /// The fault that made a black hole of this link.
    pub(super) hole: Option<usize>,
    /// Messages may come without a request.
    pub(super) subscriber: bool,
}

/// The direction of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    ToServer = 0,
    ToClient = 1,
}

#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) due: Instant,
    pub(super) held_by: Option<usize>,
    pub(super) load: Load,
}

/// What is to be done at the end of a lane.
#[derive(Debug)]
pub(super) enum Load {
    /// Write these bytes.
    Bytes(Vec<u8>),
    /// Write these bytes, then reset the connection.
    Cut(Vec<u8>),
    /// The other side closed its end, by a reset or in order.
    End { reset: bool },
}

impl Shared {
    pub(super) fn new(target: SocketAddr) -> Self {
        let state = State {
            target,
            latency: Duration::ZERO,
            distance: Duration::ZERO,
            hole: false,
            refusing: false,
            rules: Vec::new(),
            faults: Vec::new(),
            seen: Vec::new(),
            scripts: HashMap::new(),
            links: BTreeMap::new(),
            admitted: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells tests that wait for a fault to act.
    pub(super) fn changed(&self) {
        self.changed.notify_all();
    }

    /// Tells all links too: what they wait for may have changed for all of them.
    pub(super) fn all_changed(&self) {
        self.lock().links.values().for_each(|link| link.woken.notify_all());
        self.changed();
    }

    /// Waits for a fault to act, at most until `end`.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>, end: Option<Instant>) -> MutexGuard<'a, State> {
        wait(&self.changed, state, end)
    }

    pub(super) fn name_script(&self, name: &str, digest: &str) {
        self.lock().scripts.insert(digest.to_ascii_lowercase(), name.to_owned());
    }

    /// Waits for the next parcel of a lane; `None` once the link is closed.
    pub(super) fn next(&self, id: u64, lane: Lane) -> Option<Load> {
        let mut state = self.lock();
        loop {
            let wait_until = match state.next(id, lane)? {
                Next::Load(load) => return Some(load),
                Next::WaitUntil(end) => end,
            };
            let woken = Arc::clone(&state.links.get(&id)?.woken);
            state = wait(&woken, state, wait_until);
        }
    }

    /// Waits until the link may reach out to the server; the server's address, or `None` once the link is closed.
    pub(super) fn wait_passable(&self, id: u64) -> Option<SocketAddr> {
        let mut state = self.lock();
        while state.blocked(state.links.get(&id)?) {
            let woken = Arc::clone(&state.links.get(&id)?.woken);
            state = wait(&woken, state, None);
        }
        Some(state.target)
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>, end: Option<Instant>) -> MutexGuard<'a, State> {
    let Some(end) = end else {
        return condition.wait(state).unwrap_or_else(PoisonError::into_inner);
    };
    let left = end.saturating_duration_since(Instant::now());
    condition.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
}

enum Next {
    Load(Load),
    WaitUntil(Option<Instant>),
}

impl State {
    /// The first parcel of a lane if it may pass now: no black hole, nothing that holds it, and it is due.
    fn next(&mut self, id: u64, lane: Lane) -> Option<Next> {
        let link = self.links.get(&id)?;
        let Some(first) = link.lanes[lane as usize].front() else {
            return Some(Next::WaitUntil(None));
        };
        let held = first.held_by.is_some_and(|fault| !self.faults[fault].released);
        if held || self.blocked(link) {
            return Some(Next::WaitUntil(None));
        }
        if first.due > Instant::now() {
            return Some(Next::WaitUntil(Some(first.due)));
        }
        let parcel = self.links.get_mut(&id)?.lanes[lane as usize].pop_front()?;
        Some(Next::Load(parcel.load))
    }

    fn blocked(&self, link: &Link) -> bool {
        self.hole || link.hole.is_some_and(|fault| !self.faults[fault].released)
    }

    pub(super) fn rule(&mut self, name: &str, left: Option<usize>, act: Act) -> usize {
        let fault = self.faults.len();
        self.faults.push(FaultState::default());
        self.rules.push(Rule { name: name.to_owned(), left, act, fault });
        fault
    }

    pub(super) fn release(&mut self, fault: usize) {
        self.faults[fault].released = true;
        self.rules.retain(|rule| rule.fault != fault);
    }

    pub(super) fn heal(&mut self) {
        self.faults.iter_mut().for_each(|fault| fault.released = true);
        self.rules.clear();
        self.hole = false;
        self.refusing = false;
        self.latency = self.distance;
    }

    pub(super) fn refuse(&mut self) {
        self.refusing = true;
        self.close_all();
    }
}

/// Links.
impl State {
    /// Takes a new connection in; none while connections are refused.
    pub(super) fn admit(&mut self, client: TcpStream) -> Option<(u64, Arc<Sockets>)> {
        let sockets = Arc::new(Sockets { client, server: OnceLock::new() });
        if self.refusing {
            sockets.close(true);
            return None;
        }
        let id = self.admitted;
        self.admitted += 1;
        let link = Link {
            sockets: Arc::clone(&sockets),
            woken: Arc::default(),
            lanes: Default::default(),
            awaited: VecDeque::new(),
            hole: None,
            subscriber: false,
        };
        self.links.insert(id, link);
        Some((id, sockets))
    }

    /// Closes a link; with a reset, the client's side sees one once the link's threads have let go of the socket, which
    /// they do at once.
    pub(super) fn close(&mut self, id: u64, reset: bool) {
        if let Some(link) = self.links.remove(&id) {
            link.sockets.close(reset);
            link.woken.notify_all();
        }
    }

    pub(super) fn close_all(&mut self) {
        while let Some((_, link)) = self.links.pop_first() {
            link.sockets.close(true);
            link.woken.notify_all();
        }
    }
}

impl Sockets {
    /// Wakes the threads that read. A reset must not be preceded by the FIN that closing for writing would send.
    fn close(&self, reset: bool) {
        if reset {
            _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
            _ = self.client.shutdown(Shutdown::Read);
        } else {
            _ = self.client.shutdown(Shutdown::Both);
        }
        if let Some(server) = self.server.get() {
            _ = server.shutdown(Shutdown::Both);
        }
    }
}
