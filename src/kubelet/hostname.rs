//! The names of a pod on its network: host name, short name, and the name that DNS has for it.

use super::actions::StartFailure;
use super::pod::LocalPod;
use crate::object::Str;

/// Returns the host name in the pod's containers: the node's name on the node's network, else by the spec.
pub fn hostname(pod: &LocalPod) -> Str {
    match full_name(pod) {
        _ if pod.spec.host_network == Some(true) => pod.spec.node_name.as_deref().unwrap_or_default().into(),
        Some(full) if pod.spec.set_hostname_as_fqdn == Some(true) && !overrides(pod) => full.as_str().into(),
        _ => short_name(pod),
    }
}

/// The pod's own name in its `/etc/hosts`: `spec.hostname`, or the pod's name. DNS takes 63 bytes of it at most.
pub fn short_name(pod: &LocalPod) -> Str {
    let named = pod.spec.hostname_override.as_ref().or(pod.spec.hostname.as_ref()).filter(|name| !name.is_empty());
    let name = named.map_or(&*pod.row.key.name, String::as_str);
    name.get(..63).map_or(name, |short| short.trim_end_matches(['-', '.'])).into()
}

/// The name that DNS has for the pod, when it has a subdomain.
pub fn full_name(pod: &LocalPod) -> Option<String> {
    let subdomain = pod.spec.subdomain.as_deref().filter(|name| !name.is_empty() && !overrides(pod))?;
    Some(format!("{}.{subdomain}.{}.svc.cluster.local", short_name(pod), pod.row.key.namespace))
}

/// Whether the pod has a `hostnameOverride`: it is the host name, and has no DNS record (KEP-4762).
fn overrides(pod: &LocalPod) -> bool {
    pod.spec.hostname_override.as_ref().is_some_and(|name| !name.is_empty())
}

/// Maximum bytes of a host name in the kernel.
const MAX_NAME_LENGTH: usize = 64;

/// Why the pod cannot have the name that it wants.
pub fn unnameable(pod: &LocalPod) -> Option<StartFailure> {
    let name = hostname(pod);
    (name.len() > MAX_NAME_LENGTH).then(|| StartFailure {
        reason: "FailedCreatePodSandBox",
        message: format!(
            "Failed to create pod sandbox: failed to construct FQDN from Pod hostname and cluster domain, FQDN {name} is too long \
             ({MAX_NAME_LENGTH} characters is the max, {} characters requested)",
            name.len()
        ),
    })
}
