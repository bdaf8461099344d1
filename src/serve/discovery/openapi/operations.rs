//! The operations of a resource: paths, parameters, bodies and answers in OpenAPI 3.

use crate::object::api_version;
use crate::serve::subresource::Subresource;
use serde_json::{Map, Value, json};

/// The media types of objects.
pub const MEDIA: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Parameters of queries: name, type, and text.
const DRY_RUN: (&str, &str, &str) = ("dryRun", "string", "All: process the request without keeping its result");
const MANAGER: (&str, &str, &str) = ("fieldManager", "string", "Name of the manager of the fields that change");
const VALIDATION: (&str, &str, &str) =
    ("fieldValidation", "string", "Treatment of unknown and duplicate fields: Ignore, Warn or Strict");
const FORCE: (&str, &str, &str) = ("force", "boolean", "Take over fields of other managers in an apply patch");
const DELETION: [(&str, &str, &str); 4] = [
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted"),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy"),
    ("propagationPolicy", "string", "Treatment of dependents: Orphan, Background or Foreground"),
];
const LIST: [(&str, &str, &str); 8] = [
    ("continue", "string", "Token of the next page, from the metadata of the previous page"),
    ("fieldSelector", "string", "Selects objects by fields"),
    ("labelSelector", "string", "Selects objects by labels"),
    ("limit", "integer", "Maximum number of objects on a page"),
    ("resourceVersion", "string", "Revision that the answer shows"),
    ("resourceVersionMatch", "string", "Interpretation of resourceVersion: Exact or NotOlderThan"),
    ("sendInitialEvents", "boolean", "Begin a watch with the objects that exist"),
    ("timeoutSeconds", "integer", "Duration of the request"),
];
const WATCH: [(&str, &str, &str); 2] =
    [("allowWatchBookmarks", "boolean", "Send bookmarks in a watch"), ("watch", "boolean", "Watch for changes")];
const LOG: [(&str, &str, &str); 8] = [
    ("container", "string", "Container whose log is read"),
    ("follow", "boolean", "Follow the log"),
    ("limitBytes", "integer", "Maximum number of bytes"),
    ("previous", "boolean", "Read the log of the previous instance"),
    ("sinceSeconds", "integer", "Begin this many seconds ago"),
    ("sinceTime", "string", "Begin at this time"),
    ("tailLines", "integer", "Number of lines from the end"),
    ("timestamps", "boolean", "Begin each line with its time"),
];

/// A resource of one version whose operations are described.
pub struct DescribedResource<'a> {
    /// Its group, empty for the core.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// `Pod`.
    pub kind: &'a str,
    /// `pods`.
    pub plural: &'a str,
    /// Whether it is in a namespace.
    pub namespaced: bool,
    /// Whether a definition declares it.
    pub is_custom: bool,
    /// Its subresources with objects as bodies.
    pub subresources: Vec<&'static Subresource>,
    /// The name of its schema.
    pub schema: &'a str,
    /// The names of schemas of bodies by API version and kind.
    pub bodies: &'a dyn Fn(&str, &str) -> Option<String>,
}

/// Returns the name of the schema of lists.
pub fn list_schema(schema: &str) -> String {
    format!("{schema}List")
}

