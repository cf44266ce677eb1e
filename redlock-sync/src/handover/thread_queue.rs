//! The thread queues of one client: one for each key that threads want, first come, first served.
//!
//! Only the queue head, the thread at the front, waits at the servers. It stays the queue head while it holds the lock.
//! So a hundred waiting threads are one waiter to Redis, and a holder can hand its lease to the next thread without a
//! call.
//!
//! Threads that share the lock ([`Mode::Shared`]) stop being queue heads as soon as they hold it. Several of them at
//! the front are queue heads at the same time. Of threads that can have one lease together ([`Mode::Joint`], with plain
//! settings), one is the queue head. It lets the others join its lease ([`SharedLease`]).
//!
//! A thread whose time is up must not be handed a lock that it does not notice. And a lock that is handed over must
//! reach a thread. So one step under the lock of `by_key` removes a thread from its queue and sets what it gets, or is
//! promised. [`QueuedThread`] lists the steps. A thread whose time is up removes itself under the same lock
//! ([`ThreadQueues::dequeue`]). One of the two comes first, and the other sees it.
//!
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cancel::{Cancel, Cancelling};
use crate::clock::{Clock, Tick};
use crate::handover::sharing::SharedLease;
use crate::options::{Kind, LockOptions, Mode};
use crate::parker::{Parker, pause};
use crate::sync::{AtomicUsize, Mutex};

/// The thread queues of one client: one for each key that a thread has or wants. `T` is what threads hand over: a held
/// lease.
#[derive(Debug)]
pub(crate) struct ThreadQueues<T> {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) by_key: Mutex<HashMap<Arc<str>, ThreadQueue<T>>>,
    /// `close` cancels it, and then `ClientInner::end` reads its `active_calls`. Pairs with `ThreadQueues::is_closed`,
    /// which a call reads after `ClientInner::begin_call`. All are `SeqCst`, so at least one of the two threads sees
    /// the other. Otherwise a call could get a lock after the end of the client.
    closed: Cancel,
    /// The threads that wait in a queue, of all keys. Usually none: then the table need not be locked.
    ///
    /// Changed while `by_key` is locked. Pairs with `QueueHead::has_successor`, which reads it without that lock. A
    /// thread that it misses becomes the queue head when that one leaves, and asks the servers itself.
    waiting_threads: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct ThreadQueue<T> {
    /// Threads that try to get the lock, or hold it. More than one only if all of them share the lock.
    heads: usize,
    /// The mode of the queue heads.
    mode: Mode,
    /// The kind of lock that the last queue head wanted.
    kind: &'static str,
    waiting: VecDeque<Arc<QueuedThread<T>>>,
    /// The lease that threads of this process share.
    shared: Option<SharedLease<T>>,
}

impl<T> Default for ThreadQueue<T> {
    fn default() -> ThreadQueue<T> {
        ThreadQueue { heads: 0, mode: Mode::Exclusive, kind: "", waiting: VecDeque::new(), shared: None }
    }
}

impl<T> ThreadQueue<T> {
    /// True if no thread has or wants the key.
    fn is_idle(&self) -> bool {
        let is_shared = self.shared.as_ref().is_some_and(SharedLease::is_open);
        self.heads == 0 && self.waiting.is_empty() && !is_shared
    }

    /// What the first thread in the queue gets. It is a part of the shared lease, or the place of a queue head beside
    /// those that are there. `None` if it has to wait.
    fn admit(&mut self, kind: Kind, options: &LockOptions, clock: &dyn Clock) -> Option<ThreadPlace<T>> {
        let is_exclusive = self.heads > 0 && self.mode == Mode::Exclusive;
        let shared = self.shared.as_mut().filter(|_| !is_exclusive);
        if let Some(part) = shared.and_then(|shared| shared.join(kind, options, clock.now())) {
            return Some(ThreadPlace::Handed(part));
        }
        let mode = head_mode(kind, options);
        if is_exclusive || self.heads > 0 && mode == Mode::Exclusive {
            return None;
        }
        self.heads += 1;
        (self.mode, self.kind) = (mode, kind.name);
        Some(ThreadPlace::Head)
    }

