//! Requests written as text, for tests.

use super::{AccessRequest, AccessTarget, AccessedResource};

/// Parses `get pods/log web in shop`, `list nodes`, `list pods in shop with spec.nodeName=a`, `get /healthz`.
pub fn request(text: &str) -> AccessRequest {
    let (text, field_selector) = text.split_once(" with ").unwrap_or((text, ""));
    let (rest, namespace) = text.split_once(" in ").unwrap_or((text, ""));
    let words: Vec<&str> = rest.split(' ').collect();
    if words[1].starts_with('/') {
        return AccessRequest { verb: words[0].into(), target: AccessTarget::Path(words[1].into()) };
    }
    let (path, group) = words[1].split_once('.').unwrap_or((words[1], ""));
    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
    let name = words.get(2).copied().unwrap_or_default();
    let [group, resource, subresource, namespace, name, field_selector] =
        [group, resource, subresource, namespace, name, field_selector].map(str::to_owned);
    let accessed = AccessedResource { group, resource, subresource, namespace, name, field_selector };
    AccessRequest::for_resource(words[0], accessed)
}
