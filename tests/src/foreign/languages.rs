//! Fetches, builds and starts the programs, by language.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::fetch::{fetched, run};
use crate::find::target_dir;

/// Python with its packages.
pub mod python {
    use std::process::Command;

    use super::fetched;

    /// The packages and versions with which the library is compared.
    const PACKAGES: [&str; 2] = ["redis==8.1.0", "python-redis-lock==4.0.1"];

    /// A command that runs a script in Python with the packages for locks.
    pub fn with_packages(script: &str) -> Command {
        with(&PACKAGES, script)
    }

    pub(in crate::foreign) fn with(packages: &[&str], script: &str) -> Command {
        let folder = fetched(&format!("python-{}", packages.join("-")), |folder| {
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
            pip.args(["--only-binary", ":all:", "--target"]).arg(folder).args(packages);
            pip
        });
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", folder).args(["-c", script]);
        python
    }

    pub(in crate::foreign) fn locks(library: &str) -> Command {
        let mut python = with_packages(include_str!("locks.py"));
        python.arg(library);
        python
    }
}

/// The Node package that connects to servers.
pub(super) const IOREDIS: &str = "ioredis@5.11.1";
const COPY_DEPENDENCIES: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// A command that runs Node with a version of node-redlock.
pub(super) fn node(package: &str) -> Command {
    npm_packages(&[package, IOREDIS], include_str!("node_redlock.js"))
}

/// A command that runs a script in Node with these packages.
pub(super) fn npm_packages(packages: &[&str], script: &str) -> Command {
    let folder = fetched(&format!("node-{}", packages[0]), |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        npm.arg(folder).args(packages);
        npm
    });
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder.join("node_modules")).args(["-e", script, "--"]);
    node
}

/// A command that runs the program of this Rust library. It is a separate project, whose dependencies are not in our
/// `Cargo.lock`. The first call builds it.
pub(super) fn rust(library: &str) -> Command {
    let target = home().join(library);
    let manifest = project(&format!("{library}/Cargo.toml"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    run(cargo.arg("--target-dir").arg(&target));
    Command::new(target.join(format!("release/foreign-{library}")))
}

/// A command that runs the program of redsync, which is a separate Go module. The first call builds it.
pub(super) fn redsync() -> Command {
    let program = home().join("redsync");
    let mut go = Command::new("go");
    go.current_dir(project("redsync")).env("GOPATH", home().join("go")).env("GOCACHE", home().join("go-cache"));
    // This flag makes the files of modules writable, so that they can be deleted with the target directory.
    go.env("GOFLAGS", "-modcacherw").args(["build", "-o"]).arg(&program).arg(".");
    run(&mut go);
    Command::new(program)
}

/// A command that runs the program of Redisson. Java compiles the single file itself, and Maven fetches the packages.
pub(super) fn redisson() -> Command {
    let pom = project("redisson/pom.xml");
    let jars = fetched("redisson-3.52.0", |folder| {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", COPY_DEPENDENCIES, "--file"]).arg(&pom);
        let define = |name: &str, path: &Path| format!("-D{name}={}", path.display());
        maven.args([define("outputDirectory", folder), define("maven.repo.local", &home().join("maven"))]);
        maven
    });
    let mut java = Command::new("java");
    java.arg("-cp").arg(jars.join("*")).arg(project("redisson/Locks.java"));
    java
}

/// The folder for fetched packages and builds.
pub(super) fn home() -> PathBuf {
    target_dir().join("foreign")
}

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign").join(path)
}
