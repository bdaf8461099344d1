//! `-f` and `-k`: reads manifests from files, folders, standard input and kustomizations, with
//! their positions.

use super::input;
use super::manifest_metadata::find_type_error;
use crate::cli::command_line::flags::LabelFlag;
use crate::cli::{CliResult, CommandContext, Failure, kustomize};
use crate::go::path_match::PathPattern;
use crate::kinds::{KindRegistry, custom_resource_definition as definition};
use crate::kustomize::BuildResource;
use crate::object::yaml::{self, DuplicateKey, YamlDocument};
use crate::object::{Object, Resource, Status, io_error_text, value_at_path};
use crate::runtime::allocator::use_mimalloc;
use clap::Args;
use serde_json::Value;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The largest file, in bytes. The API accepts 3 MiB per object, and a file may contain many
/// objects.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes of a file with enough objects for mimalloc to save more time than a command needs to start it.
const MANY_OBJECTS: usize = 64 * 1024;

/// `-f`, `-k`, `-R`.
#[derive(Args, Clone, Debug, Default)]
pub struct FileFlags {
    /// Filename or directory of files that contain the manifests, or - for standard input.
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',')]
    pub filenames: Vec<String>,
    /// Process the kustomization directory. This flag can't be used together with -f or -R.
    #[arg(short, long, value_name = "DIR", default_value = "", hide_default_value = true)]
    pub kustomize: String,
    /// Process the directory used in -f, --filename recursively. Useful when you want to manage related manifests organized
    /// within the same directory.
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

impl FileFlags {
    /// Whether manifests come from standard input.
    pub fn reads_stdin(&self) -> bool {
        self.filenames.iter().any(|name| name == "-")
    }

    /// Refuses a command without `-f` and `-k`.
    pub fn required(&self) -> CliResult {
        if self.is_empty() { Err(Failure::plain("must specify one of -f and -k")) } else { self.check() }
    }

    /// Whether neither `-f` nor `-k` is given.
    pub fn is_empty(&self) -> bool {
        self.filenames.is_empty() && self.kustomize.is_empty()
    }

    /// Whether files name the objects. Fails if arguments name objects, too.
    pub fn names_objects_instead_of(&self, words: &[String]) -> CliResult<bool> {
        if !self.is_empty() && !words.is_empty() {
            return Err(Failure::plain(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
            ));
        }
        Ok(!self.is_empty())
    }

    /// Refuses flags that exclude each other.
    fn check(&self) -> CliResult {
        match (self.kustomize.as_str(), self.filenames.is_empty(), self.recursive) {
            ("", ..) | (_, true, false) => Ok(()),
            (_, false, _) => Err(Failure::plain("only one of -f or -k can be specified")),
            (_, true, true) => Err(Failure::plain("the -k flag can't be used with -f or -R")),
        }
    }
}

/// One object of a file.
#[derive(Clone)]
pub struct Manifest {
    /// The object as written.
    pub object: Object,
    /// The file as the user named it; `STDIN` for standard input.
    pub source: String,
    /// The folder of the file, which relative images are relative to.
    pub folder: Option<PathBuf>,
    /// Line of the document in the file, from 1.
    pub line: usize,
    document: Rc<YamlDocument>,
    /// Path of the object in the document; empty unless it is an item of a List.
    path_prefix: String,
}

impl Manifest {
    /// An object from a kustomization, with its file.
    pub fn built(built: BuildResource) -> Manifest {
        let (object, origin) = (built.object, built.origin);
        Manifest {
            object,
            source: origin.shown.display().to_string(),
            folder: origin.at.parent().map(Path::to_owned),
            line: origin.line,
            document: origin.document,
            path_prefix: origin.path_prefix,
        }
    }

    /// The line of a field of the object.
    pub fn line_of(&self, path: &str) -> Option<usize> {
        self.document.line_of(&self.path_in_document(path))
    }

    /// The path of an object's field in the whole document.
    fn path_in_document(&self, path: &str) -> String {
        let separator = if self.path_prefix.is_empty() || path.starts_with('[') { "" } else { "." };
        format!("{}{separator}{path}", self.path_prefix)
    }