impl DescribedResource<'_> {
    /// Adds the paths of the resource.
    pub fn add_paths(&self, paths: &mut Map<String, Value>) {
        let (head, listed) = (self.head(), list_schema(self.schema));
        let (scope, place) = self.scope();
        let name = format!("{scope}{}", self.kind);
        let collection = format!("{head}{place}/{}", self.plural);
        let list = self.operation("list", "list", &name, "").with_parameters(&[&LIST[..], &WATCH]);
        let list = list.answering(&[200], &listed, true);
        let mut all = json!({"get": list.value, "parameters": self.path_parameters(self.namespaced, false)});
        all["post"] = self.creation();
        if self.plural != "namespaces" {
            let delete = self.operation("delete", "deletecollection", &format!("Collection{name}"), "");
            let delete = delete.with_parameters(&[&DELETION, &LIST]).with_body(&format!("{META}.DeleteOptions"));
            all["delete"] = delete.answering(&[200], &format!("{META}.Status"), false).value;
        }
        paths.insert(collection.clone(), all);
        if self.namespaced {
            let list = self.operation("list", "list", &format!("{}ForAllNamespaces", self.kind), "");
            let list = list.with_parameters(&[&LIST[..], &WATCH]).answering(&[200], &listed, true);
            let all = json!({"get": list.value, "parameters": self.path_parameters(false, false)});
            paths.insert(format!("{head}/{}", self.plural), all);
        }
        let mut one = self.part(&name, "", self.schema, &["get", "update", "patch"]);
        let delete = self.operation("delete", "delete", &name, "").with_parameters(&[&DELETION]);
        let delete = delete.with_body(&format!("{META}.DeleteOptions"));
        one["delete"] = delete.answering(&[200, 202], &format!("{META}.Status"), false).value;
        one["parameters"] = self.path_parameters(self.namespaced, true);
        paths.insert(format!("{collection}/{{name}}"), one);
        for below in &self.subresources {
            paths.insert(format!("{collection}/{{name}}/{}", below.name), self.subresource(&name, below));
        }
        self.add_watches(paths);
    }

    /// Adds the path of a resource that can only be created and is not stored.
    pub fn add_creation(&self, paths: &mut Map<String, Value>) {
        let parameters = self.path_parameters(self.namespaced, false);
        let path = format!("{}{}/{}", self.head(), self.scope().1, self.plural);
        paths.insert(path, json!({"post": self.creation(), "parameters": parameters}));
    }

    /// Adds the path of the version's list of resources.
    pub fn add_version(group: &str, version: &str, paths: &mut Map<String, Value>) {
        let head = version_path(group, version);
        let group = friendly_group(group);
        let id = format!("get{}{}APIResources", capitalize(&group), capitalize(version));
        let tags = [format!("{group}_{version}")];
        let content = json!({"application/json": {"schema": reference(&format!("{META}.APIResourceList"))}});
        let responses =
            json!({"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}});
        let get =
            json!({"operationId": id, "description": "get available resources", "tags": tags, "responses": responses});
        paths.insert(format!("{head}/"), json!({"get": get}));
    }

    /// Returns the group's word in the names of operations, and the version.
    pub fn tag(&self) -> (String, &str) {
        (friendly_group(self.group), self.version)
    }

    /// Returns the path of an object, and the word for its scope in the names of operations.
    pub fn object_path(&self) -> (String, &'static str) {
        let (scope, place) = self.scope();
        (format!("{}{place}/{}/{{name}}", self.head(), self.plural), scope)
    }

    fn head(&self) -> String {
        version_path(self.group, self.version)
    }

    /// Returns the word in the names of operations, and the part of paths.
    fn scope(&self) -> (&'static str, &'static str) {
        if self.namespaced { ("Namespaced", "/namespaces/{namespace}") } else { ("", "") }
    }

    fn creation(&self) -> Value {
        let create = self.operation("create", "post", &format!("{}{}", self.scope().0, self.kind), "");
        let create = create.with_parameters(&[&[DRY_RUN, MANAGER, VALIDATION]]).with_body(self.schema);
        create.answering(&[200, 201, 202], self.schema, false).value
    }

    /// Adds the paths that imply a watch.
    fn add_watches(&self, paths: &mut Map<String, Value>) {
        let (plural, head, (scope, place)) = (self.plural, self.head(), self.scope());
        let mut add = |path: String, action: &str, name: String, is_placed: bool, is_named: bool| {
            let watch = self.operation("watch", action, &name, "").with_parameters(&[&LIST[..], &WATCH]);
            let mut watch = watch.answering(&[200], &format!("{META}.WatchEvent"), true).value;
            watch["deprecated"] = true.into();
            let parameters = self.path_parameters(is_placed, is_named);
            paths.insert(path, json!({"get": watch, "parameters": parameters}));
        };
        let one = format!("{head}/watch{place}/{plural}/{{name}}");
        add(one, "watch", format!("{scope}{}", self.kind), self.namespaced, true);
        let name = format!("{scope}{}List", self.kind);
        add(format!("{head}/watch{place}/{plural}"), "watchlist", name, self.namespaced, false);
        if self.namespaced {
            let name = format!("{}ListForAllNamespaces", self.kind);
            add(format!("{head}/watch/{plural}"), "watchlist", name, false, false);
        }
    }

    /// Returns the operations of an object or a part of it.
    fn part(&self, name: &str, below: &str, schema: &str, verbs: &[&str]) -> Value {
        let mut part = json!({});
        if verbs.contains(&"get") {
            part["get"] = self.operation("read", "get", name, below).answering(&[200], schema, false).value;
        }
        if verbs.contains(&"update") {
            let put = self.operation("replace", "put", name, below);
            let put = put.with_parameters(&[&[DRY_RUN, MANAGER, VALIDATION]]).with_body(schema);
            part["put"] = put.answering(&[200, 201], schema, false).value;
        }
        if verbs.contains(&"patch") {
            let patch = self.operation("patch", "patch", name, below);
            let patch = patch.with_parameters(&[&[DRY_RUN, MANAGER, VALIDATION, FORCE]]).with_patch(self.is_custom);
            part["patch"] = patch.answering(&[200, 201], schema, false).value;
        }
        part
    }

    fn subresource(&self, name: &str, below: &Subresource) -> Value {
        let version = below
            .version
            .map_or_else(|| api_version(self.group, self.version), |(group, version)| api_version(group, version));
        let found = below.kind.and_then(|kind| (self.bodies)(&version, kind));
        let schema = found.as_deref().unwrap_or(self.schema);
        let title = below.name[..1].to_ascii_uppercase() + &below.name[1..];
        let mut part = self.part(name, &title, schema, below.verbs);
        if below.name == "log" {
            let read = self.operation("read", "get", name, &title).with_parameters(&[&LOG]);
            part["get"] = read.answering_text().value;
        }
        if below.verbs.contains(&"create") {
            let create = self.operation("create", "post", name, &title);
            let create = create.with_parameters(&[&[DRY_RUN, MANAGER, VALIDATION]]).with_body(schema);
            part["post"] = create.answering(&[200, 201, 202], schema, false).value;
        }
        if let (Some(kind), Some(operations)) = (below.kind, part.as_object_mut()) {
            let (group, version) = below.version.unwrap_or((self.group, self.version));
            let own = json!({"group": group, "version": version, "kind": kind});
            operations.values_mut().for_each(|operation| operation["x-kubernetes-group-version-kind"] = own.clone());
        }
        part["parameters"] = self.path_parameters(self.namespaced, true);
        part
    }

    /// Returns the parameters that all operations of a path have.
    pub fn path_parameters(&self, is_placed: bool, is_named: bool) -> Value {
        let path = |name: &str, text: &str| json!({"name": name, "in": "path", "required": true, "description": text, "schema": {"type": "string", "uniqueItems": true}});
        let mut all = Vec::new();
        all.extend(is_named.then(|| path("name", &format!("name of the {}", self.kind))));
        all.extend(is_placed.then(|| path("namespace", "object name and auth scope, such as for teams and projects")));
        all.push(query(&("pretty", "string", "Answer with line breaks")));
        all.into()
    }

    /// Makes an operation. Arguments as in: `list`, `list`, `NamespacedPod`, and the subresource's name.
    fn operation(&self, verb: &str, action: &str, name: &str, below: &str) -> Operation {
        let group = friendly_group(self.group);
        let version = capitalize(self.version);
        let id = format!("{verb}{}{version}{name}{below}", capitalize(&group));
        let text = match (verb, below) {
            ("list", _) => format!("list or watch objects of kind {}", self.kind),
            ("watch", _) => format!("watch changes to objects of kind {}", self.kind),
            (_, "") if action == "deletecollection" => format!("delete collection of {}", self.kind),
            ("create", "") => format!("create a {}", self.kind),
            (verb, "") => format!("{verb} the specified {}", self.kind),
            (verb, below) => format!("{verb} {} of the specified {}", below.to_ascii_lowercase(), self.kind),
        };
        let own = json!({"group": self.group, "version": self.version, "kind": self.kind});
        let value = json!({
            "operationId": id, "description": text, "tags": [format!("{group}_{}", self.version)],
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": own, "responses": {},
        });
        Operation { value, has_protobuf: !self.is_custom }
    }
}

/// An operation being built.
struct Operation {
    value: Value,
    has_protobuf: bool,
}

impl Operation {
    fn with_parameters(mut self, groups: &[&[(&str, &str, &str)]]) -> Operation {
        let all: Vec<Value> = groups.iter().copied().flatten().map(query).collect();
        self.value["parameters"] = all.into();
        self
    }

    fn with_body(mut self, schema: &str) -> Operation {
        let required = self.value["x-kubernetes-action"].as_str().is_some_and(|action| !action.starts_with("delete"));
        self.value["requestBody"] = json!({"content": {"*/*": {"schema": reference(schema)}}});
        if required {
            self.value["requestBody"]["required"] = true.into();
        }
        self
    }

    fn with_patch(mut self, is_custom: bool) -> Operation {
        let patch = reference(&format!("{META}.Patch"));
        let types = PATCHES.iter().filter(|media| !is_custom || !media.contains("strategic"));
        let content: Map<String, Value> =
            types.map(|media| ((*media).to_owned(), json!({"schema": patch.clone()}))).collect();
        self.value["requestBody"] = json!({"content": content, "required": true});
        self
    }

    fn answering(mut self, codes: &[u16], schema: &str, is_stream: bool) -> Operation {
        let streams: &[&str] = if is_stream { &STREAMS } else { &[] };
        let media = MEDIA.iter().chain(streams).filter(|media| self.has_protobuf || !media.contains("protobuf"));
        let content: Map<String, Value> =
            media.map(|media| ((*media).to_owned(), json!({"schema": reference(schema)}))).collect();
        for code in codes {
            let text = match code {
                200 => "OK",
                201 => "Created",
                _ => "Accepted",
            };
            self.value["responses"][code.to_string()] = json!({"description": text, "content": content});
        }
        self.value["responses"]["401"] = json!({"description": "Unauthorized"});
        self
    }

    /// Adds a plain text answer.
    fn answering_text(mut self) -> Operation {
        let content = json!({"text/plain": {"schema": {"type": "string"}}});
        self.value["responses"] =
            json!({"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}});
        self
    }
}

/// Returns a parameter of queries, from its name, type and text.
pub fn query((name, kind, text): &(&str, &str, &str)) -> Value {
    json!({"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": true}})
}

/// A reference to a schema.
pub fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// The path of a version: `/api/v1`, `/apis/apps/v1`.
fn version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `rbacAuthorization` for `rbac.authorization.k8s.io`, `core` for the core group.
pub fn friendly_group(group: &str) -> String {
    if group.is_empty() {
        return "core".into();
    }
    let mut words = group.strip_suffix(".k8s.io").unwrap_or(group).split(['.', '-']);
    words.next().unwrap_or_default().to_owned() + &words.map(capitalize).collect::<String>()
}

/// Returns a word with a capital letter.
pub fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
