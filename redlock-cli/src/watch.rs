//! Snapshots for the viewers. A thread takes them repeatedly.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Health, Redlock, Snapshot, SnapshotOptions};

/// The share of the time for which the scripts of the snapshots keep a server busy. The viewer promises 1 %; the rest
/// is for the commands around the scripts.
const SHARE: f64 = 0.008;
/// The share if one snapshot keeps a server busy for at most [`SHORT`]. So each of up to about 2 000 locks is shown
/// within three seconds.
const SHARE_OF_SHORT: f64 = 0.05;
/// The time for which a short snapshot keeps a server busy. Round trips to far servers do not count.
const SHORT: Duration = Duration::from_millis(50);
/// The largest number of holders that a view shows. The same limit applies to latches and to queues.
const MOST: usize = 20_000;
/// The time for which snapshots continue after a viewer asked for one. Then the servers are left alone.
const LASTS: Duration = Duration::from_secs(10);

/// The latest snapshot.
#[derive(Clone, Default)]
pub(crate) struct Latest {
    /// If the last attempt to take a newer one failed, the health of the servers is newer than the rest.
    pub(crate) seen: Option<Arc<Snapshot>>,
    /// The time at which the snapshot was taken.
    pub(crate) at: Option<Instant>,
    /// The error of the last attempt to take a newer one.
    pub(crate) problem: Option<String>,
    /// The number of finished passes.
    pub(crate) passes: u64,
    /// The time at which the pass under way began.
    pub(crate) asked: Option<Instant>,
    /// The time of a viewer's last request.
    looked: Option<Instant>,
    /// The number of finished passes for which `first_look` waits.
    #[cfg(feature = "dash")]
    awaited: u64,
    is_urgent: bool,
}

impl Latest {
    /// The age of the snapshot.
    pub(crate) fn age(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Returns true if no viewer has asked for some time.
    fn is_unwatched(&self) -> bool {
        self.looked.is_none_or(|at| at.elapsed() > LASTS)
    }
}

pub(crate) struct Watch {
    latest: Mutex<Latest>,
    changed: Condvar,
}

impl Watch {
    /// Starts a thread that takes snapshots of the names that match `pattern`, as long as a viewer asks for them.
    pub(crate) fn start(locks: &Redlock, pattern: &str, every: Duration) -> io::Result<Arc<Watch>> {
        let watch = Arc::new(Watch { latest: Mutex::default(), changed: Condvar::new() });
        let options = SnapshotOptions::default().pattern(pattern).limit(MOST);
        let (its, locks) = (Arc::clone(&watch), locks.clone());
        thread::Builder::new().name("watch".to_owned()).spawn(move || its.go_on(&locks, &options, every))?;
        Ok(watch)
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest snapshot. This counts as a request of a viewer.
    pub(crate) fn look(&self) -> Latest {
        let mut latest = self.latest();
        latest.looked = Some(Instant::now());
        self.changed.notify_all();
        latest.clone()
    }

    /// Like [`look`](Watch::look), but waits up to `most` for the first snapshot, and for a new one after a time without
    /// viewers.
    #[cfg(feature = "dash")]
    pub(crate) fn first_look(&self, most: Duration) -> Latest {
        let mut latest = self.latest();
        if latest.is_unwatched() {
            latest.awaited = latest.passes + 1;
        }
        drop(latest);
        drop(self.look());
        let is_old = |latest: &mut Latest| latest.passes < latest.awaited;
        let waited = self.changed.wait_timeout_while(self.latest(), most, is_old);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Requests a new snapshot at once, for example after a change.
    pub(crate) fn hurry(&self) {
        self.latest().is_urgent = true;
        self.changed.notify_all();
    }

    fn go_on(&self, locks: &Redlock, options: &SnapshotOptions, every: Duration) {
        // The first snapshot is taken without pauses. The next ones limit the load on the servers.
        let mut share = 1.0;
        loop {
            let began = Instant::now();
            let before = {
                let mut latest = self.latest();
                latest.asked = Some(began);
                latest.seen.clone()
            };
            let seen = locks.snapshot(&options.clone().server_share(share));
            let health_now = seen.as_ref().err().and_then(|_| locks.health().ok());
            let is_short = seen.as_ref().is_ok_and(|seen| seen.busy <= SHORT);
            share = if is_short { SHARE_OF_SHORT } else { SHARE };
            let mut latest = self.latest();
            match seen {
                Ok(seen) => {
                    let seen = if let Some(before) = before { seen.following(&before) } else { seen };
                    (latest.seen, latest.at, latest.problem) = (Some(Arc::new(seen)), Some(Instant::now()), None);
                }
                Err(error) => {
                    latest.problem = Some(error.to_string());
                    latest.seen = before.map(|before| with_health(&before, health_now));
                }
            }
            latest.asked = None;
            latest.passes += 1;
            self.changed.notify_all();
            while !latest.is_urgent && (began.elapsed() < every || latest.is_unwatched()) {
                let pause = every.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
                let pause = if began.elapsed() < every { pause } else { LASTS };
                latest = self.changed.wait_timeout(latest, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            latest.is_urgent = false;
        }
    }
}

/// The snapshot with a newer health of the servers.
fn with_health(seen: &Snapshot, health: Option<Health>) -> Arc<Snapshot> {
    let mut seen = seen.clone();
    seen.health = health.unwrap_or(seen.health);
    for (node, round_trip) in seen.health.nodes().iter().zip(&mut seen.round_trips) {
        *round_trip = round_trip.filter(|_| node.problem.is_none());
    }
    Arc::new(seen)
}
