//! Debugging profiles (KEP-1441): the settings of the debug container and its pod.

use super::Args;
use crate::cli::{CliResult, Failure};
use crate::object::Object;
use serde_json::{Map, Value, json};

/// The parts of the original pod that a copy keeps.
#[derive(clap::Args, Clone, Copy)]
pub struct CopyOptions {
    /// If true, keep the original pod annotations. (This flag only works when used with '--copy-to')
    #[arg(long)]
    keep_annotations: bool,
    /// Run the init containers for the pod. Defaults to true. (This flag only works when used with '--copy-to')
    #[arg(long, default_value_t = true)]
    keep_init_containers: bool,
    /// If true, keep the original pod labels. (This flag only works when used with '--copy-to')
    #[arg(long)]
    keep_labels: bool,
    /// If true, keep the original pod liveness probes. (This flag only works when used with '--copy-to')
    #[arg(long)]
    keep_liveness: bool,
    /// If true, keep the original pod readiness probes. (This flag only works when used with '--copy-to')
    #[arg(long)]
    keep_readiness: bool,
    /// If true, keep the original startup probes. (This flag only works when used with '--copy-to')
    #[arg(long)]
    keep_startup: bool,
}

/// Target and method of debugging.
#[derive(Clone, Copy, PartialEq)]
pub enum DebugStyle {
    /// An ephemeral container in the pod.
    Ephemeral,
    /// A copy of the pod.
    Copy,
    /// A pod on the node.
    Node,
}

const PROFILES: [&str; 6] = ["legacy", "general", "baseline", "restricted", "netadmin", "sysadmin"];

/// Refuses an unknown profile.
pub fn check(profile: &str) -> CliResult {
    match PROFILES.contains(&profile) {
        true => Ok(()),
        false => Err(Failure::plain(format!("unknown profile: {profile}"))),
    }
}

/// Applies a profile to a container and its pod.
pub fn apply(args: &Args, pod: &mut Object, container: &str, style: DebugStyle) {
    let profile = args.profile.as_str();
    if style == DebugStyle::Copy {
        trim(&args.keep, pod, profile == "legacy");
        if profile != "legacy" && pod.value_at(&["spec", "shareProcessNamespace"]).is_none() {
            pod.set(&["spec", "shareProcessNamespace"], true);
        }
    }
    if style == DebugStyle::Node {
        if ["legacy", "general", "netadmin", "sysadmin"].contains(&profile) {
            ["hostNetwork", "hostPID", "hostIPC"].iter().for_each(|field| pod.set(&["spec", field], true));
        }
        if ["legacy", "general", "sysadmin"].contains(&profile) {
            pod.set(&["spec", "volumes"], vec![json!({"name": "host-root", "hostPath": {"path": "/"}})]);
        }
    }
    let Some(spec) = find(pod, container) else { return };
    if style == DebugStyle::Node && ["legacy", "general", "sysadmin"].contains(&profile) {
        spec["volumeMounts"] = json!([{"name": "host-root", "mountPath": "/host"}]);
    }
    secure(profile, spec, style);
}

/// Whether a container has rights from its profile that its user, who is that of the pod, cannot use.
pub fn has_unusable_rights(pod: &mut Object, container: &str) -> bool {
    let user = pod.int(&["spec", "securityContext", "runAsUser"]).unwrap_or_default();
    let Some(context) = find(pod, container).map(|container| &container["securityContext"]) else { return false };
    let adds = context["capabilities"]["add"].as_array().is_some_and(|added| !added.is_empty());
    user != 0 && context["runAsUser"] != 0 && (context["privileged"] == true || adds)
}

fn find<'a>(pod: &'a mut Object, container: &str) -> Option<&'a mut Value> {
    let spec = pod.0.get_mut("spec")?.as_object_mut()?;
    let lists = spec.iter_mut().filter(|(list, _)| ["containers", "ephemeralContainers"].contains(&list.as_str()));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten().find(|one| one["name"] == container)
}

fn secure(profile: &str, container: &mut Value, style: DebugStyle) {
    let Some(fields) = container.as_object_mut() else { return };
    match profile {
        "general" if style == DebugStyle::Node => drop(fields.remove("securityContext")),
        "general" => add_capabilities(fields, &["SYS_PTRACE"]),
        "baseline" => drop(fields.remove("securityContext")),
        "restricted" => {
            let context = json!({
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            });
            fields.insert("securityContext".into(), context);
        }
        "netadmin" => add_capabilities(fields, &["NET_ADMIN", "NET_RAW"]),
        "sysadmin" => {
            let context = fields.entry("securityContext").or_insert_with(|| json!({}));
            context["privileged"] = true.into();
        }
        _ => {}
    }
}

fn add_capabilities(fields: &mut Map<String, Value>, names: &[&str]) {
    let context = fields.entry("securityContext").or_insert_with(|| json!({}));
    let mut all = context["capabilities"]["add"].as_array().cloned().unwrap_or_default();
    all.extend(names.iter().map(|name| Value::from(*name)));
    context["capabilities"]["add"] = all.into();
}

/// Removes labels, so that no controller adopts the copy, and probes, so that the kubelet does not
/// restart its containers, unless flags keep them.
fn trim(keep: &CopyOptions, pod: &mut Object, only_labels: bool) {
    // The legacy profile ignores the flags.
    if !keep.keep_labels || only_labels {
        pod.unset(&["metadata", "labels"]);
    }
    if only_labels {
        return;
    }
    if !keep.keep_annotations {
        pod.unset(&["metadata", "annotations"]);
    }
    if !keep.keep_init_containers {
        pod.unset(&["spec", "initContainers"]);
    }
    let probes = [
        ("livenessProbe", keep.keep_liveness),
        ("readinessProbe", keep.keep_readiness),
        ("startupProbe", keep.keep_startup),
    ];
    for container in pod.0["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let Some(fields) = container.as_object_mut() else { continue };
        for (probe, _) in probes.iter().filter(|(_, kept)| !kept) {
            fields.remove(*probe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_set_the_security_context() {
        let table = [
            ("legacy", json!(null)),
            ("general", json!({"capabilities": {"add": ["SYS_PTRACE"]}})),
            ("baseline", json!(null)),
            ("netadmin", json!({"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}})),
            ("sysadmin", json!({"privileged": true})),
        ];
        for (profile, expected) in table {
            let mut container = json!({"name": "d"});
            secure(profile, &mut container, DebugStyle::Ephemeral);
            assert_eq!(container["securityContext"], expected, "{profile}");
        }
        assert!(check("odd").is_err());
    }

    #[test]
    fn copy_loses_labels_and_probes() {
        let pod = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c", "livenessProbe": {}, "startupProbe": {}}]},
        });
        let keep = CopyOptions {
            keep_annotations: false,
            keep_init_containers: true,
            keep_labels: false,
            keep_liveness: false,
            keep_readiness: false,
            keep_startup: true,
        };
        let mut labelled = Object(pod.clone());
        trim(&CopyOptions { keep_labels: true, ..keep }, &mut labelled, true);
        assert_eq!(labelled.0["metadata"], json!({"annotations": {"c": "d"}}));
        let mut copied = Object(pod);
        trim(&keep, &mut copied, false);
        let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c", "startupProbe": {}}]});
        assert_eq!(copied.0, json!({"metadata": {}, "spec": spec}));
    }
}
