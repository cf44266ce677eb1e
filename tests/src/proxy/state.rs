//! The state that all threads of a proxy share.
//!
//! A request or a reply becomes a parcel in one of the two lanes of its link. Parcels leave a lane in order, and one
//! thread at a time writes them.
//!
//! If a parcel may pass at once, the thread that has read it writes it (see [`Shared::passable`]). Otherwise the thread
//! at the end of the lane writes it later (see [`Shared::next`]).
//!
//! So the order within a connection never changes, whatever happens to a parcel. A command without a rule wakes only
//! the threads that read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use socket2::SockRef;

use super::rules::Rule;
use super::traffic::Awaited;
use super::{Act, Seen};

/// The state, and the condition that notifies tests that wait for a fault to act.
///
/// The threads of a link wait on a condition of their own. With hundreds of links, waking all threads for each command
/// would overload a small machine.
///
/// The conditions and locks are those of `parking_lot`, which make no system call while no thread waits.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) target: SocketAddr,
    pub(super) latency: Duration,
    /// The latency without a fault.
    pub(super) distance: Duration,
    /// The number of bytes per second that pass on each connection, in each direction.
    pub(super) bandwidth: Option<u32>,
    /// True if nothing passes.
    pub(super) hole: bool,
    refusing: bool,
    pub(super) rules: Vec<Rule>,
    /// The state of each rule that was ever made. A rule stores its index here.
    pub(super) faults: Vec<FaultState>,
    pub(super) seen: Vec<Seen>,
    /// The names of scripts by digest.
    pub(super) scripts: HashMap<String, String>,
    /// The open connections. A link that is not in this map is closed, and its threads end.
    pub(super) links: BTreeMap<u64, Link>,
    admitted: u64,
}

#[derive(Debug, Default)]
pub(super) struct FaultState {
    pub(super) hits: usize,
    pub(super) released: bool,
}

/// The two ends of a connection. The end to the server is set once the proxy has connected.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) client: TcpStream,
    pub(super) server: OnceLock<TcpStream>,
}

#[derive(Debug)]
pub(super) struct Link {
    sockets: Arc<Sockets>,
    /// The condition that notifies the threads of the link of changes.
    pub(super) woken: Arc<Condvar>,
    pub(super) lanes: [VecDeque<Parcel>; 2],
    /// True while a thread writes a parcel, or while there is no connection to write to.
    busy: [bool; 2],
    /// The requests whose replies have not arrived yet.
    pub(super) awaited: VecDeque<Awaited>,
    /// The fault that turned this link into a black hole.
    pub(super) hole: Option<usize>,
    /// The fault that lets replies trickle, and the pause before each byte.
    pub(super) trickle: Option<(usize, Duration)>,
    /// True if messages can arrive without a request.
    pub(super) subscriber: bool,
}

/// The direction of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) enum Priority {
    ToServer = 0,
    ToClient = 1,
}

#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) due: Instant,
    pub(super) held_by: Option<usize>,
    pub(super) load: Load,
}

/// The action for a parcel at the end of a lane.
#[derive(Debug)]
pub(super) enum Load {
    /// Write these bytes.
    Bytes(Vec<u8>),
    /// Write these bytes, then reset the connection.
    Cut(Vec<u8>),
    /// Close the connection, because the other side has closed its end, with or without a reset.
    End { reset: bool },
}

