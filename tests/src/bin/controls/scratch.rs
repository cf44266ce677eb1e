//! A copy of the workspace below the target directory, with at most one patch applied.
//!
//! The copy and its build output are kept between controls and between runs. Only files that differ are written, so
//! little must be built again.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use redlock_tests::control::Control;
use redlock_tests::find::target_dir;

pub(crate) struct Scratch {
    original: PathBuf,
    /// The target directory of the workspace. It may be inside the workspace.
    original_target: PathBuf,
    /// The target directory of the copy. It is a separate one, so that no build of a broken library replaces one of the
    /// workspace.
    target: PathBuf,
    copy: PathBuf,
    /// The folder of the programs that are to be run.
    programs: PathBuf,
    /// The folder of the broken scripts. The simulation reads them when it runs, so they need no build.
    scripts: PathBuf,
}

/// The part of a control that is applied to the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// The changes of code only. The simulation reads changed scripts from another folder.
    Code,
}

impl Scratch {
    /// Creates the copy with this number, or uses the existing one.
    pub(crate) fn new(lane: usize) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let original = tests.parent().expect("the tests crate lies in a workspace").to_owned();
        let original_target = target_dir();
        let lane = original_target.join("broken").join(lane.to_string());
        let [target, copy, programs, scripts] = ["target", "copy", "programs", "scripts"].map(|name| lane.join(name));
        let scratch = Self { original, original_target, target, copy, programs, scripts };
        scratch.borrow_dependencies();
        scratch
    }

    /// Copies what the workspace has built of other crates for this profile, so that it need not be built again. A
    /// failure is no error.
    fn borrow_dependencies(&self) {
        let built = self.original_target.join("controls");
        if built.exists() && !self.target.join("controls").exists() && fs::create_dir_all(&self.target).is_ok() {
            drop(output(Command::new("cp").arg("-a").arg(built).arg(&self.target)));
        }
    }

    /// Makes the copy equal to the workspace with the changes of this control.
    pub(crate) fn apply(&self, control: &Control, part: Part) -> Result<(), String> {
        let mut changed = HashMap::new();
        for change in &control.changes {
            let original = fs::read_to_string(self.original.join(&change.path));
            let original = original.map_err(|error| format!("`{}` cannot be read: {error}", change.path))?;
            changed.insert(PathBuf::from(&change.path), change.apply(&original)?.into_bytes());
        }
        let scripts: HashMap<_, _> = changed.extract_if(|path, _| part == Part::Code && is_script(path)).collect();
        self.write_scripts(&scripts)
            .and_then(|()| self.mirror(Path::new(""), &changed))
            .map_err(|error| format!("the copy of the workspace cannot be made: {error}"))
    }

    fn write_scripts(&self, scripts: &HashMap<PathBuf, Vec<u8>>) -> io::Result<()> {
        if self.scripts.exists() {
            fs::remove_dir_all(&self.scripts)?;
        }
        fs::create_dir_all(&self.scripts)?;
        scripts
            .iter()
            .try_for_each(|(path, text)| fs::write(self.scripts.join(path.file_name().unwrap_or_default()), text))
    }

    /// Makes a folder of the copy equal to that of the workspace, except for the changed files. Hidden files and build
    /// output are left out.
    fn mirror(&self, folder: &Path, changed: &HashMap<PathBuf, Vec<u8>>) -> io::Result<()> {
        fs::create_dir_all(self.copy.join(folder))?;
        for path in paths(&self.copy, folder)?.iter().filter(|path| !self.original.join(path).exists()) {
            let gone = self.copy.join(path);
            if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) }?;
        }
        for path in paths(&self.original, folder)? {
            let (from, to) = (self.original.join(&path), self.copy.join(&path));
            if from.is_dir() {
                if from != self.original_target {
                    self.mirror(&path, changed)?;
                }
                continue;
            }
            let text = changed.get(&path).map_or_else(|| fs::read(&from), |text| Ok(text.clone()))?;
            if !fs::read(&to).is_ok_and(|old| old == text) {
                fs::write(to, text)?;
            }
        }
        Ok(())
    }

    /// Builds the program of the chaos run. Returns the path of a copy of it, which the next build does not replace.
    pub(crate) fn chaos(&self, name: &str) -> Result<PathBuf, String> {
        let words = ["build", "--package", "redlock-tests", "--no-default-features", "--bin", "chaos"];
        let output = output(&mut self.cargo(&words))?;
        if !output.status.success() {
            return Err(format!("it cannot be built: {}", text(&output.stderr)));
        }
        let program = self.programs.join(name);
        let copied =
            fs::create_dir_all(&self.programs).and_then(|()| fs::copy(self.target.join("controls/chaos"), &program));
        copied.map_err(|error| format!("the program cannot be copied: {error}"))?;
        Ok(program)
    }

    /// Builds the tests of the library, and runs the simulation with these settings.
    pub(crate) fn simulation(&self, settings: &str) -> Result<Output, String> {
        let words = ["test", "--package", "redlock-sync", "--lib", "simulation::schedules::nothing_is_violated"];
        let settings = settings.split_whitespace().filter_map(|setting| setting.split_once('='));
        output(self.cargo(&words).envs(settings).env("REDLOCK_SIM_SCRIPTS", &self.scripts))
    }

    /// Returns a cargo command for the copy. It has a lower priority than the chaos run, because the checkers of the
    /// chaos run measure time.
    ///
    /// It builds without optimization. Most violations show in one of the first schedules, so a build takes longer than
    /// its run.
    fn cargo(&self, words: &[&str]) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new("nice");
        command.args(["-n", "5"]).arg(cargo).args(words).args(["--quiet", "--profile", "controls"]);
        command.current_dir(&self.copy).env("CARGO_TARGET_DIR", &self.target);
        command.env("CARGO_PROFILE_CONTROLS_OPT_LEVEL", "0");
        command
    }
}

/// True if the control changes only scripts.
pub(crate) fn is_of_scripts(control: &Control) -> bool {
    control.changes.iter().all(|change| is_script(Path::new(&change.path)))
}

fn is_script(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "lua")
}

pub(crate) fn output(command: &mut Command) -> Result<Output, String> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The paths in a folder, relative to `root`. Hidden files and build output are left out.
fn paths(root: &Path, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names = fs::read_dir(root.join(folder))?.map(|file| Ok(file?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let is_source = |name: &OsString| name != "target" && !name.as_encoded_bytes().starts_with(b".");
    Ok(names.into_iter().filter(is_source).map(|name| folder.join(name)).collect())
}
