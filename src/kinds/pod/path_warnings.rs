//! Warnings of files of one volume whose paths overlap (Kubernetes: `warningsForOverlappingVirtualPaths`).

use serde_json::Value;
use std::fmt;

/// Maximum number of files of a volume that are compared with each other.
const MAX_FILES: usize = 1000;

/// A file of a volume, and its source.
struct File<'v> {
    path: &'v str,
    source: String,
}

impl fmt::Display for File<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.path)?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

/// Warns of volumes with overlapping files, and of projected volumes with an empty source.
pub fn check(volumes: &[Value], warnings: &mut Vec<String>) {
    for volume in volumes {
        let name = volume["name"].as_str().unwrap_or_default();
        let sources = [
            (format!("ConfigMap {:?}", text(&volume["configMap"]["name"])), &volume["configMap"]),
            (format!("Secret {:?}", text(&volume["secret"]["secretName"])), &volume["secret"]),
            ("DownwardAPI".to_owned(), &volume["downwardAPI"]),
        ];
        for (description, source) in sources {
            warn_of_overlaps(name, &description, files_of(source, ""), warnings);
        }
        let mut files = Vec::new();
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            if source.as_object().is_some_and(serde_json::Map::is_empty) {
                warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
            }
            files.extend(projected_files(source));
        }
        warn_of_overlaps(name, "Projected", files, warnings);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The files that a source maps keys or fields to.
fn files_of<'v>(source: &'v Value, description: &str) -> Vec<File<'v>> {
    let items = source["items"].as_array().into_iter().flatten();
    items.map(|item| File { path: text(&item["path"]), source: description.to_owned() }).collect()
}

/// The files of a source of a projected volume.
fn projected_files(source: &Value) -> Vec<File<'_>> {
    let named = |kind: &str, source: &Value| format!("{kind} {:?}", text(&source["name"]));
    let (config, secret, token) = (&source["configMap"], &source["secret"], &source["serviceAccountToken"]);
    let bundle = &source["clusterTrustBundle"];
    if config["items"].is_array() {
        files_of(config, &named("ConfigMap", config))
    } else if secret["items"].is_array() {
        files_of(secret, &named("Secret", secret))
    } else if source["downwardAPI"]["items"].is_array() {
        files_of(&source["downwardAPI"], "DownwardAPI")
    } else if token.is_object() {
        vec![File { path: text(&token["path"]), source: "ServiceAccountToken".to_owned() }]
    } else if bundle.is_object() {
        let name = bundle["name"].as_str().or_else(|| bundle["signerName"].as_str()).unwrap_or_default();
        vec![File { path: text(&bundle["path"]), source: format!("ClusterTrustBundle {name:?}") }]
    } else {
        let kinds =
            [("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle")];
        let certificate = |(field, kind): (&str, &str)| {
            let path = source["podCertificate"][field].as_str().filter(|path| !path.is_empty())?;
            Some(File { path, source: format!("PodCertificate {kind}") })
        };
        kinds.into_iter().filter_map(certificate).collect()
    }
}

/// Warns of each pair of files with the same path, or of which one path is below the other.
fn warn_of_overlaps(volume: &str, description: &str, mut files: Vec<File<'_>>, warnings: &mut Vec<String>) {
    files.truncate(MAX_FILES);
    files.iter_mut().for_each(|file| file.path = file.path.trim_end_matches('/'));
    let contains = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for (index, file) in files.iter().enumerate().filter(|(_, file)| !file.path.is_empty()) {
        for other in files.iter().take(index).filter(|other| !other.path.is_empty()) {
            if contains(file.path, other.path) || contains(other.path, file.path) {
                warnings.push(format!("volume {volume:?} ({description}): overlapping paths: {file} with {other}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn warnings(volume: Value) -> Vec<String> {
        let mut warnings = Vec::new();
        super::check(&[volume], &mut warnings);
        warnings
    }

    #[test]
    fn overlapping_files_are_warned_about() {
        let items = |paths: &[&str]| -> Value { paths.iter().map(|path| json!({"key": "k", "path": path})).collect() };
        let map = |paths: &[&str]| json!({"name": "v", "configMap": {"name": "m", "items": items(paths)}});
        assert_eq!(warnings(map(&["a", "ab", "b/c"])), [""; 0]);
        let text = r#"volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a""#;
        assert_eq!(warnings(map(&["a/", "a/b"])), [text]);
        let sources =
            json!([{"serviceAccountToken": {"path": "t"}}, {"secret": {"name": "s", "items": items(&["t"])}}, {}]);
        let expected = [
            r#"volume "v" (Projected) has no sources provided"#,
            r#"volume "v" (Projected): overlapping paths: "t" (Secret "s") with "t" (ServiceAccountToken)"#,
        ];
        assert_eq!(warnings(json!({"name": "v", "projected": {"sources": sources}})), expected);
    }
}
