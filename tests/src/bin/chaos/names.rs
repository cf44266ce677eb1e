//! The names of the locks. Those that look alike are in use side by side: each is a lock of its own.
//!
//! Helper keys of the library stand beside a lock's own key, in braces; so names with braces, and names that end as helper keys do, are the
//! ones that could be confused. All of them are good names: `Error::Config` is for others.

/// As many as `--keys` can ask for.
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

/// The number of the first slow lock: one with leases that are longer than a calm. Nothing is kept from the clients for as long as these
/// last, so they are judged by what does not depend on that.
pub(crate) const SLOW: usize = MOST;
/// How many there are: a holder that is killed keeps one of them from all others for long.
pub(crate) const SLOWS: usize = 32;
/// The first of them are those that many want.
pub(crate) const BUSY_SLOWS: usize = 4;

/// The number of the first lock that only one thread of a crowd wants.
pub(crate) const CROWD: usize = SLOW + SLOWS;

/// The name of this lock.
pub(crate) fn of(key: usize) -> String {
    match key {
        CROWD.. => format!("crowd{}", key - CROWD),
        SLOW.. => format!("slow{}", key - SLOW),
        _ => NAMES[key].to_owned(),
    }
}

/// All locks of a run.
pub(crate) fn all(keys: usize) -> impl Iterator<Item = usize> {
    (0..keys).chain(SLOW..SLOW + SLOWS)
}

/// The lock is one of the slow ones.
pub(crate) fn is_slow(key: usize) -> bool {
    (SLOW..CROWD).contains(&key)
}

/// Each client process has locks of its own, which only it takes, once.
pub(crate) fn own(client: u8, life: u8, nth: usize) -> String {
    format!("own-{client}-{life}-{nth}")
}

/// The name is that of a lock whose leases are short.
pub(crate) fn is_short(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with("own-") || name.starts_with("crowd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lock_has_a_name() {
        let mut names: Vec<String> = all(MOST).map(of).collect();
        assert_eq!((names[1].as_str(), of(SLOW).as_str()), ("{order}", "slow0"));
        assert_eq!((of(CROWD).as_str(), is_slow(CROWD), is_slow(SLOW)), ("crowd0", false, true));
        assert!(is_short(&names[1]) && is_short(&own(1, 2, 0)) && !is_short("slow0") && !is_short("{order}:queue"));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), MOST + SLOWS);
    }
}
