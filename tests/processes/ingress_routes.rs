//! Access to the pod network from outside of pods: Service addresses, node ports, forwarded ports, and port conflicts.

use super::{fetch, servers, service, web};
use crate::cluster::Cluster;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};

#[test]
fn services_and_forwarded_ports_are_reachable_from_the_machine() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(2).replace("ports: [{port: 80,", "type: LoadBalancer, ports: [{port: 8000,"));
    let servers: BTreeSet<String> = cluster.ready_pods("app=web", 2).into_iter().collect();
    let address = cluster.read("service/web", "{.spec.clusterIP}:{.spec.ports[0].port}");
    let node_port = cluster.read("service/web", "127.0.0.1:{.spec.ports[0].nodePort}");
    let ip = "{.status.loadBalancer.ingress[0].ip}";
    cluster.until("the Service has an external address", || !cluster.read("service/web", ip).is_empty());
    let balancer = format!("{}:8000", cluster.read("service/web", ip));
    for place in [address, node_port, balancer] {
        let seen = RefCell::new(BTreeSet::new());
        cluster.until("both pods have answered", || {
            seen.borrow_mut().extend(fetch(&place).and_then(|said| Some(said.split_once('\n')?.0.to_owned())));
            *seen.borrow() == servers
        });
    }
    cluster.apply(&service("empty", "ports: [{port: 80}]"));
    let empty = format!("{}:80", cluster.read("service/empty", "{.spec.clusterIP}"));
    assert!(TcpStream::connect(empty).is_err(), "the Service has no endpoint");
    let forward = cluster.background(&["port-forward", "deployment/web", ":8080"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    let said = forward.said();
    let place = said.split_whitespace().nth(2).unwrap().to_owned();
    let first = fetch(&place).unwrap().split_once('\n').unwrap().0.to_owned();
    assert!(servers.contains(&first));
    cluster.ok(&format!("delete pod {first}"));
    cluster.until("another pod answers", || fetch(&place).is_some_and(|said| !said.starts_with(&first)));
    assert_eq!(forward.end("TERM"), 256, "ended by the signal itself");
    let pod = cluster.ready_pods("app=web", 2).remove(0);
    let forward = cluster.background(&["port-forward", &format!("pod/{pod}"), ":8080"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    cluster.ok(&format!("delete pod {pod}"));
    assert_eq!(forward.ended(), 1, "{}", forward.said());
    assert!(forward.said().contains("error: lost connection to pod"), "{}", forward.said());
}

/// A server that answers once and exits.
const ONCE: &str = r#"
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nanswer")
    def finish(self):
        super().finish()
        self.connection.close()
        os._exit(3)
http.server.HTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn forwarded_port_outlives_a_crash_loop() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "10s"]);
    let program = serde_json::Value::from(ONCE);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: brief}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: python3, \
         command: [python3, -c, {program}, '8080']}}]}}}}"
    ));
    cluster.until_reads("pod/brief", "{.status.phase}", "Running");
    let forward = cluster.background(&["port-forward", "pod/brief", ":8080"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    let place = forward.said().split_whitespace().nth(2).unwrap().to_owned();
    let port = place.rsplit_once(':').unwrap().1.to_owned();
    let waiting = "{.status.containerStatuses[0].state.waiting.reason}";
    cluster.until("the pod is in back-off", || {
        fetch(&place).is_none() && cluster.read("pod/brief", waiting) == "CrashLoopBackOff"
    });
    forward.until_says(&format!("an error occurred forwarding {port} -> 8080: "));
    forward.until_says("connect: connection refused");
    cluster.until("the pod answers again", || fetch(&place).as_deref() == Some("answer"));
    forward.end("TERM");
}

#[test]
fn port_forward_errors_are_kubectls() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(1));
    cluster.ready_pods("app=web", 1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = cluster.kloop(&format!("port-forward --address 127.0.0.1 service/web {port}:80"));
    let expected = format!(
        "Unable to listen on port {port}: Listeners failed to create with the following errors: [unable to create listener: Error \
         listen tcp4 127.0.0.1:{port}: bind: address already in use]\nerror: unable to listen on any of the requested ports: \
         [{{{port} 8080}}]\n"
    );
    assert_eq!((said.code, said.err), (1, expected));
    // One usable address is enough.
    let forward =
        cluster.background(&["port-forward", "service/web", "--address", "127.0.0.1", &format!("{port}:80"), ":80"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    let said = forward.said();
    let line = said.lines().find(|line| line.starts_with("Forwarding")).unwrap();
    assert!(line.ends_with(" -> 8080"), "{said}");
    assert!(fetch(line.split_whitespace().nth(2).unwrap()).is_some(), "{said}");
    assert_eq!(forward.end("INT"), 0, "Ctrl-C is a success");
}

#[test]
fn port_forward_reads_its_target_like_kubectl() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&(web(1) + &servers("none", 0, "")));
    cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: bare}, spec: {ports: [{port: 80}]}}");
    cluster.apply(&service("none", "ports: [{port: 80}]"));
    cluster.apply(&super::pod("brief", "Never", 1, "exit 0"));
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: late}, spec: {nodeSelector: {no: where}, containers: [{name: main, image: busybox}]}}",
    );
    let pod = cluster.ready_pods("app=web", 1).remove(0);
    cluster.until_reads("pod/brief", "{.status.phase}", "Succeeded");
    let not_running = "unable to forward port because pod is not running. Current status=";
    let table = [
        (
            "service/bare 80",
            "cannot attach to *v1.Service: invalid service 'bare': Service is defined without a selector",
        ),
        ("service/none 80 --pod-running-timeout 1ms", "timed out waiting for the condition"),
        ("deployment/none 80 --pod-running-timeout 1ms", "timed out waiting for the condition"),
        ("configmap/kube-root-ca.crt 80", "cannot attach to *v1.ConfigMap: selector for *v1.ConfigMap not implemented"),
        ("service/web 8080", "Service web does not have a service port 8080"),
        ("service/web abc", "Service 'web' does not have a named port 'abc'"),
        ("deployment/web abc", &format!("Pod '{pod}' does not have a named port 'abc'")),
        ("deployment/web 80 --address here", "here is not a valid IP"),
        ("brief 80", &format!("{not_running}Succeeded")),
        ("late 80", &format!("{not_running}Pending")),
        ("late abc", "Pod 'late' does not have a named port 'abc'"),
    ];
    for (line, expected) in table {
        let said = cluster.kloop(&format!("port-forward {line}"));
        assert_eq!((said.code, said.err), (1, format!("error: {expected}\n")), "{line}");
    }
    // The number is a port of the Service in one case, and of the pod in the other.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    cluster.apply(&web(1).replace("{port: 80,", &format!("{{port: {port},")));
    let said = cluster.kloop(&format!("port-forward --address 127.0.0.1 service/web {port}"));
    assert!(said.err.ends_with(&format!("[{{{port} 8080}}]\n")), "{}", said.err);
}

