//! The negative controls. Each file `tests/controls/NAME.patch` breaks the library in one way.
//!
//! The first line of a file says what is broken. The next lines say which guarantee is lost without the changed lines,
//! and what must notice it. The rest is the change, as `git diff` prints it:
//!
//! ```text
//! A release deletes the key, whichever token stands there.
//!
//! guarantee: A call of a former holder …        no other control is for this guarantee
//! chaos: --nodes 1 --faults pause,hold          options of the chaos run
//! checkers: overlap, store                      at least one must find a violation; `none`: no checker may find one
//! simulation: REDLOCK_SIM_NODES=1               settings of the simulation; one line for each run of it
//! violations: two holders, is taken away        the violation must contain at least one of these phrases
//!
//! --- a/redlock-sync/src/protocol/lua/release.lua
//! +++ b/redlock-sync/src/protocol/lua/release.lua
//! @@ -27,3 +27,2 @@
//! …
//! ```
//!
//! The old lines of a hunk must occur exactly once in the file. The line numbers are ignored. So a patch applies as
//! long as the lines that it changes stay the same.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// One way to break the library, and the checks that must notice it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The name of the file, without `.patch`.
    pub name: String,
    /// A sentence that says what is broken.
    pub about: String,
    /// The guarantee that is lost. Empty if nothing is broken.
    pub guarantee: String,
    /// The options of the chaos run that must notice the change. `None` if the control needs no chaos run.
    pub chaos: Option<Vec<String>>,
    /// The checkers of the chaos run. At least one of them must find a violation. If the list is empty, nothing is
    /// broken and no checker may find a violation.
    pub checkers: Vec<String>,
    /// The runs of the simulation that must notice the change. Each entry is a list of environment variables as in a
    /// shell.
    pub simulation: Vec<String>,
    /// Phrases. The violation that the simulation reports must contain at least one of them.
    pub violations: Vec<String>,
    /// The changes that break the library.
    pub changes: Vec<Change>,
}

/// The changes to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path of the file, relative to the workspace.
    pub path: String,
    hunks: Vec<Hunk>,
}

/// The old lines of a hunk, and the new lines that replace them. The lines keep their line ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hunk {
    old: Vec<String>,
    new: Vec<String>,
}

/// All controls, sorted by name.
pub fn all() -> Vec<Control> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("controls");
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("cannot read `{}`: {error}", folder.display()));
    let mut controls: Vec<Control> = files.map(|file| read(&file.unwrap().path())).collect();
    controls.sort_by(|a, b| a.name.cmp(&b.name));
    controls
}

fn read(path: &Path) -> Control {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".patch"));
    let name = name.unwrap_or_else(|| panic!("`{}` is no `NAME.patch`", path.display()));
    let text = fs::read_to_string(path).unwrap();
    Control::parse(name, &text).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))
}

impl Control {
    /// Parses the text of a control file.
    ///
    /// # Errors
    ///
    /// Returns a message if the file is malformed.
    pub fn parse(name: &str, text: &str) -> Result<Control, String> {
        // `git diff` prints these lines too. The parser needs none of them.
        let is_needed = |line: &&str| !line.starts_with("diff ") && !line.starts_with("index ");
        let text: String = text.split_inclusive('\n').filter(is_needed).collect();
        let (head, patch) = text.split_at(text.find("\n--- ").map_or(text.len(), |end| end + 1));
        let mut lines = head.lines().filter(|line| !line.is_empty());
        let about = lines.next().ok_or("it does not say what is broken")?.to_owned();
        let mut said: HashMap<&str, Vec<&str>> = HashMap::new();
        for line in lines {
            let (word, value) = line.split_once(": ").ok_or(format!("cannot read `{line}`"))?;
            said.entry(word).or_default().push(value);
        }
        let guarantee = one(&mut said, "guarantee")?.unwrap_or_default().to_owned();
        let chaos = one(&mut said, "chaos")?.map(|options| options.split_whitespace().map(str::to_owned).collect());
        let checkers = list(one(&mut said, "checkers")?);
        let simulation: Vec<String> = said.remove("simulation").into_iter().flatten().map(str::to_owned).collect();
        if let Some(line) = simulation.iter().find(|line| line.split(' ').any(|word| !word.contains('='))) {
            return Err(format!("`{line}` are no settings as `NAME=VALUE`"));
        }
        let violations = list(one(&mut said, "violations")?);
        if let Some(word) = said.keys().next() {
            return Err(format!("`{word}` is not known, or stands there twice"));
        }
        let is_whole = checkers == ["none"];
        let checkers = if is_whole { Vec::new() } else { checkers };
        let (name, changes) = (name.to_owned(), changes(patch)?);
        let control = Control { name, about, guarantee, chaos, checkers, simulation, violations, changes };
        control.checked(is_whole)
    }