    /// Returns hints with the line of each unknown field, and the most similar known name.
    pub fn hints(&self, status: &Status) -> Vec<String> {
        let paths: Vec<String> = status.unknown.iter().map(|(path, _)| self.path_in_document(path)).collect();
        let lines = match &paths[..] {
            [] => Vec::new(),
            paths => self.document.lines_of(&paths.iter().map(String::as_str).collect::<Vec<_>>()),
        };
        let hint = |((path, nearest), line): (&(String, Option<&'static str>), Option<usize>)| {
            let line = line.unwrap_or(self.line);
            let suggestion = nearest.map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
            format!("hint: {}:{line}: there is no field {path:?}{suggestion}", self.source)
        };
        let misfit = status.misfit.iter().map(|misfit| self.type_hint(&misfit.path, misfit.go_type.as_deref()));
        status.unknown.iter().zip(lines).map(hint).chain(misfit).collect()
    }

    /// A hint with the line of a value that its field cannot have.
    fn type_hint(&self, path: &str, go_type: Option<&str>) -> String {
        let line = self.line_of(path).unwrap_or(self.line);
        let found = value_at_path(&self.object.0, path);
        let suggestion = found.zip(go_type).map_or("", |(found, go_type)| suggested_value(found, go_type));
        format!("hint: {}:{line}: the value of {path:?} has the wrong type{suggestion}", self.source)
    }

    /// Refuses metadata with a value of the wrong type.
    fn check_metadata(&self) -> CliResult {
        let Some(error) = find_type_error(&self.object) else { return Ok(()) };
        let (message, hint) = (&error.message, self.type_hint(&error.path, error.go_type.as_deref()));
        Err(Failure::plain(format!("unable to decode {:?}: {message}\n{hint}", self.source)))
    }

    /// The API server's refusal of this object, such as `error when creating "a.yaml"`, with hints.
    pub fn refusal(&self, doing: &str, status: Status) -> Failure {
        let hints = self.hints(&status);
        Failure::Api { status, doing: format!("error when {doing} {:?}", self.source), hints }
    }

    /// Duplicate keys.
    pub fn duplicates(&self) -> &[DuplicateKey] {
        &self.document.duplicates
    }
}

/// Suggests how to write the value of a field of this type.
fn suggested_value(found: &Value, go_type: &str) -> &'static str {
    match (found, go_type) {
        (Value::Bool(_), "string") => {
            "; put it into quotes (yes, no, on, off, y, n, true and false are booleans in YAML without quotes)"
        }
        (Value::Number(_), "string") => "; put it into quotes",
        (Value::String(_), "int32" | "int64") => "; write a number, without quotes",
        (Value::String(_), "bool") => "; write true or false, without quotes",
        (_, "v1.Build") => "; write an object: build: {command: [PROGRAM, ARGUMENT, ...]}",
        _ => "",
    }
}

/// Like [`read`], for a verb that needs at least one object.
pub fn read_for(
    context: &mut CommandContext,
    flags: &FileFlags,
    verb: &str,
) -> CliResult<(Vec<Manifest>, Vec<Failure>)> {
    require_any(read(context, flags)?, verb)
}

/// Like [`read_for`], with the objects whose labels match.
pub fn read_selected_for(
    context: &mut CommandContext,
    flags: &FileFlags,
    labels: &LabelFlag,
    verb: &str,
) -> CliResult<(Vec<Manifest>, Vec<Failure>)> {
    require_any(read_selected(context, flags, labels)?, verb)
}

/// Refuses files without objects.
fn require_any(
    (manifests, failures): (Vec<Manifest>, Vec<Failure>),
    verb: &str,
) -> CliResult<(Vec<Manifest>, Vec<Failure>)> {
    if manifests.is_empty() && failures.is_empty() {
        return Err(Failure::plain(format!("no objects passed to {verb}")));
    }
    Ok((manifests, failures))
}

/// Like [`read`], with the objects whose labels match.
pub fn read_selected(
    context: &mut CommandContext,
    flags: &FileFlags,
    labels: &LabelFlag,
) -> CliResult<(Vec<Manifest>, Vec<Failure>)> {
    let labels = labels.parse()?;
    let (mut manifests, failures) = read(context, flags)?;
    manifests.retain(|manifest| labels.as_ref().is_none_or(|labels| labels.matches(|key| manifest.object.label(key))));
    Ok((manifests, failures))
}

/// Reads all objects in order, and collects the errors.
pub fn read(context: &mut CommandContext, flags: &FileFlags) -> CliResult<(Vec<Manifest>, Vec<Failure>)> {
    flags.check()?;
    if !flags.kustomize.is_empty() {
        let build = kustomize::build_folder(&flags.kustomize);
        context.print_build_warnings(build.warnings);
        let built = build.resources?.into_iter().map(Manifest::built).collect();
        return Ok((definitions_first(context.kinds(), built), Vec::new()));
    }
    let (mut manifests, mut failures) = (Vec::new(), Vec::new());
    let mut stdin_read = false;
    for name in &flags.filenames {
        if name == "-" {
            if std::mem::replace(&mut stdin_read, true) {
                return Err(Failure::plain("standard input cannot be used for multiple arguments"));
            }
            match input::bounded(std::io::stdin().lock(), MAX_BYTES) {
                Ok(bytes) => parse(&bytes, "STDIN", None, &mut manifests, &mut failures),
                Err(error) => failures.push(Failure::plain(format!("error reading STDIN: {}", io_error_text(error)))),
            }
        } else if name.starts_with("http://") || name.starts_with("https://") {
            return Err(Failure::plain(format!(
                "{name}: kloop reads no manifests over the network; download it first"
            )));
        } else {
            for path in expand(name, flags.recursive)? {
                let is_named = path == Path::new(name);
                read_file(&path, is_named, &mut manifests, &mut failures);
            }
        }
    }
    Ok((definitions_first(context.kinds(), manifests), failures))
}

