//! The command line.

use super::Outcome;

/// The options of a run.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) json: bool,
    pub(super) quick: bool,
    pub(super) list: bool,
    /// The names of the selected rows. If there is none, all rows are selected.
    pub(super) only: Vec<String>,
}

/// The help text.
pub(super) fn usage(bench: &str) -> String {
    format!(
        "cargo bench --bench {bench} -- [--quick] [--json] [--list] [--only] [ROW…]
  --quick   shorter blocks and no gates: for trying, not for numbers
  --json    the table as one JSON object
  --list    names the rows
  --only    may stand before the names of rows, which may be joined by commas"
    )
}

impl Options {
    pub(super) fn read(bench: &str, args: &[String]) -> Outcome<Self> {
        let mut options = Self::default();
        for arg in args {
            match arg.as_str() {
                "--bench" | "--only" => {} // cargo adds `--bench`
                "--json" => options.json = true,
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                other if other.starts_with('-') => {
                    return Err(format!("no such option: `{other}`\n{}", usage(bench)).into());
                }
                names => options.only.extend(names.split(',').map(str::to_owned)),
            }
        }
        Ok(options)
    }
}
