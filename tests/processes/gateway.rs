//! The gateway: names and the ways in from outside go on while no control plane runs; ports of the machine; datagrams.

use super::{server, service};
use crate::cluster::{Cluster, signal};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A server, with these ports of its container, and a Service of both protocols in front of it.
fn web(name: &str, ports: &str, fields: &str) -> String {
    server(name, &format!("ports: [{ports}], ")) + &service(name, fields)
}

const PORTS: &str = "ports: [{name: http, port: 8000, targetPort: 8080}, {name: udp, port: 5300, protocol: UDP}]";

/// The answer of the server on a connection.
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

/// The output of a script in a pod.
fn run(cluster: &Cluster, pod: &str, script: &str) -> String {
    cluster.run(&["exec", pod, "--", "python3", "-c", script], "").out
}

#[test]
fn services_and_names_outlive_the_control_plane() {
    outlive(&Cluster::new());
}

#[test]
fn for_an_ordinary_user_as_well() {
    // An ordinary user has tried this in the test before.
    if rustix::process::geteuid().is_root() {
        outlive(&Cluster::of_user(65_534));
    }
}

fn outlive(cluster: &Cluster) {
    let plane = cluster.watch();
    cluster.apply(&web("web", "", PORTS));
    cluster.ready_pods("app=web", 1);
    let place = cluster.read("service/web", "{.spec.clusterIP}:8000");
    let answers = |what: &str| cluster.until(what, || fetch(&place).as_deref() == Some("web"));
    let name = "import socket; print(socket.gethostbyname('web.default'))";
    let address = cluster.read("service/web", "{.spec.clusterIP}") + "\n";
    answers("it answers");
    cluster.until("its name is known", || run(cluster, "web", name) == address);
    let open = TcpStream::connect(&place).unwrap();
    assert_eq!(ask(&open).as_deref(), Some("web"));
    let gateway = cluster.gateways();
    assert_eq!(gateway.len(), 1);
    plane.end("KILL");
    assert_eq!(ask(&open).as_deref(), Some("web"), "what is connected stays connected");
    assert_eq!(fetch(&place).as_deref(), Some("web"), "without a control plane");
    assert_eq!(run(cluster, "web", name), address, "its name is known without a control plane");
    // Services that are deleted meanwhile are gone with the next control plane, which takes the gateway over.
    cluster.apply(&web("other", "", &PORTS.replace("8000", "8001")));
    cluster.ok("delete service web");
    let plane = cluster.watch();
    let other = cluster.read("service/other", "{.spec.clusterIP}:8001");
    cluster.until("the other one answers", || fetch(&other).as_deref() == Some("other"));
    cluster.until("nobody listens any more", || TcpStream::connect(&place).is_err());
    assert_eq!(cluster.gateways(), gateway, "taken over");
    assert_eq!(ask(&open).as_deref(), Some("web"), "what is connected still is");
    // A gateway that dies is replaced.
    std::process::Command::new("kill").args(["-9", &gateway[0].to_string()]).status().unwrap();
    cluster.until("a new one answers", || fetch(&other).as_deref() == Some("other"));
    cluster.until("and knows names", || {
        run(cluster, "web", "import socket; print(socket.gethostbyname('other'))").len() > 1
    });
    cluster.ok("delete pod,service --all");
    cluster.nothing_is_left();
    assert_eq!(cluster.gateways().len(), 1, "it stays while somebody leads");
    plane.end("TERM");
    cluster.until("nothing is left to stay for", || cluster.gateways().is_empty());
}

/// A port that nobody has at this moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn ports_of_the_machine_lead_to_pods() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let port = free_port();
    let said = cluster.apply(&web("web", &format!("{{containerPort: 8080, hostPort: {port}}}"), PORTS));
    assert!(!said.contains("Warning"), "{said}");
    let place = format!("127.0.0.1:{port}");
    cluster.until("it answers", || fetch(&place).as_deref() == Some("web"));
    // The scheduler gives a port of the machine away once; and one that another program has is told.
    cluster.apply(&web("late", &format!("{{containerPort: 8080, hostPort: {port}}}"), PORTS));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = taken.local_addr().unwrap();
    cluster.apply(&web("other", &format!("{{containerPort: 8080, hostPort: {}}}", there.port()), PORTS));
    let told = format!("hostPort {there}/TCP does not lead to the pod: address already in use: ");
    cluster.until("it is told", || cluster.ok("describe pod other").contains(&told));
    cluster.until("it is refused", || {
        let why = cluster.run(&["why", "pod/late"], "").out;
        why.contains("didn't have free ports for the requested pod ports")
    });
    drop(taken);
    cluster.until("it answers once the port is free", || fetch(&there.to_string()).as_deref() == Some("other"));
    cluster.ok("delete pod web other late");
    cluster.until("nobody listens any more", || TcpStream::connect(&place).is_err());
}

