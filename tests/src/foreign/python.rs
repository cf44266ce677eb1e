//! Python with its `redis` package.

use std::process::Command;

use super::fetch::fetched;

/// The package and the version that we are measured against.
const PACKAGE: &str = "redis==8.1.0";

/// Python with the package, about to run a script.
pub fn with_package(script: &str) -> Command {
    let folder = fetched(&format!("python-{PACKAGE}"), |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
        pip.args(["--only-binary", ":all:", "--target"]).arg(folder).arg(PACKAGE);
        pip
    });
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", folder).args(["-c", script]);
    python
}
