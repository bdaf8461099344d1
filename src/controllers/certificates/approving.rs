//! Approves the requests of kubelets for client certificates, where RBAC allows the requester to have one
//! (`pkg/controller/certificates/approver`), and for certificates as servers at their own addresses.
//!
//! Never: denies a request, or approves one for another signer. Start reading at [`plan`].

use super::signers::{KUBELET_CLIENT, KUBELET_SERVING, check, check_kubelet_client};
use super::{ROOT, add_condition, is_issued, parse_request, usages};
use crate::kinds::node;
use crate::kinds::shared::certificate_request::CertificateRequest;
use crate::object::{Key, Object};
use crate::world::access::index::{AccessIndex, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, Grants, INDEXED, ROLES};
use crate::world::access::{AccessRequest, AccessedResource};
use crate::world::{Loop, Plan, Row, World, WriteVerb};

/// The loop, by the name of Kubernetes' controller.
pub const LOOP: Loop =
    Loop { name: "certificatesigningrequest-approving-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT => vec![row.key.clone()],
        // A new permission may allow a request that was refused before.
        changed if INDEXED.contains(&changed) => world.list(ROOT).map(|request| request.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let mut request = row.object();
    let is_decided = ["Approved", "Denied"].iter().any(|decision| request.has_condition(decision));
    let signer = request.text(&["spec", "signerName"]).unwrap_or_default();
    if is_decided || is_issued(&request) || ![KUBELET_CLIENT, KUBELET_SERVING].contains(&signer) {
        return plan;
    }
    let Ok(parsed) = parse_request(&request) else { return plan };
    if signer == KUBELET_SERVING {
        if is_of_own_addresses(world, &request, &parsed) {
            let message = "The request names only addresses of the node that has made it.";
            add_condition(&mut request, "Approved", "AutoApproved", message, world.now);
            plan.write(WriteVerb::Status(request), message);
        }
        return plan;
    }
    if check_kubelet_client(&parsed, &usages(&request)).is_err() {
        return plan;
    }
    let is_own = request.text(&["spec", "username"]) == Some(parsed.subject.common_name.as_str());
    let own = is_own
        .then_some(("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."));
    let any = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");
    let access = RequesterAccess::find(world, &request);
    let allowed = own.into_iter().chain([any]).find(|(subresource, _)| access.allows(subresource));
    let Some((_, message)) = allowed else {
        plan.wait("no role allows the requester to have the certificate approved");
        return plan;
    };
    add_condition(&mut request, "Approved", "AutoApproved", message, world.now);
    plan.write(WriteVerb::Status(request), message);
    plan
}

/// Whether a node asks for a certificate as a server at its own addresses. Kubernetes leaves the approval to others.
fn is_of_own_addresses(world: &World, request: &Object, parsed: &CertificateRequest) -> bool {
    let user = request.text(&["spec", "username"]).unwrap_or_default();
    let is_node = request.items(&["spec", "groups"]).iter().any(|group| group == node::GROUP);
    let node = user.strip_prefix("system:node:").and_then(|name| world.find("nodes", "", name));
    let Some(node) = node.filter(|_| is_node && user == parsed.subject.common_name) else { return false };
    let node = node.object();
    let addresses: Vec<&str> =
        node.items(&["status", "addresses"]).iter().filter_map(|address| address["address"].as_str()).collect();
    let is_valid = check(KUBELET_SERVING, parsed, &usages(request)).is_some_and(|checked| checked.is_ok());
    is_valid && parsed.hosts().iter().all(|host| addresses.contains(&host.as_str()))
}

/// The rights of the user who has made a request; `None` for an administrator, who has all.
struct RequesterAccess(Option<Grants>);

impl RequesterAccess {
    fn find(world: &World, request: &Object) -> RequesterAccess {
        let groups: Vec<String> =
            request.items(&["spec", "groups"]).iter().filter_map(|group| group.as_str().map(str::to_owned)).collect();
        if groups.iter().any(|group| group == "system:masters") {
            return RequesterAccess(None);
        }
        let list = |resource: &'static str| -> Vec<Object> { world.list(resource).map(|row| row.object()).collect() };
        let index = AccessIndex::build(&list(ROLES), &list(CLUSTER_ROLES), &list(BINDINGS), &list(CLUSTER_BINDINGS));
        let user = request.text(&["spec", "username"]).unwrap_or_default();
        RequesterAccess(Some(index.find_grants(user, &groups, "")))
    }

    /// Whether the user may create this subresource of CertificateSigningRequests.
    fn allows(&self, subresource: &str) -> bool {
        let Some(grants) = &self.0 else { return true };
        let accessed = AccessedResource {
            group: "certificates.k8s.io".to_owned(),
            resource: "certificatesigningrequests".to_owned(),
            subresource: subresource.to_owned(),
            ..AccessedResource::default()
        };
        grants.decide(&AccessRequest::for_resource("create", accessed)).is_allowed
    }
}
