//! Paths in a manifest that are relative to it: `image: ./server` means the file `server` in the manifest's folder.
//!
//! The manifest's folder is recorded for the kubelet in an annotation of the pod or pod template.
//! This is done only if the manifest contains a relative path, so that others stay unchanged.

use super::files::Manifest;
use crate::kinds::image::KIND;
use crate::kinds::shared::manifest_folder::{ANNOTATION as FOLDER, TEMPLATES};
use crate::object::Object;
use serde_json::Value;

/// Records the manifest's folder in the object if it contains relative paths.
pub fn record_folder(object: &mut Object, manifest: &Manifest) {
    let Some(folder) = manifest.folder.as_deref().and_then(|folder| folder.to_str()) else { return };
    record(object, folder);
}

/// Returns the current folder, which paths on a command line are relative to.
pub fn current_folder() -> Option<String> {
    std::env::current_dir().ok()?.into_os_string().into_string().ok()
}

/// Records a folder in an Image object, or in an object's pod template, if it contains relative
/// paths.
pub fn record(object: &mut Object, folder: &str) {
    if object.kind() == KIND.kind && object.api_version() == KIND.api_version() {
        if image_is_relative(&object.0["spec"]) {
            object.set(&["metadata", "annotations", FOLDER], folder);
        }
        return;
    }
    for template in TEMPLATES {
        let in_template = |path: &[&'static str]| [template, path].concat();
        let lists = [in_template(&["spec", "containers"]), in_template(&["spec", "initContainers"])];
        let mut containers = lists.iter().flat_map(|list| object.items(list));
        if containers.any(is_relative) {
            object.set(&in_template(&["metadata", "annotations", FOLDER]), folder);
            return;
        }
    }
}

/// Whether an Image object contains a relative path. Names of programs on PATH do not count.
fn image_is_relative(spec: &Value) -> bool {
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.starts_with('/'));
    let program = spec["entrypoint"][0].as_str().is_some_and(|text| text.starts_with("./") || text.starts_with("../"));
    let globs = spec["watch"].as_array().into_iter().flatten().any(text);
    program || globs || text(&spec["workingDir"]) || text(&spec["files"]) || spec["build"].is_object()
}

fn is_relative(container: &Value) -> bool {
    let relative = |value: &Value| value.as_str().is_some_and(|text| text.starts_with("./") || text.starts_with("../"));
    relative(&container["image"]) || relative(&container["command"][0])
}
