//! `redlock run`: runs a program under a lock, or once for a name.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use redlock_sync::{
    Cancel, Error, Lease, LostReason, MutexGuard, Once, Redlock, RunOutcome, Semaphore, SemaphorePermit,
};

use crate::args::{Run, Servers};
use crate::ending::{Answer, BUSY, Failure, LOST, UNAVAILABLE};
use crate::program::Program;
use crate::signals::{Caught, Event, Signals, signalled};
use crate::stderr::say;

pub(crate) fn run(servers: &Servers, order: &Run) -> Result<Answer, Failure> {
    let caught = Caught::all()?;
    let locks = &servers.open()?;
    let (sender, events) = mpsc::channel();
    let cancel = Cancel::new();
    let signals = caught.report(cancel.clone(), sender.clone())?;
    let runner = Runner { locks, order, cancel, signals, sender, events };
    let code = if order.once { runner.once() } else { runner.under_lock() }?;
    Ok(Answer::new(String::new(), code))
}

/// What the program runs under.
enum Held {
    Mutex(MutexGuard),
    Permit(SemaphorePermit),
}

impl Held {
    fn lease(&self) -> &Lease {
        match self {
            Held::Mutex(guard) => guard,
            Held::Permit(permit) => permit,
        }
    }

    fn release(self) -> Result<(), Error> {
        match self {
            Held::Mutex(guard) => guard.unlock(),
            Held::Permit(permit) => permit.release(),
        }
    }
}

struct Runner<'a> {
    locks: &'a Redlock,
    order: &'a Run,
    /// Ends the wait for the lock.
    cancel: Cancel,
    signals: Signals,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Runner<'_> {
    fn under_lock(&self) -> Result<u8, Failure> {
        let outcome = self.lock();
        if let Some(signal) = self.signal() {
            // The lock came too late.
            if let Ok(guard) = outcome {
                self.give_back(guard);
            }
            return Ok(self.ended_by(signal));
        }
        let guard = outcome?;
        let mut program = match self.start(guard.lease()) {
            Ok(program) => program,
            Err(failure) => {
                self.give_back(guard);
                return Err(failure);
            }
        };
        let has_lost = self.follow(&program);
        Ok(finish(guard, has_lost, program.code()?))
    }

    fn lock(&self) -> Result<Held, Error> {
        let order = self.order;
        if let Some(permits) = order.semaphore {
            let semaphore = self.locks.semaphore(&order.key, permits).fenced(order.fence).cancel(&self.cancel);
            let semaphore = order.lease.into_iter().fold(semaphore, Semaphore::lease);
            let permit = match order.wait {
                None => semaphore.acquire(),
                Some(wait) => semaphore.try_acquire_for(wait),
            };
            return permit.map(Held::Permit);
        }
        let mutex = self.locks.mutex(&order.key).min_hold(order.min_hold).fenced(order.fence).cancel(&self.cancel);
        let mutex = order.lease.into_iter().fold(mutex, redlock_sync::Mutex::lease);
        let guard = match order.wait {
            None => mutex.lock(),
            Some(wait) => mutex.try_lock_for(wait),
        };
        guard.map(Held::Mutex)
    }

    /// Returns the signal that came before the program was started.
    fn signal(&self) -> Option<i32> {
        match self.events.try_recv() {
            Ok(Event::Signal(signal)) => Some(signal.number),
            _ => None,
        }
    }

    /// Ends the client: no release is left to be repeated. Returns the exit code.
    fn ended_by(&self, signal: i32) -> u8 {
        _ = self.locks.shutdown(Duration::ZERO);
        signalled(signal)
    }

    fn start(&self, lease: &Lease) -> Result<Program, Failure> {
        lease.on_lost({
            let events = self.sender.clone();
            move |_| _ = events.send(Event::Lost)
        });
        let fence = self.order.fence.then(|| lease.fencing_token()).transpose()?;
        let mut program = Program::start(&self.order.program, lease.key(), fence)?;
        // A key that was typed before the start did not reach the program. If it was typed during the start, the program
        // gets its signal twice.
        self.signals.came().for_each(|signal| tell(program.send(signal), false));
        program.report_end(self.sender.clone())?;
        Ok(program)
    }

    /// Releases the lock although its minimum hold is not over, since that is for a lock whose program has run.
    fn give_back(&self, held: Held) {
        let outcome = match held {
            Held::Mutex(guard) => self.unlock_at_once(guard),
            Held::Permit(permit) => permit.release(),
        };
        if let Err(error) = outcome {
            say(&error.to_string());
        }
    }

    fn unlock_at_once(&self, guard: MutexGuard) -> Result<(), Error> {
        let (mutex, id) = (self.locks.mutex(&self.order.key), guard.id().clone());
        // For the rest of the minimum hold, the servers keep the lock.
        guard.unlock()?;
        if let Some(kept) = mutex.inspect()?.iter().find(|holder| holder.id == id) {
            mutex.force_unlock(kept)?;
        }
        Ok(())
    }

    /// Waits until the program has ended. Forwards signals to it. If the lock is lost, the program is asked to end, and
    /// the result is true. Each signal is sent before stderr tells of it.
    fn follow(&self, program: &Program) -> bool {
        let (mut has_lost, mut deadline) = (false, None);
        loop {
            let sent = match next(&self.events, deadline) {
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return has_lost,
                // The terminal has sent the signal to the program too.
                Ok(Event::Signal(signal)) if signal.is_typed => Ok(()),
                Ok(Event::Signal(signal)) => program.send(signal.number),
                // The library has logged the reason.
                Ok(Event::Lost) => {
                    (has_lost, deadline) = (true, Instant::now().checked_add(self.order.kill_after));
                    program.end().inspect(|()| say("the program is told to end"))
                }
                Err(RecvTimeoutError::Timeout) => {
                    deadline = None;
                    program.kill().inspect(|()| say("the program is killed"))
                }
            };
            tell(sent, has_lost);
        }
    }

    /// Runs the program unless it has succeeded under this name. A program that fails leaves no mark.
    fn once(&self) -> Result<u8, Failure> {
        let order = self.order;
        let once = self.locks.once(&order.key).fenced(order.fence).cancel(&self.cancel);
        let once = order.lease.into_iter().fold(once, Once::lease);
        let once = order.remember.into_iter().fold(once, Once::remember);
        let (has_run, held_at_end) = (Cell::new(false), Cell::new(false));
        let body = |lease: &Lease| {
            if let Some(signal) = self.signal() {
                return Err(Unmarked::Code(signalled(signal)));
            }
            let mut program = self.start(lease)?;
            has_run.set(true);
            let has_lost = self.follow(&program);
            held_at_end.set(lease.check().is_ok());
            match (has_lost, program.code().map_err(Failure::from)?) {
                (true, _) => Err(Unmarked::Code(LOST)),
                (false, 0) => Ok(()),
                (false, code) => Err(Unmarked::Code(code)),
            }
        };
        let outcome = match order.wait {
            Some(Duration::ZERO) => once.run(body),
            wait => once.run_for(wait.unwrap_or(Duration::MAX), body),
        };
        if !has_run.get()
            && let Some(signal) = self.signal()
        {
            return Ok(self.ended_by(signal));
        }
        let key = order.key.escape_debug();
        match outcome {
            Ok(RunOutcome::Ran(())) => Ok(0),
            Ok(RunOutcome::Done) => {
                say(&format!("`{key}` has been done, so nothing was started"));
                Ok(0)
            }
            Ok(RunOutcome::Busy) => Err(Failure::new(BUSY, format!("lock `{key}` is held by another holder"))),
            Err(Unmarked::Code(code)) => {
                if !has_run.get() {
                    // A signal came first. Closing gives back what the release has left.
                    _ = self.locks.shutdown(Duration::ZERO);
                }
                Ok(code)
            }
            Err(Unmarked::Error(error)) if has_run.get() => {
                // The lease can end while no server confirms the mark.
                let ended_later = held_at_end.get()
                    && matches!(error, Error::Lost { reason: LostReason::Unreachable | LostReason::Expired, .. });
                let Failure { code, message } = error.into();
                let code = if ended_later { UNAVAILABLE } else { code };
                Err(Failure::new(
                    code,
                    format!("{message}; the program has run, but that is not remembered for certain"),
                ))
            }
            Err(Unmarked::Error(error)) => Err(error.into()),
            Err(Unmarked::Failure(failure)) => Err(failure),
        }
    }
}