    /// Lets the first thread in the queue move up. If that thread shares the lock, those behind it that share it too
    /// move up as well. Returns how many did.
    fn advance(&mut self, clock: &dyn Clock) -> usize {
        let before = self.waiting.len();
        while let Some(first) = self.waiting.front().map(Arc::clone)
            && let Some(place) = self.admit(first.kind, &first.options, clock)
        {
            self.waiting.pop_front();
            first.move_to(place);
        }
        before - self.waiting.len()
    }
}

/// The mode in which a thread is a queue head. A thread whose lease others can join is an exclusive queue head, since
/// one thread is enough to compete for all of them.
fn head_mode(kind: Kind, options: &LockOptions) -> Mode {
    if kind.mode == Mode::Joint && !options.is_plain() || kind.mode == Mode::Shared {
        Mode::Shared
    } else {
        Mode::Exclusive
    }
}

/// A thread in a queue, and its place there.
///
/// | place | set by | leaves to |
/// |---|---|---|
/// | Waiting | the thread itself | Head, Promised, Handed, Closed; or the thread removes itself when its time is up |
/// | Head | the queue head that leaves | the thread goes on |
/// | Promised | a holder that is about to hand over | Handed |
/// | Handed | that holder; for a part of a shared lease, as Head | the thread goes on |
/// | Closed | the end of the client | the thread goes on |
///
/// A thread leaves Waiting only under the lock of `by_key`, together with its removal from the queue. So a thread whose
/// time is up either removes itself or finds that it got something.
#[derive(Debug)]
pub(crate) struct QueuedThread<T> {
    kind: Kind,
    options: LockOptions,
    place: Arc<Parker<ThreadPlace<T>>>,
}

#[derive(Debug)]
enum ThreadPlace<T> {
    Waiting,
    Head,
    Promised,
    Handed(T),
    Closed,
}

impl<T> ThreadPlace<T> {
    /// The place with which the thread goes on.
    fn take(&mut self) -> Option<ThreadPlace<T>> {
        let stays = matches!(self, ThreadPlace::Waiting | ThreadPlace::Promised);
        (!stays).then(|| std::mem::replace(self, ThreadPlace::Waiting))
    }
}

impl<T> QueuedThread<T> {
    fn move_to(&self, place: ThreadPlace<T>) {
        self.place.change(|current| *current = place);
    }

    fn wants(&self, kind: Kind, options: &LockOptions) -> bool {
        self.kind == kind && self.options == *options
    }

    /// Hands over what [`QueueHead::successor`] promised.
    pub(crate) fn hand_over(&self, gift: T) {
        self.move_to(ThreadPlace::Handed(gift));
    }
}

/// How a wait in a thread queue ended.
#[derive(Debug)]
pub(crate) enum QueueOutcome<T> {
    Head(QueueHead<T>),
    Handed(T),
    /// The time was up.
    Late,
    Closed,
}

/// The place at the front of a thread queue. Dropping it lets the next thread move up.
#[derive(Debug)]
pub(crate) struct QueueHead<T> {
    queues: Arc<ThreadQueues<T>>,
    key: Arc<str>,
    /// What the threads of this process can share once this queue head is dropped.
    shared: Option<SharedLease<T>>,
}

impl<T> ThreadQueues<T> {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<ThreadQueues<T>> {
        Arc::new(ThreadQueues {
            clock,
            by_key: Mutex::new(HashMap::new()),
            closed: Cancel::new(),
            waiting_threads: AtomicUsize::new(0),
        })
    }

    /// The place of the queue head, or a part of a shared lease, if the thread need not wait for it.
    pub(crate) fn try_enqueue(
        self: &Arc<Self>,
        key: &Arc<str>,
        kind: Kind,
        options: &LockOptions,
    ) -> Option<QueueOutcome<T>> {
        let mut by_key = self.by_key.lock();
        let queue = by_key.entry(Arc::clone(key)).or_default();
        if !queue.waiting.is_empty() {
            return None;
        }
        self.entered(key, queue.admit(kind, options, &*self.clock)?)
    }

