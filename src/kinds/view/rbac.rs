//! Roles, cluster roles and their bindings.

use super::age::age_since;
use super::body::{BodyRead, go_list};
use super::limit_range::{CREATED, created_at};
use super::{Column, Describe, KindView, RelatedObjects, TableCell};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of roles.
pub static ROLE: KindView = KindView { columns: CREATED, cells: created_at, describe: describe_role };

/// The view of cluster roles.
pub static CLUSTER_ROLE: KindView = KindView { columns: CREATED, cells: created_at, describe: describe_role };

/// The view of role bindings.
pub static BINDING: KindView = KindView { columns: BINDING_COLUMNS, cells: binding_cells, describe: describe_binding };

/// The view of cluster role bindings.
pub static CLUSTER_BINDING: KindView =
    KindView { columns: BINDING_COLUMNS, cells: binding_cells, describe: describe_binding };

const BINDING_COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Role"),
    Column::text("Age"),
    Column::wide("Users"),
    Column::wide("Groups"),
    Column::wide("ServiceAccounts"),
];

fn binding_cells(binding: &Object, now: Time) -> Vec<TableCell> {
    let role = binding.0.value_at("roleRef");
    let subjects = |kind: &str| {
        let of_kind = binding.0.list("subjects").iter().filter(|subject| subject.text("kind") == kind);
        let names = of_kind.map(|subject| match subject.text("namespace") {
            "" => subject.text("name").to_owned(),
            namespace => format!("{namespace}/{}", subject.text("name")),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    vec![
        binding.name().into(),
        format!("{}/{}", role.text("kind"), role.text("name")).into(),
        age_since(binding.created(), now).into(),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}

fn describe_binding(binding: &Object, _related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", binding.name());
    out.labels_and_annotations(binding);
    out.heading(0, "Role");
    out.field(1, "Kind", binding.0.text("roleRef.kind"));
    out.field(1, "Name", binding.0.text("roleRef.name"));
    out.heading(0, "Subjects");
    out.header(1, &["Kind", "Name", "Namespace"]);
    for subject in binding.0.list("subjects") {
        out.row(1, &[&subject.text("kind"), &subject.text("name"), &subject.text("namespace")]);
    }
}

fn describe_role(role: &Object, _related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", role.name());
    out.labels_and_annotations(role);
    out.heading(0, "PolicyRule");
    out.header(1, &["Resources", "Non-Resource URLs", "Resource Names", "Verbs"]);
    for rule in compact(role.0.list("rules")) {
        let names: Vec<&str> = rule.name.into_iter().collect();
        let urls: Vec<&str> = rule.url.into_iter().collect();
        out.row(1, &[&rule.target(), &go_list(&urls), &go_list(&names), &go_list(&rule.verbs)]);
    }
}

/// Allowed verbs for one resource, one of its objects, or one URL.
struct RbacRule<'a> {
    group: &'a str,
    resource: &'a str,
    name: Option<&'a str>,
    url: Option<&'a str>,
    verbs: Vec<&'a str>,
}

impl RbacRule<'_> {
    /// The resource with group and subresource, such as `deployments.apps/scale`.
    fn target(&self) -> String {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let dot = if self.group.is_empty() { "" } else { "." };
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{resource}{dot}{}{slash}{subresource}", self.group)
    }

    /// The sort key: kubectl sorts rules by the text of Go's struct.
    fn order(&self) -> String {
        let list = |item: Option<&str>| item.unwrap_or_default().to_owned();
        let verbs = self.verbs.join(" ");
        let (group, resource, name, url) = (self.group, self.resource, list(self.name), list(self.url));
        format!(
            "Verbs:[{verbs}],APIGroups:[{group}],Resources:[{resource}],ResourceNames:[{name}],NonResourceURLs:[{url}]"
        )
    }
}

/// Splits rules into single targets and joins their verbs, except for URLs, as in kubectl.
fn compact(rules: &[Value]) -> Vec<RbacRule<'_>> {
    let mut all: Vec<RbacRule<'_>> = Vec::new();
    for rule in rules {
        let verbs = rule.texts("verbs");
        let mut names: Vec<Option<&str>> = rule.texts("resourceNames").into_iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        for group in rule.texts("apiGroups") {
            for resource in rule.texts("resources") {
                for name in &names {
                    let same = |known: &&mut RbacRule<'_>| {
                        (known.group, known.resource, known.name, known.url) == (group, resource, *name, None)
                    };
                    match all.iter_mut().find(same) {
                        Some(known) => known.verbs.extend(&verbs),
                        None => all.push(RbacRule { group, resource, name: *name, url: None, verbs: verbs.clone() }),
                    }
                }
            }
        }
        for url in rule.texts("nonResourceURLs") {
            all.extend(verbs.iter().map(|verb| RbacRule {
                group: "",
                resource: "",
                name: None,
                url: Some(url),
                verbs: vec![verb],
            }));
        }
    }
    all.sort_by_cached_key(RbacRule::order);
    all
}
