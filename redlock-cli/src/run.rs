//! `redlock run`: runs a program under a lock, or once for a name.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use redlock_sync::{Error, Lease, MutexGuard, Once, Redlock, RunOnce};

use crate::args::{Run, Servers};
use crate::ending::{Answer, BUSY, Failure, LOST, say};
use crate::program::Program;
use crate::signals::{Caught, Event, Signals, signalled};

pub(crate) fn run(servers: &Servers, order: &Run) -> Result<Answer, Failure> {
    let caught = Caught::all()?;
    let locks = &servers.open()?;
    let (sender, events) = mpsc::channel();
    let signals = caught.report(locks, sender.clone())?;
    let runner = Runner { locks, order, signals, sender, events };
    let code = if order.once { runner.once() } else { runner.under_lock() }?;
    Ok(Answer::new(String::new(), code))
}

struct Runner<'a> {
    locks: &'a Redlock,
    order: &'a Run,
    signals: Signals,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Runner<'_> {
    fn under_lock(&self) -> Result<u8, Failure> {
        let outcome = self.lock();
        if let Some(signal) = self.end_wait() {
            return Ok(signalled(signal));
        }
        let guard = outcome?;
        let mut program = match self.start(&guard) {
            Ok(program) => program,
            Err(failure) => {
                if let Err(error) = self.give_back(guard) {
                    say(&error.to_string());
                }
                return Err(failure);
            }
        };
        let has_lost = self.follow(&mut program)?;
        Ok(finish(guard, has_lost, program.code()?))
    }

    fn lock(&self) -> Result<MutexGuard, Error> {
        let order = self.order;
        let mutex = self.locks.mutex(&order.key).min_hold(order.min_hold).fenced(order.fence);
        let mutex = order.lease.into_iter().fold(mutex, redlock_sync::Mutex::lease);
        match order.wait {
            None => mutex.lock(),
            Some(wait) => mutex.try_lock_for(wait),
        }
    }

    /// Ends the wait for the lock. Returns the signal that ended it before. The guard then releases the lock.
    fn end_wait(&self) -> Option<i32> {
        self.signals.go_on();
        match self.events.try_recv() {
            Ok(Event::Signal(signal)) => Some(signal.number),
            _ => None,
        }
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
        self.signals.came().for_each(|signal| program.send(signal));
        program.report_end(self.sender.clone())?;
        Ok(program)
    }

    /// Releases the lock although its minimum hold is not over, since that is for a lock whose program has run.
    fn give_back(&self, guard: MutexGuard) -> Result<(), Error> {
        let (mutex, id) = (self.locks.mutex(&self.order.key), guard.id().clone());
        // For the rest of the minimum hold, the servers keep the lock.
        guard.unlock()?;
        if let Some(kept) = mutex.inspect()?.filter(|holder| holder.id == id) {
            mutex.force_unlock(&kept)?;
        }
        Ok(())
    }

    /// Waits until the program has ended. Forwards signals to it. If the lock is lost, the program is told to end, and
    /// the result is true.
    fn follow(&self, program: &mut Program) -> Result<bool, Failure> {
        let (mut has_lost, mut deadline) = (false, None);
        loop {
            match next(&self.events, deadline) {
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(has_lost),
                // The terminal has sent the signal to the program too.
                Ok(Event::Signal(signal)) if signal.is_typed => {}
                Ok(Event::Signal(signal)) => program.send(signal.number),
                // The library has logged the reason.
                Ok(Event::Lost) => {
                    say("the program is told to end");
                    program.end();
                    (has_lost, deadline) = (true, Instant::now().checked_add(self.order.kill_after));
                }
                Err(RecvTimeoutError::Timeout) => {
                    say("the program is killed");
                    program.kill()?;
                    deadline = None;
                }
            }
        }
    }

    /// Runs the program unless it has succeeded under this name. A program that fails leaves no mark.
    fn once(&self) -> Result<u8, Failure> {
        let order = self.order;
        let once = self.locks.once(&order.key).fenced(order.fence);
        let once = order.lease.into_iter().fold(once, RunOnce::lease);
        let once = order.remember.into_iter().fold(once, RunOnce::remember);
        let has_run = Cell::new(false);
        let body = |lease: &Lease| {
            if let Some(signal) = self.end_wait() {
                return Err(Unmarked::Code(signalled(signal)));
            }
            let mut program = self.start(lease)?;
            has_run.set(true);
            match (self.follow(&mut program)?, program.code().map_err(Failure::from)?) {
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
            && let Some(signal) = self.end_wait()
        {
            return Ok(signalled(signal));
        }
        let key = order.key.escape_debug();
        match outcome {
            Ok(Once::Ran(())) => Ok(0),
            Ok(Once::Done) => {
                say(&format!("`{key}` has been done, so nothing was started"));
                Ok(0)
            }
            Ok(Once::Busy) => Err(Failure::new(BUSY, format!("lock `{key}` is held by another holder"))),
            Err(Unmarked::Code(code)) => Ok(code),
            Err(Unmarked::Failure(failure)) if has_run.get() => Err(Failure::new(
                failure.code,
                format!("{}; the program has run, but that is not remembered for certain", failure.message),
            )),
            Err(Unmarked::Failure(failure)) => Err(failure),
        }
    }
}

/// Why a program that is to run once is not marked as done.
enum Unmarked {
    /// It has ended with this code, or a signal ended the wait.
    Code(u8),
    Failure(Failure),
}

impl<E: Into<Failure>> From<E> for Unmarked {
    fn from(error: E) -> Unmarked {
        Unmarked::Failure(error.into())
    }
}

fn next(events: &Receiver<Event>, deadline: Option<Instant>) -> Result<Event, RecvTimeoutError> {
    match deadline {
        Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
        None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Releases the lock. The release also reports a loss that came too late to end the program. Returns the exit code.
fn finish(guard: MutexGuard, has_lost: bool, code: u8) -> u8 {
    match guard.unlock() {
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
