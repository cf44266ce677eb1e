//! The names of the locks. Similar names are used at the same time, and each one is a separate lock.
//!
//! The library names its helper keys with the key of the lock in braces. So a name with braces, or one that ends like a
//! helper key, could be confused with another name. All names here are valid. Other tests cover the names that
//! `Error::Config` rejects.

/// The largest value of `--keys`.
pub(crate) const MOST: usize = 16;

const NAMES: [&str; MOST] = [
    "order",
    "{order}",
    "{order}:x",
    "order:waits",
    "x{order}",
    "order:fence",
    "{order",
    "{{order}",
    "{order}:order",
    "{order:x}",
    "order:waiting",
    "{x}:order",
    "{order}}",
    "order:x",
    "{order}x",
    "ordér",
];

/// The number of the first slow lock. The leases of slow locks can outlast a calm. A killed client can keep such a lock
/// from the others that long, so no checker demands progress on slow locks.
pub(crate) const SLOW: usize = MOST;
/// The number of slow locks. There are many, because a killed client can keep one from all others for a long time.
pub(crate) const SLOWS: usize = 32;
/// The number of slow locks that many threads use. They are the first ones.
pub(crate) const BUSY_SLOWS: usize = 4;

/// The numbers of the first read-write lock: for its readers, and for its writers.
pub(crate) const READ: usize = SLOW + SLOWS;
pub(crate) const WRITE: usize = READ + RW_LOCKS;
/// The number of read-write locks.
pub(crate) const RW_LOCKS: usize = 2;
/// The number of the first semaphore.
pub(crate) const PERMIT: usize = WRITE + RW_LOCKS;
/// The number of permits of each semaphore. Some clients use one permit less for the last semaphore.
pub(crate) const PERMITS: [u32; 2] = [2, 3];
/// The number that stands for all latches.
pub(crate) const LATCH: usize = PERMIT + PERMITS.len();
/// The numbers that stand for all jobs that are run once, and for the leader.
pub(crate) const JOB: usize = LATCH + 1;
pub(crate) const LEADER: usize = JOB + 1;
/// The number of the queue of tasks.
pub(crate) const QUEUE: usize = LEADER + 1;
/// The number that stands for all multi-locks.
pub(crate) const SEVERAL: usize = QUEUE + 1;
/// The number of the first mutex that multi-locks acquire. Fewer threads contend for these mutexes than for the first
/// locks, so most multi-locks succeed.
pub(crate) const ACCOUNT: usize = SEVERAL + 1;
/// The number of mutexes that multi-locks acquire.
pub(crate) const ACCOUNTS: usize = 4;

/// The number of the first lock that only one thread of a crowd acquires.
pub(crate) const CROWD: usize = ACCOUNT + ACCOUNTS;

/// The name of the lock with this number.
pub(crate) fn of(key: usize) -> String {
    match key {
        CROWD.. => format!("crowd{}", key - CROWD),
        ACCOUNT.. => format!("account{}", key - ACCOUNT),
        SEVERAL => "several".to_owned(),
        QUEUE => "tasks".to_owned(),
        LEADER => "leader".to_owned(),
        JOB => "job".to_owned(),
        LATCH => "latch".to_owned(),
        PERMIT.. => format!("permits{}", key - PERMIT),
        WRITE.. => format!("rates{}", key - WRITE),
        READ.. => format!("rates{}", key - READ),
        SLOW.. => format!("slow{}", key - SLOW),
        _ => NAMES[key].to_owned(),
    }
}

/// The numbers of the exclusive locks with short leases.
pub(crate) fn exclusive(keys: usize) -> impl Iterator<Item = usize> {
    (0..keys).chain(ACCOUNT..CROWD)
}

/// The numbers of all mutexes of a run.
pub(crate) fn all(keys: usize) -> impl Iterator<Item = usize> {
    exclusive(keys).chain(SLOW..READ)
}

/// True if the lock is one of the slow ones.
pub(crate) fn is_slow(key: usize) -> bool {
    (SLOW..READ).contains(&key)
}

/// The name of the latch of a round.
pub(crate) fn latch(number: u64) -> String {
    format!("latch{number}")
}

/// The name of the job of a round.
pub(crate) fn job(number: u64) -> String {
    format!("job{number}")
}

/// The name of a lock that only one client process acquires, once.
pub(crate) fn own(client: u8, life: u8, nth: usize) -> String {
    format!("own-{client}-{life}-{nth}")
}

/// True if the lock has short leases.
pub(crate) fn is_short(name: &str) -> bool {
    NAMES.contains(&name)
        || ["own-", "crowd", "account", "permits", "rates", "job", "leader"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lock_has_a_name() {
        let mut names: Vec<String> = all(MOST).map(of).collect();
        assert_eq!((names[1].as_str(), of(SLOW).as_str()), ("{order}", "slow0"));
        assert_eq!((of(READ + 1), of(PERMIT)), ("rates1".to_owned(), "permits0".to_owned()));
        assert_eq!(of(READ + 1), of(WRITE + 1), "readers and writers want one lock");
        assert!(!is_slow(READ) && is_slow(READ - 1) && is_short(&of(WRITE)) && !is_short(&latch(7)));
        assert_eq!((of(CROWD).as_str(), is_slow(CROWD), is_slow(SLOW)), ("crowd0", false, true));
        assert!(is_short(&names[1]) && is_short(&own(1, 2, 0)) && !is_short("slow0") && !is_short("{order}:waits"));
        assert!(is_short(&job(7)) && !is_short("{job7}:done") && is_short(&of(LEADER)));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), MOST + SLOWS + ACCOUNTS);
    }
}