    fn entered(self: &Arc<Self>, key: &Arc<str>, place: ThreadPlace<T>) -> Option<QueueOutcome<T>> {
        match place {
            ThreadPlace::Head => {
                let (queues, key) = (Arc::clone(self), Arc::clone(key));
                Some(QueueOutcome::Head(QueueHead { queues, key, shared: None }))
            }
            ThreadPlace::Handed(gift) => Some(QueueOutcome::Handed(gift)),
            ThreadPlace::Closed => Some(QueueOutcome::Closed),
            ThreadPlace::Waiting | ThreadPlace::Promised => None,
        }
    }

    /// True if a thread of this process has, or tries to get, a lock of another kind with this key. It keeps threads
    /// that want this kind out.
    pub(crate) fn is_of_another_kind(&self, key: &Arc<str>, kind: Kind) -> bool {
        let by_key = self.by_key.lock();
        by_key.get(key).is_some_and(|queue| queue.heads > 0 && queue.kind != kind.name)
    }

    /// A part of the lease that threads of this process share, unless others wait for their turn. Also whether its
    /// holder must ask the servers whether another process is kept out.
    pub(crate) fn join(&self, key: &str, kind: Kind, options: &LockOptions) -> Option<(T, bool)> {
        let now = self.clock.now();
        let mut by_key = self.by_key.lock();
        let queue = by_key.get_mut(key)?;
        if !queue.waiting.is_empty() || queue.heads > 0 && queue.mode == Mode::Exclusive {
            return None;
        }
        let shared = queue.shared.as_mut()?;
        let part = shared.join(kind, options, now)?;
        Some((part, shared.is_check_due(now)))
    }

    /// Forgets the shared lease of a key, if it is closed.
    pub(crate) fn unshare(&self, key: &Arc<str>) {
        let mut by_key = self.by_key.lock();
        let Entry::Occupied(mut entry) = by_key.entry(Arc::clone(key)) else { return };
        let closed = entry.get_mut().shared.take_if(|shared| !shared.is_open());
        if entry.get().is_idle() {
            entry.remove();
        }
        drop(by_key);
        drop(closed);
    }

