//! The events that a client logs. Each event is one line with its time on the common clock.
//!
//! The format is `AT SESSION KEY WHAT …`. A session is one acquire of a lock, or one call for a task, and all calls that
//! belong to it.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

/// The id of a session: the client, its life, the thread, and a number. A client that is started again has a new life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Session {
    pub(crate) client: u8,
    pub(crate) life: u8,
    pub(crate) thread: u16,
    pub(crate) number: u32,
}

/// The number of the first thread that uses the other kinds of lock.
pub(crate) const KINDS: u16 = 900;
/// The first thread number of the sessions that stand for single keys of multi-locks.
const PARTS: u16 = 910;
/// The largest number of keys of a multi-lock.
const MOST_PARTS: u16 = 8;

impl Session {
    /// The session of the nth key of a multi-lock that this session acquired.
    pub(crate) fn part(self, nth: usize) -> Session {
        let nth = u16::try_from(nth).expect("few keys");
        Session { thread: PARTS + (self.thread - KINDS) * MOST_PARTS + nth, ..self }
    }

    /// The session of the multi-lock, if this session stands for one of its keys.
    pub(crate) fn whole(self) -> Option<Session> {
        let at = self.thread.checked_sub(PARTS)?;
        Some(Session { thread: KINDS + at / MOST_PARTS, ..self })
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}.{}.{}", self.client, self.life, self.thread, self.number)
    }
}

impl FromStr for Session {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no session");
        let mut parts = text.strip_prefix('c').ok_or_else(bad)?.split('.');
        let mut part = || parts.next().and_then(|part| part.parse::<u32>().ok()).ok_or_else(bad);
        let mut small = || part().and_then(|n| u8::try_from(n).map_err(|_| bad()));
        let (client, life) = (small()?, small()?);
        let thread = part().and_then(|n| u16::try_from(n).map_err(|_| bad()))?;
        Ok(Self { client, life, thread, number: part()? })
    }
}

/// The token of a hold that has no guard, so that the client cannot ask for the token.
pub(crate) const UNKNOWN: &str = "-";

/// Defines an enum with a word for each value.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($value:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum $name { $($value),+ }

        impl $name {
            #[allow(dead_code, reason = "few of them are listed")]
            pub(crate) const ALL: &[Self] = &[$(Self::$value),+];

            #[allow(dead_code, reason = "some are read only")]
            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word { $($word => Ok(Self::$value),)+ _ => Err(format!("unknown word `{word}`")) }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// A call of the library.
    Op {
        Lock = "lock", TryLock = "try_lock", TryLockFor = "try_lock_for", Nested = "nested", Unlock = "unlock", Extend = "extend",
        Fence = "fence", Attribute = "attribute", Drop = "drop", Arrive = "arrive", Look = "look", Await = "await", Once = "once",
        Lead = "lead", Resign = "resign", Claim = "claim", Ack = "ack", Retry = "retry", Fail = "fail",
    }
}

words! {
    /// How a call ended.
    Outcome {
        Ok = "ok", Busy = "busy", Unavailable = "unavailable", Lost = "lost", Unconfirmed = "unconfirmed", Config = "config",
        Deadlock = "deadlock", WrongType = "wrong_type", Closed = "closed", Skipped = "skipped", Other = "other",
    }
}

/// The settings of an acquire. Times are in ns, and `u64::MAX` means without a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) lease: u64,
    /// The largest number of renewals. It is zero with `renew(false)`.
    pub(crate) renewals: u64,
    pub(crate) max_hold: u64,
    pub(crate) min_hold: u64,
}

