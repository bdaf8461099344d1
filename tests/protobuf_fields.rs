//! Writes `src/serve/protobuf/fields.json.gz`: the numbers, names and types of the fields of Kubernetes' protobuf messages.
//!
//! `KLOOP_KUBERNETES_SOURCES=/sources cargo test --features schema -- --ignored write_protobuf_fields`, after a change of the catalogue
//! or of Kubernetes' version. The folder contains the repositories `api`, `apimachinery`, `apiextensions-apiserver` and `kube-aggregator`
//! of one release. Messages come from `generated.proto`; JSON names and the omission of zero values come from the tags of Go's structs.

use flate2::Compression;
use flate2::write::GzEncoder;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Messages that `src/serve/protobuf/special.rs` converts.
const SPECIAL: [&str; 10] = [
    "k8s.io.apimachinery.pkg.api.resource.Quantity",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString",
    "k8s.io.apimachinery.pkg.apis.meta.v1.Time",
    "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime",
    "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "k8s.io.apimachinery.pkg.runtime.RawExtension",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

/// A message whose JSON form is not supported yet: [`Duration`] is in no served kind.
const UNSUPPORTED: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.Duration";

/// Kinds besides those of the catalogue and their lists: `apiVersion` and names.
const OTHER_KINDS: [(&str, &str); 9] = [
    (
        "v1",
        "Status DeleteOptions APIVersions APIGroup APIGroupList APIResourceList WatchEvent List Binding \
         PodStatusResult ReplicationController",
    ),
    ("meta.k8s.io/v1", "PartialObjectMetadata PartialObjectMetadataList"),
    ("meta.k8s.io/v1beta1", "PartialObjectMetadata PartialObjectMetadataList"),
    ("autoscaling/v1", "Scale"),
    ("policy/v1", "Eviction"),
    ("authentication.k8s.io/v1", "TokenRequest TokenReview SelfSubjectReview"),
    (
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview SubjectAccessReview LocalSubjectAccessReview SelfSubjectRulesReview",
    ),
    ("apidiscovery.k8s.io/v2", "APIGroupDiscovery APIGroupDiscoveryList"),
    ("apidiscovery.k8s.io/v2beta1", "APIGroupDiscovery APIGroupDiscoveryList"),
];

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";

/// A field as declared in `generated.proto` and in the tag of its Go struct.
struct Declared {
    number: u32,
    name: String,
    shape: &'static str,
    of: String,
    omits_zero: bool,
    /// Whether a Go struct has the field.
    is_tagged: bool,
}

#[derive(Default)]
struct Sources {
    messages: HashMap<String, Vec<Declared>>,
    /// The package of the messages by `apiVersion`.
    packages: HashMap<String, String>,
}

/// The tag of a Go field: JSON name, and whether it is inlined, omitted when zero, or a pointer.
struct GoTag {
    json: String,
    is_inline: bool,
    omits_zero: bool,
    is_pointer: bool,
}

impl Sources {
    fn read(root: &Path) -> Sources {
        let mut sources = Sources::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            folders.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
            if let Ok(text) = fs::read_to_string(folder.join("generated.proto")) {
                sources.add(&folder, &text);
            }
        }
        sources
    }

    fn add(&mut self, folder: &Path, proto: &str) {
        let package = proto.lines().find_map(|line| line.strip_prefix("package ")).unwrap().trim_end_matches(';');
        let go = go_files(folder);
        if let Some(group) = go.iter().find_map(|text| text.split_once("\nconst GroupName = \"")) {
            let group = group.1.split('"').next().unwrap();
            let version = package.rsplit('.').next().unwrap();
            let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            self.packages.insert(api_version, package.to_owned());
        }
        let tags = go_tags(&go);
        let mut message = None;
        for line in proto.lines() {
            if let Some(name) = line.strip_prefix("message ") {
                let name = name.trim_end_matches([' ', '{']).to_owned();
                self.messages.insert(format!("{package}.{name}"), Vec::new());
                message = Some(name);
            } else if line == "}" {
                message = None;
            } else if let Some(name) = &message
                && let Some(field) = declared(line.trim(), package, |number| tags.get(&(name.clone(), number)))
            {
                self.messages.get_mut(&format!("{package}.{name}")).unwrap().push(field);
            }
        }
    }

    /// Returns the message of a kind: of its own group, or one that all groups share.
    fn message(&self, api_version: &str, kind: &str) -> Option<String> {
        let own = self.packages.get(api_version).map(|package| format!("{package}.{kind}"));
        let shared = (api_version == "v1" || api_version.starts_with("meta.k8s.io/")).then(|| format!("{META}.{kind}"));
        own.into_iter().chain(shared).find(|name| self.messages.contains_key(name))
    }
}

