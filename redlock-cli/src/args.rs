//! Parses the command line.

use std::ffi::OsString;
use std::time::Duration;
use std::{env, iter, vec};

use lexopt::Arg::{Long, Short, Value};
use lexopt::{Error, Parser, ValueExt};
use redlock_sync::__private::{duration, with_nodes_and_env};
use redlock_sync::{Builder, Redlock};

use crate::ending::{Failure, USAGE};

const VERSION: &str = concat!("redlock ", env!("CARGO_PKG_VERSION"), "\n");
/// The text of `--help` for each command, and without a command.
const HELP: [(&str, &str); 9] = [
    ("", include_str!("help/redlock.txt")),
    ("run", include_str!("help/run.txt")),
    ("inspect", include_str!("help/inspect.txt")),
    ("ls", include_str!("help/ls.txt")),
    ("release", include_str!("help/release.txt")),
    ("doctor", include_str!("help/doctor.txt")),
    ("top", include_str!("help/top.txt")),
    ("dash", include_str!("help/dash.txt")),
    ("queue", include_str!("help/queue.txt")),
];

pub(crate) struct Args {
    pub(crate) servers: Servers,
    pub(crate) command: Command,
    pub(crate) as_json: bool,
}

pub(crate) enum Command {
    /// Prints the help or the version.
    Say(&'static str),
    Run(Run),
    Inspect {
        key: String,
    },
    List {
        pattern: String,
    },
    Release {
        key: String,
        holder: String,
    },
    Doctor,
    /// `redlock doctor --try`
    Try,
    #[cfg_attr(not(feature = "top"), allow(dead_code, reason = "what it does is not built"))]
    Top(View),
    #[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "what it does is not built"))]
    Dash(Dash),
    Queue(Queue),
}

/// `redlock dash`
#[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "what it does is not built"))]
pub(crate) struct Dash {
    pub(crate) pattern: String,
    /// The address to listen on: host and port.
    pub(crate) listen: String,
    pub(crate) token_file: Option<String>,
    /// True if the page may release locks, and revive and remove dead tasks.
    pub(crate) allow_release: bool,
}

/// `redlock top`
#[cfg_attr(not(feature = "top"), allow(dead_code, reason = "what it does is not built"))]
pub(crate) struct View {
    pub(crate) pattern: String,
    /// The pause between two snapshots.
    pub(crate) every: Duration,
}

/// `redlock run`
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) key: String,
    /// The program with its arguments.
    pub(crate) program: Vec<OsString>,
    /// The longest wait; `None` waits without a limit.
    pub(crate) wait: Option<Duration>,
    /// The number of permits, if the key is that of a semaphore.
    pub(crate) semaphore: Option<u32>,
    pub(crate) lease: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) kill_after: Duration,
    pub(crate) fence: bool,
    /// True if the program runs once for this key.
    pub(crate) once: bool,
    /// For how long its success is remembered.
    pub(crate) remember: Option<Duration>,
}

impl Run {
    /// The same, unless options contradict each other.
    fn checked(mut self, no_wait: bool) -> Result<Run, Stop> {
        if no_wait && self.wait.is_some() {
            return Err("give either --wait or --no-wait".into());
        }
        if self.remember.is_some() && !self.once {
            return Err("--remember needs --once".into());
        }
        if self.once && !self.min_hold.is_zero() {
            return Err("--once has no --min-hold: --remember says for how long the program does not run again".into());
        }
        if self.semaphore.is_some() && (self.once || !self.min_hold.is_zero()) {
            return Err("--semaphore has neither --once nor --min-hold".into());
        }
        if no_wait {
            self.wait = Some(Duration::ZERO);
        }
        Ok(self)
    }
}

