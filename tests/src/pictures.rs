//! The code that the program `pictures` shares with its test: paths, the data of a picture, and its digest.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the pictures, relative to the workspace.
pub const IMAGES: &str = "docs/images";
/// The source folder of the program that draws the pictures.
const PROGRAM: &str = "tests/src/bin/pictures";

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace")
}

/// The numbers from which a picture is drawn. Each line of the file is a name and its values.
#[derive(Debug, Default)]
pub struct Data(BTreeMap<String, Vec<f64>>);

impl Data {
    /// Reads the data of this picture. Returns `None` if there is no file.
    pub fn read(picture: &str) -> Option<Self> {
        let text = fs::read_to_string(path(picture)).ok()?;
        let line = |line: &str| {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            (name, words.map(|word| word.parse().expect("a number")).collect())
        };
        Some(Self(text.lines().map(line).collect()))
    }

    /// Writes the data to the file of this picture.
    pub fn write(&self, picture: &str) {
        fs::write(path(picture), self.text()).expect("docs/images/data can be written");
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, values) in &self.0 {
            text.push_str(name);
            for value in values {
                write!(text, " {value}").expect("a string takes everything");
            }
            text.push('\n');
        }
        text
    }

    /// Adds a value to this name.
    pub fn add(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_owned()).or_default().push(value);
    }

    /// All values of this name.
    pub fn all(&self, name: &str) -> &[f64] {
        self.0.get(name).unwrap_or_else(|| panic!("no data `{name}`"))
    }

    /// The only value of this name.
    pub fn one(&self, name: &str) -> f64 {
        let [value] = self.all(name) else { panic!("several values of `{name}`") };
        *value
    }
}

fn path(picture: &str) -> PathBuf {
    root().join(IMAGES).join("data").join(format!("{picture}.txt"))
}

/// Hashes the source files of the program and the data of the picture. The result is sixteen hexadecimal digits.
pub fn digest(picture: &str) -> String {
    let entries = fs::read_dir(root().join(PROGRAM)).expect("the program is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    files.sort();
    files.push(path(picture));
    let mut hash = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a
    for file in files {
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for byte in text {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}
