//! The gateway: DNS and access from outside continue without a control plane; host ports; datagrams.

use super::{server, service};
use crate::cluster::{Cluster, free_port, signal};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A server with these container ports, and a Service with both protocols.
fn web(name: &str, ports: &str, fields: &str) -> String {
    server(name, &format!("ports: [{ports}], ")) + &service(name, fields)
}

const PORTS: &str = "ports: [{name: http, port: 8000, targetPort: 8080}, {name: udp, port: 5300, protocol: UDP}]";

/// Sends a request on an open connection; returns the response.
fn ask(stream: &TcpStream) -> Option<String> {
    let mut writer = stream;
    writer.write_all(b"GET / HTTP/1.1\r\nHost: any\r\n\r\n").ok()?;
    let mut lines = BufReader::new(stream).lines();
    lines.by_ref().take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).count();
    lines.next()?.ok()
}

fn fetch(place: &str) -> Option<String> {
    ask(&TcpStream::connect(place).ok()?)
}

/// Returns the output of a script in a pod.
fn run(cluster: &Cluster, pod: &str, script: &str) -> String {
    cluster.run(&["exec", pod, "--", "python3", "-c", script], "").out
}

#[test]
fn services_and_names_outlive_the_control_plane() {
    check_services_outlive(&Cluster::new());
}

#[test]
fn gateway_works_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        check_services_outlive(&Cluster::of_user(65_534));
    }
}

fn check_services_outlive(cluster: &Cluster) {
    let plane = cluster.watch();
    cluster.apply(&web("web", "", PORTS));
    cluster.ready_pods("app=web", 1);
    let place = cluster.read("service/web", "{.spec.clusterIP}:8000");
    let answers = |what: &str| cluster.until(what, || fetch(&place).as_deref() == Some("web"));
    let name = "import socket; print(socket.gethostbyname('web.default'))";
    let address = cluster.read("service/web", "{.spec.clusterIP}") + "\n";
    answers("it answers");
    cluster.until("the name resolves", || run(cluster, "web", name) == address);
    let open = TcpStream::connect(&place).unwrap();
    assert_eq!(ask(&open).as_deref(), Some("web"));
    let gateway = cluster.gateways();
    assert_eq!(gateway.len(), 1);
    plane.end("KILL");
    assert_eq!(ask(&open).as_deref(), Some("web"), "the open connection stays");
    assert_eq!(fetch(&place).as_deref(), Some("web"), "without a control plane");
    assert_eq!(run(cluster, "web", name), address, "the name resolves without a control plane");
    // Services that are deleted meanwhile are removed by the next control plane, which takes over the gateway.
    cluster.apply(&web("other", "", &PORTS.replace("8000", "8001")));
    cluster.ok("delete service web");
    let plane = cluster.watch();
    let other = cluster.read("service/other", "{.spec.clusterIP}:8001");
    cluster.until("the other server answers", || fetch(&other).as_deref() == Some("other"));
    cluster.until("the port is closed", || TcpStream::connect(&place).is_err());
    assert_eq!(cluster.gateways(), gateway, "the gateway was taken over");
    assert_eq!(ask(&open).as_deref(), Some("web"), "the open connection stays");
    // A gateway that dies is replaced.
    std::process::Command::new("kill").args(["-9", &gateway[0].to_string()]).status().unwrap();
    cluster.until("a new gateway answers", || fetch(&other).as_deref() == Some("other"));
    cluster.until("the new gateway resolves names", || {
        run(cluster, "web", "import socket; print(socket.gethostbyname('other'))").len() > 1
    });
    cluster.ok("delete pod,service --all");
    cluster.nothing_is_left();
    assert_eq!(cluster.gateways().len(), 1, "the gateway stays while there is a leader");
    plane.end("TERM");
    cluster.until("the gateway has ended", || cluster.gateways().is_empty());
}