/// `redlock queue`
pub(crate) enum Queue {
    List,
    Peek {
        name: String,
        most: usize,
        due: bool,
    },
    Dead {
        name: String,
        most: usize,
    },
    Pause {
        name: String,
    },
    Resume {
        name: String,
    },
    /// Removes the tasks that no claimant has, or all dead tasks.
    Clear {
        name: String,
        dead: bool,
    },
    /// Revives the tasks with these ids, or all dead tasks if there are no ids.
    Revive {
        name: String,
        ids: Vec<String>,
    },
}

/// The URLs of `--node`.
#[derive(Default)]
pub(crate) struct Servers(Vec<String>);

impl Servers {
    /// Opens a client with the settings of the environment. `--node` replaces its servers.
    pub(crate) fn open(&self) -> Result<Redlock, Failure> {
        self.open_with(|builder| builder)
    }

    /// Like [`open`](Servers::open), with further settings.
    pub(crate) fn open_with(&self, set: impl FnOnce(Builder) -> Builder) -> Result<Redlock, Failure> {
        let is_set = |name| env::var_os(name).is_some_and(|urls| !urls.to_string_lossy().trim().is_empty());
        if self.0.is_empty() && !["REDLOCK_NODES", "REDIS_URL"].into_iter().any(is_set) {
            let how = "no server is given: add --node redis://127.0.0.1/ before the command, or set \
                       REDIS_URL=redis://127.0.0.1/";
            return Err(Failure::new(USAGE, how));
        }
        let builder = if self.0.is_empty() { Builder::from_env() } else { with_nodes_and_env(&self.0) };
        Ok(set(builder?).build()?)
    }
}

impl Args {
    pub(crate) fn read(args: impl Iterator<Item = OsString>) -> Result<Args, Failure> {
        let parser = Parser::from_args(args);
        let mut reader = Reader { parser, servers: Servers::default(), of: "", as_json: false };
        let command = match reader.command() {
            Ok(command) => command,
            Err(Stop::Say(text)) => Command::Say(text),
            Err(Stop::Wrong(error)) => {
                let space = if reader.of.is_empty() { "" } else { " " };
                return Err(Failure::new(USAGE, format!("{error}; see redlock{space}{} --help", reader.of)));
            }
        };
        Ok(Args { servers: reader.servers, command, as_json: reader.as_json })
    }
}

/// The reason why parsing of the command line ended.
enum Stop {
    /// The command line asks for the help or for the version.
    Say(&'static str),
    Wrong(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Wrong(error.into())
    }
}

/// The next argument. `--` itself is not returned. After it, every argument is a value.
enum Word {
    /// The option, with its hyphens.
    Option(String),
    Value(OsString),
    End,
}

struct Reader {
    parser: Parser,
    servers: Servers,
    /// The command whose arguments are parsed.
    of: &'static str,
    as_json: bool,
}

/// The commands that have `--json`.
const JSON: [&str; 4] = ["inspect", "ls", "doctor", "queue"];

impl Reader {
    fn command(&mut self) -> Result<Command, Stop> {
        let name = match self.next()? {
            Word::Value(name) => name.string()?,
            Word::Option(name) => return Err(unknown(&name)),
            Word::End => return Err("a command is missing".into()),
        };
        self.of = HELP.iter().map(|(of, _)| *of).find(|of| *of == name).unwrap_or_default();
        match self.of {
            "run" => self.run(),
            "inspect" => Ok(Command::Inspect { key: need(&mut self.only_values(1)?, "KEY")? }),
            "ls" => Ok(Command::List { pattern: self.only_values(1)?.next().unwrap_or_else(|| "*".to_owned()) }),
            "release" => self.release(),
            "doctor" => self.doctor(),
            "top" => self.top().map(Command::Top),
            "dash" => self.dash().map(Command::Dash),
            "queue" => self.queue().map(Command::Queue),
            _ => Err(format!("there is no command `{name}`").into()),
        }
    }

