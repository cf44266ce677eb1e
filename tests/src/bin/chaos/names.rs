//! The names of the locks. Similar names are used side by side: each is a lock of its own.
//!
//! Helper keys of the library are named by the key of the lock in braces. So names with braces, and names that end like
//! helper keys, could be confused with others. All of them are valid: `Error::Config` is for others.

/// The largest number for `--keys`.
pub(crate) const MOST: usize = 16;

const NAMES: [&str; MOST] = [
    "order",
    "{order}",
    "{order}:x",
    "order:queue",
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

/// The number of the first slow lock: one with leases that are longer than a calm. Nothing is kept from the clients for
/// as long as these last, so they are judged by what does not depend on that.
pub(crate) const SLOW: usize = MOST;
/// Their number. A killed holder keeps one of them from all others for long.
pub(crate) const SLOWS: usize = 32;
/// The first ones are those that many threads want.
pub(crate) const BUSY_SLOWS: usize = 4;

/// The numbers of the read-write locks, for readers and for writers.
pub(crate) const READ: usize = SLOW + SLOWS;
pub(crate) const WRITE: usize = READ + RW_LOCKS;
/// How many there are.
pub(crate) const RW_LOCKS: usize = 2;
/// The number of the first semaphore.
pub(crate) const PERMIT: usize = WRITE + RW_LOCKS;
/// The number of permits of each. Some clients use one permit less for the last one.
pub(crate) const PERMITS: [u32; 2] = [2, 3];
/// The number of all latches.
pub(crate) const LATCH: usize = PERMIT + PERMITS.len();
/// The number of all jobs that are run once, and that of the leaders.
pub(crate) const JOB: usize = LATCH + 1;
pub(crate) const LEADER: usize = JOB + 1;
/// The number of all multi-locks.
pub(crate) const SEVERAL: usize = LEADER + 1;
/// The number of the first of the mutexes that multi-locks take: fewer want these than the first locks, so that most
/// get them.
pub(crate) const ACCOUNT: usize = SEVERAL + 1;
/// How many there are.
pub(crate) const ACCOUNTS: usize = 4;

/// The number of the first lock that only one thread of a crowd wants.
pub(crate) const CROWD: usize = ACCOUNT + ACCOUNTS;

/// The name of this lock.
pub(crate) fn of(key: usize) -> String {
    match key {
        CROWD.. => format!("crowd{}", key - CROWD),
        ACCOUNT.. => format!("account{}", key - ACCOUNT),
        SEVERAL => "several".to_owned(),
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

/// The exclusive locks of a run.
pub(crate) fn exclusive(keys: usize) -> impl Iterator<Item = usize> {
    (0..keys).chain(ACCOUNT..CROWD)
}

/// All mutexes of a run.
pub(crate) fn all(keys: usize) -> impl Iterator<Item = usize> {
    exclusive(keys).chain(SLOW..READ)
}

/// True if the lock is one of the slow ones.
pub(crate) fn is_slow(key: usize) -> bool {
    (SLOW..READ).contains(&key)
}

/// The latch of a round.
pub(crate) fn latch(number: u64) -> String {
    format!("latch{number}")
}

/// The job of a round.
pub(crate) fn job(number: u64) -> String {
    format!("job{number}")
}

/// Names of locks that only one client process takes, once.
pub(crate) fn own(client: u8, life: u8, nth: usize) -> String {
    format!("own-{client}-{life}-{nth}")
}

/// True if the leases of the lock are short.
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
        assert!(is_short(&names[1]) && is_short(&own(1, 2, 0)) && !is_short("slow0") && !is_short("{order}:queue"));
        assert!(is_short(&job(7)) && !is_short("{job7}:done") && is_short(&of(LEADER)));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), MOST + SLOWS + ACCOUNTS);
    }
}