    /// Waits in the queue, until `until` at most, to become the queue head. If a holder had the same settings, the
    /// thread gets the lock itself.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        key: &Arc<str>,
        until: Tick,
        kind: Kind,
        options: &LockOptions,
    ) -> QueueOutcome<T>
    where
        T: Send + 'static,
    {
        let thread = {
            let mut by_key = self.by_key.lock();
            // Checked under the lock: `close` dismisses the threads that are queued by then, and would miss this one.
            if self.is_closed() {
                return QueueOutcome::Closed;
            }
            let queue = by_key.entry(Arc::clone(key)).or_default();
            if queue.waiting.is_empty()
                && let Some(entered) =
                    queue.admit(kind, options, &*self.clock).and_then(|place| self.entered(key, place))
            {
                return entered;
            }
            let place = Parker::new(ThreadPlace::Waiting);
            let thread = Arc::new(QueuedThread { kind, options: options.clone(), place });
            queue.waiting.push_back(Arc::clone(&thread));
            self.waiting_threads.fetch_add(1, Ordering::SeqCst);
            thread
        };
        self.wait_in_queue(key, &thread, until)
    }

    fn wait_in_queue(
        self: &Arc<Self>,
        key: &Arc<str>,
        thread: &Arc<QueuedThread<T>>,
        mut until: Tick,
    ) -> QueueOutcome<T>
    where
        T: Send + 'static,
    {
        let mut cancel = thread.options.cancel.get();
        loop {
            let place = thread.place.wait(&*self.clock, until, &[cancel], ThreadPlace::take);
            if let Some(entered) = place.and_then(|place| self.entered(key, place)) {
                return entered;
            }
            if self.dequeue(key, thread) {
                return QueueOutcome::Late;
            }
            // `advance` or `successor` has removed this thread from the queue first. Its place is set already, or
            // `hand_over` sets it soon.
            (until, cancel) = (Tick::NEVER, None);
        }
    }

    /// Removes a thread whose time is up from the queue; false if it is not there any more.
    fn dequeue(&self, key: &Arc<str>, thread: &Arc<QueuedThread<T>>) -> bool {
        let mut by_key = self.by_key.lock();
        let Some(queue) = by_key.get_mut(key) else { return false };
        let place = queue.waiting.iter().position(|other| Arc::ptr_eq(other, thread));
        let was_there = place.and_then(|i| queue.waiting.remove(i)).is_some();
        // Threads behind it may share the lock with the queue heads.
        let moved = queue.advance(&*self.clock);
        self.waiting_threads.fetch_sub(usize::from(was_there) + moved, Ordering::SeqCst);
        was_there
    }

    /// Gives up the place of a queue head. Its lease is shared from now on, if it can be and no other lease is.
    fn leave_head(&self, key: &Arc<str>, shared: Option<SharedLease<T>>) {
        let mut by_key = self.by_key.lock();
        let Entry::Occupied(mut entry) = by_key.entry(Arc::clone(key)) else { return };
        let queue = entry.get_mut();
        let is_shared = queue.shared.as_ref().is_some_and(SharedLease::is_open);
        let opened = shared.filter(|_| !is_shared).map(|shared| shared.open(self.clock.now()));
        let former = opened.and_then(|opened| queue.shared.replace(opened));
        queue.heads = queue.heads.saturating_sub(1);
        self.waiting_threads.fetch_sub(queue.advance(&*self.clock), Ordering::SeqCst);
        if queue.is_idle() {
            entry.remove();
        }
        drop(by_key);
        drop(former);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Closes the client: dismisses all threads that wait in a queue, for good.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        let mut by_key = self.by_key.lock();
        // In a fixed order, so that runs of the simulation are reproducible.
        let mut queues: Vec<_> = by_key.iter_mut().collect();
        queues.sort_unstable_by_key(|(key, _)| Arc::clone(key));
        for thread in queues.into_iter().flat_map(|(_, queue)| queue.waiting.drain(..)) {
            self.waiting_threads.fetch_sub(1, Ordering::SeqCst);
            thread.move_to(ThreadPlace::Closed);
        }
    }

    /// Sleeps until then, until the client is closed, or until the wait is cancelled.
    pub(crate) fn sleep_until(&self, end: Tick, cancel: &Cancelling) {
        pause(&*self.clock, end, &[Some(&self.closed), cancel.get()]);
    }
}

impl<T> QueueHead<T> {
    /// Gives up this place, and lets the threads of this process share what this thread holds, unless they already
    /// share a lease.
    pub(crate) fn share(mut self, shared: SharedLease<T>) {
        self.shared = Some(shared);
    }

    /// True if other threads are in the queue.
    pub(crate) fn threads_wait(&self) -> bool {
        self.queues.waiting_threads.load(Ordering::SeqCst) > 0 && {
            let by_key = self.queues.by_key.lock();
            by_key.get(&self.key).is_some_and(|queue| !queue.waiting.is_empty())
        }
    }

    /// True if the next thread in the queue can be handed the lock.
    pub(crate) fn has_successor(&self, kind: Kind, options: &LockOptions) -> bool {
        if self.queues.waiting_threads.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let by_key = self.queues.by_key.lock();
        by_key.get(&self.key).and_then(|queue| queue.waiting.front()).is_some_and(|next| next.wants(kind, options))
    }

    /// Removes the next thread from the queue, if it wants the lock with the same settings. The caller must then hand
    /// the lock to it.
    pub(crate) fn successor(&self, kind: Kind, options: &LockOptions) -> Option<Arc<QueuedThread<T>>> {
        let mut by_key = self.queues.by_key.lock();
        let queue = by_key.get_mut(&self.key)?;
        queue.waiting.front().filter(|next| next.wants(kind, options))?;
        let thread = queue.waiting.pop_front()?;
        self.queues.waiting_threads.fetch_sub(1, Ordering::SeqCst);
        *thread.place.lock() = ThreadPlace::Promised;
        Some(thread)
    }
}

impl<T> Drop for QueueHead<T> {
    fn drop(&mut self) {
        self.queues.leave_head(&self.key, self.shared.take());
    }
}

#[cfg(test)]
#[path = "thread_queue/tests.rs"]
mod tests;