    /// The next argument. Options that every command has are handled here.
    fn next(&mut self) -> Result<Word, Stop> {
        loop {
            let name = match self.parser.next()? {
                None => return Ok(Word::End),
                Some(Value(value)) => return Ok(Word::Value(value)),
                Some(Long(name)) => format!("--{name}"),
                Some(Short(letter)) => format!("-{letter}"),
            };
            match name.as_str() {
                "--json" if JSON.contains(&self.of) => self.as_json = true,
                "--node" => self.servers.0.push(self.parser.value()?.string()?),
                "-h" | "--help" => return Err(Stop::Say(help(self.of))),
                "-V" | "--version" => return Err(Stop::Say(VERSION)),
                _ => return Ok(Word::Option(name)),
            }
        }
    }

    /// Returns the values. There may be at most `most`.
    fn only_values(&mut self, most: usize) -> Result<vec::IntoIter<String>, Stop> {
        self.values(most, &mut |_, _| Ok(false))
    }

    /// Returns the values. There may be at most `most`. `option` handles an option, and returns whether it knows the
    /// option.
    fn values(&mut self, most: usize, option: OnOption<'_>) -> Result<vec::IntoIter<String>, Stop> {
        let mut values = Vec::new();
        loop {
            match self.next()? {
                Word::Value(value) if values.len() < most => values.push(value.string()?),
                Word::Value(value) => return Err(format!("unexpected argument `{}`", value.display()).into()),
                Word::Option(name) if option(&name, &mut self.parser)? => {}
                Word::Option(name) => return Err(unknown(&name)),
                Word::End => return Ok(values.into_iter()),
            }
        }
    }

    fn run(&mut self) -> Result<Command, Stop> {
        let mut given = None;
        let mut no_wait = false;
        let mut run = Run { kill_after: Duration::from_secs(10), ..Run::default() };
        loop {
            match self.next()? {
                Word::Value(key) if given.is_none() => given = Some(key.string()?),
                Word::Value(program) => {
                    run.key = given.unwrap_or_default();
                    run.program = iter::once(program).chain(self.parser.raw_args()?).collect();
                    return run.checked(no_wait).map(Command::Run);
                }
                Word::Option(name) => match name.as_str() {
                    "--wait" => run.wait = Some(length(&mut self.parser)?),
                    "--no-wait" => no_wait = true,
                    "--semaphore" => run.semaphore = Some(self.parser.value()?.parse()?),
                    "--lease" => run.lease = Some(length(&mut self.parser)?),
                    "--min-hold" => run.min_hold = length(&mut self.parser)?,
                    "--kill-after" => run.kill_after = length(&mut self.parser)?,
                    "--fence" => run.fence = true,
                    "--once" => run.once = true,
                    "--remember" => run.remember = Some(length(&mut self.parser)?),
                    _ => return Err(unknown(&name)),
                },
                Word::End => {
                    return Err(if given.is_none() { "KEY is missing" } else { "PROGRAM is missing" }.into());
                }
            }
        }
    }

    fn doctor(&mut self) -> Result<Command, Stop> {
        let mut tries = false;
        self.values(0, &mut |name, _| {
            tries |= name == "--try";
            Ok(name == "--try")
        })?;
        Ok(if tries { Command::Try } else { Command::Doctor })
    }

    fn release(&mut self) -> Result<Command, Stop> {
        let mut holder = None;
        let mut values = self.values(1, &mut |name, parser| {
            let is_known = name == "--holder";
            if is_known {
                holder = Some(parser.value()?.string()?);
            }
            Ok(is_known)
        })?;
        let key = need(&mut values, "KEY")?;
        Ok(Command::Release { key, holder: holder.ok_or("--holder TOKEN is missing; `redlock inspect` shows it")? })
    }

