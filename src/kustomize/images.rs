//! `images`: changes name, tag or digest of images.

use super::BuildResult;
use super::file::{FieldSpec, ImageEntry};
use super::resource::BuildResource;
use regex::Regex;
use serde_json::Value;

/// Changes the images that match a rule, in containers and in the fields of `more`.
pub fn set(resources: &mut [BuildResource], rule: &ImageEntry, more: &[FieldSpec]) -> BuildResult {
    let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@[a-zA-Z][a-zA-Z0-9]*:[a-zA-Z0-9_.{{}}-]*)?$", rule.name);
    let pattern =
        Regex::new(&pattern).map_err(|error| format!("images: {:?} is not a valid pattern: {error}", rule.name))?;
    let change = |image: &mut Value| {
        if let Some(text) = image.as_str().filter(|text| pattern.is_match(text)) {
            *image = changed(text, rule).into();
        }
    };
    for resource in resources.iter_mut().filter(|resource| resource.object.kind() != "CustomResourceDefinition") {
        visit(&mut resource.object.0, &change);
        more.iter().for_each(|field| field.for_each_value(&mut resource.object, &mut |value| change(value)));
    }
    Ok(())
}

/// Calls `change` on the images of containers and image volumes at any depth.
fn visit(value: &mut Value, change: &dyn Fn(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, change)),
        Value::Object(map) => {
            for (name, value) in map {
                let at: &[&str] = match name.as_str() {
                    "containers" | "initContainers" | "ephemeralContainers" => &["image"],
                    "volumes" => &["image", "reference"],
                    _ => &[],
                };
                for item in value.as_array_mut().into_iter().flatten().filter(|_| !at.is_empty()) {
                    let image = at.iter().try_fold(item, |item, name| item.get_mut(*name));
                    image.into_iter().for_each(change);
                }
                visit(value, change);
            }
        }
        _ => {}
    }
}

/// Returns the changed image. A new tag or digest replaces both the old tag and the old digest.
fn changed(image: &str, rule: &ImageEntry) -> String {
    let (name, tag, digest) = split(image);
    let name = if rule.new_name.is_empty() { name } else { &rule.new_name };
    let (tag, digest) = match (rule.new_tag.as_str(), rule.digest.as_str()) {
        ("", "") => (tag, digest),
        new => new,
    };
    let with = |sign: &str, text: &str| if text.is_empty() { String::new() } else { format!("{sign}{text}") };
    let tag = if tag.is_empty() { String::new() } else { format!("{tag}{}", rule.tag_suffix) };
    format!("{name}{}{}", with(":", &tag), with("@", digest))
}

/// Splits an image into name, tag and digest. The host may contain a colon.
fn split(image: &str) -> (&str, &str, &str) {
    let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
    let host = rest.find('/').unwrap_or(0);
    match rest[host..].find(':') {
        Some(at) => (&rest[..host + at], &rest[host + at + 1..], digest),
        None => (rest, "", digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tags_and_digests_change() {
        let rule = |new_name: &str, new_tag: &str, digest: &str| ImageEntry {
            name: String::new(),
            new_name: new_name.into(),
            new_tag: new_tag.into(),
            digest: digest.into(),
            tag_suffix: String::new(),
        };
        for (image, rule, expected) in [
            ("nginx", rule("", "1", ""), "nginx:1"),
            ("nginx:2", rule("", "1", ""), "nginx:1"),
            ("nginx:2@sha256:ab", rule("", "1", ""), "nginx:1"),
            ("nginx:2", rule("", "", "sha256:ab"), "nginx@sha256:ab"),
            ("nginx:2", rule("", "1", "sha256:ab"), "nginx:1@sha256:ab"),
            ("nginx:2@sha256:ab", rule("httpd", "", ""), "httpd:2@sha256:ab"),
            ("host:5000/a/nginx", rule("", "1", ""), "host:5000/a/nginx:1"),
            ("host:5000/nginx:2", rule("b", "", ""), "b:2"),
            ("./server", rule("./other", "", ""), "./other"),
        ] {
            assert_eq!(changed(image, &rule), expected, "{image}");
        }
    }
}