    fn checked(self, is_whole: bool) -> Result<Control, String> {
        let problem = if is_whole != self.changes.is_empty() {
            "`checkers: none` belongs to a patch that changes nothing, and to no other"
        } else if self.guarantee.is_empty() != is_whole {
            "a patch names the guarantee that is lost without the lines that it changes"
        } else if self.chaos.is_some() != (is_whole || !self.checkers.is_empty()) {
            "a chaos run needs checkers, and they need a chaos run"
        } else if self.simulation.is_empty() != self.violations.is_empty() {
            "a simulation needs violations, and they need a simulation"
        } else if self.chaos.is_none() && self.simulation.is_empty() {
            "nothing must notice it"
        } else {
            return Ok(self);
        };
        Err(problem.to_owned())
    }

    /// True if the control breaks nothing. Then no checker may find a violation.
    pub fn is_whole(&self) -> bool {
        self.changes.is_empty()
    }
}

fn one<'a>(said: &mut HashMap<&str, Vec<&'a str>>, word: &str) -> Result<Option<&'a str>, String> {
    match said.remove(word).as_deref() {
        None => Ok(None),
        Some([value]) => Ok(Some(value)),
        Some(_) => Err(format!("`{word}` stands there twice")),
    }
}

fn list(value: Option<&str>) -> Vec<String> {
    value.into_iter().flat_map(|value| value.split(", ")).map(str::to_owned).collect()
}

fn changes(diff: &str) -> Result<Vec<Change>, String> {
    let mut changes: Vec<Change> = Vec::new();
    let mut lines = diff.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let path = line
            .strip_prefix("--- a/")
            .map(str::trim_end)
            .ok_or(format!("`{line}` where `--- a/FILE` should stand"))?;
        let to = lines.next().and_then(|line| line.strip_prefix("+++ b/")).map(str::trim_end);
        if to != Some(path) {
            return Err(format!("behind `--- a/{path}` is no `+++ b/{path}`"));
        }
        let mut hunks = Vec::new();
        while let Some(head) = lines.next_if(|line| line.starts_with("@@ ")) {
            let mut hunk = Hunk::default();
            while let Some(line) =
                lines.next_if(|line| line.starts_with([' ', '-', '+']) && !line.starts_with("--- a/"))
            {
                hunk.take(line);
            }
            hunks.push(hunk.checked(head)?);
        }
        changes.push(Change { path: path.to_owned(), hunks });
    }
    Ok(changes)
}

impl Hunk {
    fn take(&mut self, line: &str) {
        let (sign, line) = line.split_at(1);
        if sign != "+" {
            self.old.push(line.to_owned());
        }
        if sign != "-" {
            self.new.push(line.to_owned());
        }
    }

    /// Checks that the hunk has as many lines as its head says. `git apply` would reject it otherwise.
    fn checked(self, head: &str) -> Result<Hunk, String> {
        // An example is `-12,3 +12,2`. A span without a count has one line.
        let count = |span: &str| span.split_once(',').map_or(Ok(1), |(_, count)| count.parse()).unwrap_or(0);
        let lines: Vec<usize> = head.split_whitespace().skip(1).take(2).map(count).collect();
        if lines == [self.old.len(), self.new.len()] && self.old != self.new {
            return Ok(self);
        }
        Err(format!("`{}` is no head of {} lines that become {}", head.trim_end(), self.old.len(), self.new.len()))
    }
}