    fn top(&mut self) -> Result<View, Stop> {
        let mut every = Duration::from_secs(2);
        let mut values = self.values(1, &mut |name, parser| {
            let is_known = name == "--every";
            if is_known {
                every = length(parser)?;
            }
            Ok(is_known)
        })?;
        if every < Duration::from_millis(100) {
            return Err("--every must be at least 100ms".into());
        }
        Ok(View { pattern: values.next().unwrap_or_else(|| "*".to_owned()), every })
    }

    fn dash(&mut self) -> Result<Dash, Stop> {
        let (pattern, listen) = ("*".to_owned(), "127.0.0.1:8900".to_owned());
        let mut dash = Dash { pattern, listen, token_file: None, allow_release: false };
        let mut values = self.values(1, &mut |name, parser| {
            match name {
                "--listen" => dash.listen = parser.value()?.string()?,
                "--token-file" => dash.token_file = Some(parser.value()?.string()?),
                "--allow-release" => dash.allow_release = true,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        dash.pattern = values.next().unwrap_or(dash.pattern);
        Ok(dash)
    }

    fn queue(&mut self) -> Result<Queue, Stop> {
        let (mut most, mut given) = (10, Vec::new());
        let mut values = self.values(usize::MAX, &mut |name, parser| {
            match name {
                "-n" => most = parser.value()?.parse()?,
                "--due" | "--all" | "--dead" => {}
                _ => return Ok(false),
            }
            given.push(name.to_owned());
            Ok(true)
        })?;
        let what = need(&mut values, "ls, peek, dead, revive, pause, resume or clear")?;
        if !["ls", "peek", "dead", "revive", "pause", "resume", "clear"].contains(&what.as_str()) {
            return Err(format!("there is no command `queue {what}`").into());
        }
        let has = |option: &str| given.iter().any(|given| given == option);
        if let Some(other) = options_of_others(&what).iter().find(|other| has(other)) {
            return Err(format!("`queue {what}` has no option `{other}`").into());
        }
        if what == "ls" {
            return nothing_more(values, Queue::List);
        }
        let name = need(&mut values, "NAME")?;
        match what.as_str() {
            "peek" => nothing_more(values, Queue::Peek { name, most, due: has("--due") }),
            "dead" => nothing_more(values, Queue::Dead { name, most }),
            "pause" => nothing_more(values, Queue::Pause { name }),
            "resume" => nothing_more(values, Queue::Resume { name }),
            "clear" => nothing_more(values, Queue::Clear { name, dead: has("--dead") }),
            "revive" if has("--all") == (values.len() > 0) => Err("give either the ids of dead tasks or --all".into()),
            _ => Ok(Queue::Revive { name, ids: values.collect() }),
        }
    }
}

/// The options of other `redlock queue` commands that this command does not have.
fn options_of_others(what: &str) -> &'static [&'static str] {
    match what {
        "peek" => &["--all", "--dead"],
        "dead" => &["--due", "--all", "--dead"],
        "revive" => &["-n", "--due", "--dead"],
        "clear" => &["-n", "--due", "--all"],
        _ => &["-n", "--due", "--all", "--dead"],
    }
}

type OnOption<'a> = &'a mut dyn FnMut(&str, &mut Parser) -> Result<bool, Error>;

fn unknown(name: &str) -> Stop {
    format!("there is no option `{name}`").into()
}

fn need(values: &mut vec::IntoIter<String>, what: &str) -> Result<String, Stop> {
    values.next().ok_or_else(|| format!("{what} is missing").into())
}

fn nothing_more(mut values: vec::IntoIter<String>, order: Queue) -> Result<Queue, Stop> {
    values.next().map_or(Ok(order), |more| Err(format!("unexpected argument `{more}`").into()))
}

fn length(parser: &mut Parser) -> Result<Duration, Error> {
    parser.value()?.parse_with(|text| duration(text).ok_or("write a length of time such as 30s, 250ms, 1h30m or 7d"))
}

fn help(of: &str) -> &'static str {
    HELP.iter().find(|(name, _)| *name == of).map_or("", |(_, text)| text)
}
