//! No files import each other in a circle. An import of a re-exported item counts as an import of the file that defines
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::layers::top_level;
use super::source::{Source, folder, library, package};

/// The files of a crate by module, as `node::host`. The crate's root has an empty name.
type Files = BTreeMap<String, File>;

#[derive(Default)]
struct File {
    /// The paths in this file, as written.
    names: Vec<String>,
    /// The paths that this file re-exports, by their new names.
    exports: BTreeMap<String, String>,
}

fn files(sources: Vec<Source>) -> Files {
    let module = |source: &Source| source.name.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let is_root = |module: &String| ["lib", "main"].contains(&module.as_str());
    sources.into_iter().map(|s| (Some(module(&s)).filter(|m| !is_root(m)).unwrap_or_default(), read(&s.code))).collect()
}

fn read(code: &str) -> File {
    let mut file = File::default();
    for statement in format!(" {}", code.replace('\n', " ")).split(';') {
        let (before, tree) = statement.rsplit_once(" use ").unwrap_or((statement, ""));
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let named = before.split(|c| !is_part(c)).filter(|word| word.contains("::"));
        file.names.extend(named.map(str::to_owned));
        let is_export = before.ends_with("pub") || before.ends_with(')');
        for path in leaves(tree) {
            let (path, name) = path.split_once(" as ").unwrap_or((&path, path.rsplit("::").next().unwrap()));
            let path = path.trim_end_matches("::self").to_owned();
            if is_export {
                file.exports.insert(name.to_owned(), path);
            } else {
                file.names.push(path);
            }
        }
    }
    file
}

/// The paths of a `use` declaration, without braces.
fn leaves(tree: &str) -> Vec<String> {
    match tree.split_once('{') {
        Some((head, list)) => top_level(list).flat_map(leaves).map(|leaf| format!("{}{leaf}", head.trim())).collect(),
        None => vec![tree.trim().to_owned()],
    }
}

/// The module that defines the item of a path, if it is one of these files.
fn target(files: &Files, from: &str, path: &str) -> Option<String> {
    let above = |module: &str| module.rsplit_once("::").map_or("", |(above, _)| above).to_owned();
    let below = |module: &str, name: &str| format!("{module}::{name}").trim_start_matches("::").to_owned();
    let mut names = path.split("::");
    let mut module = match names.next()? {
        "crate" => String::new(),
        "self" => from.to_owned(),
        "super" => above(from),
        first => Some(below(from, first)).filter(|module| files.contains_key(module))?,
    };
    for name in names {
        match below(&module, name) {
            _ if name == "super" => module = above(&module),
            inner if files.contains_key(&inner) => module = inner,
            _ => match files[&module].exports.get(name) {
                Some(path) => return target(files, &module, path),
                None => break,
            },
        }
    }
    Some(module)
}

/// The imports of each file, without those of its parents.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn imports(files: &Files) -> Imports {
    let is_other = |from: &str, to: &str| !format!("{from}::").starts_with(&format!("{to}::")) && !to.is_empty();
    let of = |(from, file): (&String, &File)| {
        let targets = file.names.iter().filter_map(|path| target(files, from, path));
        (from.clone(), targets.filter(|to| is_other(from, to)).collect())
    };
    files.iter().map(of).collect()
}

/// The files that these import, and those that they import in turn.
fn reached<'a>(imports: &'a Imports, from: impl IntoIterator<Item = &'a String>) -> BTreeSet<&'a String> {
    let (mut seen, mut next) = (BTreeSet::new(), Vec::from_iter(from));
    while let Some(file) = next.pop() {
        next.extend(imports[file].iter().filter(|file| seen.insert(*file)));
    }
    seen
}

/// The imports along circles: the importing file, and the imported one.
fn circles(files: &Files) -> Vec<String> {
    let imports = imports(files);
    let both = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let is_circle = |(from, to): &(&String, &String)| reached(&imports, [*to]).contains(*from);
    both.filter(is_circle).map(|(from, to)| format!("{from} from {to}")).collect()
}

/// The handles of locks. The core is what they import, so what a lock can go through from its begin to its end.
const LOCKS: [&str; 5] = ["lock::mutex", "lock::reentrant", "lock::rw_lock", "lock::semaphore", "lock::multi"];

/// What is built on locks or beside them. A reader of the core need not know it.
const RIM: [&str; 12] = [
    "queue",
    "latch",
    "once",
    "leader",
    "health",
    "client::listing",
    "client::snapshot",
    "node::memory",
    "acquire::claim",
    "protocol::task_queue",
    "protocol::latch_calls",
    "protocol::list",
];

#[test]
fn the_core_does_not_name_the_rim() {
    let imports = imports(&files(library()));
    let is_in = |file: &str, part: &str| format!("{file}::").starts_with(&format!("{part}::"));
    assert!(RIM.iter().chain(&LOCKS).all(|part| imports.keys().any(|file| is_in(file, part))), "a part has moved");
    let core = reached(&imports, imports.keys().filter(|file| LOCKS.contains(&file.as_str())));
    let is_rim = |file: &str| RIM.iter().any(|part| is_in(file, part));
    let found: Vec<String> = core
        .iter()
        .filter(|file| !is_rim(file))
        .flat_map(|file| imports[*file].iter().filter(|to| is_rim(to)).map(move |to| format!("{file} from {to}")))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
    let lines = |source: &Source| source.code.lines().filter(|line| !line.trim().is_empty()).count();
    let name = |source: &Source| source.name.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let all: Vec<_> = library().iter().map(|source| (name(source), lines(source))).collect();
    let is_core = |name: &String| core.contains(name) || LOCKS.contains(&name.as_str());
    let size: usize = all.iter().filter(|(name, _)| is_core(name)).map(|(_, lines)| lines).sum();
    let whole: usize = all.iter().map(|(_, lines)| lines).sum();
    println!("the core has {} files and {size} of {whole} lines of code", core.len());
}

#[test]
fn no_files_import_from_each_other() {
    let simulation = folder(Path::new("redlock-sync/simulation")).into_iter();
    let simulation = simulation.map(|source| Source { name: format!("simulation/{}", source.name), ..source });
    let crates = [library().into_iter().chain(simulation).collect(), package("redlock-macros"), package("redlock-cli")];
    let found: Vec<String> = crates.into_iter().map(files).flat_map(|files| circles(&files)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn circles_are_found() {
    let source = |(name, code): (&str, &str)| Source { name: name.into(), text: String::new(), code: code.into() };
    let found = |sources: &[(&str, &str)]| {
        let files = files(sources.iter().copied().map(source).collect());
        circles(&files)
    };
    let map = ("a/mod.rs", "mod b;\nmod c;\npub(crate) use self::b::{B, C as D};");
    assert_eq!(found(&[map, ("a/b.rs", "use super::c::E;"), ("a/c.rs", "use std::fmt;")]), [""; 0]);
    assert_eq!(
        found(&[map, ("a/b.rs", "use super::c;"), ("a/c.rs", "fn f() { crate::a::D }")]),
        ["a::b from a::c", "a::c from a::b"]
    );
    assert_eq!(found(&[map, ("a/b.rs", "use super::{c::{self, E}, F};"), ("a/c.rs", "use super::B;")]).len(), 2);
    assert_eq!(found(&[("a.rs", "mod b; fn f() { b::g() }"), ("a/b.rs", "use super::A;")]), [""; 0]);
}