/// Why a program that is to run once is not marked as done.
enum Unmarked {
    /// It has ended with this code, or a signal ended the wait.
    Code(u8),
    /// The program could not be started, or its exit code is not known.
    Failure(Failure),
    /// An error of the library.
    Error(Error),
}

impl From<Failure> for Unmarked {
    fn from(failure: Failure) -> Unmarked {
        Unmarked::Failure(failure)
    }
}

impl From<Error> for Unmarked {
    fn from(error: Error) -> Unmarked {
        Unmarked::Error(error)
    }
}

/// Tells that the program could not be signalled.
fn tell(sent: Result<(), Failure>, has_lost: bool) {
    if let Err(failure) = sent {
        say(&format!("{}; it goes on {} the lock", failure.message, if has_lost { "without" } else { "under" }));
    }
}

fn next(events: &Receiver<Event>, deadline: Option<Instant>) -> Result<Event, RecvTimeoutError> {
    match deadline {
        Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
        None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Releases the lock. The release also reports a loss that came too late to end the program. Returns the exit code.
fn finish(held: Held, has_lost: bool, code: u8) -> u8 {
    match held.release() {
        Err(error) if error.is_lost() => {
            if !has_lost {
                say(&format!("{error}, before the program ended"));
            }
            return LOST;
        }
        // The program has run under the lock. If its release failed, other processes may have to wait until the lease
        // ends.
        Err(error) => say(&error.to_string()),
        Ok(()) => {}
    }
    code
}
