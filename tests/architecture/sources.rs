//! The sources for the checks: each file with its text, its module, and the names that its items use, parsed once per run.
//!
//! Knows: which file is which module, which modules are tests, and how a name is resolved to a full path. Start reading at [`product`].

use super::syntax::{self, Module, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A source file and its contents.
pub struct Source {
    /// The path in the repository, such as `src/store/txn.rs`.
    pub path: String,
    pub text: String,
    /// The module of the file, such as `["store", "txn"]`; empty for `src/lib.rs`.
    pub module: Vec<String>,
    /// Whether the module or a parent is compiled for tests only.
    pub is_test: bool,
    pub parsed: syntax::Parsed,
    /// The full paths that its items name, without those of tests: `["crate", "store", "Txn"]`, `["std", "fs", "read"]`.
    pub names: Vec<Named>,
}

/// A full path and the line that names it.
pub struct Named {
    pub line: usize,
    pub path: Vec<String>,
    pub is_export: bool,
}

impl Source {
    /// Formats a place in the file as compilers do, with a text.
    pub fn locate(&self, line: usize, text: impl Display) -> String {
        format!("{}:{line}: {text}", self.path)
    }

    /// Whether the file's module is the named one, such as `apiserver/rules`, or is in it.
    pub fn is_in(&self, module: &str) -> bool {
        let mut own = self.module.iter();
        module.split('/').filter(|name| !name.is_empty()).all(|name| own.next().is_some_and(|part| part == name))
    }

    /// Returns the comment at the start of the file as one line.
    pub fn header(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

impl Named {
    /// Whether the path equals the prefix or is below it: `std::fs` includes `std::fs::read`.
    pub fn is_below(&self, prefix: &str) -> bool {
        let mut own = self.path.iter();
        prefix.split("::").all(|part| own.next().is_some_and(|name| name == part))
    }

    pub fn text(&self) -> String {
        self.path.join("::")
    }
}

/// Returns every file of `src`.
pub fn every_file() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let mut sources = parse_below("src");
        mark_tests(&mut sources);
        resolve(&mut sources);
        sources
    });
    &SOURCES
}

/// Returns the files of `src` that are not for tests only.
pub fn product() -> impl Iterator<Item = &'static Source> {
    every_file().iter().filter(|source| !source.is_test)
}

/// Returns every file of `tests`, whose names are not resolved.
pub fn tests() -> &'static [Source] {
    static TESTS: LazyLock<Vec<Source>> = LazyLock::new(|| parse_below("tests"));
    &TESTS
}

/// Returns the modules of the product.
pub fn modules() -> &'static BTreeSet<Vec<String>> {
    static MODULES: LazyLock<BTreeSet<Vec<String>>> =
        LazyLock::new(|| product().map(|source| source.module.clone()).collect());
    &MODULES
}

/// Whether a path, such as `crate::store::txn::Txn`, is a module, an item at its definition (not a re-export), or a variant of one.
pub fn is_defined(path: &str) -> bool {
    let parts: Vec<String> = path.split("::").skip(1).map(str::to_owned).collect();
    let Some((item, module)) = parts.split_last() else { return true };
    if let Some((parent, _)) = path.rsplit_once("::")
        && module.last().is_some_and(|name| name.starts_with(char::is_uppercase))
    {
        return is_defined(parent);
    }
    let defines = |source: &Source| source.module == module && source.parsed.modules[&Vec::new()].items.contains(item);
    modules().contains(&parts) || product().any(defines)
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "no sources in {}", folder.display());
    found
}

