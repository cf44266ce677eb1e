//! The snapshots for viewers, which a thread takes repeatedly.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Redlock, Snapshot, SnapshotOptions};

/// The share of the time for which a viewer keeps a server busy.
const SHARE: f64 = 0.01;
/// The largest numbers of holders, of latches and of queues that a view shows.
const MOST: usize = 20_000;
/// How long snapshots continue after a viewer asked for one. Then the servers are left alone.
const LASTS: Duration = Duration::from_secs(10);

/// The latest snapshot.
#[derive(Clone, Default)]
pub(crate) struct Latest {
    pub(crate) seen: Option<Arc<Snapshot>>,
    /// When it was taken.
    pub(crate) at: Option<Instant>,
    /// The error of the last attempt to take a newer one.
    pub(crate) problem: Option<String>,
    /// The number of finished passes.
    pub(crate) passes: u64,
    /// When the pass under way began.
    pub(crate) asked: Option<Instant>,
    /// When a viewer last asked.
    looked: Option<Instant>,
    is_urgent: bool,
}

impl Latest {
    /// How old the snapshot is.
    pub(crate) fn age(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.elapsed())
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
        thread::Builder::new().name("watch".to_owned()).spawn(move || its.go_on(&locks, options, every))?;
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

    /// Like [`look`](Watch::look), but waits up to `most` for the first snapshot.
    #[cfg(feature = "dash")]
    pub(crate) fn first_look(&self, most: Duration) -> Latest {
        drop(self.look());
        let is_unknown = |latest: &mut Latest| latest.passes == 0;
        let waited = self.changed.wait_timeout_while(self.latest(), most, is_unknown);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Requests a new snapshot at once, since something was changed.
    pub(crate) fn hurry(&self) {
        self.latest().is_urgent = true;
        self.changed.notify_all();
    }

    fn go_on(&self, locks: &Redlock, options: SnapshotOptions, every: Duration) {
        let mut options = options;
        loop {
            let began = Instant::now();
            let before = {
                let mut latest = self.latest();
                latest.asked = Some(began);
                latest.seen.clone()
            };
            let seen = locks.snapshot(&options);
            // The first snapshot is taken without pauses.
            options = options.server_share(SHARE);
            let mut latest = self.latest();
            match seen {
                Ok(seen) => {
                    let seen = if let Some(before) = before { seen.following(&before) } else { seen };
                    (latest.seen, latest.at, latest.problem) = (Some(Arc::new(seen)), Some(Instant::now()), None);
                }
                Err(error) => latest.problem = Some(error.to_string()),
            }
            latest.asked = None;
            latest.passes += 1;
            self.changed.notify_all();
            while !latest.is_urgent && (began.elapsed() < every || latest.looked.is_none_or(|at| at.elapsed() > LASTS))
            {
                let pause = every.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
                let pause = if began.elapsed() < every { pause } else { LASTS };
                latest = self.changed.wait_timeout(latest, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            latest.is_urgent = false;
        }
    }
}
