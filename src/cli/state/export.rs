//! `kloop state export`: prints the objects of the cluster as manifests.
//!
//! Never: exports an object that a loop makes. Start reading at [`is_exported`], which separates objects of users from those of the
//! cluster.

use crate::apiserver::read::{self, ListSelection};
use crate::cli::manifests::portable::make_portable;
use crate::cli::{CliResult, CommandContext};
use crate::kinds::Kind;
use crate::object::{MIRROR, Object, yaml};

/// Print the objects of the cluster as manifests for another cluster.
///
/// Leaves out objects and fields that the cluster itself creates: nodes, events, endpoints, pods and ReplicaSets of
/// workloads, built-in roles and classes, status, and addresses. Secrets are left out unless --secrets is given. Images of
/// kloop are left out unless --images is given, because another cluster does not know them.
#[derive(clap::Args)]
#[command(
    override_usage = "[--secrets] [--images]",
    after_help = "\
# Take everything to a real cluster
kloop state export > all.yaml
kubectl apply -f all.yaml

# Take one namespace to another kloop, with Secrets
kloop state export -n shop --secrets --images > shop.yaml
kloop --state ./other.db state import shop.yaml"
)]
pub struct Args {
    /// Export Secrets, too.
    #[arg(long)]
    secrets: bool,
    /// Export kloop's Image objects, too.
    #[arg(long)]
    images: bool,
}

/// Kinds that belong to a cluster, or follow from other objects.
const CLUSTER_KINDS: [&str; 13] = [
    "nodes",
    "events",
    "events.events.k8s.io",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "controllerrevisions.apps",
    "componentstatuses",
    "ipaddresses.networking.k8s.io",
    "servicecidrs.networking.k8s.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "certificatesigningrequests.certificates.k8s.io",
];

/// Namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Objects of every cluster, by kind and name.
const BUILT_IN: [(&str, &str); 7] = [
    ("services", "kubernetes"),
    ("serviceaccounts", "default"),
    ("configmaps", "kube-root-ca.crt"),
    ("configmaps", "extension-apiserver-authentication"),
    ("priorityclasses.scheduling.k8s.io", "system-cluster-critical"),
    ("priorityclasses.scheduling.k8s.io", "system-node-critical"),
    ("storageclasses.storage.k8s.io", "standard"),
];

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    context.require_existing()?;
    let namespace = context.globals.namespace.clone();
    let kinds = context.kinds().clone();
    let mut objects: Vec<(u8, Object)> = context.read_view(|txn| {
        let mut exported = Vec::new();
        let kinds = kinds.all().filter(|kind| namespace.is_none() || kind.namespaced);
        for kind in kinds.filter(|kind| is_exported_kind(kind, &args)) {
            for object in read::list(txn, kind, namespace.as_deref(), &ListSelection::default())? {
                if is_exported(kind, &object) {
                    exported.push((rank(kind), make_portable(&object, kind)));
                }
            }
        }
        Ok(exported)
    })?;
    objects.sort_by_key(|(rank, _)| *rank);
    let documents: Vec<String> = objects.iter().map(|(_, object)| yaml::to_yaml(&object.0)).collect();
    context.print(&documents.join("---\n"))
}

fn is_exported_kind(kind: &Kind, args: &Args) -> bool {
    match kind.resource.0 {
        "secrets" => args.secrets,
        "images.kloop.dev" => args.images,
        resource => !CLUSTER_KINDS.contains(&resource) && !resource.ends_with(".metrics.k8s.io"),
    }
}

/// Whether an object was made by a user, and not by a controller or with the cluster.
fn is_exported(kind: &Kind, object: &Object) -> bool {
    let resource = kind.resource.0;
    let is_built_in = match resource {
        "namespaces" => NAMESPACES.contains(&object.name()),
        // The others are this server's own.
        "apiservices.apiregistration.k8s.io" => object.value_at(&["spec", "service"]).is_none(),
        _ => BUILT_IN.contains(&(resource, object.name())),
    };
    // A volume that was provisioned for a claim is made again with the claim.
    let is_provisioned =
        resource == "persistentvolumes" && object.annotation("pv.kubernetes.io/provisioned-by").is_some();
    let is_of_service_account = object.text(&["type"]) == Some("kubernetes.io/service-account-token");
    !is_built_in
        && !is_provisioned
        && !is_of_service_account
        && object.controller().is_none()
        && object.deletion().is_none()
        && object.annotation(MIRROR).is_none()
        && object.label("kubernetes.io/bootstrapping").is_none()
}

/// Returns the place of a kind in the order in which objects are created: definitions and namespaces first, workloads last.
fn rank(kind: &Kind) -> u8 {
    match kind.resource.0 {
        "customresourcedefinitions.apiextensions.k8s.io" => 0,
        "namespaces" => 1,
        "services" => 3,
        _ if kind.categories.contains(&"all") => 4,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    #[test]
    fn objects_of_users_are_exported_and_no_others() {
        let object = |name: &str| Object(json!({"metadata": {"name": name, "namespace": "default"}}));
        for (resource, name, expected) in [
            ("services", "kubernetes", false),
            ("services", "web", true),
            ("namespaces", "default", false),
            ("namespaces", "shop", true),
            ("serviceaccounts", "default", false),
        ] {
            assert_eq!(is_exported(kinds::by_name(resource).unwrap(), &object(name)), expected, "{resource} {name}");
        }
        let mut owned = object("web-1");
        owned.set(
            &["metadata", "ownerReferences"],
            json!([{"controller": true, "kind": "ReplicaSet", "name": "web", "uid": "u", "apiVersion": "apps/v1"}]),
        );
        assert!(!is_exported(kinds::by_name("pods").unwrap(), &owned));
    }

    #[test]
    fn kinds_that_are_left_out_exist() {
        for resource in
            CLUSTER_KINDS.iter().filter(|name| !["componentstatuses", "events.events.k8s.io"].contains(name))
        {
            assert!(kinds::by_name(resource).is_some_and(|kind| kind.resource.0 == *resource), "{resource}");
        }
    }
}
