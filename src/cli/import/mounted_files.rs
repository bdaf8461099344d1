//! Secrets and configs of Compose files: files that services mount.
//!
//! Never: reads a file. Start reading at [`MountedFiles::read`].

use super::values::host_path;
use crate::object::{Object, scalar_text_or_empty};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A top-level list of files, and the place where services mount them.
struct FileList {
    /// `secrets`, in the file and in its services.
    field: &'static str,
    /// The folder of the mounted files.
    folder: &'static str,
    /// The Kubernetes kind that holds a content.
    kind: &'static str,
}

const LISTS: [FileList; 2] = [
    FileList { field: "secrets", folder: "/run/secrets", kind: "Secret" },
    FileList { field: "configs", folder: "", kind: "ConfigMap" },
];

/// One mounted file.
#[derive(Debug, PartialEq)]
pub struct MountedFile {
    /// Name of the volume.
    pub volume: String,
    /// Its source, such as a `hostPath`.
    pub source: Value,
    /// The key in the volume that is mounted, if the volume is a folder.
    pub sub_path: Option<String>,
    /// Path in the container.
    pub path: String,
}

/// The files that a service mounts.
#[derive(Debug, Default)]
pub struct MountedFiles {
    /// The files.
    pub files: Vec<MountedFile>,
    /// Names of entries that are not converted, with the reason.
    pub left_out: Vec<String>,
}

impl MountedFiles {
    /// Reads the entries of a service. `object_name` makes a name that Kubernetes takes.
    pub fn read(file: &Value, service: &Value, folder: &Path, object_name: fn(&str) -> String) -> MountedFiles {
        let mut found = MountedFiles::default();
        for list in &LISTS {
            for entry in service[list.field].as_array().into_iter().flatten() {
                let name = entry["source"].as_str().map_or_else(|| scalar_text_or_empty(entry), str::to_owned);
                let declared = &file[list.field][&name];
                let target = entry["target"].as_str().unwrap_or(&name);
                let path =
                    if target.starts_with('/') { target.to_owned() } else { format!("{}/{target}", list.folder) };
                let volume = format!("{}-{}", list.kind.to_lowercase(), object_name(&name));
                let (source, sub_path) = if let Some(source) = declared["file"].as_str() {
                    (json!({"hostPath": {"path": host_path(source, folder), "type": "File"}}), None)
                } else if has_content(declared) {
                    let object = object_name(&name);
                    let source = match list.kind {
                        "Secret" => json!({"secret": {"secretName": object}}),
                        _ => json!({"configMap": {"name": object}}),
                    };
                    (source, Some(object))
                } else {
                    let why = if declared.is_null() { "the file does not declare it" } else { "it is external" };
                    found.left_out.push(format!("{} {name} is left out: {why}", list.field));
                    continue;
                };
                found.files.push(MountedFile { volume, source, sub_path, path });
            }
        }
        found
    }
}

/// Whether the Compose file, or a variable, has the content of an entry.
fn has_content(declared: &Value) -> bool {
    ["content", "environment"].iter().any(|field| declared[*field].is_string())
}

/// Makes the Secrets and ConfigMaps of the entries whose content the Compose file or a variable has.
pub fn objects(file: &Value, variables: &BTreeMap<String, String>, object_name: fn(&str) -> String) -> Vec<Object> {
    let mut objects = Vec::new();
    for list in &LISTS {
        for (name, declared) in file[list.field].as_object().into_iter().flatten().filter(|(_, one)| has_content(one)) {
            let of_variable = || variables.get(declared["environment"].as_str()?).cloned();
            let content = declared["content"].as_str().map(str::to_owned).or_else(of_variable).unwrap_or_default();
            let name = object_name(name);
            let field = if list.kind == "Secret" { "stringData" } else { "data" };
            let mut object = json!({"apiVersion": "v1", "kind": list.kind, "metadata": {"name": name}});
            object[field] = json!({name: content});
            objects.push(Object(object));
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_contents_are_mounted() {
        let file = json!({
            "secrets": {"pass": {"file": "./pass.txt"}, "token": {"environment": "TOKEN"}, "far": {"external": true}},
            "configs": {"site_conf": {"content": "a=1"}},
        });
        let service = json!({
            "secrets": ["pass", {"source": "token", "target": "t"}, "far", "none"],
            "configs": [{"source": "site_conf", "target": "/etc/site"}],
        });
        let name = |name: &str| name.replace('_', "-");
        let found = MountedFiles::read(&file, &service, Path::new("/app"), name);
        let shown: Vec<_> =
            found.files.iter().map(|one| (one.path.as_str(), &one.source, one.sub_path.as_deref())).collect();
        let pass = json!({"hostPath": {"path": "/app/pass.txt", "type": "File"}});
        let (token, site) = (json!({"secret": {"secretName": "token"}}), json!({"configMap": {"name": "site-conf"}}));
        let expected = [
            ("/run/secrets/pass", &pass, None),
            ("/run/secrets/t", &token, Some("token")),
            ("/etc/site", &site, Some("site-conf")),
        ];
        assert_eq!(shown, expected);
        let left_out =
            ["secrets far is left out: it is external", "secrets none is left out: the file does not declare it"];
        assert_eq!(found.left_out, left_out);
        let made = objects(&file, &[("TOKEN".to_owned(), "x".to_owned())].into(), name);
        let data: Vec<_> = made.iter().map(|object| (&object.0["stringData"], &object.0["data"])).collect();
        assert_eq!(data, [(&json!({"token": "x"}), &Value::Null), (&Value::Null, &json!({"site-conf": "a=1"}))]);
    }
}
