//! The checks that the level `restricted` adds to those of the baseline, in the order of messages.

use super::baseline::{is_bad_seccomp, proc_mount};
use super::texts::{SortedTexts, items, name_containers, pluralize, quote_all, text, violation};
use super::{Check, CheckFunction, CheckedPod, Violation};
use serde_json::Value;

/// All checks that the level Restricted adds.
pub const CHECKS: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        &[(8, privilege_escalation), (25, |pod| unless_windows(pod, privilege_escalation))],
        "",
    ),
    check(
        "capabilities_restricted",
        &[(22, dropped_capabilities), (25, |pod| unless_windows(pod, dropped_capabilities))],
        "capabilities_baseline",
    ),
    check("procMount_restricted", &[(35, proc_mount)], "procMount"),
    check("restrictedVolumes", &[(0, volume_types)], "hostPathVolumes"),
    check("runAsNonRoot", &[(0, run_as_non_root), (35, |pod| unless_user_namespace(pod, run_as_non_root))], ""),
    check("runAsUser", &[(23, run_as_user), (35, |pod| unless_user_namespace(pod, run_as_user))], ""),
    check(
        "seccompProfile_restricted",
        &[(19, seccomp_profile), (25, |pod| unless_windows(pod, seccomp_profile))],
        "seccompProfile_baseline",
    ),
];

const fn check(id: &'static str, versions: &'static [(u32, CheckFunction)], overrides: &'static str) -> Check {
    Check { id, versions, overrides }
}

/// Types of volumes that are allowed.
const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn unless_windows(pod: &CheckedPod<'_>, check: CheckFunction) -> Option<Violation> {
    if pod.is_for_windows() { None } else { check(pod) }
}

fn unless_user_namespace(pod: &CheckedPod<'_>, check: CheckFunction) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { check(pod) }
}

fn privilege_escalation(pod: &CheckedPod<'_>) -> Option<Violation> {
    let containers =
        pod.containers_where(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if containers.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", name_containers(&containers));
    violation("allowPrivilegeEscalation != false", detail)
}

fn dropped_capabilities(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut forbidden = SortedTexts::new();
    let capabilities = |container: &'_ Value, list: &str| -> Vec<String> {
        items(&container["securityContext"]["capabilities"][list]).iter().map(|name| text(name).to_owned()).collect()
    };
    let keeping = pod.containers_where(|container| !capabilities(container, "drop").iter().any(|name| name == "ALL"));
    let adding = pod.containers_where(|container| {
        let added: Vec<String> =
            capabilities(container, "add").into_iter().filter(|name| name != "NET_BIND_SERVICE").collect();
        let is_bad = !added.is_empty();
        forbidden.extend(added);
        is_bad
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", name_containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            name_containers(&adding),
            quote_all(&forbidden)
        ));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn volume_types(pod: &CheckedPod<'_>) -> Option<Violation> {
    let has = |volume: &Value, field: &str| !volume[field].is_null();
    let (mut names, mut types) = (Vec::new(), SortedTexts::new());
    for volume in items(&pod.spec["volumes"]) {
        if ALLOWED_VOLUMES.iter().any(|field| has(volume, field)) {
            continue;
        }
        names.push(text(&volume["name"]).to_owned());
        let fields = volume.as_object().into_iter().flatten();
        let field = fields.filter(|(field, value)| *field != "name" && !value.is_null()).map(|(field, _)| field).next();
        types.insert(field.map_or_else(|| "unknown".to_owned(), Clone::clone));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        pluralize("volume", "volumes", names.len()),
        quote_all(&names),
        pluralize("uses", "use", names.len()),
        pluralize("restricted volume type", "restricted volume types", types.len()),
        quote_all(&types)
    );
    violation("restricted volume types", detail)
}

/// The containers without a setting of their own, where the pod has none either.
fn containers_without(pod: &CheckedPod<'_>, field: &str, is_set_by_pod: bool) -> Option<String> {
    let bare = pod.containers_where(|container| container["securityContext"][field].is_null() && !is_set_by_pod);
    (!bare.is_empty()).then(|| name_containers(&bare))
}

fn run_as_non_root(pod: &CheckedPod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if let Some(setters) = pod.setters("runAsNonRoot", |setting| *setting == false) {
        return violation(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let is_set = pod.spec["securityContext"]["runAsNonRoot"] == true;
    let containers = containers_without(pod, "runAsNonRoot", is_set)?;
    violation(REASON, format!("pod or {containers} must set securityContext.runAsNonRoot=true"))
}

fn run_as_user(pod: &CheckedPod<'_>) -> Option<Violation> {
    let setters = pod.setters("runAsUser", |user| *user == 0)?;
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

fn seccomp_profile(pod: &CheckedPod<'_>) -> Option<Violation> {
    const REASON: &str = "seccompProfile";
    let mut bad = SortedTexts::new();
    if let Some(setters) = pod.setters("seccompProfile", |profile| is_bad_seccomp(profile, &mut bad)) {
        let values = quote_all(&bad);
        return violation(REASON, format!("{setters} must not set securityContext.seccompProfile.type to {values}"));
    }
    let is_set = !pod.spec["securityContext"]["seccompProfile"].is_null();
    let containers = containers_without(pod, "seccompProfile", is_set)?;
    let detail = format!(
        "pod or {containers} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
    );
    violation(REASON, detail)
}
