//! Reading: get, and list with selectors.

use super::ApiResult;
use super::authorization::check_verb;
use super::custom;
use super::transaction::{PageReader, Transaction};
use crate::kinds::{self, Kind};
use crate::object::selector::{FieldOp, FieldSelector, Selector};
use crate::object::sparse::ReadPart;
use crate::object::{Key, Object, Reason, Resource, Status};

/// Selection of objects for a list.
#[derive(Default, Clone)]
pub struct ListSelection {
    /// By labels.
    pub labels: Option<Selector>,
    /// By fields.
    pub fields: Option<FieldSelector>,
}

impl ListSelection {
    /// Whether all objects are.
    pub fn is_everything(&self) -> bool {
        let labels = self.labels.as_ref().is_none_or(Selector::is_everything);
        labels && self.fields.as_ref().is_none_or(FieldSelector::is_everything)
    }

    /// Whether it reads fields besides name and namespace, which a conversion may change.
    pub fn reads_content(&self) -> bool {
        let fields = self.fields.as_ref().map(FieldSelector::requirements).unwrap_or_default();
        fields.iter().any(|(field, _, _)| !matches!(field.as_str(), "metadata.name" | "metadata.namespace"))
    }

    /// The parameters of a request for the selected objects.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let labels = self.labels.as_ref().filter(|selector| !selector.is_everything());
        let fields = self.fields.as_ref().filter(|selector| !selector.is_everything());
        let labels = labels.map(|selector| ("labelSelector", selector.to_string()));
        labels.into_iter().chain(fields.map(|selector| ("fieldSelector", selector.to_string()))).collect()
    }

    /// Whether an object is wanted.
    pub fn admits(&self, kind: &Kind, object: &Object) -> bool {
        let labels = self.labels.as_ref().is_none_or(|selector| selector.matches(|key| object.label(key)));
        labels && self.fields.as_ref().is_none_or(|selector| fields_match(kind, object, selector))
    }

    /// Whether an object with this text may be wanted. Scans the text without parsing, for the lists and watches of all kubelets.
    pub fn may_admit(&self, body: &str) -> bool {
        let fields = self.fields.as_ref().map(FieldSelector::requirements).unwrap_or_default();
        fields.iter().all(|(field, op, value)| {
            let is_stored = matches!(field.as_str(), "metadata.name" | "spec.nodeName") && *op == FieldOp::Equals;
            // JSON does not escape these letters.
            let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
            !is_stored || !is_plain || body.contains(value.as_str())
        })
    }

    /// Refuses selectors on fields that the kind cannot be selected by.
    pub fn check(&self, kind: &Kind) -> ApiResult<()> {
        let Some(selector) = &self.fields else { return Ok(()) };
        for (field, _, _) in selector.requirements() {
            if !kinds::catalogue::selectable::is_selectable(kind, field) {
                let message = match kind.custom.is_none() && kind.selectable.is_empty() {
                    true => format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                    false => format!("field label not supported: {field}"),
                };
                return Err(Status::new(Reason::BadRequest, message));
            }
        }
        Ok(())
    }
}

fn fields_match(kind: &Kind, object: &Object, selector: &FieldSelector) -> bool {
    selector.matches(|field| kinds::selectable(kind, object, field).unwrap_or_default())
}

/// Returns an object as it is stored, or the API server's error 404 for the object.
pub fn exact(txn: &dyn Transaction, key: &Key) -> ApiResult<Object> {
    let mut object = txn.get(key)?.ok_or_else(|| Status::not_found(key.resource, &key.name))?;
    if let Some(kind) = custom_kind(txn, key.resource) {
        custom::complete_stored(txn, kind, std::slice::from_mut(&mut object))?;
    }
    Ok(object)
}

/// The custom kind of a resource; built-in ones are not looked for.
fn custom_kind(txn: &dyn Transaction, resource: Resource) -> Option<&'static Kind> {
    let may_be = resource.group().contains('.') && kinds::by_resource(resource).is_none();
    txn.kinds().by_resource(resource).filter(|_| may_be)
}

/// Returns an object, or kubectl's error 404 for the object or for its namespace if that is missing (cli-runtime: `Info.Get`).
pub fn get(txn: &dyn Transaction, key: &Key) -> ApiResult<Object> {
    let missing = |txn: &dyn Transaction| {
        let namespace = Key::new(Resource("namespaces"), "", &key.namespace);
        match key.namespace.is_empty() || txn.exists(&namespace)? {
            true => Err(Status::not_found(key.resource, &key.name)),
            false => Err(Status::not_found(namespace.resource, &namespace.name)),
        }
    };
    check_verb(txn, "get", "", key)?;
    let mut object = txn.get(key)?.map_or_else(|| missing(txn), Ok)?;
    if let Some(kind) = custom_kind(txn, key.resource) {
        custom::present_stored(txn, kind, std::slice::from_mut(&mut object))?;
    }
    Ok(object)
}

