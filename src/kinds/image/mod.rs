//! Image (kloop.dev/v1alpha1): maps container images to programs of this machine, since kloop pulls no images.
//!
//! Defines the kind's fields, the matching of its patterns ([`pattern`]), and the built-in objects ([`recipe`]).
//! Never: looks for a program; `runtime` does. Start reading at [`ImageSpec`].

pub mod pattern;
pub mod pull_policy;
pub mod recipe;
pub mod reference;

use super::shared::omit;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::kinds::view;
use crate::object::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind =
    Kind { namespaced: false, ..Kind::new::<Image>(RESOURCE, "v1alpha1", "Image", &view::image::VIEW) };

/// Maximum number of entries of `programs`, `path` and `volumes`, which every start searches or mounts.
const MAX_PLACES: usize = 32;

/// The resource's name.
pub const RESOURCE: &str = "images.kloop.dev";

/// The OpenAPI schema of the fields with their descriptions, for `explain`.
pub const SCHEMA: &str = include_str!("schema.json");

/// An Image object: settings for images with matching names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// `kloop.dev/v1alpha1`.
    pub api_version: String,
    /// `Image`.
    pub kind: String,
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
    /// The desired settings.
    pub spec: ImageSpec,
    /// The observed state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ImageStatus>,
}

/// Settings of an image. An absent field has the value that it has without an Image object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSpec {
    /// Patterns of image names: `nginx`, `nginx:1.*`, `*/team/app@sha256:*`.
    pub patterns: Vec<String>,
    /// The program and its first arguments. Empty: the container's `args`, or `command`, are the whole command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// The arguments of a container that has no `args`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Environment variables; those of the container take precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<ImageVariable>>,
    /// The program's alternative names: the first name that is found replaces another one at the start of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<String>>,
    /// Folders to search for programs before PATH: absolute, with `*` for any text within a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Vec<String>>,
    /// The Debian package of the program, for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Private folders of the container: empty at its start and deleted at its end, unless a volume is mounted there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// The folder with the image's files, for pods that mount the image as a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// The working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// User of the container when kloop runs as root: `postgres`, `999`, `999:999`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Ports that the program listens on, for documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<ImagePort>>,
    /// `private`, or `host` for a container that uses the machine's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// A command that runs once before the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<ImageBuild>,
    /// Files whose change restarts the containers: `src/**/*.rs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Vec<String>>,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePort {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number.
    pub container_port: i32,
    /// `TCP` or `UDP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// Build of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageBuild {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The working directory; by default `spec.workingDir`, or else the manifest's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
}

/// Observed state of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageStatus {
    /// The files that match `watch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<ImageSources>,
    /// The last build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildStatus>,
}

/// Result of the last build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildStatus {
    /// `Building`, `Succeeded`, `Failed`, or `Interrupted` when its end was not observed.
    pub state: String,
    /// Time of its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Time of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The error when it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The last lines of its output.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// The content of watched files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSources {
    /// Digest of the content.
    pub digest: String,
    /// Number of files.
    pub files: i64,
    /// The problem with the files, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Typed for Image {
    fn default(&mut self) {
        self.api_version = KIND.api_version();
        self.kind = KIND.kind.to_owned();
        omit::metadata(&mut self.metadata);
        let spec = &mut self.spec;
        // An empty entrypoint differs from an absent one: it means that the image has no program.
        omit::empty(&mut spec.command);
        omit::empty(&mut spec.env);
        omit::empty(&mut spec.programs);
        omit::empty(&mut spec.path);
        omit::empty(&mut spec.package);
        omit::empty(&mut spec.volumes);
        omit::empty(&mut spec.files);
        omit::empty(&mut spec.working_dir);
        omit::empty(&mut spec.user);
        omit::empty(&mut spec.ports);
        omit::empty(&mut spec.filesystem);
        omit::empty(&mut spec.watch);
        for port in spec.ports.iter_mut().flatten() {
            omit::empty(&mut port.name);
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
        if let Some(build) = &mut spec.build {
            omit::empty(&mut build.working_dir);
        }
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.unset(&["status"]);
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let spec = &self.spec;
        if spec.patterns.is_empty() {
            errors.required(&path.child("patterns"), "list the image names to match, such as nginx or nginx:1.*");
        }
        let mut seen = BTreeSet::new();
        for (index, text) in spec.patterns.iter().enumerate() {
            let at = path.child("patterns").index(index);
            if let Err(problem) = pattern::parse(text) {
                errors.invalid(&at, text.as_str(), &problem);
            }
            if !seen.insert(text) {
                errors.duplicate(&at, text.as_str());
            }
        }
        if spec.entrypoint.as_ref().and_then(|words| words.first()).is_some_and(String::is_empty) {
            errors.required(&path.child("entrypoint").index(0), "the program");
        }
        self.validate_programs(&path, errors);
        self.validate_env(&path.child("env"), errors);
        self.validate_ports(&path.child("ports"), errors);
        if let Some(user) = spec.user.as_deref().filter(|user| !is_user(user)) {
            errors.invalid(&path.child("user"), user, "must be a user or user:group, by name or number");
        }
        if let Some(other) = spec.filesystem.as_deref().filter(|word| !["host", "private"].contains(word)) {
            errors.unsupported(&path.child("filesystem"), other, &["host", "private"]);
        }
        if spec.build.as_ref().is_some_and(|build| build.command.first().is_none_or(String::is_empty)) {
            errors.required(&path.child("build").child("command"), "the program that builds, and its arguments");
        }
        for (index, glob) in spec.watch.iter().flatten().enumerate() {
            if glob.trim_matches('/').is_empty() {
                let detail = "must name files, relative to the manifest's folder, such as src/**/*.py";
                errors.invalid(&path.child("watch").index(index), glob.as_str(), detail);
            }
        }
    }
}

