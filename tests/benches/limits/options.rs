//! The command line.

use crate::Outcome;

/// How to run.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    pub(crate) list: bool,
    pub(crate) only: Option<Vec<String>>,
}

pub(crate) const USAGE: &str = "\
cargo bench --bench limits -- [--quick] [--json] [--only ROW[,ROW]] [--list]
  --quick   shorter blocks: for trying, not for numbers
  --json    the table as one JSON object
  --only    these rows
  --list    names the rows";

impl Options {
    pub(crate) fn read(args: &[String]) -> Outcome<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => {} // cargo says so
                "--json" => options.json = true,
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                "--only" => {
                    let rows = args.next().ok_or("--only needs the names of rows")?;
                    options.only = Some(rows.split(',').map(str::to_owned).collect());
                }
                other => return Err(format!("no such option: `{other}`\n{USAGE}").into()),
            }
        }
        Ok(options)
    }
}