fn go_files(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".go") && !name.ends_with("_test.go") && name != "generated.pb.go"
    };
    paths.filter(is_wanted).map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn go_tags(files: &[String]) -> HashMap<(String, u32), GoTag> {
    let field = Regex::new(r#"^\s+(?:\w+\s+)??(\S+)\s+`(.*)`"#).unwrap();
    let json = Regex::new(r#"json:"([^"]*)""#).unwrap();
    let number = Regex::new(r#"protobuf:"\w+,(\d+)"#).unwrap();
    let mut tags = HashMap::new();
    for text in files {
        let mut owner = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {")) {
                owner = Some(rest.to_owned());
            } else if line == "}" {
                owner = None;
            }
            let (Some(owner), Some(found)) = (&owner, field.captures(line)) else { continue };
            let (Some(json), Some(number)) = (json.captures(&found[2]), number.captures(&found[2])) else { continue };
            let mut words = json[1].split(',');
            let name = words.next().unwrap().to_owned();
            let words: Vec<&str> = words.collect();
            let tag = GoTag {
                json: name,
                is_inline: words.contains(&"inline"),
                omits_zero: words.contains(&"omitempty") || words.contains(&"omitzero"),
                is_pointer: found[1].starts_with('*'),
            };
            tags.insert((owner.clone(), number[1].parse().unwrap()), tag);
        }
    }
    tags
}

fn declared<'a>(line: &str, package: &str, tag: impl Fn(u32) -> Option<&'a GoTag>) -> Option<Declared> {
    if line.starts_with("//") || !line.ends_with(';') {
        return None;
    }
    let (left, number) = line.trim_end_matches(';').rsplit_once(" = ")?;
    let (kind, name) = left.rsplit_once(' ')?;
    let number: u32 = number.parse().unwrap();
    let tag = tag(number);
    let (label, of) = match kind.strip_prefix("map<string, ") {
        Some(of) => ("map", of.trim_end_matches('>')),
        None => kind.split_once(' ').unwrap(),
    };
    let is_scalar = ["string", "bytes", "bool", "int32", "int64", "double"].contains(&of);
    let of = match of.strip_prefix('.') {
        Some(whole) => whole.to_owned(),
        None if is_scalar => of.to_owned(),
        None => format!("{package}.{of}"),
    };
    let shape = match label {
        "map" => "map",
        "repeated" => "repeated",
        _ if tag.is_some_and(|tag| tag.is_inline) => "inline",
        _ if tag.is_some_and(|tag| tag.is_pointer) || of == "bytes" => "pointer",
        _ => "value",
    };
    let name = tag.filter(|tag| !tag.json.is_empty()).map_or(name, |tag| &tag.json).to_owned();
    let omits_zero = tag.is_some_and(|tag| tag.omits_zero);
    Some(Declared { number, name, shape, of, omits_zero, is_tagged: tag.is_some() })
}

/// Returns the served kinds with their messages; a kind without one is kloop's own.
fn kinds(sources: &Sources) -> BTreeMap<String, String> {
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    for (api_version, names) in OTHER_KINDS {
        wanted.extend(names.split_whitespace().map(|name| (api_version.to_owned(), name.to_owned())));
    }
    for kind in kloop::kinds::all_kinds() {
        for api_version in kind.also.iter().map(|also| (*also).to_owned()).chain([kind.api_version().to_owned()]) {
            wanted.insert((api_version.clone(), kind.kind.to_owned()));
            wanted.insert((api_version, format!("{}List", kind.kind)));
        }
    }
    let mut found = BTreeMap::new();
    for (api_version, kind) in wanted {
        match sources.message(&api_version, &kind) {
            Some(message) => drop(found.insert(format!("{api_version}/{kind}"), message)),
            None => println!("JSON only: {api_version}/{kind}"),
        }
    }
    found
}

#[test]
#[ignore = "writes src/serve/protobuf/fields.json.gz"]
fn write_protobuf_fields() {
    let root = std::env::var("KLOOP_KUBERNETES_SOURCES").expect("KLOOP_KUBERNETES_SOURCES names a folder");
    let sources = Sources::read(Path::new(&root));
    let kinds = kinds(&sources);
    let mut messages = Map::new();
    let mut next: Vec<&String> = kinds.values().collect();
    while let Some(name) = next.pop() {
        assert_ne!(name, UNSUPPORTED);
        if messages.contains_key(name) {
            continue;
        }
        let fields = sources.messages.get(name).unwrap_or_else(|| panic!("no message {name}"));
        next.extend(fields.iter().map(|field| &field.of).filter(|of| of.contains('.')));
        let mut fields: Vec<&Declared> = fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        let is_list = fields.len() == 1 && fields[0].name == "items" && !fields[0].is_tagged;
        let fields = fields
            .iter()
            .map(|field| json!([field.number, field.name, field.shape, field.of, field.omits_zero]))
            .collect();
        let fields = if SPECIAL.contains(&&**name) { Vec::new() } else { fields };
        // A named Go slice: its JSON is only the list.
        let form = if is_list { "list" } else { "struct" };
        messages.insert(name.clone(), json!({"form": form, "fields": Value::Array(fields)}));
    }
    let text = json!({"kinds": kinds, "messages": messages}).to_string();
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    println!("{} kinds, {} messages, {} bytes, packed {}", kinds.len(), messages.len(), text.len(), packed.len());
    fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/protobuf/fields.json.gz"), packed).unwrap();
}