/// Moves CustomResourceDefinitions before their objects, and adds their kinds to `kinds`. The files
/// may contain a definition after its objects.
fn definitions_first(kinds: &KindRegistry, mut manifests: Vec<Manifest>) -> Vec<Manifest> {
    let is_definition = |object: &Object| {
        object.kind() == definition::KIND.kind && object.api_version() == definition::KIND.api_version()
    };
    for at in 0..manifests.len() {
        let object = &manifests[at].object;
        if !is_definition(object) || kinds.by_resource(Resource::intern(object.name())).is_some() {
            continue;
        }
        let Some(kind) = kinds.register(&object.0.to_string()) else { continue };
        let is_custom_object = |object: &Object| {
            kinds.by_kind(object.api_version(), object.kind()).is_some_and(|own| own.resource == kind.resource)
        };
        if let Some(first) = manifests[..at].iter().position(|manifest| is_custom_object(&manifest.object)) {
            manifests[first..=at].rotate_right(1);
        }
    }
    manifests
}

/// Expands a path: a file to itself, a folder to its manifests, and a pattern to the matching files.
fn expand(name: &str, recursive: bool) -> CliResult<Vec<PathBuf>> {
    let is_missing = Path::new(name).metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let found = if is_missing && PathPattern::is_pattern(name) { glob(name)? } else { vec![name.into()] };
    let expanded: Vec<Vec<PathBuf>> =
        found.iter().map(|path| expand_path(path, recursive)).collect::<CliResult<_>>()?;
    Ok(expanded.concat())
}

/// Returns the paths that match a pattern, by name. A shell leaves a pattern in quotes to the program.
fn glob(pattern: &str) -> CliResult<Vec<PathBuf>> {
    let start = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(start)];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let Some(names) = PathPattern::parse(part) else {
            return Err(Failure::plain(format!("pattern {pattern:?} is not valid: syntax error in pattern")));
        };
        let mut next = Vec::new();
        for folder in &found {
            if !PathPattern::is_pattern(part) {
                next.extend(Some(folder.join(part)).filter(|path| path.symlink_metadata().is_ok()));
                continue;
            }
            // As in Go, a folder that cannot be read has no matches.
            let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let entries = listed.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
            let mut matching: Vec<_> =
                entries.filter(|name| name.to_str().is_some_and(|name| names.matches(name))).collect();
            matching.sort();
            next.extend(matching.iter().map(|name| folder.join(name)));
        }
        found = next;
    }
    if found.is_empty() { Err(Failure::plain(format!("the path {pattern:?} does not exist"))) } else { Ok(found) }
}

/// The end of the error about a folder without manifests.
pub const NO_MANIFESTS: &str = "recognized file extensions are [.json .yaml .yml]";

/// Expands a path that is not a pattern.
fn expand_path(path: &Path, recursive: bool) -> CliResult<Vec<PathBuf>> {
    let name = path.display().to_string();
    let missing = || Failure::plain(format!("the path {name:?} does not exist"));
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing(),
        _ => Failure::plain(format!("the path {name:?} cannot be accessed: {error}", error = io_error_text(error))),
    })?;
    if !meta.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    walk(path, recursive, &mut found)?;
    if found.is_empty() {
        return Err(Failure::plain(format!("error reading [{name}]: {NO_MANIFESTS}")));
    }
    Ok(found)
}