impl Change {
    /// Returns the text of the file after this change.
    ///
    /// # Errors
    ///
    /// Returns a message if the old lines of a hunk do not occur exactly once in the file.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        for Hunk { old, new } in &self.hunks {
            let stands_at = |at: &usize| lines.get(*at..at + old.len()).is_some_and(|there| there == old.as_slice());
            let places: Vec<usize> = (0..lines.len()).filter(stands_at).collect();
            let [at] = places[..] else {
                return Err(format!("{} has these lines {} times:\n{}", self.path, places.len(), old.concat()));
            };
            lines.splice(at..at + old.len(), new.iter().map(String::as_str));
        }
        Ok(lines.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "It is broken.\n\nguarantee: It works.\nchaos: --nodes 3 --faults a,b\ncheckers: x, y\nsimulation: A=1 B=2\nsimulation: A=3\nviolations: lost it, z\n\n";
    const PATCH: &str = "--- a/f.rs\n+++ b/f.rs\n@@ -1,3 +1,2 @@ fn\n a\n-b\n c\n@@ -9 +8,2 @@\n-d\n+e\n+f\n--- a/g.rs\n+++ b/g.rs\n@@ -1,1 +1,1 @@\n-a\n+b\n";

    fn parse(head: &str, patch: &str) -> Result<Control, String> {
        Control::parse("c", &format!("{head}{patch}"))
    }

    #[test]
    fn a_file_is_read() {
        let control = parse(HEAD, PATCH).unwrap();
        assert_eq!((control.name.as_str(), control.about.as_str()), ("c", "It is broken."));
        assert_eq!(control.chaos.unwrap(), ["--nodes", "3", "--faults", "a,b"]);
        assert_eq!((control.checkers.join("|"), control.violations.join("|")), ("x|y".into(), "lost it|z".into()));
        assert_eq!(control.simulation, ["A=1 B=2", "A=3"]);
        let as_printed = PATCH.replace("--- a", "diff --git a/f b/f\nindex 1..2 100644\n--- a");
        assert_eq!(parse(HEAD, &as_printed).unwrap().changes, control.changes);
        let paths: Vec<&str> = control.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["f.rs", "g.rs"]);
    }

    #[test]
    fn a_file_that_is_wrong_is_refused() {
        for (head, patch) in [
            (HEAD.replace("chaos", "chaso"), PATCH.to_owned()),
            (HEAD.replace("guarantee: It works.\n", ""), PATCH.to_owned()),
            (HEAD.replace("checkers: x, y\n", ""), PATCH.to_owned()),
            (HEAD.replace("violations: lost it, z\n", ""), PATCH.to_owned()),
            (HEAD.replace("checkers: x, y", "checkers: none"), PATCH.to_owned()),
            (HEAD.to_owned(), String::new()),
            (HEAD.to_owned(), PATCH.replace("-1,3", "-1,4")),
            (HEAD.to_owned(), PATCH.replace("+++ b/g", "+++ b/h")),
            (HEAD.to_owned(), PATCH.replace("+e\n", "+e\n\n")),
            ("It is broken.\n\n".to_owned(), PATCH.to_owned()),
        ] {
            parse(&head, &patch).unwrap_err();
        }
        assert!(parse("It is whole.\n\nchaos: --nodes 3\ncheckers: none\n", "").unwrap().is_whole());
    }

    #[test]
    fn each_patch_applies_to_the_code() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let applied = all().into_iter().flat_map(|control| control.changes).map(|change| {
            change.apply(&fs::read_to_string(workspace.join(&change.path)).map_err(|error| error.to_string())?)
        });
        let wrong: Vec<String> = applied.filter_map(Result::err).collect();
        assert!(wrong.is_empty(), "adapt these patches in tests/controls:\n{}", wrong.join("\n"));
    }

    /// A second control for the same guarantee would cost time and show nothing else.
    #[test]
    fn each_control_has_a_guarantee_of_its_own() {
        let mut guarantees: Vec<String> = all().into_iter().map(|control| control.guarantee).collect();
        guarantees.sort_unstable();
        assert_eq!(guarantees.windows(2).find(|pair| pair[0] == pair[1]), None);
    }

    #[test]
    fn a_hunk_applies_where_its_lines_stand_once() {
        let change = &parse(HEAD, PATCH).unwrap().changes[0];
        assert_eq!(change.apply("0\na\nb\nc\n1\nd\n"), Ok("0\na\nc\n1\ne\nf\n".to_owned()));
        for other in ["0\na\nb\nb\nc\nd\n", "a\nb\nc\na\nb\nc\nd\n", "a\nb\nc\n", "a\nb\nc\nxd\n", "a\nb\nc\nd\nd\n"] {
            change.apply(other).unwrap_err();
        }
    }
}