impl Shared {
    pub(super) fn new(target: SocketAddr) -> Self {
        let state = State {
            target,
            latency: Duration::ZERO,
            distance: Duration::ZERO,
            bandwidth: None,
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
        self.state.lock()
    }

    /// Notifies tests that wait for a fault to act.
    pub(super) fn changed(&self) {
        self.changed.notify_all();
    }

    /// Notifies the tests and all links, because the state of any link may have changed.
    pub(super) fn all_changed(&self) {
        self.lock().links.values().for_each(|link| _ = link.woken.notify_all());
        self.changed();
    }

    /// Waits for a fault to act, at most until `end`.
    pub(super) fn wait(&self, state: &mut MutexGuard<'_, State>, end: Instant) {
        self.changed.wait_until(state, end);
    }

    pub(super) fn name_script(&self, name: &str, digest: &str) {
        self.lock().scripts.insert(digest.to_ascii_lowercase(), name.to_owned());
    }

    /// Waits for the next parcel of a lane. The thread at the end of the lane calls this, writes the parcel, and then
    /// calls [`Shared::written`]. Returns `None` once the link is closed.
    pub(super) fn next(&self, id: u64, lane: Priority) -> Option<Load> {
        let mut state = self.lock();
        loop {
            let wait_until = match state.next(id, lane)? {
                Next::Load(load) => return Some(load),
                Next::WaitUntil(end) => end,
            };
            let woken = Arc::clone(&state.links.get(&id)?.woken);
            match wait_until {
                Some(end) => drop(woken.wait_until(&mut state, end)),
                None => woken.wait(&mut state),
            }
        }
    }

    /// Returns the bytes that may pass now. A thread that has put parcels into a lane calls this, writes the bytes,
    /// calls [`Shared::written`], and asks again. Everything else is left to the thread at the end of the lane.
    pub(super) fn passable(&self, id: u64, lane: Priority) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let mut all = Vec::new();
        while let Some(bytes) = state.next_bytes(id, lane) {
            all.extend(bytes);
        }
        let link = state.links.get_mut(&id)?;
        link.busy[lane as usize] |= !all.is_empty();
        if all.is_empty() {
            link.wake(lane);
            return None;
        }
        Some(all)
    }

    /// Records that the parcel has been written, or that the connection exists.
    pub(super) fn written(&self, id: u64, lane: Priority) {
        if let Some(link) = self.lock().links.get_mut(&id) {
            link.busy[lane as usize] = false;
            link.wake(lane);
        }
    }

    /// Waits until the link may connect to the server. Returns the address of the server, or `None` once the link is
    /// closed.
    pub(super) fn wait_passable(&self, id: u64) -> Option<SocketAddr> {
        let mut state = self.lock();
        while state.blocked(state.links.get(&id)?) {
            let woken = Arc::clone(&state.links.get(&id)?.woken);
            woken.wait(&mut state);
        }
        Some(state.target)
    }
}

enum Next {
    Load(Load),
    WaitUntil(Option<Instant>),
}

impl State {
    /// Takes the first parcel of a lane if it may pass now. It must be due, no fault may hold it, and the link must not
    /// be in a black hole. The parcel before it must be written.
    fn next(&mut self, id: u64, lane: Priority) -> Option<Next> {
        let link = self.links.get(&id)?;
        let Some(first) = link.lanes[lane as usize].front() else {
            return Some(Next::WaitUntil(None));
        };
        let held = first.held_by.is_some_and(|fault| !self.faults[fault].released);
        if held || self.blocked(link) || link.busy[lane as usize] {
            return Some(Next::WaitUntil(None));
        }
        let is_hurried = link.trickle.is_some_and(|(fault, _)| self.faults[fault].released);
        if first.due > Instant::now() && !is_hurried {
            return Some(Next::WaitUntil(Some(first.due)));
        }
        let link = self.links.get_mut(&id)?;
        link.busy[lane as usize] = true;
        let parcel = link.lanes[lane as usize].pop_front()?;
        Some(Next::Load(parcel.load))
    }

    /// Works like [`State::next`], but only if the first parcel is bytes. The lane does not become busy.
    fn next_bytes(&mut self, id: u64, lane: Priority) -> Option<Vec<u8>> {
        let first = self.links.get(&id)?.lanes[lane as usize].front()?;
        if !matches!(first.load, Load::Bytes(_)) {
            return None;
        }
        let Next::Load(Load::Bytes(bytes)) = self.next(id, lane)? else { return None };
        self.links.get_mut(&id)?.busy[lane as usize] = false;
        Some(bytes)
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
        self.bandwidth = None;
    }

    pub(super) fn refuse(&mut self) {
        self.refusing = true;
        self.close_all();
    }
}

impl State {
    /// Adds a new connection. Returns `None` while connections are refused.
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
            busy: [true, false],
            awaited: VecDeque::new(),
            hole: None,
            trickle: None,
            subscriber: false,
        };
        self.links.insert(id, link);
        Some((id, sockets))
    }

    /// Closes a link. With `reset`, the client sees the reset as soon as the threads of the link have dropped the
    /// socket.
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

impl Link {
    /// Notifies the thread at the end of the lane if the lane contains a parcel.
    pub(super) fn wake(&self, lane: Priority) {
        if !self.lanes[lane as usize].is_empty() {
            self.woken.notify_all();
        }
    }
}

impl Sockets {
    /// Wakes the threads that read. No FIN may precede a reset, so a reset does not shut down writing.
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
