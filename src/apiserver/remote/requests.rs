//! Paths and requests of the REST API for reads and writes of objects.

use crate::apiserver::forward::{ForwardedAction, ForwardedWrite};
use crate::apiserver::{DeleteOptions, WriteOptions};
use crate::client::{ClientRequest, PatchFormat};
use crate::kinds::Kind;
use crate::object::Object;
use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// Bytes that stay as they are in one part of a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// Returns the path of the objects of a kind: `/apis/apps/v1/namespaces/default/deployments`. An empty namespace means all namespaces.
pub fn collection_path(kind: &Kind, api_version: &str, namespace: &str) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let place = match namespace.is_empty() || !kind.namespaced {
        true => String::new(),
        false => format!("/namespaces/{}", escape(namespace)),
    };
    format!("{root}/{api_version}{place}/{}", kind.resource.plural())
}

/// Returns the path of an object, or of a subresource of it.
pub fn object_path(kind: &Kind, api_version: &str, (namespace, name): (&str, &str), subresource: &str) -> String {
    let below = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    format!("{}/{}{below}", collection_path(kind, api_version, namespace), escape(name))
}

fn escape(part: &str) -> String {
    utf8_percent_encode(part, ESCAPED).to_string()
}

/// Returns the request of a write. `dry_run`: the server stores nothing, even if the options say otherwise.
pub fn write_request(write: &ForwardedWrite<'_>, dry_run: bool) -> ClientRequest {
    let place = (&*write.key.namespace, &*write.key.name);
    let object = || object_path(write.kind, &write.api_version, place, write.subresource);
    match &write.action {
        ForwardedAction::Create(body, options) => {
            let path = match write.subresource {
                "" => collection_path(write.kind, &write.api_version, &write.key.namespace),
                _ => object(),
            };
            with_options(ClientRequest::post(path, &body.0), options, dry_run)
        }
        ForwardedAction::Update(body, options) => with_options(ClientRequest::put(object(), &body.0), options, dry_run),
        ForwardedAction::Patch(format, patch, options) => {
            with_options(ClientRequest::patch(object(), *format, patch), options, dry_run)
        }
        ForwardedAction::Apply(config, manager, options) => {
            let unmanaged = WriteOptions { manager: None, ..(*options).clone() };
            let request = ClientRequest::patch(object(), PatchFormat::Apply, &config.0);
            let request = request.query("fieldManager", manager.name);
            let request = request.query("force", if manager.force { "true" } else { "false" });
            with_options(request, &unmanaged, dry_run)
        }
        ForwardedAction::Delete(options) => {
            let path = object();
            ClientRequest::delete(path, &delete_options(options, dry_run))
        }
    }
}

fn with_options(mut request: ClientRequest, options: &WriteOptions, dry_run: bool) -> ClientRequest {
    if let Some(manager) = &options.manager {
        request = request.query("fieldManager", &manager.name);
    }
    if options.dry_run || dry_run {
        request = request.query("dryRun", "All");
    }
    let takes_validation = request.method != Method::DELETE;
    if takes_validation { request.query("fieldValidation", options.field_validation.name()) } else { request }
}

/// Returns the body of a deletion.
pub fn delete_options(options: &DeleteOptions, dry_run: bool) -> Value {
    let mut body = Object(json!({"apiVersion": "v1", "kind": "DeleteOptions"}));
    if let Some(propagation) = options.propagation {
        body.set(&["propagationPolicy"], propagation.name());
    }
    if let Some(grace) = options.grace {
        body.set(&["gracePeriodSeconds"], grace);
    }
    for (field, value) in [("uid", &options.uid), ("resourceVersion", &options.revision)] {
        if let Some(value) = value {
            body.set(&["preconditions", field], value.as_str());
        }
    }
    if options.dry_run || dry_run {
        body.set(&["dryRun"], json!(["All"]));
    }
    body.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use crate::object::Key;
    use crate::world::Propagation;

    fn kind(name: &str) -> &'static Kind {
        kinds::by_name(name).unwrap()
    }

    #[test]
    fn paths_are_those_of_the_rest_api() {
        let (pods, roles) = (kind("pods"), kind("clusterroles"));
        assert_eq!(collection_path(pods, "v1", "a"), "/api/v1/namespaces/a/pods");
        assert_eq!(collection_path(pods, "v1", ""), "/api/v1/pods");
        assert_eq!(object_path(pods, "v1", ("a", "b"), "log"), "/api/v1/namespaces/a/pods/b/log");
        let role = object_path(roles, "rbac.authorization.k8s.io/v1", ("", "system:a b"), "");
        assert_eq!(role, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b");
    }

    #[test]
    fn writes_become_requests_with_their_options() {
        let pods = kind("pods");
        let key = Key::new(pods.resource, "a", "b");
        let options = WriteOptions::default();
        let change = json!({"metadata": {}});
        let action = ForwardedAction::Patch(PatchFormat::Merge, &change, &options);
        let request = write_request(&ForwardedWrite::from_key(pods, &key, None, "status", action), true);
        assert_eq!(request.path, "/api/v1/namespaces/a/pods/b/status?dryRun=All&fieldValidation=Strict");
        assert_eq!((request.method, request.content_type), (Method::PATCH, "application/merge-patch+json"));
        let options = DeleteOptions { grace: Some(0), uid: Some("u".to_owned()), ..DeleteOptions::default() };
        let mut expected = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"},
        });
        assert_eq!(delete_options(&options, false), expected);
        expected["propagationPolicy"] = "Orphan".into();
        let options = DeleteOptions { propagation: Some(Propagation::Orphan), ..options };
        assert_eq!(delete_options(&options, false), expected);
    }
}