#[test]
fn a_node_port_that_is_taken_is_told() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let (port, taken) =
        (31_000..32_000).find_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?))).unwrap();
    let ports = format!("type: NodePort, ports: [{{port: 8000, targetPort: 8080, nodePort: {port}}}]");
    cluster.apply(&web("web", "", &ports));
    let told = format!("the rest of the machine does not reach it at 127.0.0.1:{port}/TCP: address already in use: ");
    let holder = format!("(pid {}) listens there; pods with the pod network do", std::process::id());
    cluster.until("an event tells", || cluster.ok("describe service web").contains(&told));
    let why = || cluster.run(&["why", "service/web"], "").out;
    assert!(why().contains(&told) && why().contains(&holder), "{}", why());
    // That nobody is behind it for a while changes nothing.
    cluster.ok("delete pod web");
    cluster.until("nobody is behind it", || cluster.read("endpoints/web", "{.subsets}").is_empty());
    cluster.apply(&web("web", "", &ports));
    cluster.ready_pods("app=web", 1);
    drop(taken);
    let place = format!("127.0.0.1:{port}");
    cluster.until("it answers once the port is free", || fetch(&place).as_deref() == Some("web"));
    cluster.until("nobody says otherwise any more", || !why().contains("does not reach it"));
    for reason in ["PortUnavailable", "PortAvailable"] {
        let counts =
            cluster.ok(&format!("get events --field-selector reason={reason} -o jsonpath={{.items[*].count}}"));
        assert_eq!(counts, "1", "{reason} is told once");
    }
}

#[test]
fn a_port_that_was_freed_while_no_gateway_lived_is_told() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let (port, taken) =
        (30_000..31_000).find_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?))).unwrap();
    let ports = format!("type: NodePort, ports: [{{port: 8000, targetPort: 8080, nodePort: {port}}}]");
    cluster.apply(&web("web", "", &ports));
    let told = || cluster.ok("describe service web");
    cluster.until("an event tells", || told().contains("PortUnavailable"));
    signal(plane.pid(), "STOP");
    cluster.gateways().into_iter().for_each(|pid| signal(pid, "KILL"));
    drop(taken);
    signal(plane.pid(), "CONT");
    cluster.until("the end of it is told", || told().contains("PortAvailable"));
    let place = format!("127.0.0.1:{port}");
    cluster.until("it answers", || fetch(&place).as_deref() == Some("web"));
}

/// The answer of the server to a datagram.
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
fn a_node_port_answers_while_the_port_of_its_service_changes() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web", "", &format!("type: NodePort, {PORTS}")));
    cluster.ready_pods("app=web", 1);
    let node_ports = cluster.read("service/web", "{.spec.ports[*].nodePort}");
    let [tcp, udp] = [0, 1].map(|at| format!("127.0.0.1:{}", node_ports.split(' ').nth(at).unwrap()));
    cluster.until("it answers", || fetch(&tcp).as_deref() == Some("web"));
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
            cluster.until("it answers at the new port", || fetch(&format!("{ip}:{port}")).as_deref() == Some("web"));
        }
        is_over.store(true, Ordering::Relaxed);
        for (what, asked) in [("requests", streams), ("datagrams", datagrams)] {
            let (good, bad) = asked.join().unwrap();
            assert!(good > 0 && bad == 0, "{bad} {what} failed, {good} did not");
        }
    });
    // Another Service may have it as soon as this one is gone.
    cluster.ok("delete service web");
    let ports = format!(
        "type: NodePort, ports: [{{port: 8000, targetPort: 8080, nodePort: {}}}]",
        tcp.split_once(':').unwrap().1
    );
    cluster.apply(&service("web", &ports).replace("{name: web}", "{name: another}"));
    cluster.until("the other one answers", || fetch(&tcp).as_deref() == Some("web"));
    let events = cluster.ok("get events");
    assert!(!events.contains("Unavailable"), "{events}");
    let why = cluster.run(&["why", "service/another"], "");
    assert!(why.code == 0 && !why.out.contains("does not reach it"), "{}", why.out);
}

