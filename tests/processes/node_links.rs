//! Pods of several machines that reach each other: addresses, Services, names and policies across a link.

use super::etcd::members::Members;
use super::machines::{ControlPlane, NetworkNamespace};
use crate::cluster::{Cluster, Plane, signal};
use std::process::Command;

/// A server on a node, behind a Service of its name: it prints the address of each client, and answers with its own name.
fn server(name: &str, node: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: python
    ports: [{{containerPort: 8080}}]
    readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
    command:
    - python3
    - -uc
    - |
      import socket
      listener = socket.create_server(("", 8080))
      while True:
          client, (address, _) = listener.accept()
          text = b""
          while part := client.recv(65536):
              text += part
          client.sendall(("{name} got %d bytes from %s" % (len(text), address)).encode())
          client.close()
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8080}}]}}
"#
    )
}

/// Program of a client: sends some bytes to HOST PORT, half-closes, and prints the answer or the error.
const CLIENT: &str = r#"
import socket, sys
try:
    server = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    server.sendall(b"x" * 100000)
    server.shutdown(socket.SHUT_WR)
    answer = b""
    while part := server.recv(65536):
        answer += part
    print(answer.decode())
except OSError as error:
    print("error", error.errno)
"#;

/// Two linked machines.
struct Machines<'a> {
    cluster: &'a Cluster,
    machine: &'a Cluster,
    network: &'a NetworkNamespace,
    _plane: ControlPlane<'a>,
    _node: Plane<'a>,
}