#[test]
fn host_ports_lead_to_pods() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let port = free_port();
    let said = cluster.apply(&web("web", &format!("{{containerPort: 8080, hostPort: {port}}}"), PORTS));
    assert!(!said.contains("Warning"), "{said}");
    let place = format!("127.0.0.1:{port}");
    cluster.until("the server answers", || fetch(&place).as_deref() == Some("web"));
    // The scheduler assigns a host port once; a port that another program uses is reported.
    cluster.apply(&web("late", &format!("{{containerPort: 8080, hostPort: {port}}}"), PORTS));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = taken.local_addr().unwrap();
    cluster.apply(&web("other", &format!("{{containerPort: 8080, hostPort: {}}}", there.port()), PORTS));
    let told = format!("hostPort {there}/TCP does not lead to the pod: address already in use: ");
    cluster.until("the port is reported", || cluster.ok("describe pod other").contains(&told));
    cluster.until("the pod is unschedulable", || {
        let why = cluster.run(&["why", "pod/late"], "").out;
        why.contains("didn't have free ports for the requested pod ports")
    });
    drop(taken);
    cluster.until("the server answers once the port is free", || fetch(&there.to_string()).as_deref() == Some("other"));
    cluster.ok("delete pod web other late");
    cluster.until("the port is closed", || TcpStream::connect(&place).is_err());
}

#[test]
fn used_node_port_is_reported() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let (port, taken) =
        (31_000..32_000).find_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?))).unwrap();
    let ports = format!("type: NodePort, ports: [{{port: 8000, targetPort: 8080, nodePort: {port}}}]");
    cluster.apply(&web("web", "", &ports));
    let told = format!("cannot listen at 127.0.0.1:{port}/TCP for programs outside of pods: address already in use: ");
    let holder =
        format!("(pid {}) listens there. Pods in the pod network still reach the Service. ", std::process::id());
    cluster.until("an event reports it", || cluster.ok("describe service web").contains(&told));
    let why = || cluster.run(&["why", "service/web"], "").out;
    assert!(why().contains(&told) && why().contains(&holder), "{}", why());
    let everything = cluster.kloop("why");
    assert!(everything.out.contains(&format!("warning    service/web: {told}")), "{everything:?}");
    // A Service without endpoints for a while changes nothing.
    cluster.ok("delete pod web");
    cluster.until("the Service has no endpoint", || cluster.read("endpoints/web", "{.subsets}").is_empty());
    cluster.apply(&web("web", "", &ports));
    cluster.ready_pods("app=web", 1);
    drop(taken);
    let place = format!("127.0.0.1:{port}");
    cluster.until("the server answers once the port is free", || fetch(&place).as_deref() == Some("web"));
    cluster.until("the warning is gone", || !why().contains("does not reach it"));
    assert_eq!(cluster.ok("why"), "everything in namespace default has converged\n");
    for reason in ["PortUnavailable", "PortAvailable"] {
        // An ordinary user may not listen at the port of the Service kubernetes, which is reported, too.
        let of_web = format!("reason={reason},involvedObject.name=web");
        let counts = cluster.ok(&format!("get events --field-selector {of_web} -o jsonpath={{.items[*].count}}"));
        assert_eq!(counts, "1", "{reason} is reported once");
    }
}

#[test]
fn port_freed_without_a_gateway_is_reported() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let (port, taken) =
        (30_000..31_000).find_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?))).unwrap();
    let ports = format!("type: NodePort, ports: [{{port: 8000, targetPort: 8080, nodePort: {port}}}]");
    cluster.apply(&web("web", "", &ports));
    let told = || cluster.ok("describe service web");
    cluster.until("an event reports it", || told().contains("PortUnavailable"));
    signal(plane.pid(), "STOP");
    cluster.gateways().into_iter().for_each(|pid| signal(pid, "KILL"));
    drop(taken);
    signal(plane.pid(), "CONT");
    cluster.until("an event reports the recovery", || told().contains("PortAvailable"));
    let place = format!("127.0.0.1:{port}");
    cluster.until("the server answers", || fetch(&place).as_deref() == Some("web"));
}

/// Returns the reply of the server to a datagram.
fn send(place: &str) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    socket.connect(place).ok()?;
    socket.send(b"hello").ok()?;
    let mut bytes = [0; 100];
    let length = socket.recv(&mut bytes).ok()?;
    Some(bytes[..length].to_vec())
}