/// Parses the files below a folder on all processors, because `syn` needs a second or two without optimisation.
fn parse_below(folder: &str) -> Vec<Source> {
    let files = rust_files(&root().join(folder));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let parse = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let parsed = syntax::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let below = path.strip_prefix(root().join(folder)).unwrap().with_extension("");
        let mut module: Vec<String> = below.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        module.pop_if(|last| *last == "mod" || *last == "lib");
        let path = format!("{folder}/{}.rs", below.display());
        Source { path, text, module, is_test: false, parsed, names: Vec::new() }
    };
    let parse = &parse;
    std::thread::scope(|scope| {
        let parts: Vec<_> = files
            .chunks(files.len().div_ceil(threads))
            .map(|part| scope.spawn(move || part.iter().map(parse).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// Marks the files of modules that are declared below `#[cfg(test)]`, and the modules in these.
fn mark_tests(sources: &mut [Source]) {
    let declared: Vec<Vec<String>> = sources
        .iter()
        .flat_map(|source| {
            let names = source.parsed.test_modules.iter();
            names.map(|name| source.module.iter().chain([name]).cloned().collect())
        })
        .collect();
    for source in sources {
        source.is_test = declared.iter().any(|module| source.module.starts_with(module));
    }
}

/// The modules by their paths, including those within files.
type Tree<'a> = BTreeMap<Vec<String>, &'a Module>;

fn resolve(sources: &mut [Source]) {
    let mut tree = Tree::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        for (below, module) in &source.parsed.modules {
            tree.insert(source.module.iter().chain(below).cloned().collect(), module);
        }
    }
    let names: Vec<Vec<Named>> = sources
        .iter()
        .map(|source| {
            let product = source.parsed.written.iter().filter(|written| !source.is_test && !written.is_test);
            product.filter_map(|written| resolve_name(&tree, source, written)).collect()
        })
        .collect();
    for (source, names) in sources.iter_mut().zip(names) {
        source.names = names;
    }
}

fn resolve_name(tree: &Tree, source: &Source, written: &Written) -> Option<Named> {
    let module: Vec<String> = source.module.iter().chain(&written.module).cloned().collect();
    let path = full_path(tree, &module, &written.path, 0)?;
    Some(Named { line: written.line, path, is_export: written.is_export })
}

/// Maximum number of aliases and re-exports that are followed.
const DEPTH: usize = 8;

/// Returns the full path of a path in a module; `None` for a name of the module itself or of the prelude.
fn full_path(tree: &Tree, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let within = |base: &[String], rest: &[String]| {
        let path: Vec<String> = base.iter().chain(rest).cloned().collect();
        Some(follow_exports(tree, &path, depth))
    };
    match &**first {
        "crate" => within(&[], rest),
        "self" => within(module, rest),
        "super" => {
            let up = path.iter().take_while(|part| *part == "super").count();
            within(&module[..module.len().saturating_sub(up)], &path[up..])
        }
        // `::name`, which the parser represents like this.
        "" => Some(rest.to_vec()),
        _ if depth > DEPTH => None,
        _ => {
            let scope = tree.get(module)?;
            if let Some(import) = scope.imports.get(first).filter(|import| import[0] != *first) {
                let whole: Vec<String> = import.iter().chain(rest).cloned().collect();
                return full_path(tree, module, &whole, depth + 1);
            }
            if scope.imports.contains_key(first) {
                return Some(path.to_vec());
            }
            if tree.contains_key(&[module, &path[..1]].concat()) {
                return within(module, path);
            }
            if scope.items.contains(first) {
                return None;
            }
            let globs = scope.globs.iter().filter_map(|glob| full_path(tree, module, glob, depth + 1));
            for glob in globs.filter(|glob| glob.first().is_some_and(|first| first == "crate")) {
                let found = tree.get(&glob[1..]).filter(|found| found.imports.contains_key(first));
                if found.is_some() || tree.contains_key(&[&glob[1..], &path[..1]].concat()) {
                    return full_path(tree, &glob[1..], path, depth + 1);
                }
            }
            (path.len() > 1 || first.ends_with('!')).then(|| path.to_vec())
        }
    }
}

/// Returns the path below `crate` of an item, following `pub use`.
fn follow_exports(tree: &Tree, path: &[String], depth: usize) -> Vec<String> {
    let known = (0..=path.len()).rev().find(|length| tree.contains_key(&path[..*length])).unwrap_or(0);
    if depth <= DEPTH
        && let Some(item) = path.get(known)
        && let Some(import) = tree.get(&path[..known]).and_then(|module| module.imports.get(item))
    {
        let whole: Vec<String> = import.iter().chain(&path[known + 1..]).cloned().collect();
        if whole != path[known..]
            && let Some(found) = full_path(tree, &path[..known], &whole, depth + 1)
        {
            return found;
        }
    }
    std::iter::once("crate".to_owned()).chain(path.iter().cloned()).collect()
}