impl Image {
    fn validate_env(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for (index, variable) in self.spec.env.iter().flatten().enumerate() {
            let at = path.index(index).child("name");
            match variable.name.as_str() {
                "" => errors.required(&at, ""),
                name if name.contains(['=', '\0']) => {
                    errors.invalid(&at, name, "a valid environment variable name must not contain '='");
                }
                _ => {}
            }
        }
    }

    fn validate_programs(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for (index, name) in self.spec.programs.iter().flatten().enumerate() {
            if name.is_empty() || name.contains('/') {
                let detail = "must be the name of a program that is looked for on PATH, without a folder";
                errors.invalid(&path.child("programs").index(index), name.as_str(), detail);
            }
        }
        for (field, folders) in [("path", &self.spec.path), ("volumes", &self.spec.volumes)] {
            for (index, folder) in folders.iter().flatten().enumerate() {
                let is_plain = folder.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
                if !folder.starts_with('/') || !is_plain || folder.contains([':', '\0']) {
                    let detail = "must be the absolute path of a folder, such as /var/lib/data";
                    errors.invalid(&path.child(field).index(index), folder.as_str(), detail);
                }
            }
        }
        for (field, list) in
            [("programs", &self.spec.programs), ("path", &self.spec.path), ("volumes", &self.spec.volumes)]
        {
            let count = list.as_ref().map_or(0, Vec::len);
            if count > MAX_PLACES {
                errors.too_many(&path.child(field), count, MAX_PLACES);
            }
        }
    }

    fn validate_ports(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for (index, port) in self.spec.ports.iter().flatten().enumerate() {
            let at = path.index(index);
            if !(1..=65535).contains(&port.container_port) {
                errors.invalid(
                    &at.child("containerPort"),
                    port.container_port,
                    "must be between 1 and 65535, inclusive",
                );
            }
            let protocols = ["SCTP", "TCP", "UDP"];
            if let Some(other) = port.protocol.as_deref().filter(|word| !protocols.contains(word)) {
                errors.unsupported(&at.child("protocol"), other, &protocols);
            }
        }
    }
}