#[test]
fn node_port_answers_while_the_service_port_changes() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web", "", &format!("type: NodePort, {PORTS}")));
    cluster.ready_pods("app=web", 1);
    let node_ports = cluster.read("service/web", "{.spec.ports[*].nodePort}");
    let [tcp, udp] = [0, 1].map(|at| format!("127.0.0.1:{}", node_ports.split(' ').nth(at).unwrap()));
    cluster.until("the server answers", || fetch(&tcp).as_deref() == Some("web"));
    let is_over = AtomicBool::new(false);
    let keep = |ask: &dyn Fn() -> bool| {
        let answers = std::iter::from_fn(|| (!is_over.load(Ordering::Relaxed)).then(ask));
        answers.fold((0, 0), |(good, bad), is_good| (good + u32::from(is_good), bad + u32::from(!is_good)))
    };
    let change = |at: usize, port: u16| {
        let patch = format!(r#"[{{"op": "replace", "path": "/spec/ports/{at}/port", "value": {port}}}]"#);
        let said = cluster.run(&["patch", "service", "web", "--type=json", "-p", &patch], "");
        assert_eq!(said.code, 0, "{}", said.err);
    };
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| keep(&|| fetch(&tcp).as_deref() == Some("web")));
        let datagrams = scope.spawn(|| keep(&|| send(&udp).as_deref() == Some(b"HELLO 127.0.0.1")));
        let ip = cluster.read("service/web", "{.spec.clusterIP}");
        for port in [8001, 8002, 8003] {
            change(0, port);
            change(1, port - 2000);
            cluster.until("the server answers at the new port", || {
                fetch(&format!("{ip}:{port}")).as_deref() == Some("web")
            });
        }
        is_over.store(true, Ordering::Relaxed);
        for (what, asked) in [("requests", streams), ("datagrams", datagrams)] {
            let (good, bad) = asked.join().unwrap();
            assert!(good > 0 && bad == 0, "{bad} {what} failed, {good} did not");
        }
    });
    // Another Service may have the port as soon as this one is deleted.
    cluster.ok("delete service web");
    let ports = format!(
        "type: NodePort, ports: [{{port: 8000, targetPort: 8080, nodePort: {}}}]",
        tcp.split_once(':').unwrap().1
    );
    cluster.apply(&service("web", &ports).replace("{name: web}", "{name: another}"));
    cluster.until("the other server answers", || fetch(&tcp).as_deref() == Some("web"));
    for service in ["web", "another"] {
        let events = cluster.ok(&format!("get events --field-selector involvedObject.name={service}"));
        assert!(!events.contains("Unavailable"), "{events}");
    }
    let why = cluster.run(&["why", "service/another"], "");
    assert!(why.code == 0 && !why.out.contains("does not reach it"), "{}", why.out);
}

#[test]
fn datagrams_are_answered_from_the_queried_address() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web", "", &format!("type: NodePort, {PORTS}")));
    cluster.apply(&web("client", "", PORTS));
    cluster.ready_pods("app=web", 1);
    cluster.ready_pods("app=client", 1);
    let node_port = cluster.read("service/web", "127.0.0.1:{.spec.ports[1].nodePort}");
    let place = cluster.read("service/web", "{.spec.clusterIP}:5300");
    for place in [&place, &node_port] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.connect(place).unwrap();
        let mut bytes = [0; 100];
        cluster.until("the server answers the machine", || {
            let length = socket.send(b"hello").and_then(|_| socket.recv(&mut bytes.clone()));
            length.is_ok()
        });
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.send(b"hello").unwrap();
        let length = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"HELLO 127.0.0.1");
    }
    let (ip, port) = place.split_once(':').unwrap();
    let script = format!(
        "import socket\nfor connected in [False, True]:\n    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    client.settimeout(60)\n    \
         if connected: client.connect(('{ip}', {port})); client.send(b'hello')\n    else: client.sendto(b'hello', ('{ip}', {port}))\n    \
         said, server = client.recvfrom(100)\n    print(said.decode(), *server)"
    );
    let own = cluster.read("pod/client", "{.status.podIP}");
    assert_eq!(run(&cluster, "client", &script), format!("HELLO {own} {ip} {port}\n").repeat(2));
}

#[test]
fn client_that_checks_the_source_is_answered_by_the_service_address() {
    // Port 53 requires root, and so do the files that name the resolver at that port.
    if !rustix::process::geteuid().is_root() {
        return skip!("only root may listen at port 53");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web", "", PORTS));
    cluster.ready_pods("app=web", 1);
    // A query like that of Alpine's C library, which accepts replies only from the queried server.
    let script = r#"
import socket
config = dict(line.split(" ", 1) for line in open("/etc/resolv.conf").read().splitlines())
name = ["web"] + config["search"].split()[0].split(".")
question = b"\1\2\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(label)]) + label.encode() for label in name) + b"\0\0\1\0\1"
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(60)
client.sendto(question, (config["nameserver"], 53))
said, server = client.recvfrom(1000)
print(server == (config["nameserver"], 53), socket.inet_ntoa(said[-4:]))
"#;
    let asker = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "asker", "annotations": {"kloop.dev/filesystem": "private"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "python3", "command": ["python3", "-c", script]}]}});
    cluster.apply(&asker.to_string());
    cluster.until_reads("pod/asker", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.log("asker", "main"), format!("True {}\n", cluster.read("service/web", "{.spec.clusterIP}")));
}