/// Collects a folder's manifests by name, with subfolders if `recursive`. Does not follow links to
/// folders, so that there are no cycles.
fn walk(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> CliResult {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let extension = path.extension().and_then(|extension| extension.to_str());
        if is_folder && recursive {
            walk(&path, recursive, found)?;
        } else if !path.is_dir() && matches!(extension, Some("json" | "yaml" | "yml")) {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads a file. A pipe in a folder is not opened, because it may never have a writer.
fn read_file(path: &Path, is_named: bool, manifests: &mut Vec<Manifest>, failures: &mut Vec<Failure>) {
    let source = path.display().to_string();
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    let is_stream = |kind: std::fs::FileType| kind.is_fifo() || kind.is_char_device();
    let is_pipe = path.metadata().is_ok_and(|meta| is_stream(meta.file_type()));
    if !is_file && !is_pipe {
        failures.push(Failure::plain(format!("{source} is neither a file nor a pipe")));
        return;
    }
    if is_pipe && !is_named {
        failures.push(Failure::plain(format!("{source} is a pipe or a device: use -f {source} to read from it")));
        return;
    }
    match std::fs::File::open(path).and_then(|file| input::bounded(file, MAX_BYTES)) {
        Ok(bytes) => {
            let folder = path.parent().and_then(|folder| {
                std::path::absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }).ok()
            });
            parse(&bytes, &source, folder, manifests, failures);
        }
        Err(error) => {
            failures.push(Failure::plain(format!("error reading {source}: {error}", error = io_error_text(error))))
        }
    }
}

fn parse(
    bytes: &[u8],
    source: &str,
    folder: Option<PathBuf>,
    manifests: &mut Vec<Manifest>,
    failures: &mut Vec<Failure>,
) {
    let refuse = |error: yaml::YamlError| {
        Failure::plain(format!(
            "error parsing {source}: error converting YAML to JSON: {error}",
            error = io_error_text(error)
        ))
    };
    if bytes.len() >= MANY_OBJECTS {
        use_mimalloc();
    }
    let text = match yaml::decode_bytes(bytes) {
        Ok(text) => text,
        Err(error) => return failures.push(refuse(error)),
    };
    let (documents, error) = yaml::documents_before_error(&text);
    let mut found = Vec::new();
    for mut document in documents {
        if !document.value.is_object() {
            let what = if document.value.is_array() { "a list" } else { "a single value" };
            let line = document.line;
            let text = format!(
                "error validating {source:?}: error validating data: invalid object to validate; if you choose to ignore \
                 these errors, turn validation off with --validate=false\n\
                 hint: {source}:{line}: expected fields such as apiVersion and kind, found {what}"
            );
            failures.push(Failure::plain(text));
            continue;
        }
        // Takes the value instead of copying it: a copy would double the memory for a large file.
        let value = document.value.take();
        add(&Rc::new(document), value, String::new(), source, folder.as_deref(), &mut found);
        for manifest in found.drain(..) {
            match manifest.check_metadata() {
                Ok(()) => manifests.push(manifest),
                Err(failure) => failures.push(failure),
            }
        }
    }
    failures.extend(error.map(refuse));
}

/// Adds an object, or the items of a list.
fn add(
    document: &Rc<YamlDocument>,
    mut value: Value,
    path_prefix: String,
    source: &str,
    folder: Option<&Path>,
    manifests: &mut Vec<Manifest>,
) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array();
    if is_list && let Value::Array(items) = value["items"].take() {
        for (index, mut item) in items.into_iter().enumerate() {
            inherit_type(&mut item, &value);
            let path_prefix = if path_prefix.is_empty() {
                format!("items[{index}]")
            } else {
                format!("{path_prefix}.items[{index}]")
            };
            add(document, item, path_prefix, source, folder, manifests);
        }
        return;
    }
    manifests.push(Manifest {
        object: Object(value),
        source: source.to_owned(),
        folder: folder.map(Path::to_owned),
        line: document.line,
        document: document.clone(),
        path_prefix,
    });
}

/// Gives an item of a list such as a ConfigMapList the type that the list names, unless the item names its own.
fn inherit_type(item: &mut Value, list: &Value) {
    let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
    let Some(kind) = kind.filter(|_| item.is_object() && item["kind"].as_str().unwrap_or_default().is_empty()) else {
        return;
    };
    item["kind"] = kind.into();
    item["apiVersion"] = list["apiVersion"].clone();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_without_a_type_have_that_of_their_list() {
        let list = |kind: &str, item: Value| {
            let document = json!({"apiVersion": "v1", "kind": kind, "items": [item]}).to_string();
            let (mut manifests, mut failures) = (Vec::new(), Vec::new());
            parse(document.as_bytes(), "a.json", None, &mut manifests, &mut failures);
            let object = &manifests[0].object;
            format!("{} {}", object.api_version(), object.kind())
        };
        assert_eq!(list("ConfigMapList", json!({})), "v1 ConfigMap");
        let own = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert_eq!(list("ConfigMapList", own), "apps/v1 Deployment");
        assert_eq!(list("List", json!({})), " ");
    }

    #[test]
    fn hint_of_an_error_follows_the_found_and_the_wanted_type() {
        for (found, wanted, expected) in [
            (json!(true), "string", "booleans in YAML"),
            (json!(1), "string", "quotes"),
            (json!([]), "v1.Build", "{command: ["),
            (json!("1"), "int32", "a number, without quotes"),
            (json!("true"), "bool", "true or false, without quotes"),
        ] {
            assert!(suggested_value(&found, wanted).contains(expected), "{found} {wanted}");
        }
        assert_eq!(suggested_value(&json!([]), "int32"), "");
    }
}
