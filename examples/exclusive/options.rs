//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::{Error, Parser, ValueExt};

pub(crate) const HELP: &str = "\
Runs a command while it holds a distributed lock.

usage: exclusive [options] KEY -- COMMAND [ARGUMENTS…]

  -n, --nonblock                do not wait when the lock is held by another process
  -w, --timeout SECONDS         wait for at most that long; fractions are allowed
  -E, --conflict-exit-code N    how to exit when the lock could not be had; default 1
      --lease SECONDS           how long the lock stays taken if this machine dies; default 30
      --on-lost WHAT            if the lock is lost while the command runs (default: term):
                                  term  send it SIGTERM, and 5 s later SIGKILL
                                  kill  send it SIGKILL
                                  tell  only say so
  -h, --help                    this text

The servers: REDIS_URL, or REDLOCK_NODES with several (comma separated) for a lock held by their majority.
The command finds REDLOCK_KEY and REDLOCK_FENCING_TOKEN in its environment.

exit codes:
  of the command, when it ran; 128 + N when signal N ended it
    1   the lock is held by another process (--nonblock, --timeout); see -E
   64   wrong usage
   66   the servers cannot be used as told: a wrong URL, a replica, a key that is something else
   69   too few servers could be reached; the command did not run
   71   the operating system refused something
   75   the lock was lost while the command ran, and it was ended (or, with tell, had its way)
  126   the command cannot be run
  127   the command was not found

If this process is killed with SIGKILL, the command goes on, and the lock ends with its lease.
";

/// What to do to the command when the lock is lost.
#[derive(Clone, Copy)]
pub(crate) enum OnLost {
    Term,
    Kill,
    Tell,
}

/// How long to wait for the lock.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    Forever,
    No,
    For(Duration),
}

pub(crate) struct Options {
    pub(crate) key: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) wait: Wait,
    pub(crate) conflict: u8,
    pub(crate) lease: Duration,
    pub(crate) on_lost: OnLost,
}

impl Options {
    /// Reads the command line; `None` when it asks for help.
    pub(crate) fn read() -> Result<Option<Self>, Error> {
        let mut parser = Parser::from_env();
        let (mut wait, mut conflict, mut on_lost) = (Wait::Forever, 1, OnLost::Term);
        let mut lease = Duration::from_secs(30);
        let key = loop {
            match parser.next()? {
                Some(Short('n') | Long("nonblock" | "nb")) => wait = Wait::No,
                Some(Short('w') | Long("timeout" | "wait")) => wait = Wait::For(seconds(&mut parser)?),
                Some(Short('E') | Long("conflict-exit-code")) => conflict = parser.value()?.parse()?,
                Some(Long("lease")) => lease = seconds(&mut parser)?,
                Some(Long("on-lost")) => on_lost = parser.value()?.parse_with(on_lost_from)?,
                Some(Short('h') | Long("help")) => return Ok(None),
                Some(Value(key)) => break key.string()?,
                Some(other) => return Err(other.unexpected()),
                None => return Err("KEY is missing".into()),
            }
        };
        let mut command: Vec<OsString> = parser.raw_args()?.collect();
        if command.first().is_some_and(|arg| arg == "--") {
            command.remove(0);
        }
        if command.is_empty() {
            return Err("COMMAND is missing".into());
        }
        Ok(Some(Self { key, command, wait, conflict, lease, on_lost }))
    }
}

fn seconds(parser: &mut Parser) -> Result<Duration, Error> {
    parser.value()?.parse_with(|text| {
        Duration::try_from_secs_f64(text.parse().map_err(|_| "not a number")?).map_err(|_| "out of range")
    })
}

fn on_lost_from(text: &str) -> Result<OnLost, &'static str> {
    match text {
        "term" => Ok(OnLost::Term),
        "kill" => Ok(OnLost::Kill),
        "tell" => Ok(OnLost::Tell),
        _ => Err("neither term, kill nor tell"),
    }
}