#[test]
fn datagrams_come_in_and_answers_leave_from_where_was_asked() {
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
        cluster.until("it answers the machine", || {
            let length = socket.send(b"hello").and_then(|_| socket.recv(&mut bytes.clone()));
            length.is_ok()
        });
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
    // Port 53 is for root, and so are the files that name the resolver there.
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root may listen at port 53");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web", "", PORTS));
    cluster.ready_pods("app=web", 1);
    // A question as the C library of Alpine asks it, which believes only the server that it asked.
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
fn a_gateway_of_another_build_is_replaced() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&web("web", "", PORTS));
    let place = cluster.read("service/web", "{.spec.clusterIP}:8000");
    cluster.until("it answers", || fetch(&place).as_deref() == Some("web"));
    let (gateway, shim) = (cluster.gateways(), cluster.pid("web"));
    plane.end("KILL");
    // The same program in another file is another build.
    let other = cluster.home().join("kloop");
    std::fs::copy(env!("CARGO_BIN_EXE_kloop"), &other).unwrap();
    let mut next = cluster.program(other.to_str().unwrap());
    next.args(["reconcile", "--watch"]);
    let _plane = cluster.background_program(next);
    cluster.until("it has a gateway of its own", || cluster.gateways().iter().any(|pid| !gateway.contains(pid)));
    cluster.until("the other one is gone", || cluster.gateways().len() == 1);
    cluster.until("it answers again", || fetch(&place).as_deref() == Some("web"));
    // The pod's own hosts file knows `web` alone.
    let name = "import socket; print(socket.gethostbyname('web.default'))";
    cluster.until("and knows names", || run(&cluster, "web", name).trim() == place.split_once(':').unwrap().0);
    assert_eq!(cluster.pid("web"), shim, "the pod goes on");
}

#[test]
fn clusters_have_addresses_of_their_own_and_it_is_told_where_they_do_not() {
    let (one, other) = (Cluster::new(), Cluster::new());
    let _plane = one.watch();
    one.apply(&web("web", "", PORTS));
    let place = one.read("service/web", "{.spec.clusterIP}:8000");
    one.until("it answers", || fetch(&place).as_deref() == Some("web"));
    other.ok("create configmap first");
    let of = |cluster: &Cluster| {
        let store = rusqlite::Connection::open(cluster.home().join("state.db")).unwrap();
        store.query_row("SELECT value FROM meta WHERE name = 'network'", [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_ne!(of(&one), of(&other));
    // Two that were made while neither ran may have the same.
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
    assert_eq!(fetch(&place).as_deref(), Some("web"), "the first one is not disturbed");
}

#[test]
fn node_ports_are_opened_to_the_network_where_that_is_asked_for() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|address| address.ip());
    let Some(address) = address.ok().filter(|address| !address.is_loopback()) else {
        return eprintln!("skipped: this machine has no address but localhost");
    };
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&web("web", "", &format!("type: NodePort, {PORTS}")));
    let port = cluster.read("service/web", "{.spec.ports[0].nodePort}");
    let (here, there) = (format!("127.0.0.1:{port}"), format!("{address}:{port}"));
    cluster.until("it answers here", || fetch(&here).as_deref() == Some("web"));
    assert_eq!(fetch(&there), None, "and nowhere else");
    plane.end("TERM");
    let said = cluster.kloop("reconcile --nodeport-addresses everywhere");
    assert!(said.err.contains("write a block of IPv4 addresses"), "{}", said.err);
    let _plane = cluster.watch_with(&["--nodeport-addresses", &format!("{address}/32")]);
    cluster.until("it answers there too", || fetch(&there).as_deref() == Some("web"));
    assert_eq!(fetch(&here).as_deref(), Some("web"));
}
