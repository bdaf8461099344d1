//! Images.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, text_or};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of Images.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Patterns"),
    Column::text("Entrypoint"),
    Column::text("Command"),
    Column::text("Age"),
    Column::wide("User"),
    Column::wide("Working-Dir"),
    Column::wide("Filesystem"),
    Column::wide("Watch"),
];

fn cells(image: &Object, now: Time) -> Vec<TableCell> {
    let spec = image.0.value_at("spec");
    vec![
        image.name().into(),
        spec.texts("patterns").join(",").into(),
        entrypoint(image, brief).into(),
        TableCell::or_none(&brief(&spec.texts("command"))),
        age_since(image.created(), now).into(),
        TableCell::or_none(spec.text("user")),
        TableCell::or_none(spec.text("workingDir")),
        TableCell::or_none(spec.text("filesystem")),
        TableCell::or_none(&spec.texts("watch").join(",")),
    ]
}

/// The entrypoint; `<none>` for an empty one (no program), `<found>` for an absent one.
fn entrypoint(image: &Object, shown: fn(&[&str]) -> String) -> String {
    match image.0.value_at("spec.entrypoint").as_array() {
        None => "<found>".into(),
        Some(words) if words.is_empty() => "<none>".into(),
        Some(_) => shown(&image.0.texts("spec.entrypoint")),
    }
}

/// Joins words with a shell's quotes.
pub fn words(words: &[&str]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,@%+$()".contains(&byte))
    };
    let quoted =
        |word: &&str| if plain(word) { (*word).to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Joins words with a shell's quotes, and replaces each multi-line word by `<script>`.
pub fn brief(all: &[&str]) -> String {
    words(&all.iter().map(|word| if word.contains('\n') { "<script>" } else { word }).collect::<Vec<_>>())
        .replace("'<script>'", "<script>")
}

/// Writes the last build; absent fields are omitted.
fn last_build(build: &Value, out: &mut Describe) {
    out.field(1, "State", text_or(build.text("state"), "<not built yet>"));
    for (name, field) in [("Started", "startedAt"), ("Finished", "finishedAt")] {
        if build.has(field) {
            out.field(1, name, rfc1123(build.time(field)));
        }
    }
    if !build.text("message").is_empty() {
        out.field(1, "Message", build.text("message"));
    }
    if !build.text("output").is_empty() {
        out.values(1, "Output", build.text("output").lines());
    }
}

fn describe(image: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let spec = image.0.value_at("spec");
    out.field(0, "Name", image.name());
    out.labels_and_annotations(image);
    out.values(0, "Patterns", spec.texts("patterns"));
    out.field(0, "Entrypoint", entrypoint(image, words));
    out.field(0, "Command", text_or(&words(&spec.texts("command")), "<none>"));
    for (name, field) in [("Programs", "programs"), ("Path", "path"), ("Volumes", "volumes")] {
        if spec.has(field) {
            out.values(0, name, spec.texts(field));
        }
    }
    if spec.has("package") {
        out.field(0, "Package", spec.text("package"));
    }
    if spec.has("files") {
        out.field(0, "Files", spec.text("files"));
    }
    out.field(0, "Working Dir", text_or(spec.text("workingDir"), "<none>"));
    out.field(0, "User", text_or(spec.text("user"), "<none>"));
    out.field(0, "Filesystem", text_or(spec.text("filesystem"), "<none>"));
    let variables = spec.list("env").iter().map(|one| format!("{}={}", one.text("name"), one.text("value")));
    out.values(0, "Environment", variables);
    let ports = spec
        .list("ports")
        .iter()
        .map(|one| format!("{}/{}", one.int("containerPort"), text_or(one.text("protocol"), "TCP")));
    out.values(0, "Ports", ports);
    if spec.has("build") {
        out.heading(0, "Build");
        out.field(1, "Command", words(&spec.texts("build.command")));
        out.field(1, "Working Dir", text_or(spec.text("build.workingDir"), "<none>"));
        last_build(image.0.value_at("status.build"), out);
    }
    if spec.has("watch") {
        out.values(0, "Watch", spec.texts("watch"));
        out.heading(0, "Sources");
        out.field(1, "Digest", text_or(image.0.text("status.sources.digest"), "<none>"));
        out.field(1, "Files", image.0.int("status.sources.files"));
        if image.0.has("status.sources.message") {
            out.field(1, "Message", image.0.text("status.sources.message"));
        }
    }
    events::write_events(image, related, out);
}
