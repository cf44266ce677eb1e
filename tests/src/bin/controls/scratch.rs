//! A copy of the workspace below the target directory, with at most one patch applied.
//!
//! The copy and its build output are kept between controls and between runs. Only files that differ are written, so
//! little must be built again.
//!
//! A copy for the simulation has the library twice: whole, for the fixtures, and broken, as a package of its own. So
//! only one crate is built for each control.

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
    rig: Rig,
}

/// What a copy is built for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rig {
    /// The simulation of the package [`BROKEN`]. Only changes of code are applied.
    Simulation,
    /// The chaos run. All changes are applied to the library itself.
    Chaos,
}

/// The folder and the name of the broken library in a copy for the simulation.
const BROKEN: &str = "broken";
const LIBRARY: &str = "redlock-sync";

/// The manifests of a copy with a broken library.
struct Manifests {
    root: Vec<u8>,
    broken: Vec<u8>,
}

impl Scratch {
    /// Creates the copy of this name, or uses the existing one.
    pub(crate) fn new(name: &str, rig: Rig) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let original = tests.parent().expect("the tests crate lies in a workspace").to_owned();
        let original_target = target_dir();
        let lane = original_target.join("broken").join(name);
        let [target, copy, programs, scripts] = ["target", "copy", "programs", "scripts"].map(|name| lane.join(name));
        let scratch = Self { original, original_target, target, copy, programs, scripts, rig };
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
    pub(crate) fn apply(&self, control: &Control) -> Result<(), String> {
        let mut changed = HashMap::new();
        for change in &control.changes {
            let text = change.apply(&self.read(&change.path)?)?;
            changed.insert(PathBuf::from(&change.path), text.into_bytes());
        }
        let done = match self.rig {
            Rig::Simulation => {
                let scripts: HashMap<_, _> = changed.extract_if(|path, _| is_script(path)).collect();
                let manifests = self.manifests_with_broken()?;
                changed.extend([(Path::new(LIBRARY).join("Cargo.toml"), manifests.broken)]);
                self.write_scripts(&scripts)
                    .and_then(|()| {
                        self.mirror("".as_ref(), "".as_ref(), &[("Cargo.toml".into(), manifests.root)].into())
                    })
                    .and_then(|()| self.mirror(LIBRARY.as_ref(), BROKEN.as_ref(), &changed))
            }
            Rig::Chaos => self.mirror("".as_ref(), "".as_ref(), &changed),
        };
        done.map_err(|error| format!("the copy of the workspace cannot be made: {error}"))
    }

    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.original.join(path)).map_err(|error| format!("`{path}` cannot be read: {error}"))
    }

    fn manifests_with_broken(&self) -> Result<Manifests, String> {
        let root = self.read("Cargo.toml")?.replacen("members = [", &format!("members = [\"{BROKEN}\", "), 1);
        let broken = self.read(&format!("{LIBRARY}/Cargo.toml"))?;
        let broken = broken.replacen(&format!("name = \"{LIBRARY}\""), &format!("name = \"{BROKEN}\""), 1);
        let broken = format!("{broken}\n[lib]\nname = \"redlock_sync\"\n");
        Ok(Manifests { root: root.into_bytes(), broken: broken.into_bytes() })
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

    /// Makes the folder `to` of the copy equal to the folder `from` of the workspace, except for the changed files.
    /// Hidden files and build output are left out.
    fn mirror(&self, from: &Path, to: &Path, changed: &HashMap<PathBuf, Vec<u8>>) -> io::Result<()> {
        let (original, copy) = (self.original.join(from), self.copy.join(to));
        fs::create_dir_all(&copy)?;
        for name in names(&copy)?.iter().filter(|name| *name != BROKEN && !original.join(name).exists()) {
            let gone = copy.join(name);
            if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) }?;
        }
        for name in names(&original)? {
            let (source, target) = (original.join(&name), copy.join(&name));
            if source.is_dir() {
                if source != self.original_target {
                    self.mirror(&from.join(&name), &to.join(&name), changed)?;
                }
                continue;
            }
            let text = changed.get(&from.join(&name)).map_or_else(|| fs::read(&source), |text| Ok(text.clone()))?;
            if !fs::read(&target).is_ok_and(|old| old == text) {
                fs::write(target, text)?;
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

    /// Builds the tests of the broken library, and runs the simulation with these settings.
    pub(crate) fn simulation(&self, settings: &str) -> Result<Output, String> {
        let words = ["test", "--package", BROKEN, "--lib", "simulation::schedules::nothing_is_violated"];
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

/// The names in a folder. Hidden files and build output are left out.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(folder)?.map(|file| Ok(file?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let is_source = |name: &OsString| name != "target" && !name.as_encoded_bytes().starts_with(b".");
    Ok(names.into_iter().filter(is_source).collect())
}
