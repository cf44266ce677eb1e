//! `redlock run`: runs a program under a lock.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use redlock_sync::{Error, MutexGuard, Redlock};
use signal_hook::consts::SIGTERM;

use crate::args::Run;
use crate::ending::{Answer, Failure, LOST, say};
use crate::program::Program;
use crate::signals::{Event, Signals, signalled};

pub(crate) fn run(locks: &Redlock, order: &Run) -> Result<Answer, Failure> {
    let (sender, events) = mpsc::channel();
    let signals = Signals::catch(locks, sender.clone())?;
    let outcome = lock(locks, order);
    signals.go_on();
    // A signal before this point ends the wait. The guard then releases the lock.
    if let Ok(Event::Signal(signal)) = events.try_recv() {
        return Ok(Answer::new(String::new(), signalled(signal)));
    }
    let guard = outcome?;
    let mut program = match start(&guard, order, sender) {
        Ok(program) => program,
        Err(failure) => {
            if let Err(error) = release_at_once(locks, order, guard) {
                say(&error.to_string());
            }
            return Err(failure);
        }
    };
    let lost = follow(&mut program, &events, order.kill_after)?;
    let code = program.code()?;
    Ok(finish(guard, lost, code))
}

fn lock(locks: &Redlock, order: &Run) -> Result<MutexGuard, Error> {
    let mutex = locks.mutex(&order.key).min_hold(order.min_hold).fenced(order.fence);
    let mutex = order.lease.into_iter().fold(mutex, redlock_sync::Mutex::lease);
    match order.wait {
        None => mutex.lock(),
        Some(wait) => mutex.try_lock_for(wait),
    }
}

fn start(guard: &MutexGuard, order: &Run, events: Sender<Event>) -> Result<Program, Failure> {
    guard.on_lost({
        let events = events.clone();
        move |_| _ = events.send(Event::Lost)
    });
    let fence = order.fence.then(|| guard.fencing_token()).transpose()?;
    Program::start(&order.program, guard.key(), fence, events)
}

/// Releases the lock although its minimum hold is not over, since that is for a lock whose program has run.
fn release_at_once(locks: &Redlock, order: &Run, guard: MutexGuard) -> Result<(), Error> {
    let (mutex, id) = (locks.mutex(&order.key), guard.id().clone());
    // For the rest of the minimum hold, the servers keep the lock.
    guard.unlock()?;
    if let Some(kept) = mutex.inspect()?.filter(|holder| holder.id == id) {
        mutex.force_unlock(&kept)?;
    }
    Ok(())
}

/// Waits until the program has ended. Forwards signals to it. If the lock is lost, it sends SIGTERM to the program.
fn follow(program: &mut Program, events: &Receiver<Event>, kill_after: Duration) -> Result<bool, Failure> {
    let (mut lost, mut deadline) = (false, None);
    loop {
        match next(events, deadline) {
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(lost),
            Ok(Event::Signal(signal)) => program.pass_on(signal),
            // The library has logged the reason.
            Ok(Event::Lost) => {
                say("the program is told to end");
                program.send(SIGTERM);
                (lost, deadline) = (true, Instant::now().checked_add(kill_after));
            }
            Err(RecvTimeoutError::Timeout) => {
                say("the program is killed");
                program.kill()?;
                deadline = None;
            }
        }
    }
}

fn next(events: &Receiver<Event>, deadline: Option<Instant>) -> Result<Event, RecvTimeoutError> {
    match deadline {
        Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
        None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Releases the lock. The release also reports a loss that came too late to end the program.
fn finish(guard: MutexGuard, lost: bool, code: u8) -> Answer {
    match guard.unlock() {
        Err(error) if error.is_lost() => {
            if !lost {
                say(&format!("{error}, before the program ended"));
            }
            return Answer::new(String::new(), LOST);
        }
        // The program has run under the lock. If its release failed, other processes may have to wait until the lease
        // ends.
        Err(error) => say(&error.to_string()),
        Ok(()) => {}
    }
    Answer::new(String::new(), code)
}