/// The wanted objects of a kind, in one namespace or in all.
pub fn list(
    txn: &dyn Transaction,
    kind: &Kind,
    namespace: Option<&str>,
    wanted: &ListSelection,
) -> ApiResult<Vec<Object>> {
    let mut objects = Vec::new();
    let mut keep = |page| -> ApiResult<()> {
        objects.extend(page);
        Ok(())
    };
    read_pages(txn, kind, namespace, wanted, &ReadPart::Whole, &mut keep)?;
    Ok(objects)
}

/// Like [`list`], but page by page, for a reader that needs only a part of each object, which has to contain the fields of the selection.
pub fn read_pages(
    txn: &dyn Transaction,
    kind: &Kind,
    namespace: Option<&str>,
    wanted: &ListSelection,
    part: &ReadPart,
    reader: &mut PageReader<'_>,
) -> ApiResult<()> {
    if let Some(listed) = txn.list_selected(kind, namespace.filter(|_| kind.namespaced), &wanted.query()) {
        return reader(listed?);
    }
    wanted.check(kind)?;
    let namespace = check_list(txn, kind, namespace)?;
    txn.read_pages(kind.resource, namespace, part, &mut |mut page| {
        custom::present_stored(txn, kind, &mut page)?;
        page.retain(|object| wanted.admits(kind, object));
        reader(page)
    })
}

/// The names of the objects of a kind, in one namespace or in all, ordered by namespace and name.
pub fn list_names(txn: &dyn Transaction, kind: &Kind, namespace: Option<&str>) -> ApiResult<Vec<String>> {
    let namespace = check_list(txn, kind, namespace)?;
    Ok(txn.list_names(kind.resource, namespace)?.into_iter().map(|(_, name)| name).collect())
}

/// Refuses a list to a user who may not make it; returns the namespace that is listed.
fn check_list<'n>(txn: &dyn Transaction, kind: &Kind, namespace: Option<&'n str>) -> ApiResult<Option<&'n str>> {
    let namespace = namespace.filter(|_| kind.namespaced);
    check_verb(txn, "list", "", &Key::new(kind.resource, namespace.unwrap_or_default(), ""))?;
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::super::Api;
    use super::*;
    use crate::object::Time;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn pages_are_the_whole_list_and_end_with_an_error() {
        let kind = kinds::ALL.iter().find(|kind| kind.resource == "configmaps").unwrap();
        for count in [0, 100, 201] {
            let mut api = Api::in_memory("test").unwrap();
            let names: Vec<String> = (0..count).map(|number| format!("m{number:03}")).collect();
            let mut txn = api.store_mut().write(Duration::from_secs(1)).unwrap();
            for name in &names {
                let map = Object(json!({"metadata": {"name": name, "namespace": "a", "uid": name}}));
                let key = Key::new(kind.resource, "a", name);
                txn.put(&key, name, |revision| map.text_at(revision), "test", Time::UNIX_EPOCH).unwrap();
            }
            txn.commit().unwrap();
            let read = |reader: &mut PageReader<'_>| {
                let everything = ListSelection::default();
                api.read_view(|txn| read_pages(txn, kind, Some("a"), &everything, &ReadPart::Unmanaged, reader))
            };
            let mut found = Vec::new();
            let mut keep = |page: Vec<Object>| -> ApiResult<()> {
                found.extend(page.iter().map(|object| object.name().to_owned()));
                Ok(())
            };
            read(&mut keep).unwrap();
            assert_eq!(found, names);
            let mut calls = 0;
            let refused = read(&mut |_| {
                calls += 1;
                Err(Status::new(Reason::Timeout, "enough"))
            });
            assert_eq!((refused.unwrap_err().message.as_str(), calls), ("enough", 1), "{count}");
        }
    }

    #[test]
    fn quick_look_rules_out_only_what_is_not_wanted() {
        let body = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"far-1"},"status":{}}"#;
        for (fields, expected) in [
            ("", true),
            ("spec.nodeName=far-1", true),
            ("spec.nodeName=far", true),
            ("spec.nodeName=near", false),
            ("spec.nodeName!=near", true),
            ("spec.nodeName=", true),
            ("metadata.name=b,spec.nodeName=far-1", false),
            ("status.phase=Pending", true),
            (r#"metadata.name=x"y"#, true),
        ] {
            let selection = ListSelection { fields: Some(FieldSelector::parse(fields).unwrap()), labels: None };
            assert_eq!(selection.may_admit(body), expected, "{fields}");
        }
    }
}
