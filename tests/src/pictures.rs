//! The data of pictures, which the program `numbers` draws and the chaos run writes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the pictures, relative to the workspace.
pub const IMAGES: &str = "docs/images";

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace")
}

/// The path of a file with kept data.
pub fn data(file: &str) -> PathBuf {
    root().join(IMAGES).join("data").join(file)
}

/// The numbers from which a picture is drawn. Each line of the file is a name and its values.
#[derive(Debug, Default)]
pub struct Data(BTreeMap<String, Vec<f64>>);

impl Data {
    /// Reads the data of this picture.
    pub fn read(picture: &str) -> Self {
        let path = data(&format!("{picture}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let line = |line: &str| {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            (name, words.map(|word| word.parse().expect("a number")).collect())
        };
        Self(text.lines().map(line).collect())
    }

    /// Writes the data to the file of this picture.
    pub fn write(&self, picture: &str) {
        fs::write(data(&format!("{picture}.txt")), self.text()).expect("docs/images/data can be written");
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