impl<'a> Machines<'a> {
    fn start(cluster: &'a Cluster, machine: &'a Cluster, network: &'a NetworkNamespace) -> Machines<'a> {
        let plane = ControlPlane::start_linked(cluster, &network.addresses[0]);
        let command = plane.join_command();
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--node-name", "far"]).collect();
        let node = machine.background_program(network.command(machine, &words));
        node.until_says("ready: ");
        Machines { cluster, machine, network, _plane: plane, _node: node }
    }

    /// Runs the client in the pod `near` of the first machine or the pod `far` of the second one.
    fn ask(&self, from: &str, host: &str, port: u16) -> String {
        match from {
            "near" => ask(self.cluster.command(), self.cluster, from, host, port),
            _ => ask(self.network.command(self.machine, &[]), self.machine, from, host, port),
        }
    }

    /// Runs the servers `near` and `far`, one on each machine. Returns their addresses.
    fn run_servers(&self) -> [String; 2] {
        self.cluster.apply(&server("near", "main"));
        self.cluster.apply(&server("far", "far"));
        self.cluster.ok("wait --for=condition=Ready pod/near pod/far --timeout=60s");
        ["near", "far"].map(|pod| self.address(pod))
    }

    fn address(&self, pod: &str) -> String {
        self.cluster.read(&format!("pod/{pod}"), "{.status.podIP}")
    }
}

/// Runs the client in a pod with this command of its machine.
fn ask(mut kloop: Command, machine: &Cluster, from: &str, host: &str, port: u16) -> String {
    kloop.args(["exec", from, "--", "python3", "-c", CLIENT, host, &port.to_string()]);
    let said = machine.run_program(&mut kloop, "");
    format!("{}{}", said.out, said.err).trim().to_owned()
}

#[test]
fn machines_that_share_a_state_are_linked() {
    let Some(network) = NetworkNamespace::make() else { return };
    let Some(etcd) = Members::start_at(&network.addresses[0]) else { return };
    let [one, two] = [etcd.machine("shop"), etcd.machine("shop")];
    let [here, there] = &network.addresses;
    let first = one.watch_with(&["--node-name=main", "--node-ip", here]);
    first.until_says("ready: node main");
    let words = ["reconcile", "--watch", "--node-name=far", "--node-ip", there];
    let second = two.background_program(network.command(&two, &words));
    second.until_says("standing by; runs the pods of node far");
    one.apply(&server("near", "main"));
    one.apply(&server("far", "far"));
    one.ok("wait --for=condition=Ready pod/near pod/far --timeout=60s");
    let [near, far] = ["near", "far"].map(|pod| one.read(&format!("pod/{pod}"), "{.status.podIP}"));
    let to_far = || ask(one.command(), &one, "near", "far", 80);
    let to_near = || ask(network.command(&two, &[]), &two, "far", "near", 80);
    one.until("the Service leads there", || to_far() == format!("far got 100000 bytes from {near}"));
    one.until("the Service leads back", || to_near() == format!("near got 100000 bytes from {far}"));
    // The link outlives the control plane of a machine.
    first.end("KILL");
    second.until_says("ready: node far");
    assert_eq!(to_near(), format!("near got 100000 bytes from {far}"));
    assert_eq!(second.end("TERM"), 0);
}

#[test]
fn pods_of_linked_machines_reach_each_other() {
    let Some(network) = NetworkNamespace::make() else { return };
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let machines = Machines::start(&cluster, &machine, &network);
    let [near, far] = machines.run_servers();
    let prefix = |address: &str| address.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    assert_eq!(prefix(&near), prefix(&far), "{near} {far}: addresses of one cluster");
    // By address, by the Service's address and by its name; the server sees the client pod's own address.
    let expected = format!("far got 100000 bytes from {near}");
    cluster.until("the link is there", || machines.ask("near", &far, 8080) == expected);
    let service = cluster.read("service/far", "{.spec.clusterIP}");
    cluster.until("the Service leads there", || machines.ask("near", &service, 80) == expected);
    assert_eq!(machines.ask("near", "far", 80), expected);
    // The other way round.
    let expected = format!("near got 100000 bytes from {far}");
    cluster.until("the link back is there", || machines.ask("far", &near, 8080) == expected);
    cluster.until("the Service leads back", || machines.ask("far", "near", 80) == expected);
    // Programs of the machine that are in no pod have no address of one.
    let host = cluster.run_program(cluster.program("python3").args(["-c", CLIENT, &service, "80"]), "");
    assert_eq!(host.out.trim(), "far got 100000 bytes from 127.0.0.1", "{}", host.err);
    // A pod on the network of its machine reaches the pod by its address, too.
    let sleeper = "nodeName: main, hostNetwork: true, terminationGracePeriodSeconds: 1, containers: [{name: main, image: busybox, command: [sleep, '1000']}]";
    cluster.apply(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: host}}, spec: {{{sleeper}}}}}"));
    cluster.ok("wait --for=condition=Ready pod/host --timeout=60s");
    let said = ask(cluster.command(), &cluster, "host", &far, 8080);
    assert_eq!(said, "far got 100000 bytes from 127.0.0.1");
    // Nobody listens there.
    assert!(machines.ask("near", &far, 8081).starts_with("error "));
}

#[test]
fn policies_apply_to_pods_of_linked_machines() {
    let Some(network) = NetworkNamespace::make() else { return };
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let machines = Machines::start(&cluster, &machine, &network);
    let [near, far] = machines.run_servers();
    cluster.until("the link is there", || machines.ask("near", &far, 8080).starts_with("far got"));
    cluster.until("the link back is there", || machines.ask("far", &near, 8080).starts_with("near got"));
    let policy = |name: &str, spec: &str| {
        format!("{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: {name}}}, spec: {spec}}}")
    };
    // No pod may connect to `far`: the client gets EACCES (13). Then pods with a label may.
    cluster.apply(&policy("closed", "{podSelector: {matchLabels: {app: far}}, policyTypes: [Ingress]}"));
    cluster.until("the policy denies", || machines.ask("near", &far, 8080) == "error 13");
    let open =
        "{podSelector: {matchLabels: {app: far}}, ingress: [{from: [{podSelector: {matchLabels: {friend: 'yes'}}}]}]}";
    cluster.apply(&policy("open", open));
    cluster.ok("label pod near friend=yes");
    cluster.until("the policy allows", || machines.ask("near", &far, 8080).starts_with("far got"));
    // A policy of the client is known at its own machine.
    let egress = "{podSelector: {matchLabels: {app: far}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: other}}}]}]}";
    cluster.apply(&policy("leave", egress));
    cluster.until("the client's policy denies", || machines.ask("far", &near, 8080) == "error 13");
    cluster.ok("label pod near app=other --overwrite");
    cluster.until("the client's policy allows", || machines.ask("far", &near, 8080).starts_with("near got"));
}

