//! A client in a process that cannot start more threads.

use std::env;
use std::fs;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The stack size of a thread in bytes. The heap of this process needs much less. So the limit of the address space
/// prevents new threads, but no other allocation.
const STACK: u64 = 256 * 1024 * 1024;
/// The free address space in bytes. It is enough for other allocations, but too little for the stack of a thread.
const ROOM: u64 = STACK / 2;
/// A time in which a probe finds the servers, on a busy machine too.
const SOON: Duration = Duration::from_secs(30);

/// The environment of the process. It limits the number of malloc arenas, because an arena for each thread would use up
/// the free address space too.
const ENVIRONMENT: [(&str, u64); 2] = [("RUST_MIN_STACK", STACK), ("MALLOC_ARENA_MAX", 1)];

/// `starved URL…`: starts `starving URL…` with the environment that it needs.
pub(crate) fn main(urls: &[String]) {
    let envs = ENVIRONMENT.map(|(name, value)| (name, value.to_string()));
    let status = Command::new(env::current_exe().unwrap()).arg("starving").args(urls).envs(envs).status().unwrap();
    process::exit(status.code().unwrap_or(1));
}

/// `starving URL…`: acquires a lock twice without space for a thread, and once with space. It prints a line for each of
/// these. In between, there is space for only a few threads.
pub(crate) fn starving(urls: &[String]) {
    let builder = Redlock::builder().nodes(urls).unavailable_after(Duration::ZERO);
    let locks = builder.build().unwrap();
    let before = getrlimit(Resource::As);
    limit(Rlimit { current: Some(used() + ROOM), ..before });
    thread::Builder::new().spawn(|| ()).expect_err("a thread has no room");
    tell(&lock_once(&locks));
    tell(&lock_once(&locks));
    for threads in 1..8 {
        limit(Rlimit { current: Some(used() + ROOM + threads * STACK), ..before });
        drop(lock_once(&locks));
    }
    limit(before);
    tell(&locks.mutex("a").unavailable_after(SOON).lock().and_then(redlock_sync::MutexGuard::unlock));
}

fn lock_once(locks: &Redlock) -> Result<(), Error> {
    locks.mutex("a").lock()?.unlock()
}

fn tell(result: &Result<(), Error>) {
    match result {
        Ok(()) => println!("ok"),
        Err(error) if error.is_unavailable() => println!("unavailable {error}"),
        Err(error) => println!("other {error}"),
    }
}

fn limit(to: Rlimit) {
    setrlimit(Resource::As, to).unwrap();
}

/// The address space that this process uses, in bytes.
fn used() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")).unwrap();
    size.trim().parse::<u64>().unwrap() * 1024
}
