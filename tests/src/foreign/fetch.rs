//! Fetches a package into the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Mutex, PoisonError};

use super::languages::home;

/// The lock that allows only one fetch at a time. Tests of one process would otherwise write to the same folder, and to
/// the cache of an installer.
static FETCHING: Mutex<()> = Mutex::new(());

/// The folder with this name. The installer fills it, unless an earlier run has filled it.
///
/// The folder appears by a rename, so an incomplete package is never visible. If two processes fetch it at the same
/// time, the first rename wins.
pub(super) fn fetched(name: &str, installer: impl FnOnce(&Path) -> Command) -> PathBuf {
    let _alone = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = home().join(name);
    if folder.is_dir() {
        return folder;
    }
    let scratch = home().join(format!("fetching-{}-{name}", process::id()));
    fs::create_dir_all(&scratch).unwrap_or_else(|error| panic!("cannot write {}: {error}", scratch.display()));
    run(&mut installer(&scratch));
    if fs::rename(&scratch, &folder).is_err() {
        _ = fs::remove_dir_all(&scratch);
    }
    assert!(folder.is_dir(), "cannot put {name} into {}", folder.display());
    folder
}

/// Runs a command that must succeed.
pub(super) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}");
}