/// Whether a text is a user, or a user and a group with a colon between, by name or number.
fn is_user(text: &str) -> bool {
    let fits = |part: &str| {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-$".contains(&byte);
        !part.is_empty() && !part.starts_with('-') && part.bytes().all(letters)
    };
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    fits(user) && group.is_none_or(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn complaints(spec: Value) -> Vec<String> {
        let body =
            json!({"apiVersion": "kloop.dev/v1alpha1", "kind": "Image", "metadata": {"name": "x"}, "spec": spec});
        let mut unknown = Vec::new();
        let stored = (KIND.normalize)(&body, &mut |field| unknown.push(field.complaint()));
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => return vec![error.message],
        };
        let errors = (KIND.validate)(&Object(stored), None);
        unknown.into_iter().chain(errors.iter().map(ToString::to_string)).collect()
    }

    #[test]
    fn errors_name_their_field() {
        let whole = json!({"patterns": ["nginx", "*/web:1.*"], "entrypoint": [], "command": ["-g"],
            "env": [{"name": "A", "value": "1"}], "user": "www-data:33", "ports": [{"containerPort": 80}],
            "programs": ["web"], "path": ["/opt/web-*/bin"], "volumes": ["/var/lib/web"], "package": "web",
            "filesystem": "host", "build": {"command": ["make"]}, "watch": ["src/**"], "workingDir": "./x"});
        assert_eq!(complaints(whole), [""; 0]);
        let table = [
            (json!({}), "spec.patterns: Required value: list the image names to match, such as nginx or nginx:1.*"),
            (json!({"patterns": ["a b"]}), "spec.patterns[0]: Invalid value: \"a b\": invalid reference format"),
            (json!({"patterns": ["a", "a"]}), "spec.patterns[1]: Duplicate value: \"a\""),
            (json!({"patterns": ["a"], "entrypint": ["x"]}), "unknown field \"spec.entrypint\""),
            (json!({"patterns": ["a"], "env": [{"value": "x"}]}), "spec.env[0].name: Required value"),
            (
                json!({"patterns": ["a"], "user": "a b"}),
                "spec.user: Invalid value: \"a b\": must be a user or user:group, by name or number",
            ),
            (
                json!({"patterns": ["a"], "filesystem": "mine"}),
                "spec.filesystem: Unsupported value: \"mine\": supported values: \"host\", \"private\"",
            ),
            (
                json!({"patterns": ["a"], "build": {}}),
                "spec.build.command: Required value: the program that builds, and its arguments",
            ),
            (
                json!({"patterns": ["a"], "ports": [{"containerPort": 70000}]}),
                "spec.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"patterns": ["a"], "programs": ["bin/web"]}),
                "spec.programs[0]: Invalid value: \"bin/web\": must be the name of a program that is looked for on PATH, without a folder",
            ),
            (
                json!({"patterns": ["a"], "path": ["bin"]}),
                "spec.path[0]: Invalid value: \"bin\": must be the absolute path of a folder, such as /var/lib/data",
            ),
            (
                json!({"patterns": ["a"], "volumes": ["/var/../etc"]}),
                "spec.volumes[0]: Invalid value: \"/var/../etc\": must be the absolute path of a folder, such as /var/lib/data",
            ),
            (
                json!({"patterns": ["a"], "volumes": (0..33).map(|n| format!("/v{n}")).collect::<Vec<_>>()}),
                "spec.volumes: Too many: 33: must have at most 32 items",
            ),
            (
                json!({"patterns": "a"}),
                "json: cannot unmarshal string into Go struct field ImageSpec.spec.patterns of type []string",
            ),
        ];
        for (spec, expected) in table {
            assert_eq!(complaints(spec.clone()), [expected], "{spec}");
        }
    }

    #[test]
    fn schema_describes_every_field() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("a schema");
        let whole = Image {
            spec: ImageSpec {
                entrypoint: Some(vec![]),
                command: Some(vec![]),
                env: Some(vec![ImageVariable::default()]),
                files: Some(String::new()),
                working_dir: Some(String::new()),
                user: Some(String::new()),
                ports: Some(vec![ImagePort {
                    name: Some(String::new()),
                    protocol: Some(String::new()),
                    ..ImagePort::default()
                }]),
                filesystem: Some(String::new()),
                build: Some(ImageBuild { working_dir: Some(String::new()), ..ImageBuild::default() }),
                watch: Some(vec![]),
                programs: Some(vec![]),
                path: Some(vec![]),
                package: Some(String::new()),
                volumes: Some(vec![]),
                ..ImageSpec::default()
            },
            status: Some(ImageStatus {
                sources: Some(ImageSources { message: "m".into(), ..ImageSources::default() }),
                ..ImageStatus::default()
            }),
            api_version: String::new(),
            kind: String::new(),
            metadata: ObjectMeta::default(),
        };
        fn compare(value: &Value, schema: &Value, path: &str) {
            if let Value::Array(items) = value {
                return items.iter().for_each(|item| compare(item, &schema["items"], path));
            }
            let Value::Object(fields) = value else { return };
            for (name, value) in fields.iter().filter(|(name, _)| *name != "metadata") {
                let known = &schema["properties"][name];
                assert!(known["description"].is_string(), "{path}.{name} is not explained");
                compare(value, known, &format!("{path}.{name}"));
            }
        }
        compare(&serde_json::to_value(whole).expect("JSON"), &schema, "");
    }
}
