//! Checks of a pod's DNS settings, host aliases and host name.

use crate::kinds::shared::{address, names};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};
use serde_json::json;

const POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const NONE: &str = "when `dnsPolicy` is None";
/// Bytes of a host name that the kernel keeps.
const MAX_HOSTNAME_BYTES: usize = 64;

/// Checks the policy.
pub fn check_policy(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let policy = spec.dns_policy.as_deref().unwrap_or_default();
    if !POLICIES.contains(&policy) {
        errors.unsupported_as_listed(&path.child("dnsPolicy"), policy, &POLICIES);
    }
}

/// Checks the servers, search paths and options.
pub fn check_config(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("dnsConfig");
    let none = spec.dns_policy.as_deref() == Some("None");
    let Some(config) = &spec.dns_config else {
        if none {
            errors.required(&path, &format!("must provide `dnsConfig` {NONE}"));
        }
        return;
    };
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if none && servers.is_empty() {
        return errors
            .required(&path.child("nameservers"), &format!("must provide at least one DNS nameserver {NONE}"));
    }
    if servers.len() > 3 {
        errors.invalid(&path.child("nameservers"), json!(servers), "must not have more than 3 nameservers");
    }
    for (index, server) in servers.iter().enumerate() {
        address::check_address(server, &path.child("nameservers").index(index), errors);
    }
    check_searches(config, &path, errors);
    for (index, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_ref().is_none_or(String::is_empty) {
            errors.required(&path.child("options").index(index), "must not be empty");
        }
    }
}

fn check_searches(config: &PodDNSConfig, path: &FieldPath, errors: &mut FieldErrors) {
    let searches = config.searches.as_deref().unwrap_or_default();
    let at = path.child("searches");
    if searches.len() > 32 {
        errors.invalid(&at, json!(searches), "must not have more than 32 search paths");
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&at, json!(searches), detail);
    }
    for (index, search) in searches.iter().enumerate() {
        let name = search.strip_suffix('.').unwrap_or(search);
        // Search paths may contain underscores, or be a single dot (KEP-4427).
        if search != "." {
            errors.each_invalid(&at.index(index), search.as_str(), names::subdomain_with_underscores(name));
        }
    }
}

/// Checks the pod's host name and subdomain.
pub fn check_host(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = name {
            errors.each_invalid(&path.child(field), name.as_str(), names::label(name));
        }
    }
    if let Some(name) = &spec.hostname_override {
        check_override(name, spec, path, errors);
    }
}

/// Checks `hostnameOverride`, which excludes other sources of the host name (KEP-4762).
fn check_override(name: &str, spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("hostnameOverride");
    if spec.set_hostname_as_fqdn == Some(true) {
        errors.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.host_network == Some(true) {
        errors.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if name.len() > MAX_HOSTNAME_BYTES {
        errors.too_long(&at, MAX_HOSTNAME_BYTES);
    }
    errors.each_invalid(&at, name, names::subdomain(name));
}

/// Checks the entries of the pod's hosts file.
pub fn check_aliases(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = path.child("hostAliases").index(index);
        address::check_address(&alias.ip, &path.child("ip"), errors);
        for (index, name) in alias.hostnames.iter().flatten().enumerate() {
            errors.each_invalid(&path.child("hostnames").index(index), name.as_str(), names::subdomain(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn override_of_the_host_name_is_checked() {
        let long = "a.".repeat(32) + "b";
        for (spec, expected) in [
            (json!({"hostnameOverride": "db.example"}), &[][..]),
            (json!({"hostnameOverride": "Db"}), &["hostnameOverride"]),
            (json!({"hostnameOverride": ""}), &["hostnameOverride"]),
            (json!({"hostnameOverride": long}), &["hostnameOverride"]),
            (json!({"hostnameOverride": "db", "setHostnameAsFQDN": false}), &[]),
            (json!({"hostnameOverride": "db", "setHostnameAsFQDN": true}), &["hostnameOverride"]),
            (json!({"hostnameOverride": "db", "hostNetwork": true}), &["hostnameOverride"]),
        ] {
            let mut errors = FieldErrors::default();
            let mut whole = json!({"containers": []});
            spec.as_object().into_iter().flatten().for_each(|(field, value)| whole[field] = value.clone());
            check_host(&serde_json::from_value(whole).unwrap(), &FieldPath::root("spec"), &mut errors);
            let found: Vec<&str> = errors.0.iter().filter_map(|error| error.field.strip_prefix("spec.")).collect();
            assert_eq!(found, expected, "{spec}");
        }
    }
}
