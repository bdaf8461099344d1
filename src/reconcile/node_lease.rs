//! The Lease of this machine's node, where several machines share a state: the leader knows other machines' nodes by theirs.
//!
//! Never: reads the Lease of another node. Start reading at [`renew_lease`].

use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, ApiResult, WriteOptions, create};
use crate::kinds;
use crate::object::{Key, Object, Reason, Resource, Status, Time};
use serde_json::json;

/// Namespace of the leases of nodes.
const NAMESPACE: &str = "kube-node-lease";

/// Seconds after which a node without renewal is lost, as of the kubelet.
const SECONDS: i64 = 40;

/// Renews the Lease of a node, or makes it.
pub fn renew_lease(api: &mut Api, node: &str, now: Time) -> ApiResult<()> {
    let resource = Resource("leases.coordination.k8s.io");
    let kind = kinds::by_resource(resource)
        .ok_or_else(|| Status::new(Reason::InternalError, "no kind Lease in the catalogue; this is a bug"))?;
    let renewed = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    api.write(false, |txn| {
        if let Some(mut lease) = txn.get(&Key::new(resource, NAMESPACE, node))? {
            lease.set(&["spec", "renewTime"], renewed.clone());
            return update(txn, kind, &lease, UpdatePart::Main, &WriteOptions::default()).map(|_| ());
        }
        let lease = Object(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node, "namespace": NAMESPACE},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": SECONDS, "renewTime": renewed},
        }));
        create::create(txn, kind, &lease, &WriteOptions::default()).map(|_| ())
    })
}
