//! IPAddress (networking.k8s.io/v1).

use super::shared::{address, names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed};
use k8s_openapi::api::networking::v1::IPAddress;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["ip"],
    namespaced: false,
    status: false,
    generation: false,
    name_rule: NameRule::PathSegment,
    warnings: |_| {
        vec![
            "kloop records the addresses of Services in the Services, and neither reads nor makes IPAddresses"
                .to_owned(),
        ]
    },
    ..Kind::new::<IPAddress>("ipaddresses.networking.k8s.io", "v1", "IPAddress", &view::networking::IP_ADDRESS)
};

impl Typed for IPAddress {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.spec.parent_ref.group);
        omit::empty(&mut self.spec.parent_ref.namespace);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (path, parent) = (FieldPath::root("spec").child("parentRef"), &self.spec.parent_ref);
        if let Some(old) = old {
            return errors.immutable(&path, parent, &old.spec.parent_ref);
        }
        if let Some(name) = self.metadata.name.as_deref().filter(|name| !name.is_empty()) {
            address::check_canonical(name, &FieldPath::root("metadata").child("name"), errors);
        }
        if let Some(group) = &parent.group {
            errors.each_invalid(&path.child("group"), group.as_str(), names::subdomain(group));
        }
        for (field, text) in [("resource", &parent.resource), ("name", &parent.name)] {
            match text.as_str() {
                "" => errors.required(&path.child(field), ""),
                text => errors.each_invalid(&path.child(field), text, names::path_segment(text)),
            }
        }
        if let Some(namespace) = &parent.namespace {
            errors.each_invalid(&path.child("namespace"), namespace.as_str(), names::path_segment(namespace));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use crate::object::Object;
    use serde_json::{Value, json};

    fn wrong(patch: Value, old: Option<&Object>) -> Vec<String> {
        let parent = json!({"resource": "services", "namespace": "default", "name": "web"});
        let mut body = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}});
        json_patch::merge(&mut body, &patch);
        testing::field_errors::<IPAddress>(&body, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_are_checked() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let parent = |field: &str, value: &str| json!({"spec": {"parentRef": {field: value}}});
        assert_eq!(wrong(json!({}), None), Vec::<String>::new());
        assert_eq!(wrong(named("2001:db8::1"), None), Vec::<String>::new());
        let cases = [
            (
                named("web"),
                "metadata.name: Invalid value: \"web\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (
                named("2001:DB8::1"),
                "metadata.name: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")",
            ),
            (
                named("::ffff:1.2.3.4"),
                "metadata.name: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address",
            ),
            (named("10.0.0.01"), "metadata.name: Invalid value: \"10.0.0.01\": must not have leading 0s"),
            (parent("name", ""), "spec.parentRef.name: Required value"),
            (parent("resource", ""), "spec.parentRef.resource: Required value"),
            (parent("resource", "a/b"), "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'"),
            (parent("namespace", "%"), "spec.parentRef.namespace: Invalid value: \"%\": may not contain '%'"),
        ];
        for (patch, expected) in cases {
            assert_eq!(wrong(patch.clone(), None), [expected], "{patch}");
        }
        let old =
            Object(json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "a", "name": "b"}}}));
        let found = wrong(json!({}), Some(&old));
        assert!(found.len() == 1 && found[0].ends_with(": field is immutable"), "{found:?}");
    }
}
