use super::super::testing::{Cluster, cluster};
use super::*;
use crate::world::CertificateSigner;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

/// A CertificateSigningRequest of a user with this subject and the names of hosts.
fn request(signer: &str, subject: (&str, &str), hosts: &[&str], usages: &[&str]) -> Object {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, subject.1);
    params.distinguished_name.push(DnType::CommonName, subject.0);
    params.subject_alt_names = hosts.iter().map(|host| SanType::DnsName((*host).try_into().unwrap())).collect();
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    Object(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": usages, "username": subject.0, "groups": ["system:nodes"]},
        "status": {},
    }))
}

const CLIENT_USAGES: [&str; 2] = ["client auth", "digital signature"];

/// A cluster with a signer whose certificates contain their lifetime.
fn signing(object: Object, others: &str) -> Cluster {
    let mut cluster = cluster(others);
    let sign = |order: &crate::world::CertificateOrder<'_>| {
        Ok(format!("{} for {} s", order.request.subject.common_name, order.seconds))
    };
    cluster.world.settings.certificate_signer = Some(CertificateSigner::new(sign));
    cluster.add(&object.0.to_string());
    cluster
}

fn approved(mut object: Object) -> Object {
    let condition = json!({"type": "Approved", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"});
    object.set(&["status", "conditions"], json!([condition]));
    object
}

fn certificate(cluster: &Cluster) -> String {
    let text = cluster.object(ROOT, "r").text(&["status", "certificate"]).unwrap_or_default().to_owned();
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn approved_requests_are_signed_if_their_signer_takes_them() {
    let ann = ("ann", "dev");
    let node = ("system:node:a", "system:nodes");
    let table = [
        (signers::CLIENT, ann, &[][..], &CLIENT_USAGES[..], Ok("ann")),
        (
            signers::CLIENT,
            ann,
            &[],
            &["digital signature"],
            Err("missing required usage for client certificate: client auth"),
        ),
        (
            signers::CLIENT,
            ann,
            &[],
            &["client auth", "server auth"],
            Err("invalid usage for client certificate: server auth"),
        ),
        (signers::KUBELET_CLIENT, node, &[], &CLIENT_USAGES, Ok("system:node:a")),
        (signers::KUBELET_CLIENT, ann, &[], &CLIENT_USAGES, Err("subject organization is not system:nodes")),
        (signers::KUBELET_CLIENT, node, &["a"], &CLIENT_USAGES, Err("DNS subjectAltNames are not allowed")),
        (
            signers::KUBELET_CLIENT,
            node,
            &[],
            &["client auth"],
            Err("usages did not match [client auth digital signature key encipherment]"),
        ),
        (signers::KUBELET_SERVING, node, &["a"], &["server auth", "digital signature"], Ok("system:node:a")),
        (
            signers::KUBELET_SERVING,
            node,
            &[],
            &["server auth", "digital signature"],
            Err("DNS or IP subjectAltName is required"),
        ),
        ("example.com/own", ann, &[], &CLIENT_USAGES, Err("")),
    ];
    for (signer, subject, hosts, usages, expected) in table {
        let mut cluster = signing(approved(request(signer, subject, hosts, usages)), "");
        cluster.settle();
        let failure = cluster.object(ROOT, "r").condition("Failed").map(|failed| failed["message"].clone());
        match expected {
            Ok(user) => assert_eq!(certificate(&cluster), format!("{user} for 31536000 s"), "{signer}"),
            Err("") => assert_eq!((certificate(&cluster), failure), (String::new(), None)),
            Err(why) => assert_eq!((certificate(&cluster), failure), (String::new(), Some(json!(why)))),
        }
    }
}

#[test]
fn requested_lifetime_counts_within_its_bounds() {
    for (asked, given) in [(600, 600), (86_400, 86_400), (400_000_000, 31_536_000)] {
        let mut object = approved(request(signers::CLIENT, ("ann", "dev"), &[], &CLIENT_USAGES));
        object.set(&["spec", "expirationSeconds"], asked);
        let mut cluster = signing(object, "");
        cluster.settle();
        assert_eq!(certificate(&cluster), format!("ann for {given} s"));
    }
}

#[test]
fn kubelet_is_approved_when_rbac_allows_it() {
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {kind: ClusterRole, \
                   name: own}, subjects: [{kind: Group, name: system:nodes}]}\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: \
                   ClusterRole, metadata: {name: own}, rules: [{apiGroups: [certificates.k8s.io], resources: \
                   [certificatesigningrequests/selfnodeclient], verbs: [create]}]}";
    let object = || request(signers::KUBELET_CLIENT, ("system:node:a", "system:nodes"), &[], &CLIENT_USAGES);
    let mut cluster = signing(object(), "");
    cluster.settle();
    assert_eq!(certificate(&cluster), "", "nobody may");
    let mut cluster = signing(object(), binding);
    cluster.settle();
    assert_eq!(certificate(&cluster), "system:node:a for 31536000 s");
    let found = cluster.object(ROOT, "r");
    assert_eq!(found.condition("Approved").unwrap()["reason"], "AutoApproved");
    // Somebody else asks for the node's certificate.
    let mut foreign = object();
    foreign.set(&["spec", "username"], "system:node:b");
    let mut cluster = signing(foreign, binding);
    cluster.settle();
    assert_eq!(certificate(&cluster), "");
}

#[test]
fn old_requests_are_removed() {
    let plain = || request(signers::CLIENT, ("ann", "dev"), &[], &["digital signature"]);
    for (object, hours) in [(plain(), 24), (approved(plain()), 1)] {
        let mut cluster = signing(object, "");
        cluster.settle();
        cluster.pass(hours * 3600 - 60);
        cluster.settle();
        assert_eq!(cluster.names(ROOT), "r");
        cluster.pass(120);
        cluster.settle();
        assert_eq!(cluster.names(ROOT), "");
    }
}