#[test]
fn deleted_kubernetes_service_is_recreated() {
    let cluster = Cluster::new();
    // Before the cluster exists, reads show the addresses of a new one.
    cluster.ok("create configmap first");
    let _plane = cluster.watch();
    let (uid, ip) = ("{.metadata.uid}", "{.spec.clusterIP}");
    let before = [uid, ip].map(|path| cluster.read("service/kubernetes", path));
    cluster.ok("delete service kubernetes");
    cluster.until("another Service exists", || {
        let now = cluster.run(&["get", "service/kubernetes", "-o", &format!("jsonpath={uid}")], "");
        now.code == 0 && now.out != before[0]
    });
    assert_eq!(cluster.read("service/kubernetes", ip), before[1]);
}

#[test]
fn host_network_pod_conflicts_with_a_node_port() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(1).replace("ports: [{port: 80,", "type: NodePort, ports: [{port: 8000,"));
    let port = cluster.read("service/web", "{.spec.ports[0].nodePort}");
    cluster.until("the server answers", || fetch(&format!("127.0.0.1:{port}")).is_some());
    let script = serde_json::Value::from(format!("import socket; socket.create_server((\"\", {port}))"));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: late}}, spec: {{hostNetwork: true, containers: [{{name: main, image: python3, \
         command: [python3, -c, {script}], ports: [{{containerPort: {port}}}]}}]}}}}"
    ));
    let told = format!("port {port}: it is the node port of service/web");
    let next = format!("use another port than {port} in the program, or give service/web another node port");
    cluster.until("it is explained", || {
        let why = cluster.run(&["why", "pod/late"], "").out;
        why.contains(&told) && why.contains(&next)
    });
}