impl Wants {
    /// Settings with a lease that is renewed as long as its guard exists.
    pub(crate) const fn plain(lease: u64) -> Self {
        Self { lease, renewals: u64::MAX, max_hold: u64::MAX, min_hold: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// The settings of the next acquire.
    Wants(Wants),
    /// A call begins. Its time limit is in ns, and `u64::MAX` means without a limit.
    Call {
        op: Op,
        limit: u64,
    },
    Return {
        op: Op,
        outcome: Outcome,
    },
    /// A call has acquired the lock under this token. The event has the time at which the call returned.
    Held {
        token: String,
    },
    /// The slots of a semaphore that the session holds. Each slot is one bit.
    Slots {
        slots: u64,
    },
    /// A call of `check()` began at this time. The library states until when it claims the lock, or that the lock is
    /// lost.
    Check {
        until: Option<u64>,
    },
    /// The number that `fencing_token()` returned.
    Number {
        fence: u64,
    },
    /// A worker is about to arrive at a latch.
    Arrives {
        latch: u64,
        worker: u8,
    },
    /// A call that began at the time `from` reported that a latch was open or closed.
    Saw {
        latch: u64,
        from: u64,
        is_open: bool,
    },
    /// A call for this job returned `Ran`.
    Ran {
        job: u64,
    },
    /// A push of a task that began at the time `from` has ended. A fresh task is due at once and was not queued before.
    Pushed {
        task: u64,
        from: u64,
        is_fresh: bool,
    },
    /// A call that began at the time `from` has claimed a task.
    Claimed {
        task: u64,
        fence: u64,
        attempt: u64,
        from: u64,
    },
    /// The library called the `on_lost` handler.
    Told,
    /// The gauge of a client acquired and released its lock.
    Beat,
    /// The process, or the whole machine, did not run from this time until now.
    Stalled {
        from: u64,
    },
    /// The number of threads and open files of the process.
    Uses {
        phase: Phase,
        threads: u64,
        files: u64,
    },
}

words! {
    /// The time at which a client counts its threads and files: before it has created anything, or after it has dropped
    /// everything.
    Phase { Before = "before", After = "after" }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) session: Session,
    pub(crate) key: usize,
    pub(crate) what: What,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.at, self.session, self.key)?;
        match &self.what {
            What::Wants(Wants { lease, renewals, max_hold, min_hold }) => {
                write!(f, "wants {lease} {renewals} {max_hold} {min_hold}")
            }
            What::Call { op, limit } => write!(f, "call {} {limit}", op.word()),
            What::Return { op, outcome } => write!(f, "return {} {}", op.word(), outcome.word()),
            What::Held { token } => write!(f, "held {token}"),
            What::Check { until: Some(until) } => write!(f, "check ok {until}"),
            What::Check { until: None } => write!(f, "check lost"),
            What::Number { fence } => write!(f, "number {fence}"),
            What::Slots { slots } => write!(f, "slots {slots}"),
            What::Arrives { latch, worker } => write!(f, "arrives {latch} {worker}"),
            What::Saw { latch, from, is_open } => write!(f, "saw {latch} {from} {is_open}"),
            What::Ran { job } => write!(f, "ran {job}"),
            What::Pushed { task, from, is_fresh } => write!(f, "pushed {task} {from} {is_fresh}"),
            What::Claimed { task, fence, attempt, from } => write!(f, "claimed {task} {fence} {attempt} {from}"),
            What::Told => write!(f, "told"),
            What::Beat => write!(f, "beat"),
            What::Stalled { from } => write!(f, "stalled {from}"),
            What::Uses { phase, threads, files } => write!(f, "uses {} {threads} {files}", phase.word()),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words = &mut line.split_whitespace();
        let (at, session, key) = (next(words)?, next(words)?, next(words)?);
        let word: String = next(words)?;
        let what = match word.as_str() {
            "wants" => What::Wants(Wants {
                lease: next(words)?,
                renewals: next(words)?,
                max_hold: next(words)?,
                min_hold: next(words)?,
            }),
            "call" => What::Call { op: next(words)?, limit: next(words)? },
            "return" => What::Return { op: next(words)?, outcome: next(words)? },
            "held" => What::Held { token: next(words)? },
            "check" => {
                let said: String = next(words)?;
                What::Check { until: if said == "ok" { Some(next(words)?) } else { None } }
            }
            "number" => What::Number { fence: next(words)? },
            "arrives" => What::Arrives { latch: next(words)?, worker: next(words)? },
            "saw" => What::Saw { latch: next(words)?, from: next(words)?, is_open: next(words)? },
            "slots" => What::Slots { slots: next(words)? },
            "ran" => What::Ran { job: next(words)? },
            "pushed" => What::Pushed { task: next(words)?, from: next(words)?, is_fresh: next(words)? },
            "claimed" => {
                What::Claimed { task: next(words)?, fence: next(words)?, attempt: next(words)?, from: next(words)? }
            }
            "told" => What::Told,
            "beat" => What::Beat,
            "stalled" => What::Stalled { from: next(words)? },
            "uses" => What::Uses { phase: next(words)?, threads: next(words)?, files: next(words)? },
            other => return Err(format!("unknown event `{other}`")),
        };
        Ok(Self { at, session, key, what })
    }
}

fn next<T: FromStr<Err: fmt::Display>>(words: &mut SplitWhitespace<'_>) -> Result<T, String> {
    let word = words.next().ok_or("the line is too short")?;
    word.parse().map_err(|error| format!("`{word}`: {error}"))
}

/// Parses the complete lines of a log. The last line may be cut off if its process was killed, so it is left out.
pub(crate) fn read(log: &str) -> Vec<Event> {
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole.lines().map(|line| line.parse().unwrap_or_else(|error| panic!("in `{line}`: {error}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let session = Session { client: 3, life: 1, thread: 2, number: 77 };
        let whats = [
            What::Wants(Wants { renewals: 2, ..Wants::plain(5) }),
            What::Call { op: Op::TryLockFor, limit: u64::MAX },
            What::Return { op: Op::Unlock, outcome: Outcome::Unconfirmed },
            What::Held { token: "ab:host:1:2".into() },
            What::Check { until: Some(9) },
            What::Check { until: None },
            What::Number { fence: 7 },
            What::Arrives { latch: 7, worker: 2 },
            What::Saw { latch: 7, from: 6, is_open: false },
            What::Slots { slots: 5 },
            What::Ran { job: 7 },
            What::Pushed { task: 7, from: 6, is_fresh: true },
            What::Claimed { task: 7, fence: 3, attempt: 2, from: 6 },
            What::Told,
            What::Beat,
            What::Stalled { from: 3 },
            What::Uses { phase: Phase::After, threads: 1, files: 9 },
        ];
        let events: Vec<Event> =
            whats.into_iter().zip(1..).map(|(what, at)| Event { at, session, key: 1, what }).collect();
        let log = events.iter().fold(String::new(), |log, event| log + &format!("{event}\n"));
        assert_eq!(read(&log), events);
        assert_eq!(read(&(log + "12 c3.1")), events);
    }

    #[test]
    fn a_part_knows_its_whole() {
        let session = |thread| Session { client: 3, life: 1, thread, number: 77 };
        for whole in [KINDS, KINDS + 1].map(session) {
            let parts: Vec<Session> = (0..usize::from(MOST_PARTS)).map(|nth| whole.part(nth)).collect();
            assert!(parts.iter().all(|part| part.whole() == Some(whole)), "{parts:?}");
        }
        assert_eq!(session(KINDS).whole(), None);
    }
}