#[test]
fn broken_link_is_named_and_comes_back() {
    let Some(network) = NetworkNamespace::make() else { return };
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let machines = Machines::start(&cluster, &machine, &network);
    let [_, far] = machines.run_servers();
    cluster.until("the link is there", || machines.ask("near", &far, 8080).starts_with("far got"));
    network.set_link("down");
    let condition = "{.status.conditions[?(@.type==\"NodeLinks\")].status}";
    cluster.until_reads("node/main", condition, "False");
    let why = cluster.kloop("why node/main").out;
    assert!(why.contains("link down, pods there cannot be reached: to node far: "), "{why}");
    // No route to the host (EHOSTUNREACH), at once.
    cluster.until("the client is told", || machines.ask("near", &far, 8080) == "error 113");
    network.set_link("up");
    cluster.until_reads("node/main", condition, "True");
    cluster.until("the link is back", || machines.ask("near", &far, 8080).starts_with("far got"));
    // A machine that hangs answers no ping.
    let gateways = machine.gateways();
    gateways.iter().for_each(|gateway| signal(*gateway, "STOP"));
    cluster.until_reads("node/main", condition, "False");
    gateways.iter().for_each(|gateway| signal(*gateway, "CONT"));
    cluster.until_reads("node/main", condition, "True");
    cluster.until("the link is back", || machines.ask("near", &far, 8080).starts_with("far got"));
}

/// A server and a client of datagrams.
const ECHO: &str = r#"
import socket
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.bind(("", 8080))
while True:
    text, (address, port) = door.recvfrom(1000)
    door.sendto(text + b" from " + address.encode(), (address, port))
"#;
const SENDER: &str = r#"
import socket, sys
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.settimeout(0.5)
try:
    door.sendto(b"hello", (sys.argv[1], int(sys.argv[2])))
    text, (address, port) = door.recvfrom(1000)
    print(text.decode(), "by", address, port)
except OSError as error:
    print("error", error)
"#;

#[test]
fn datagrams_reach_pods_of_linked_machines() {
    let Some(network) = NetworkNamespace::make() else { return };
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let _machines = Machines::start(&cluster, &machine, &network);
    let echo = ECHO.replace('\n', "\n      ");
    cluster.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: echo, labels: {{app: echo}}}}
spec:
  nodeName: far
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: python
    command:
    - python3
    - -c
    - |{echo}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080, protocol: UDP}}]}}
"#
    ));
    cluster.apply(&server("near", "main"));
    cluster.ok("wait --for=condition=Ready pod/near pod/echo --timeout=60s");
    let (near, echo) = (cluster.read("pod/near", "{.status.podIP}"), cluster.read("pod/echo", "{.status.podIP}"));
    let ask =
        |host: &str, port: &str| cluster.run(&["exec", "near", "--", "python3", "-c", SENDER, host, port], "").out;
    let expected = format!("hello from {near} by {echo} 8080\n");
    cluster.until("datagrams come back", || ask(&echo, "8080") == expected);
    let service = cluster.read("service/echo", "{.spec.clusterIP}");
    cluster.until("the Service answers", || ask(&service, "80") == format!("hello from {near} by {service} 80\n"));
}

#[test]
fn address_that_others_do_not_reach_is_refused_and_makes_no_cluster() {
    let cluster = Cluster::new();
    for (address, why) in [
        ("127.0.0.1", "write an address of this machine that other machines reach"),
        // An address for documentation (RFC 5737).
        ("192.0.2.1", "cannot listen on 192.0.2.1 (--node-ip): "),
        ("nowhere", "invalid IP address syntax"),
    ] {
        let said = cluster.run(&["reconcile", "--node-ip", address], "");
        assert!(said.code == 1 && said.err.contains(why), "{address}: {said:?}");
    }
    assert!(!cluster.home().join("state.db").exists());
}