#[test]
fn host_network_pod_can_use_its_services_port() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let program = serde_json::Value::from(ONCE);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: near, labels: {{app: near}}}}, spec: {{hostNetwork: true, terminationGracePeriodSeconds: 1, \
         containers: [{{name: main, image: python3, command: [python3, -c, {program}, '{port}']}}]}}}}\n---\n{}",
        service("near", &format!("ports: [{{port: {port}}}]"))
    ));
    let place = cluster.read("service/near", &format!("{{.spec.clusterIP}}:{port}"));
    for restarts in 0..3 {
        cluster.until("the server answers", || fetch(&place).as_deref() == Some("answer"));
        cluster.until("the Service's listener is open again", || {
            let count = cluster.read("pod/near", "{.status.containerStatuses[0].restartCount}");
            count.parse::<u32>().is_ok_and(|count| count > restarts)
        });
    }
    assert!(!cluster.log("near", "main").contains("in use"), "{}", cluster.log("near", "main"));
    // An ordinary user may not listen at the port of the Service kubernetes, which is reported.
    let told = cluster.ok("get events --field-selector involvedObject.name=near");
    assert!(!told.contains("PortUnavailable"), "{told}");
}

#[test]
fn port_used_by_the_machine_is_explained() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let script = serde_json::Value::from(format!("import socket; socket.create_server((\"\", {port}))"));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: late}}, spec: {{containers: [{{name: main, image: python3, command: [python3, -c, {script}], \
         ports: [{{containerPort: {port}}}]}}]}}}}"
    ));
    let told = format!("(pid {}) listens there on every address of this machine", std::process::id());
    cluster.until("why explains it", || {
        let why = cluster.run(&["why", "pod/late"], "").out;
        why.contains(&format!("port {port}: ")) && why.contains(&told)
    });
    // The message names the container that uses the port; a pod with one container has no others.
    let twice = serde_json::Value::from("import socket; [socket.create_server(('', 9191)) for _ in range(2)]");
    // This program's message names no port.
    let silent = serde_json::Value::from("import socket, time; time.sleep(1); socket.socket().bind(('', 9191))");
    let once =
        serde_json::Value::from("import socket, time; server = socket.create_server(('', 9191)); time.sleep(1000)");
    let container = |name: &str, script: &serde_json::Value| {
        format!("{{name: {name}, image: python3, command: [python3, -c, {script}]}}")
    };
    for (name, containers) in [
        ("alone", container("main", &twice)),
        ("both", [container("first", &once), container("main", &silent)].join(", ")),
    ] {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{containers}]}}}}"
        ));
    }
    for (name, told) in [
        ("alone", "the program itself may bind it twice"),
        ("both", " of container first of pod default/both listens there at 127."),
    ] {
        cluster.until("why explains it", || cluster.run(&["why", &format!("pod/{name}")], "").out.contains(told));
    }
    // For a pod that does not declare its ports, an event reports the conflict.
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: silent}}, spec: {{containers: [{{name: main, image: python3, command: [python3, -c, {script}]}}]}}}}"
    ));
    let told = format!("A program could not bind port {port}/TCP: ");
    cluster.until("an event reports it", || {
        let said = cluster.ok("describe pod silent");
        // The shim of an ordinary user cannot see which process uses the port; `why` can, as above.
        let is_named = said.contains(&format!("(pid {}) listens there", std::process::id()));
        said.contains(&told) && (is_named || !rustix::process::geteuid().is_root())
    });
}
