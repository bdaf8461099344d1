//! DNS queries of pods: answers of any length over both protocols, the additional records of CoreDNS, and servers chosen by `dnsPolicy` and
//! `dnsConfig`.

use super::{server, service};
use crate::cluster::Cluster;
use serde_json::{Value, json};

/// A client in Python: `ask(server, name, kind, size, tcp)` returns the answer's flags, its records and the beginning of its additional
/// section.
const ASK: &str = r#"
import socket, struct
def talk(server, question, tcp):
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    client.settimeout(60)
    client.connect((server, 53))
    if not tcp:
        client.send(question)
        return client.recv(65535)
    client.sendall(struct.pack(">H", len(question)) + question)
    file = client.makefile("rb")
    return file.read(struct.unpack(">H", file.read(2))[0])
def ask(server, name, kind=1, size=None, tcp=False):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split("."))
    opt = b"\0\0\x29" + struct.pack(">H", size) + b"\0" * 6 if size else b""
    question = struct.pack(">6H", 7, 0x100, 1, 0, 0, 1 if size else 0) + labels + struct.pack(">BHH", 0, kind, 1) + opt
    said = talk(server, question, tcp)
    number, flags, _, answers, authorities, more = struct.unpack(">6H", said[:12])
    words = [word for word, bit in [("aa", 0x400), ("tc", 0x200)] if flags & bit]
    return " ".join([*words, "rcode=%d" % (flags & 15), "answers=%d authorities=%d more=%d" % (answers, authorities, more), "fits" if len(said) <= (65535 if tcp else size or 512) else "too long"])
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
def names(name):
    try:
        return len({found[4][0] for found in socket.getaddrinfo(name, 80, socket.AF_INET)})
    except socket.gaierror as error:
        return {socket.EAI_NONAME: "no such name", socket.EAI_NODATA: "no address", socket.EAI_AGAIN: "not now"}.get(error.errno, "no answer")
"#;

/// A pod that runs such a script once, with additional fields.
fn asker(name: &str, spec: Value, script: &str) -> String {
    let mut spec = spec;
    spec["restartPolicy"] = "Never".into();
    spec["containers"] =
        json!([{"name": "main", "image": "python3", "command": ["python3", "-c", format!("{ASK}{script}")]}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// Returns the output of the script.
fn said(cluster: &Cluster, name: &str, spec: Value, script: &str) -> String {
    cluster.apply(&asker(name, spec, script));
    cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Succeeded");
    cluster.log(name, "main")
}

/// A headless Service with a thousand manually written endpoints, and aliases.
fn domain_counts() -> String {
    let mut text =
        "{apiVersion: v1, kind: Service, metadata: {name: crowd}, spec: {clusterIP: None, ports: [{port: 80}]}}\n---\n"
            .to_owned();
    for slice in 0..10 {
        let endpoints: Vec<Value> = (1..=100)
            .map(|number| json!({"addresses": [format!("10.7.{slice}.{number}")], "conditions": {"ready": true}}))
            .collect();
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("crowd-{slice}"), "labels": {"kubernetes.io/service-name": "crowd"}},
            "ports": [{"port": 80}], "endpoints": endpoints});
        text += &format!("{slice}\n---\n");
    }
    for (name, target) in [("out", "no.such.name.invalid"), ("in", "crowd.default.svc.cluster.local")] {
        text += &format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{type: ExternalName, externalName: {target}}}}}\n---\n"
        );
    }
    text
}

#[test]
fn dns_answers_are_complete_over_both_protocols() {
    check_answers(&Cluster::new());
}

#[test]
fn dns_answers_are_complete_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        check_answers(&Cluster::of_user(65_534));
    }
}

fn check_answers(cluster: &Cluster) {
    let _plane = cluster.watch();
    cluster.apply(&domain_counts());
    let script = r#"
import time
crowd = "crowd.default.svc.cluster.local"
while names("crowd") != 1000:
    time.sleep(0.01)
print(names("in"), names("out"))
for size, tcp in [(None, False), (1232, False), (65000, False), (None, True)]:
    print(ask(server, crowd, 1, size, tcp))
print(ask(server, "cluster.local", 6))
print(ask(server, "cluster.local", 2))
print(ask(server, "no.default.svc.cluster.local"))
print(ask(server, crowd, 28))
print(ask(server, "out.default.svc.cluster.local", 5))
print(ask(server, "in.default.svc.cluster.local", 1, None, True))
"#;
    let expected = "1000 no address\n\
        aa tc rcode=0 answers=28 authorities=0 more=0 fits\n\
        aa tc rcode=0 answers=73 authorities=0 more=1 fits\n\
        aa rcode=0 answers=1000 authorities=0 more=1 fits\n\
        aa rcode=0 answers=1000 authorities=0 more=0 fits\n\
        aa rcode=0 answers=1 authorities=0 more=0 fits\n\
        aa rcode=0 answers=1 authorities=0 more=1 fits\n\
        aa rcode=3 answers=0 authorities=1 more=0 fits\n\
        aa rcode=0 answers=0 authorities=1 more=0 fits\n\
        aa rcode=0 answers=1 authorities=0 more=0 fits\n\
        aa rcode=0 answers=1001 authorities=0 more=0 fits\n";
    assert_eq!(said(cluster, "asker", json!({}), script), expected);
}

#[test]
fn dns_policy_chooses_the_server() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&(server("web", "") + &service("web", "ports: [{port: 80, targetPort: 8080}]")));
    cluster.ready_pods("app=web", 1);
    let script = "print(names('web'), names('web.default.svc.cluster.local'))";
    let found = "1 1\n";
    assert_eq!(said(&cluster, "first", json!({}), script), found);
    if rustix::process::geteuid().is_root() {
        // A pod with its own search path gets no short names.
        let absolute = said(&cluster, "absolute", json!({}), "print(names('web.'))");
        assert!(!absolute.contains('1'), "{absolute}");
    }
    let outside = said(&cluster, "outside", json!({"dnsPolicy": "Default"}), script);
    assert!(!outside.contains('1'), "the machine's resolver does not know the cluster: {outside}");
    // A server that the pod names is queried directly: none listens at this address.
    let config = json!({"nameservers": ["127.0.0.99"], "options": [{"name": "attempts", "value": "1"}, {"name": "timeout", "value": "1"}]});
    let none = said(&cluster, "none", json!({"dnsPolicy": "None", "dnsConfig": config}), script);
    assert!(!none.contains('1'), "{none}");
    // With the usual timeout: a loaded machine may take longer than a second to answer.
    let beside = said(&cluster, "beside", json!({"dnsConfig": {"nameservers": ["127.0.0.99"]}}), script);
    assert_eq!(beside, found, "the cluster's resolver is first");
    // On the machine's network.
    let host =
        |name: &str, policy: &str| said(&cluster, name, json!({"hostNetwork": true, "dnsPolicy": policy}), script);
    let plain = host("plain", "ClusterFirst");
    assert!(!plain.contains('1'), "the policy acts as Default: {plain}");
    let told = |name: &str| cluster.ok(&format!("describe pod {name}")).contains("MissingClusterDNS");
    let with_host = host("with-host", "ClusterFirstWithHostNet");
    // It works where the resolver may listen at port 53; otherwise that is reported.
    assert_eq!(with_host == found, !told("with-host"), "{with_host}");
    assert_eq!(with_host == found, rustix::process::geteuid().is_root(), "{with_host}");
    assert!(!told("plain") && !told("first"));
}