#[test]
fn gateway_of_another_build_is_replaced() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&web("web", "", PORTS));
    let place = cluster.read("service/web", "{.spec.clusterIP}:8000");
    cluster.until("the server answers", || fetch(&place).as_deref() == Some("web"));
    let (gateway, shim) = (cluster.gateways(), cluster.pid("web"));
    plane.end("KILL");
    // A copy of the program is another build.
    let other = cluster.home().join("kloop");
    // Copied by another program: a child that a parallel test forks while this one writes would keep the file busy.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_kloop")).arg(&other).status().unwrap();
    assert!(copied.success(), "the program is copied");
    let mut next = cluster.program(other.to_str().unwrap());
    next.args(["reconcile", "--watch"]);
    let _plane = cluster.background_program(next);
    cluster
        .until("the new build has started a gateway", || cluster.gateways().iter().any(|pid| !gateway.contains(pid)));
    cluster.until("the old gateway has ended", || cluster.gateways().len() == 1);
    cluster.until("the server answers again", || fetch(&place).as_deref() == Some("web"));
    // The pod's own hosts file only has `web`.
    let name = "import socket; print(socket.gethostbyname('web.default'))";
    cluster.until("the new gateway resolves names", || {
        run(&cluster, "web", name).trim() == place.split_once(':').unwrap().0
    });
    assert_eq!(cluster.pid("web"), shim, "the pod still runs");
}

#[test]
fn clusters_have_separate_addresses_and_conflicts_are_reported() {
    let (one, other) = (Cluster::new(), Cluster::new());
    let _plane = one.watch();
    one.apply(&web("web", "", PORTS));
    let place = one.read("service/web", "{.spec.clusterIP}:8000");
    one.until("the server answers", || fetch(&place).as_deref() == Some("web"));
    other.ok("create configmap first");
    let of = |cluster: &Cluster| {
        let store = rusqlite::Connection::open(cluster.home().join("state.db")).unwrap();
        store.query_row("SELECT value FROM meta WHERE name = 'network'", [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_ne!(of(&one), of(&other));
    // Two clusters that were created while neither ran may have the same addresses.
    let same = Cluster::new();
    same.ok("create configmap first");
    let store = rusqlite::Connection::open(same.home().join("state.db")).unwrap();
    store.execute("UPDATE meta SET value = ?1 WHERE name = 'network'", [of(&one)]).unwrap();
    drop(store);
    let plane = same.watch();
    plane.until_says(&format!(
        "addresses 127.{}.0.0/16: another cluster that runs on this machine has them as well",
        of(&one)
    ));
    assert_eq!(fetch(&place).as_deref(), Some("web"), "the first cluster still works");
}

#[test]
fn node_ports_open_to_the_network_on_request() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|address| address.ip());
    let Some(address) = address.ok().filter(|address| !address.is_loopback()) else {
        return skip!("this machine has no address but localhost");
    };
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&web("web", "", &format!("type: NodePort, {PORTS}")));
    let port = cluster.read("service/web", "{.spec.ports[0].nodePort}");
    let (here, there) = (format!("127.0.0.1:{port}"), format!("{address}:{port}"));
    cluster.until("the server answers on localhost", || fetch(&here).as_deref() == Some("web"));
    assert_eq!(fetch(&there), None, "only on localhost");
    plane.end("TERM");
    let said = cluster.kloop("reconcile --nodeport-addresses everywhere");
    assert!(said.err.contains("write a block of IPv4 addresses"), "{}", said.err);
    let _plane = cluster.watch_with(&["--nodeport-addresses", &format!("{address}/32")]);
    cluster.until("the server answers at the other address too", || fetch(&there).as_deref() == Some("web"));
    assert_eq!(fetch(&here).as_deref(), Some("web"));
}
